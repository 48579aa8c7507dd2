//! Calls of the provided services as kernels make them, from the host.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::open_file::{APPEND, CREATE, NEW, READ, TRUNCATE, WRITE};
use super::*;
use crate::memory::{HeapSize, Ptr, SharedHeap};
use crate::rpc::{HostServices, Loopback, ServiceError};

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// What a test has: a folder, a heap, and services for both.
pub(super) struct Bench {
    pub folder: TempDir,
    pub heap: SharedHeap,
    pub services: HostServices,
    pub client: Loopback,
}

impl Bench {
    pub fn new(mode: RootMode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let access = FileAccess::new().root("", folder.path(), mode).unwrap();
        Self::with(folder, access.open_files(8))
    }

    pub fn with(folder: TempDir, access: FileAccess) -> Self {
        let heap = SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap();
        let services = HostServices::builder()
            .files(access)
            .memory(&heap, 1 << 20)
            .arguments(["program", "first", "ü"])
            .clock()
            .random()
            .exit()
            .start()
            .unwrap();
        let client = services.loopback().unwrap();
        Self {
            folder,
            heap,
            services,
            client,
        }
    }

    pub fn call(&mut self, name: &str, arguments: &[u32]) -> Vec<u32> {
        self.client.call(name, arguments, MINUTE).unwrap()
    }

    pub fn open(&mut self, name: &str, mode: u32) -> Result<u32, FileStatus> {
        let reply = self.call("file_open", &[HostServices::text(name), mode]);
        match FileStatus::from_code(reply[0]).unwrap() {
            FileStatus::Ok => Ok(reply[1]),
            status => {
                assert_eq!(reply[1], 0);
                Err(status)
            }
        }
    }

    /// A call with a pointer and a length.
    pub fn moves<T>(
        &mut self,
        name: &str,
        file: u32,
        at: Option<u64>,
        p: Ptr<T>,
        bytes: u32,
    ) -> (FileStatus, u32) {
        let mut arguments = vec![file];
        arguments.extend(at.map(narrow).into_iter().flatten());
        arguments.extend(narrow(p.address()));
        arguments.push(bytes);
        let reply = self.call(name, &arguments);
        (FileStatus::from_code(reply[0]).unwrap(), reply[1])
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut x = 12345u32;
    let next = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(256, 0);
    bytes
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn numbers_are_those_of_the_prelude() {
    let text = &crate::kernel::calls::prelude::TEXT;
    let constants: HashMap<&str, u32> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("const ")?
                .strip_suffix("u;")?
                .split_once(" = ")
        })
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    let mut expected: Vec<(&str, u32)> = [FileStatus::NAMES, FreeStatus::NAMES].concat();
    for &(_, code) in FileStatus::NAMES {
        assert_eq!(FileStatus::from_code(code).unwrap().code(), code);
    }
    assert_eq!(FileStatus::from_code(0), None);
    expected.extend([
        ("FILE_READ", READ),
        ("FILE_WRITE", WRITE),
        ("FILE_APPEND", APPEND),
        ("FILE_CREATE", CREATE),
        ("FILE_TRUNCATE", TRUNCATE),
        ("FILE_NEW", NEW),
        ("FILE_BLOCK_BYTES", files::BLOCK as u32),
        ("FILE_IS_FILE", 1),
        ("FILE_IS_FOLDER", 2),
        ("FILE_IS_OTHER", 3),
        ("FILE_START", 0),
        ("FILE_CURRENT", 1),
        ("FILE_END", 2),
        ("FILE_STDIN", 0),
        ("FILE_STDOUT", 1),
        ("FILE_STDERR", 2),
    ]);
    for (name, code) in &expected {
        assert_eq!(constants.get(name), Some(code), "{name}");
    }
    assert_eq!(constants.len(), expected.len());
}

#[test]
fn every_function_can_be_called() {
    let b = Bench::new(RootMode::ReadOnly);
    let mut calls = String::new();
    for call in b.services.shared.calls.0.iter() {
        let signature = &call.signature;
        let arguments: Vec<String> = (signature.parameters.iter())
            .map(|(name, ty)| match name.as_str() {
                "format" => "\"{}\"".to_owned(),
                "values" => "1u".to_owned(),
                _ => format!("{}()", ty.replace("usm_ptr", "vec2<u32>")),
            })
            .collect();
        let name = &signature.name;
        calls += &format!("_ = {name}_try({});\n", arguments.join(", "));
    }
    let source = format!("@compute @workgroup_size(1) fn main() {{ {calls} }}");
    crate::Program::builder()
        .source("all.wgsl", source)
        .services(&b.services)
        .build()
        .unwrap();
}

