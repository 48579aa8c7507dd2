// Structures of programs that call the functions that come with the runtime (`rpc::provided`). Of these, and of the constants of
// `kernel::calls::service_numbers`, those that a program mentions are appended to it.

struct FileHandle { status: u32, file: u32 }
struct FileReply { status: u32, bytes: u32 }
struct FileMetadata { status: u32, kind: u32, bytes: vec2<u32>, modified: vec2<u32> }
struct FilePlace { status: u32, position: vec2<u32> }
struct FileBlock { status: u32, bytes: u32, words: array<u32, $block_words$> }
struct TextReply { status: u32, text: u32 }
// The values of a format string, each behind a word for its type; see `kernel::calls::printed`.
struct PrintValues { words: array<u32, 64> }
