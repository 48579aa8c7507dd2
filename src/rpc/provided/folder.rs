//! The system's part in files: folders with files to open, and reading and writing at a position.
//!
//! On systems with files the part is the crate cap-std: no name leads out of a folder. WebAssembly without a system
//! interface has no files: there a folder cannot be granted, with the standard library's error for files, and so none
//! of the other functions is ever called.

pub(super) use implementation::{
    Dir, OpenOptions, describe, names, open_folder, read_at, write_at,
};

use std::time::SystemTime;

/// The kind of a named thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(web, allow(dead_code))] // A page has no names.
pub(super) enum Kind {
    File,
    Folder,
    /// A pipe, a device, …
    Other,
}

/// The system's facts about a name.
pub(super) struct Description {
    pub kind: Kind,
    pub bytes: u64,
    pub modified: Option<SystemTime>,
}

#[cfg(any(unix, windows))]
mod implementation {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use super::{Description, Kind};
    pub(in super::super) use cap_std::fs::{Dir, OpenOptions};

    /// Opens a folder by a name of the whole system.
    pub(in super::super) fn open_folder(path: &Path) -> io::Result<Dir> {
        Dir::open_ambient_dir(path, cap_std::ambient_authority())
    }

    /// The target of a name.
    pub(in super::super) fn describe(dir: &Dir, path: &str) -> io::Result<Description> {
        let found = dir.metadata(path)?;
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            _ => Kind::Other,
        };
        Ok(Description {
            kind,
            bytes: found.len(),
            modified: found.modified().ok().map(|at| at.into_std()),
        })
    }

    /// The names in a folder, as in the system: on Unix, any bytes but zeros and slashes.
    pub(in super::super) fn names(dir: &Dir, path: &str) -> io::Result<Vec<Vec<u8>>> {
        let name = |entry: io::Result<cap_std::fs::DirEntry>| {
            let name = entry?.file_name();
            #[cfg(unix)]
            return Ok(std::os::unix::ffi::OsStringExt::into_vec(name));
            #[cfg(not(unix))]
            return Ok(name.to_string_lossy().into_owned().into_bytes());
        };
        dir.read_dir(path)?.map(name).collect()
    }

    /// Reads at a position, which is the file's own cursor for nobody.
    pub(in super::super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_at(file, bytes, at);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_read(file, bytes, at);
    }

    /// Writes at a position, which is the file's own cursor for nobody.
    pub(in super::super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_at(file, bytes, at);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_write(file, bytes, at);
    }
}

#[cfg(not(any(unix, windows)))]
mod implementation {
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    use super::Description;

    /// No folder can be had.
    pub(in super::super) struct Dir(Infallible);

    /// No file can be had.
    pub(in super::super) struct File(Infallible);

    pub(in super::super) fn open_folder(_path: &Path) -> io::Result<Dir> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn describe(dir: &Dir, _path: &str) -> io::Result<Description> {
        match dir.0 {}
    }

    pub(in super::super) fn names(dir: &Dir, _path: &str) -> io::Result<Vec<Vec<u8>>> {
        match dir.0 {}
    }

    pub(in super::super) fn read_at(
        _file: &std::fs::File,
        _bytes: &mut [u8],
        _at: u64,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn write_at(
        _file: &std::fs::File,
        _bytes: &[u8],
        _at: u64,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Dir {
        pub(in super::super) fn open_with(
            &self,
            _path: impl AsRef<Path>,
            _options: &OpenOptions,
        ) -> io::Result<File> {
            match self.0 {}
        }

        pub(in super::super) fn rename(
            &self,
            _from: &str,
            _to: &Dir,
            _path: &str,
        ) -> io::Result<()> {
            match self.0 {}
        }

        pub(in super::super) fn symlink_metadata(
            &self,
            _path: &str,
        ) -> io::Result<std::fs::Metadata> {
            match self.0 {}
        }

        pub(in super::super) fn remove_file(&self, _path: &str) -> io::Result<()> {
            match self.0 {}
        }

        pub(in super::super) fn create_dir(&self, _path: &str) -> io::Result<()> {
            match self.0 {}
        }

        pub(in super::super) fn remove_dir(&self, _path: &str) -> io::Result<()> {
            match self.0 {}
        }
    }

    impl File {
        pub(in super::super) fn metadata(&self) -> io::Result<std::fs::Metadata> {
            match self.0 {}
        }

        pub(in super::super) fn into_std(self) -> std::fs::File {
            match self.0 {}
        }
    }

    /// How a file would be opened.
    pub(in super::super) struct OpenOptions;

    impl OpenOptions {
        pub(in super::super) fn new() -> Self {
            Self
        }

        pub(in super::super) fn read(&mut self, _read: bool) -> &mut Self {
            self
        }

        pub(in super::super) fn write(&mut self, _write: bool) -> &mut Self {
            self
        }

        pub(in super::super) fn append(&mut self, _append: bool) -> &mut Self {
            self
        }

        pub(in super::super) fn create(&mut self, _create: bool) -> &mut Self {
            self
        }

        pub(in super::super) fn create_new(&mut self, _create_new: bool) -> &mut Self {
            self
        }

        pub(in super::super) fn truncate(&mut self, _truncate: bool) -> &mut Self {
            self
        }
    }
}
