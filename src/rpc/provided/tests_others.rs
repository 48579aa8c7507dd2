//! Memory, texts, streams and the rest, as kernels ask for them, from the host.

use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};

use super::open_file::{NEW, READ, WRITE};
use super::tests::{Bench, MINUTE, noise};
use super::*;
use crate::memory::Ptr;
use crate::rpc::{HostServices, ServiceError};

#[test]
fn pointers_have_to_lead_into_one_live_allocation() {
    let mut b = Bench::new(RootMode::ReadWrite);
    fs::write(b.path("a"), noise(4096)).unwrap();
    let file = b.open("a", READ | WRITE).unwrap();
    let room = b.heap.alloc_slice(&[0xEEu8; 1000]).unwrap();
    let next = b.heap.alloc_slice(&[0xEEu8; 1000]).unwrap();
    let gone = b.heap.alloc_slice(&[0u8; 64]).unwrap();
    b.heap.free(gone).unwrap();
    let malloc = |b: &mut Bench, bytes: u32| {
        let p = b.call("malloc", &[bytes]);
        Ptr::<u8>::from_address(wide([p[0], p[1]]))
    };
    let own = malloc(&mut b, 100);
    let freed = malloc(&mut b, 100);
    assert_eq!(
        b.call("free", &narrow(freed.address())),
        [FreeStatus::Done.code()]
    );
    for (name, pointer, bytes) in [
        ("null", Ptr::null(), 4),
        ("one byte too many", room, 1001),
        ("behind the end", room.byte_add(1000), 4),
        ("in front", room.byte_add(u64::MAX - 3), 8),
        ("far too much", room, u32::MAX),
        ("unaligned", room.byte_add(1), 4),
        ("freed", gone, 4),
        ("of the device", room.byte_add(1 << 60), 4),
        ("the heap's guard", b.heap.base(), 4),
        ("made up", Ptr::from_address(0x1000), 4),
        ("behind what malloc gave", own, 101),
        ("freed by the kernel", freed, 4),
        ("freed by the kernel, inside", freed.byte_add(32), 4),
    ] {
        for call in ["file_read", "file_write"] {
            let moved = b.moves(call, file, None, pointer, bytes);
            assert_eq!(moved, (FileStatus::BadPointer, 0), "{name}");
        }
        let made = b.call(
            "text_from",
            &[
                narrow(pointer.address())[0],
                narrow(pointer.address())[1],
                bytes.min(4096),
            ],
        );
        assert_eq!(made, [FileStatus::BadPointer.code(), 0], "{name}");
    }
    for pointer in [room, next] {
        assert_eq!(b.heap.read(pointer, 1000).unwrap(), [0xEE; 1000]);
    }
    assert_eq!(
        b.moves("file_read", file, None, own, 100),
        (FileStatus::Ok, 100)
    );
    assert_eq!(
        b.moves("file_read", file, None, own.byte_add(96), 4),
        (FileStatus::Ok, 4)
    );
    // A host that is looking is not disturbed.
    let host = b.heap.host().unwrap();
    assert_eq!(
        b.moves("file_read", file, None, room, 4),
        (FileStatus::NoPointers, 0)
    );
    drop(host);
    assert_eq!(
        b.moves("file_read", file, None, room, 4),
        (FileStatus::Ok, 4)
    );
    // And without a heap there are none.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "a").unwrap();
    let access = FileAccess::new().read_only(folder.path()).unwrap();
    b.services = HostServices::builder().files(access).start().unwrap();
    b.client = b.services.loopback().unwrap();
    let file = b.open("a", READ).unwrap();
    assert_eq!(
        b.moves("file_read", file, None, room, 4),
        (FileStatus::NoPointers, 0)
    );
}

