// What programs need that call the functions that come with the runtime (`rpc::provided`). Of these, those that a
// program mentions are appended to it.

// How a function of the host fared; see `FileStatus`.
const FILE_OK = 1u;
const FILE_UNKNOWN_HANDLE = 2u;
const FILE_UNKNOWN_TEXT = 3u;
const FILE_BAD_NAME = 4u;
const FILE_NOT_FOUND = 5u;
const FILE_EXISTS = 6u;
const FILE_OUTSIDE = 7u;
const FILE_NOT_GRANTED = 8u;
const FILE_DENIED = 9u;
const FILE_NOT_A_FILE = 10u;
const FILE_TOO_MANY = 11u;
const FILE_BAD_MODE = 12u;
const FILE_BAD_LENGTH = 13u;
const FILE_BAD_POINTER = 14u;
const FILE_NO_POINTERS = 15u;
const FILE_NOT_SEEKABLE = 16u;
const FILE_BAD_POSITION = 17u;
const FILE_FULL = 18u;
const FILE_FAILED = 19u;
const FILE_NOT_EMPTY = 20u;
const FILE_NOT_A_FOLDER = 21u;
const FILE_OTHER_SYSTEM = 22u;
const FILE_BAD_FORMAT = 23u;

// How a file is opened; to be added up.
const FILE_READ = 1u;
const FILE_WRITE = 2u;
const FILE_APPEND = 4u;
const FILE_CREATE = 8u;
const FILE_TRUNCATE = 16u;
const FILE_NEW = 32u;

// What `file_metadata` finds.
const FILE_IS_FILE = 1u;
const FILE_IS_FOLDER = 2u;
const FILE_IS_OTHER = 3u;

// Where `file_seek` counts from.
const FILE_START = 0u;
const FILE_CURRENT = 1u;
const FILE_END = 2u;

// The handles of standard streams.
const FILE_STDIN = 0u;
const FILE_STDOUT = 1u;
const FILE_STDERR = 2u;

// How `free` fared; see `FreeStatus`.
const FREE_DONE = 1u;
const FREE_UNKNOWN = 2u;
const FREE_INTERIOR = 3u;

// Bytes of a block.
const FILE_BLOCK_BYTES = 256u;

struct FileHandle { status: u32, file: u32 }
struct FileReply { status: u32, bytes: u32 }
struct FileMetadata { status: u32, kind: u32, bytes: vec2<u32>, modified: vec2<u32> }
struct FilePlace { status: u32, position: vec2<u32> }
struct FileBlock { status: u32, bytes: u32, words: array<u32, 64> }
struct TextReply { status: u32, text: u32 }
// The values of a format string, each behind a word for its type; see `kernel::calls::printed`.
struct PrintValues { words: array<u32, 64> }
