//! Names of files and folders, variables of the environment, and waits, as asked for by kernels, from the host.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::tests::{Bench, MINUTE};
use super::*;
use crate::rpc::HostServices;

fn status(words: &[u32]) -> FileStatus {
    FileStatus::from_code(words[0]).unwrap()
}

impl Bench {
    fn named(&mut self, function: &str, names: &[&str]) -> FileStatus {
        let names: Vec<u32> = names.iter().map(|name| HostServices::text(name)).collect();
        status(&self.call(function, &names))
    }

    /// Kind, bytes, and nanoseconds since 1970.
    fn metadata(&mut self, name: &str) -> Result<(u32, u64, u64), FileStatus> {
        let found = self.call("file_metadata", &[HostServices::text(name)]);
        match status(&found) {
            FileStatus::Ok => {
                let bytes = wide([found[2], found[3]]);
                Ok((found[1], bytes, wide([found[4], found[5]])))
            }
            status => {
                assert!(found[1..].iter().all(|&word| word == 0));
                Err(status)
            }
        }
    }

    /// All bytes of a text.
    fn text(&mut self, text: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let block = self.call("text_block", &[text, bytes.len() as u32]);
            assert_eq!(status(&block), FileStatus::Ok);
            let words: Vec<u8> = block[2..].iter().flat_map(|w| w.to_le_bytes()).collect();
            match block[1] as usize {
                0 => return bytes,
                some => bytes.extend_from_slice(&words[..some]),
            }
        }
    }

    /// All names in a folder, and the number of calls.
    fn names(&mut self, folder: &str) -> (Vec<String>, usize) {
        let mut names: Vec<String> = Vec::new();
        for calls in 1.. {
            let behind = names.last().map_or(0, |last| HostServices::text(last));
            let found = self.call("folder_names", &[HostServices::text(folder), behind]);
            assert_eq!(status(&found), FileStatus::Ok);
            let text = self.text(found[1]);
            assert_eq!(self.call("text_drop", &[found[1]]), [FileStatus::Ok.code()]);
            if text.is_empty() {
                return (names, calls);
            }
            assert_eq!(text.last(), Some(&0));
            let some = text[..text.len() - 1].split(|&byte| byte == 0);
            names.extend(some.map(|name| String::from_utf8(name.to_vec()).unwrap()));
        }
        unreachable!("the loop ends by its return")
    }
}

#[test]
fn metadata_is_that_of_the_system() {
    let mut b = Bench::new(RootMode::ReadOnly);
    fs::write(b.path("file"), [7; 1234]).unwrap();
    fs::create_dir(b.path("folder")).unwrap();
    let modified = fs::metadata(b.path("file")).unwrap().modified().unwrap();
    let modified = modified.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert_eq!(b.metadata("file"), Ok((1, 1234, modified)));
    assert_eq!(b.metadata("folder").unwrap().0, 2);
    assert_eq!(b.metadata(".").unwrap().0, 2);
    assert_eq!(b.metadata("none"), Err(FileStatus::NotFound));
    assert_eq!(b.metadata("../file"), Err(FileStatus::Outside));
    assert_eq!(b.metadata(""), Err(FileStatus::BadName));
    #[cfg(unix)]
    {
        let _pipe = std::os::unix::net::UnixListener::bind(b.path("socket")).unwrap();
        assert_eq!(b.metadata("socket").unwrap().0, 3);
    }
}

#[test]
fn names_come_in_order_over_several_calls() {
    let mut b = Bench::new(RootMode::ReadOnly);
    let mut expected = BTreeSet::new();
    for i in 0..300u32 {
        // Of very different lengths: 4,096 bytes hold some thirty such names.
        let name = format!(
            "{:x}-{}",
            i.wrapping_mul(0x9E37_79B9),
            "n".repeat(i as usize % 200)
        );
        fs::write(b.path(&name), "").unwrap();
        expected.insert(name);
    }
    let (names, calls) = b.names(".");
    assert!(names.iter().eq(expected.iter()), "{names:?}");
    let bytes: usize = expected.iter().map(|name| name.len() + 1).sum();
    assert!(
        calls > bytes / 4096 && calls <= 2 * bytes / 4096 + 2,
        "{calls} calls"
    );
    assert_eq!(
        b.named("folder_names", &["nowhere", ""]),
        FileStatus::NotFound
    );
    let first = names.first().unwrap().clone();
    assert_eq!(
        b.named("folder_names", &[&first, ""]),
        FileStatus::NotAFolder
    );
    let unknown = b.call("folder_names", &[HostServices::text("."), 9999]);
    assert_eq!(status(&unknown), FileStatus::UnknownText);
}

#[test]
fn a_folder_with_a_name_is_listed_by_its_name() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(two.path().join("inside"), "").unwrap();
    let access = FileAccess::new().read_only(one.path()).unwrap();
    let access = access.root("out", two.path(), RootMode::Manage).unwrap();
    let mut b = Bench::with(one, access);
    assert_eq!(b.names("out/").0, ["inside"]);
    assert!(b.names(".").0.is_empty());
    // From a changeable folder to an unchangeable one, and back.
    assert_eq!(
        b.named("file_rename", &["out/inside", "here"]),
        FileStatus::NotGranted
    );
    fs::write(b.path("mine"), "").unwrap();
    assert_eq!(
        b.named("file_rename", &["mine", "out/mine"]),
        FileStatus::NotGranted
    );
    assert_eq!(
        b.named("file_rename", &["out/inside", "out/other"]),
        FileStatus::Ok
    );
    assert_eq!(b.names("out/").0, ["other"]);
}

