//! Files without more room: by the quota of the program, and by the limit of the process.

use std::fs;

#[cfg(unix)]
use super::open_file::READ;
use super::open_file::{APPEND, CREATE, TRUNCATE, WRITE};
use super::tests::{Bench, noise};
use super::*;

fn bench(access: impl FnOnce(FileAccess) -> FileAccess) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let granted = FileAccess::new().read_write(folder.path()).unwrap();
    Bench::with(folder, access(granted))
}

#[test]
fn kernels_write_no_more_than_their_quota() {
    let mut b = bench(|access| access.quota(1000));
    let data = noise(600);
    let place = b.heap.alloc_slice(&data).unwrap();
    let one = b.open("one", WRITE | CREATE).unwrap();
    let two = b.open("two", APPEND | CREATE).unwrap();
    assert_eq!(
        b.moves("file_write", one, None, place, 600),
        (FileStatus::Ok, 600)
    );
    // The rest, and then nothing.
    assert_eq!(
        b.moves("file_write", two, None, place, 600),
        (FileStatus::Full, 400)
    );
    assert_eq!(
        b.moves("file_write_at", one, Some(0), place, 1),
        (FileStatus::Full, 0)
    );
    // Nothing is given back, and nothing is refused where nothing is written.
    let again = b.open("one", WRITE | TRUNCATE).unwrap();
    assert_eq!(
        b.moves("file_write", again, None, place, 1),
        (FileStatus::Full, 0)
    );
    assert_eq!(
        b.moves("file_write", again, None, place, 0),
        (FileStatus::Ok, 0)
    );
    assert_eq!(fs::read(b.path("one")).unwrap(), []);
    assert_eq!(fs::read(b.path("two")).unwrap(), data[..400]);
}

#[test]
fn what_is_not_written_is_left_of_a_quota() {
    let quota = quota::Quota::new(10);
    assert_eq!((quota.take(7), quota.take(7), quota.take(7)), (7, 3, 0));
    quota.give_back(4);
    assert_eq!((quota.take(0), quota.take(9), quota.take(9)), (0, 4, 0));
}

/// A hard link is no way out but another name of the file.
#[cfg(unix)]
#[test]
fn hard_links_are_names_like_others() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a"), "elsewhere").unwrap();
    let mut b = bench(|access| access);
    // Folders of one file system, or there can be no such link.
    if fs::hard_link(outside.path().join("a"), b.path("a")).is_err() {
        fs::write(b.path("first"), "elsewhere").unwrap();
        fs::hard_link(b.path("first"), b.path("a")).unwrap();
    }
    let file = b.open("a", READ).unwrap();
    assert_eq!(b.call("file_size", &[file])[2..], [9, 0]);
}

/// In a process of its own, with files not growing beyond 1,000 bytes.
#[cfg(unix)]
#[test]
fn files_are_full_at_the_limit_of_the_process() {
    const CHILD: &str = "TOMBOLO_TEST_FILE_SIZE_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        let name = "rpc::provided::tests_room::files_are_full_at_the_limit_of_the_process";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
        return;
    }
    let mut b = bench(|access| access);
    let data = noise(1500);
    let place = b.heap.alloc_slice(&data).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 1000,
        rlim_max: 1000,
    };
    #[allow(unsafe_code)]
    // SAFETY: the structure lives across the call, and the call only reads the structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    assert_eq!(set, 0);
    let file = b.open("a", WRITE | CREATE).unwrap();
    let log = b.open("b", APPEND | CREATE).unwrap();
    for _ in 0..2 {
        // As far as there is room, and then no further.
        let (status, bytes) = b.moves("file_write_at", file, Some(0), place, 1500);
        assert_eq!((status, bytes), (FileStatus::Full, 1000));
        let (status, _) = b.moves("file_write", log, None, place, 1500);
        assert_eq!(status, FileStatus::Full);
    }
    let (status, bytes) = b.moves("file_write_at", file, Some(5000), place, 1);
    assert_eq!((status, bytes), (FileStatus::Full, 0));
    assert_eq!(fs::read(b.path("a")).unwrap(), data[..1000]);
    assert_eq!(fs::read(b.path("b")).unwrap(), data[..1000]);
}