#[test]
fn files_are_read_by_blocks_by_pointers_and_by_cursor() {
    let mut b = Bench::new(RootMode::ReadOnly);
    let content = noise(200_001);
    fs::write(b.path("data.bin"), &content).unwrap();
    let file = b.open("data.bin", READ).unwrap();
    assert_eq!(b.call("file_size", &[file])[..], [1, 0, 200_001, 0]);
    for at in [0usize, 1, 255, 199_900, 200_001, 300_000] {
        let block = b.call("file_read_block", &[file, at as u32, 0]);
        let expected = content.get(at..).unwrap_or_default();
        let expected = &expected[..expected.len().min(256)];
        assert_eq!(block[..2], [1, expected.len() as u32]);
        assert_eq!(block[2..], words(expected));
    }
    let room = b.heap.alloc_slice(&vec![0xEEu8; 200_100]).unwrap();
    for (at, bytes) in [
        (0u64, 200_001u32),
        (3, 200_099),
        (199_999, 64),
        (7, 65_536),
        (7, 65_537),
        (5, 0),
    ] {
        b.heap.write(room, &vec![0xEE; 200_100]).unwrap();
        let expected = &content[at as usize..(at as usize + bytes as usize).min(200_001)];
        let moved = b.moves("file_read_at", file, Some(at), room, bytes);
        assert_eq!(moved, (FileStatus::Ok, expected.len() as u32));
        let now = b.heap.read(room, 200_100).unwrap();
        assert!(now[..expected.len()] == *expected);
        assert!(now[expected.len()..].iter().all(|&byte| byte == 0xEE));
    }
    // The cursor was not moved.
    assert_eq!(
        b.moves("file_read", file, None, room, 10),
        (FileStatus::Ok, 10)
    );
    assert_eq!(
        b.call("file_next_block", &[file])[2..],
        words(&content[10..266])
    );
    let back = narrow(-6i64 as u64);
    assert_eq!(
        b.call("file_seek", &[file, back[0], back[1], 1])[..],
        [1, 0, 260, 0]
    );
    assert_eq!(
        b.call("file_next_block", &[file])[2..],
        words(&content[260..516])
    );
    assert_eq!(
        b.call("file_seek", &[file, back[0], back[1], 2])[2],
        199_995
    );
    assert_eq!(b.call("file_next_block", &[file])[..2], [1, 6]);
    assert_eq!(b.call("file_next_block", &[file])[..2], [1, 0]);
    let bad = FileStatus::BadPosition.code();
    for (low, high, from) in [
        (back[0], back[1], 0),
        (u32::MAX, i32::MAX as u32, 2),
        (0, 1 << 31, 1),
    ] {
        assert_eq!(
            b.call("file_seek", &[file, low, high, from])[..],
            [bad, 0, 0, 0]
        );
    }
    assert_eq!(
        b.call("file_seek", &[file, 0, 0, 3])[0],
        FileStatus::BadMode.code()
    );
    let far = b.moves("file_read_at", file, Some(u64::MAX - 3), room, 10);
    assert_eq!(far, (FileStatus::BadPosition, 0));
    for name in ["file_write", "file_write_at"] {
        let at = (name == "file_write_at").then_some(0);
        assert_eq!(b.moves(name, file, at, room, 10), (FileStatus::BadMode, 0));
    }
}