#[test]
fn names_are_changed_where_that_is_granted() {
    let mut b = Bench::new(RootMode::Manage);
    assert_eq!(b.named("folder_make", &["a"]), FileStatus::Ok);
    assert_eq!(b.named("folder_make", &["a"]), FileStatus::Exists);
    fs::write(b.path("a/file"), "kept").unwrap();
    fs::write(b.path("old"), "replaced").unwrap();
    assert_eq!(b.named("folder_remove", &["a"]), FileStatus::NotEmpty);
    assert_eq!(b.named("file_remove", &["a"]), FileStatus::NotAFile);
    assert_eq!(b.named("folder_remove", &["old"]), FileStatus::NotAFolder);
    assert_eq!(b.named("file_rename", &["a/file", "old"]), FileStatus::Ok);
    assert_eq!(fs::read_to_string(b.path("old")).unwrap(), "kept");
    assert_eq!(b.named("folder_remove", &["a"]), FileStatus::Ok);
    assert!(!b.path("a").exists());
    assert_eq!(b.named("file_remove", &["old"]), FileStatus::Ok);
    assert_eq!(b.named("file_remove", &["old"]), FileStatus::NotFound);
    assert_eq!(
        b.named("file_rename", &["old", "new"]),
        FileStatus::NotFound
    );
    assert!(b.names(".").0.is_empty());
}

#[test]
fn nothing_is_taken_away_without_the_grant() {
    for mode in [RootMode::ReadOnly, RootMode::ReadWrite] {
        let mut b = Bench::new(mode);
        fs::write(b.path("file"), "").unwrap();
        fs::create_dir(b.path("folder")).unwrap();
        for (function, names) in [
            ("file_rename", &["file", "other"][..]),
            ("file_remove", &["file"]),
            ("folder_make", &["new"]),
            ("folder_remove", &["folder"]),
        ] {
            assert_eq!(
                b.named(function, names),
                FileStatus::NotGranted,
                "{function}"
            );
        }
        assert_eq!(b.names(".").0, ["file", "folder"]);
    }
}

#[cfg(unix)]
#[test]
fn changes_of_names_do_not_lead_out() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let mut b = Bench::new(RootMode::Manage);
    std::os::unix::fs::symlink(outside.path(), b.path("link")).unwrap();
    fs::write(b.path("mine"), "mine").unwrap();
    for (function, names) in [
        ("file_remove", &["link/victim"][..]),
        ("file_rename", &["link/victim", "stolen"]),
        ("file_rename", &["mine", "link/victim"]),
        ("file_rename", &["mine", "../victim"]),
        ("folder_make", &["link/new"]),
        ("folder_names", &["link", ""]),
        ("folder_names", &["..", ""]),
    ] {
        assert_eq!(
            b.named(function, names),
            FileStatus::Outside,
            "{function} {names:?}"
        );
    }
    let kept = fs::read_to_string(outside.path().join("victim"));
    assert_eq!(kept.unwrap(), "untouched");
    // The link itself is a name in the folder.
    assert_eq!(b.named("file_remove", &["link"]), FileStatus::Ok);
    assert!(outside.path().join("victim").exists());
}

#[test]
fn variables_are_read_that_were_granted() {
    // Every process of tests has the variable, by cargo.
    let known = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let services = HostServices::builder()
        .environment(["CARGO_MANIFEST_DIR", "TOMBOLO_IS_NOT_SET"])
        .start()
        .unwrap();
    let mut client = services.loopback().unwrap();
    let mut ask = |name: &str| {
        let found = client.call("environment", &[HostServices::text(name)], MINUTE);
        found.unwrap()
    };
    let found = ask("CARGO_MANIFEST_DIR");
    assert_eq!(status(&found), FileStatus::Ok);
    assert_eq!(status(&ask("TOMBOLO_IS_NOT_SET")), FileStatus::NotFound);
    assert_eq!(status(&ask("PATH")), FileStatus::NotGranted);
    let block = client.call("text_block", &[found[1], 0], MINUTE).unwrap();
    let bytes: Vec<u8> = block[2..].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(&bytes[..known.len()], known.as_bytes());
    assert_eq!(block[1] as usize, known.len());
}

#[test]
fn waits_are_as_long_as_granted() {
    let longest = Duration::from_millis(30);
    let services = HostServices::builder().sleep(longest).start().unwrap();
    let mut client = services.loopback().unwrap();
    let begun = Instant::now();
    assert_eq!(client.call("sleep", &[20], MINUTE).unwrap(), [20]);
    assert_eq!(client.call("sleep", &[u32::MAX], MINUTE).unwrap(), [30]);
    // A wait is never shorter than asked for; how much longer is the machine's affair.
    assert!(begun.elapsed() >= Duration::from_millis(50));
}