#[test]
fn kernels_allocate_and_free() {
    let mut b = Bench::new(RootMode::ReadOnly);
    let in_use = b.heap.statistics().in_use;
    let mut malloc = |bytes: u32| {
        let p = b.client.call("malloc", &[bytes], MINUTE).unwrap();
        Ptr::<u8>::from_address(wide([p[0], p[1]]))
    };
    assert!(malloc(0).is_null() && malloc(u32::MAX).is_null() && malloc((1 << 20) + 1).is_null());
    let all: Vec<Ptr<u8>> =
        std::iter::from_fn(|| Some(malloc(1000)).filter(|p| !p.is_null())).collect();
    assert!(all.len() > 1000, "{}", all.len());
    let mut sorted: Vec<u64> = all.iter().map(|p| p.address()).collect();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 1000));
    assert!(
        sorted
            .iter()
            .all(|at| at % 16 == 0 && b.heap.find(Ptr::<u8>::from_address(*at)).is_some())
    );
    // The heap itself never grows for kernels.
    assert_eq!(b.heap.statistics().in_use, in_use);
    let elsewhere = b.heap.alloc(7u32).unwrap();
    let mut free = |p: Ptr<u8>| {
        let status = b.client.call("free", &narrow(p.address()), MINUTE).unwrap();
        status[0]
    };
    assert_eq!(free(Ptr::null()), FreeStatus::Done.code());
    assert_eq!(free(all[5].byte_add(16)), FreeStatus::Interior.code());
    assert_eq!(free(all[5].byte_add(999)), FreeStatus::Interior.code());
    for p in [
        elsewhere.cast(),
        Ptr::from_address(16),
        Ptr::from_address(u64::MAX),
        b.heap.base(),
    ] {
        assert_eq!(free(p), FreeStatus::Unknown.code());
    }
    for p in &all {
        assert_eq!(free(*p), FreeStatus::Done.code());
        assert_eq!(free(*p), FreeStatus::Unknown.code());
    }
    assert_eq!(b.heap.read(elsewhere, 1).unwrap(), [7]);
    let p = b.call("malloc", &[1 << 20]);
    assert_ne!(p, [0, 0], "all of it is one piece again");
    let heap = b.heap.clone();
    drop(b);
    assert!(heap.statistics().in_use < in_use);
    let none = HostServices::builder().memory(&heap, 0).start();
    assert!(matches!(none, Err(ServiceError::Memory { .. })));
}

#[test]
fn texts_are_read_made_and_dropped() {
    let mut b = Bench::new(RootMode::ReadWrite);
    assert_eq!(b.call("arg_count", &[]), [3]);
    let first = b.call("arg", &[1])[0];
    assert_eq!(HostServices::text_of(first).as_deref(), Some("first"));
    assert_eq!(HostServices::text_of(first ^ 1), None);
    let arg = b.call("arg", &[2])[0];
    assert_eq!(b.call("text_size", &[arg]), [1, 2]);
    assert_eq!(
        b.call("text_block", &[arg, 0])[..3],
        [1, 2, u32::from(b'\xC3') | u32::from(b'\xBC') << 8]
    );
    assert_eq!(b.call("text_block", &[arg, 7])[..3], [1, 0, 0]);
    for index in [3, u32::MAX] {
        assert_eq!(b.call("arg", &[index]), [0]);
    }
    let made = b.call("text_new", &[]);
    assert_eq!(made[0], 1);
    let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
    assert_eq!(b.call("text_push", &[made[1], word(b"out."), 4]), [1]);
    assert_eq!(b.call("text_push", &[made[1], word(b"txt!"), 3]), [1]);
    assert_eq!(
        b.call("text_push", &[made[1], 0, 5]),
        [FileStatus::BadLength.code()]
    );
    assert_eq!(
        b.call("text_join", &[made[1], HostServices::text("-1")]),
        [1]
    );
    let file = b.call("file_open", &[made[1], WRITE | NEW]);
    assert_eq!(file[0], 1);
    assert!(b.path("out.txt-1").exists());
    let room = b.heap.alloc_slice(b"................").unwrap();
    assert_eq!(
        b.moves("text_read", made[1], None, room, 6),
        (FileStatus::Ok, 6)
    );
    assert_eq!(
        b.moves("text_read", made[1], None, room, 16),
        (FileStatus::Ok, 9)
    );
    assert_eq!(b.heap.read(room, 16).unwrap(), b"out.txt-1.......");
    let [low, high] = narrow(room.address());
    let copy = b.call("text_from", &[low, high, 3]);
    assert_eq!(b.call("text_size", &[copy[1]]), [1, 3]);
    assert_eq!(
        b.call("text_from", &[low, high, 4097]),
        [FileStatus::BadLength.code(), 0]
    );
    // No UTF-8 is no name.
    assert_eq!(b.call("text_push", &[copy[1], 0xFF, 1]), [1]);
    assert_eq!(
        b.call("file_open", &[copy[1], WRITE | NEW])[0],
        FileStatus::BadName.code()
    );
    // Texts double until they are as long as may be; joined with themselves, too.
    for _ in 0..10 {
        assert_eq!(b.call("text_join", &[copy[1], copy[1]]), [1]);
    }
    assert_eq!(
        b.call("text_join", &[copy[1], copy[1]]),
        [FileStatus::BadLength.code()]
    );
    assert_eq!(b.call("text_size", &[copy[1]]), [1, 4096]);
    assert_eq!(b.call("text_drop", &[copy[1]]), [1]);
    let unknown = FileStatus::UnknownText.code();
    for text in [copy[1], 0, 1, u32::MAX] {
        assert_eq!(b.call("text_drop", &[text]), [unknown]);
        assert_eq!(b.call("text_push", &[text, 0, 1]), [unknown]);
        assert_eq!(b.call("text_size", &[text]), [unknown, 0]);
        assert_eq!(b.call("text_block", &[text, 0])[..2], [unknown, 0]);
    }
    // Literals and arguments are nobody's to change.
    assert_eq!(b.call("text_push", &[arg, 0, 1]), [unknown]);
    assert_eq!(b.call("text_drop", &[arg]), [unknown]);
    let mut count = 1;
    while b.call("text_new", &[])[0] == 1 {
        count += 1;
    }
    assert_eq!(count, 1024);
    assert_eq!(b.call("text_new", &[]), [FileStatus::TooMany.code(), 0]);
}