#[test]
fn files_are_written_appended_to_and_made() {
    let mut b = Bench::new(RootMode::ReadWrite);
    let content = noise(150_003);
    let room = b.heap.alloc_slice(&content).unwrap();
    assert_eq!(b.open("new", WRITE), Err(FileStatus::NotFound));
    let file = b.open("new", WRITE | READ | NEW).unwrap();
    assert_eq!(b.open("new", WRITE | NEW), Err(FileStatus::Exists));
    assert_eq!(
        b.moves("file_write", file, None, room, 150_003),
        (FileStatus::Ok, 150_003)
    );
    assert_eq!(fs::read(b.path("new")).unwrap(), content);
    assert_eq!(
        b.moves("file_write_at", file, Some(100_000), room, 70_001),
        (FileStatus::Ok, 70_001)
    );
    let mut expected = content.clone();
    expected.resize(170_001, 0);
    expected[100_000..].copy_from_slice(&content[..70_001]);
    assert!(fs::read(b.path("new")).unwrap() == expected);
    let block = [&[0, 5], &words(b"blockx")[..]].concat();
    let reply = b.call("file_write_block", &[&[file, 2, 0][..], &block].concat());
    assert_eq!(reply, [1, 5]);
    expected[2..7].copy_from_slice(b"block");
    let reply = b.call("file_put_block", &[&[file], &block[..]].concat());
    assert_eq!(reply, [1, 5]);
    expected[150_003..150_008].copy_from_slice(b"block");
    assert!(fs::read(b.path("new")).unwrap() == expected);
    for bytes in [257, u32::MAX] {
        let block = [&[0, bytes], &[0; 64][..]].concat();
        let reply = b.call("file_put_block", &[&[file], &block[..]].concat());
        assert_eq!(reply, [FileStatus::BadLength.code(), 0]);
    }

    fs::write(b.path("log"), "begun\n").unwrap();
    let log = b.open("log", APPEND).unwrap();
    let line = b.heap.alloc_slice(b"a line\n").unwrap();
    for _ in 0..3 {
        assert_eq!(
            b.moves("file_write", log, None, line, 7),
            (FileStatus::Ok, 7)
        );
    }
    assert_eq!(
        fs::read_to_string(b.path("log")).unwrap(),
        "begun\na line\na line\na line\n"
    );
    assert_eq!(
        b.moves("file_write_at", log, Some(0), line, 7),
        (FileStatus::NotSeekable, 0)
    );
    assert_eq!(
        b.moves("file_read", log, None, line, 7),
        (FileStatus::BadMode, 0)
    );
    let again = b.open("log", WRITE | TRUNCATE).unwrap();
    assert_eq!(fs::read(b.path("log")).unwrap(), b"");
    for file in [file, log, again] {
        assert_eq!(b.call("file_close", &[file]), [1]);
    }
    for mode in [
        0,
        CREATE,
        READ | CREATE,
        READ | TRUNCATE,
        READ | NEW,
        APPEND | TRUNCATE,
        64 | READ,
        u32::MAX,
    ] {
        assert_eq!(b.open("log", mode), Err(FileStatus::BadMode), "{mode}");
    }
}

#[test]
fn no_name_leads_out() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let mut b = Bench::new(RootMode::ReadWrite);
    fs::create_dir(b.path("sub")).unwrap();
    fs::write(b.path("sub/a"), "a").unwrap();
    let secret = outside.path().join("secret");
    let secret = secret.to_str().unwrap();
    let up = format!(
        "../{}/secret",
        outside.path().file_name().unwrap().to_str().unwrap()
    );
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has more cases"))]
    let mut cases = vec![
        (secret, FileStatus::Outside),
        (&up, FileStatus::Outside),
        ("sub/../../secret", FileStatus::Outside),
        ("..", FileStatus::Outside),
        ("", FileStatus::BadName),
        ("a\0b", FileStatus::BadName),
        ("missing", FileStatus::NotFound),
        ("sub/a/b", FileStatus::NotFound),
    ];
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(outside.path(), b.path("link")).unwrap();
        symlink(secret, b.path("file")).unwrap();
        symlink("sub/a", b.path("inside")).unwrap();
        symlink("loop", b.path("loop")).unwrap();
        cases.extend([
            ("link/secret", FileStatus::Outside),
            ("file", FileStatus::Outside),
            ("sub", FileStatus::NotAFile),
            ("loop", FileStatus::Failed),
        ]);
        assert!(b.open("inside", READ).is_ok());
        // A pipe without a writer must not keep the server.
        mkfifo(&b.path("pipe"));
        cases.push(("pipe", FileStatus::NotAFile));
    }
    for (name, status) in cases {
        assert_eq!(b.open(name, READ), Err(status), "{name:?}");
        let opened = b.open(name, WRITE | CREATE);
        assert!(name == "missing" || opened.is_err(), "{name:?}");
    }
    assert!(b.open("sub/../sub/a", READ).is_ok());
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    for id in [0, 1, 77, u32::MAX, 1 << 31] {
        let reply = b.call("file_open", &[id, READ]);
        assert_eq!(reply, [FileStatus::UnknownText.code(), 0]);
    }
    let mut reader = Bench::new(RootMode::ReadOnly);
    fs::write(reader.path("a"), "a").unwrap();
    for mode in [
        WRITE,
        APPEND,
        READ | WRITE,
        WRITE | CREATE,
        WRITE | TRUNCATE,
    ] {
        assert_eq!(reader.open("a", mode), Err(FileStatus::NotGranted));
    }
    assert_eq!(fs::read(reader.path("a")).unwrap(), b"a");
}

#[cfg(unix)]
fn mkfifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

