//! Debian packages unpacked into a single folder; nothing of the packages is installed.
//!
//! # How it works
//! 1. apt-get lists the files of the wanted packages and of all dependencies that the machine lacks, with sizes and sums out of
//!    the signed lists.
//! 2. Files in `debs/` from a run cut short are kept if their sums are right; apt-get downloads the others, and every sum is
//!    checked again.
//! 3. Each file is unpacked into `root/`, and then a mark with the file's name is left in `unpacked/`. A run cut short in
//!    between unpacks the file again.
//! 4. When all files of a part are there, a mark in `parts/` says so: later runs ask nobody. The downloads go.
//!
//! A lock on the file `lock` keeps two runs apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::apt::{Apt, Archive};
use crate::deb;
use crate::error::Error;
use crate::process::{self, say};

/// Files that nobody here reads, most out of the compiler's sources.
const LEFT_OUT: [&str; 4] = [
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/src/rustc-*/compiler",
    "./usr/src/rustc-*/src",
];

/// The folder.
#[derive(Debug)]
pub struct Store {
    home: PathBuf,
}

impl Store {
    /// The store in `home`, which need not exist yet.
    pub fn new(home: PathBuf) -> Self {
        Self { home }
    }

    /// The folder itself.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Throws everything away.
    pub fn clear(&self) -> Result<(), Error> {
        fs::remove_dir_all(&self.home).map_err(Error::io("remove", &self.home))
    }

    /// The place of the packages' files, as on a system with the packages installed.
    pub fn root(&self) -> PathBuf {
        self.home.join("root")
    }

    /// Whether a part is complete.
    pub fn has(&self, part: &str) -> bool {
        self.mark("parts", part).is_file()
    }

    /// Makes a part of `packages` complete, ending with `finish`; does nothing if the part is complete.
    pub fn provide(
        &self,
        apt: &Apt,
        part: &str,
        packages: &[&str],
        finish: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        for dir in ["", "root", "debs", "unpacked", "parts"] {
            let dir = self.home.join(dir);
            fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        }
        let lock = self.home.join("lock");
        let file = File::create(&lock).map_err(Error::io("create", &lock))?;
        file.lock().map_err(Error::io("lock", &lock))?;
        if self.has(part) {
            return Ok(());
        }
        let archives = apt.closure(packages)?;
        let missing: Vec<_> = archives
            .iter()
            .filter(|archive| !self.mark("unpacked", &archive.file).is_file())
            .collect();
        self.download(apt, &missing)?;
        self.unpack(&missing)?;
        finish()?;
        let mark = self.mark("parts", part);
        fs::write(&mark, list(&archives)).map_err(Error::io("write", &mark))?;
        let debs = self.home.join("debs");
        fs::remove_dir_all(&debs).map_err(Error::io("remove", &debs))
    }

    fn mark(&self, kind: &str, name: &str) -> PathBuf {
        self.home.join(kind).join(name)
    }

    fn download(&self, apt: &Apt, archives: &[&Archive]) -> Result<(), Error> {
        let debs = self.home.join("debs");
        let mut wanted = Vec::new();
        for archive in archives {
            if !is_whole(&debs, archive)? {
                wanted.push(*archive);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let bytes: u64 = wanted.iter().map(|archive| archive.bytes).sum();
        say(format!(
            "downloading {} packages, {} MB; they are unpacked below {} and not installed",
            wanted.len(),
            bytes.div_ceil(1_000_000),
            self.home.display()
        ));
        let names: Vec<_> = wanted
            .iter()
            .map(|archive| archive.package.as_str())
            .collect();
        apt.fetch(&names, &debs)?;
        for archive in wanted {
            if !is_whole(&debs, archive)? {
                return Err(Error::WrongPackage {
                    file: archive.file.clone(),
                });
            }
        }
        Ok(())
    }

    /// Unpacks on every processor: decompressing takes long.
    fn unpack(&self, archives: &[&Archive]) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            while let Some(archive) = archives.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.unpack_one(archive) {
                    next.store(archives.len(), Ordering::Relaxed);
                    failed
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .get_or_insert(error);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let failed = failed
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        failed.map_or(Ok(()), Err)
    }

    fn unpack_one(&self, archive: &Archive) -> Result<(), Error> {
        let mut args = vec![
            // Several packages bring the same directories at once.
            "--no-overwrite-dir".to_owned(),
            "--anchored".to_owned(),
            "--no-wildcards-match-slash".to_owned(),
        ];
        args.extend(LEFT_OUT.iter().map(|path| format!("--exclude={path}")));
        let file = self.home.join("debs").join(&archive.file);
        deb::unpack(&file, &self.root(), &args)?.check()?;
        let mark = self.mark("unpacked", &archive.file);
        fs::write(&mark, "").map_err(Error::io("write", &mark))
    }
}

/// Whether a file is there, whole and with nothing else.
fn is_whole(dir: &Path, archive: &Archive) -> Result<bool, Error> {
    let file = dir.join(&archive.file);
    if !fs::metadata(&file).is_ok_and(|data| data.len() == archive.bytes) {
        return Ok(false);
    }
    let Some(expected) = &archive.sha256 else {
        return Ok(true);
    };
    let sum = process::output(Command::new("sha256sum").arg(&file))?;
    Ok(sum.split_whitespace().next() == Some(expected))
}

fn list(archives: &[Archive]) -> String {
    archives
        .iter()
        .map(|archive| format!("{}\n", archive.file))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test's own directory, gone at the end of the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn archive(bytes: u64, sha256: &str) -> Archive {
        Archive {
            package: "a".to_owned(),
            file: "a_1.deb".to_owned(),
            bytes,
            sha256: Some(sha256.to_owned()),
        }
    }

    #[test]
    fn a_file_is_whole_if_size_and_sum_are_right() {
        if !process::in_path("sha256sum") {
            // Only systems with apt-get get here, and all such systems have apt-get.
            assert!(!process::in_path("apt-get"));
            return;
        }
        let dir = Dir::new("sums");
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(!is_whole(&dir.0, &archive(3, of_abc)).unwrap());
        fs::write(dir.0.join("a_1.deb"), "abc").unwrap();
        assert!(is_whole(&dir.0, &archive(3, of_abc)).unwrap());
        assert!(!is_whole(&dir.0, &archive(4, of_abc)).unwrap());
        fs::write(dir.0.join("a_1.deb"), "abd").unwrap();
        assert!(!is_whole(&dir.0, &archive(3, of_abc)).unwrap());
    }

    #[test]
    fn a_part_is_complete_by_its_mark_alone() {
        let dir = Dir::new("parts");
        let store = Store::new(dir.0.clone());
        assert!(!store.has("rust"));
        fs::create_dir_all(dir.0.join("parts")).unwrap();
        fs::write(dir.0.join("parts/rust"), list(&[archive(3, "")])).unwrap();
        assert!(store.has("rust"));
        assert_eq!(store.root(), dir.0.join("root"));
    }
}