/// Writes into a shared vector, and fails when full.
struct Sink(Arc<Mutex<Vec<u8>>>, usize);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut to = self.0.lock().unwrap();
        let len = bytes.len().min(self.1 - to.len());
        to.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn streams_are_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let access = FileAccess::new()
        .stdin(std::io::Cursor::new(b"typed\nby nobody".to_vec()))
        .stdout(Sink(Arc::clone(&written), 20));
    let mut b = Bench::with(folder, access);
    assert_eq!(
        b.call("file_next_block", &[0])[..3],
        [1, 15, u32::from_le_bytes(*b"type")]
    );
    assert_eq!(b.call("file_next_block", &[0])[..2], [1, 0]);
    let line = b.heap.alloc_slice(b"hello, world").unwrap();
    assert_eq!(
        b.moves("file_write", 1, None, line, 12),
        (FileStatus::Ok, 12)
    );
    assert_eq!(
        b.moves("file_write", 1, None, line, 12),
        (FileStatus::Full, 0)
    );
    assert_eq!(written.lock().unwrap().as_slice(), b"hello, worldhello, w");
    assert_eq!(
        b.moves("file_write", 0, None, line, 4),
        (FileStatus::BadMode, 0)
    );
    assert_eq!(
        b.moves("file_read", 1, None, line, 4),
        (FileStatus::BadMode, 0)
    );
    assert_eq!(
        b.moves("file_write", 2, None, line, 4),
        (FileStatus::UnknownHandle, 0)
    );
    assert_eq!(
        b.moves("file_read_at", 0, Some(0), line, 4),
        (FileStatus::NotSeekable, 0)
    );
    assert_eq!(b.call("file_size", &[1])[0], FileStatus::NotSeekable.code());
    assert_eq!(
        b.call("file_close", &[1]),
        [FileStatus::UnknownHandle.code()]
    );
    // Nothing else was granted.
    assert_eq!(b.open("a", READ), Err(FileStatus::NotGranted));
}

#[test]
fn time_seeds_and_the_exit_status() {
    let mut b = Bench::new(RootMode::ReadOnly);
    let time = |b: &mut Bench, name: &str| {
        let words = b.call(name, &[]);
        wide([words[0], words[1]])
    };
    let since = std::time::SystemTime::UNIX_EPOCH;
    let first = time(&mut b, "clock_monotonic");
    let before = since.elapsed().unwrap().as_nanos() as u64;
    let wall = time(&mut b, "clock_wall");
    let after = since.elapsed().unwrap().as_nanos() as u64;
    assert!((before..=after).contains(&wall));
    assert!(time(&mut b, "clock_monotonic") >= first);
    let seeds: std::collections::HashSet<Vec<u32>> =
        (0..100).map(|_| b.call("random_seed", &[])).collect();
    assert_eq!(seeds.len(), 100);
    assert_eq!(b.services.exit_status(), None);
    b.call("exit", &[3]);
    b.call("exit", &[4]);
    assert_eq!(b.services.exit_status(), Some(3));
}