#[test]
fn folders_have_names_and_rights_of_their_own() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(one.path().join("a"), "1").unwrap();
    let access = FileAccess::new()
        .root("in", one.path(), RootMode::ReadOnly)
        .unwrap()
        .root("out", two.path(), RootMode::ReadWrite)
        .unwrap();
    assert!(matches!(
        FileAccess::new().read_only(one.path().join("none")),
        Err(ServiceError::Root { .. })
    ));
    assert!(
        FileAccess::new()
            .root("a/b", one.path(), RootMode::ReadOnly)
            .is_err()
    );
    let twice = FileAccess::new().read_only(one.path()).unwrap();
    assert!(twice.read_write(two.path()).is_err());
    let mut b = Bench::with(one, access);
    assert!(b.open("in/a", READ).is_ok());
    assert_eq!(b.open("in/a", WRITE), Err(FileStatus::NotGranted));
    assert_eq!(b.open("in//etc/passwd", READ), Err(FileStatus::Outside));
    assert_eq!(b.open("in/../out/b", READ), Err(FileStatus::Outside));
    assert!(b.open("out/b", WRITE | NEW).is_ok());
    assert!(two.path().join("b").exists());
    for name in ["a", "other/a", "/in/a", "in"] {
        assert_eq!(b.open(name, READ), Err(FileStatus::NotGranted), "{name}");
    }
}

#[test]
fn handles_end_with_their_file_and_there_are_only_so_many() {
    let mut b = Bench::new(RootMode::ReadWrite);
    fs::write(b.path("a"), "a").unwrap();
    let handles: Vec<u32> = (0..8).map(|_| b.open("a", READ).unwrap()).collect();
    assert_eq!(b.open("a", READ), Err(FileStatus::TooMany));
    // Nothing is made on the way.
    assert_eq!(b.open("new", WRITE | NEW), Err(FileStatus::TooMany));
    assert!(!b.path("new").exists());
    assert_eq!(b.call("file_close", &[handles[3]]), [1]);
    assert_eq!(
        b.call("file_close", &[handles[3]]),
        [FileStatus::UnknownHandle.code()]
    );
    let new = b.open("a", READ).unwrap();
    assert!(!handles.contains(&new));
    for handle in [
        handles[3],
        0,
        1,
        2,
        3,
        u32::MAX,
        handles[0] ^ 1 << 12,
        handles[0] ^ 1 << 31,
    ] {
        let unknown = FileStatus::UnknownHandle;
        assert_eq!(b.call("file_size", &[handle]), [unknown.code(), 0, 0, 0]);
        assert_eq!(
            b.call("file_read_block", &[handle, 0, 0])[..2],
            [unknown.code(), 0]
        );
        assert_eq!(
            b.moves("file_read", handle, None, Ptr::<u8>::null(), 0),
            (unknown, 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any call with any words: answered with a status, and without effects outside of the grants.
    #[test]
    fn any_words_are_answered(calls in prop::collection::vec((0usize..64, prop::collection::vec(any::<u32>(), 70), 0u32..40), 1..40)) {
        let mut b = Bench::new(RootMode::ReadWrite);
        fs::write(b.path("a"), noise(1000)).unwrap();
        let room = b.heap.alloc_slice(&[0u8; 300]).unwrap();
        let guard = b.heap.alloc_slice(&[0x77u8; 4096]).unwrap();
        let functions: Vec<(String, usize)> = (b.services.shared.calls.0.iter())
            .map(|call| (call.signature.name.clone(), call.argument_words()))
            .collect();
        let names = ["a", "b/c", "../a", "/a", "."].map(HostServices::text);
        let mut handles = vec![0u32, 1, 2, 3];
        for (index, mut words, kind) in calls {
            let (name, len) = &functions[index % functions.len()];
            words.truncate(*len);
            // Some of the words are likely ones.
            for (at, word) in words.iter_mut().enumerate() {
                let likely = [
                    handles[*word as usize % handles.len()],
                    names[*word as usize % names.len()],
                    *word % 300,
                    *word % 64,
                    narrow(room.address())[at % 2],
                    0,
                ];
                if let Some(known) = likely.get((kind as usize + at) % 8) {
                    *word = *known;
                }
            }
            if name.starts_with("file_") && len > &0 && kind % 3 == 0 {
                words[0] = handles[kind as usize % handles.len()];
            }
            let reply = b.client.call(name, &words, MINUTE);
            let reply = reply.map_err(|status| TestCaseError::fail(format!("{name}: {status:?}")))?;
            if matches!(name.as_str(), "file_open" | "text_new" | "text_from") && reply[0] == 1 {
                handles.push(reply[1]);
            }
            if name.starts_with("file_") || (name.starts_with("text_")) {
                prop_assert!(FileStatus::from_code(reply[0]).is_some(), "{} gave {}", name, reply[0]);
            }
        }
        prop_assert_eq!(b.heap.read(guard, 4096).unwrap(), vec![0x77u8; 4096]);
        let files = fs::read_dir(b.folder.path()).unwrap().count();
        prop_assert_eq!(files, 1, "no other name can be made");
    }
}
