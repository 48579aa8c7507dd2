//! What the system has of files: folders below which files are opened, and reading and writing at a position.
//!
//! On systems with files this is the crate cap-std, which lets no name lead out of a folder. WebAssembly without a
//! system interface has no files: there a folder cannot be granted, with the error that the standard library gives for
//! files, and so none of the other functions is ever called.

pub(super) use implementation::{Dir, OpenOptions, open_folder, read_at, write_at};

#[cfg(any(unix, windows))]
mod implementation {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(in super::super) use cap_std::fs::{Dir, OpenOptions};

    /// Opens a folder by a name of the whole system.
    pub(in super::super) fn open_folder(path: &Path) -> io::Result<Dir> {
        Dir::open_ambient_dir(path, cap_std::ambient_authority())
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

    /// No folder can be had.
    pub(in super::super) struct Dir(Infallible);

    /// No file can be had.
    pub(in super::super) struct File(Infallible);

    pub(in super::super) fn open_folder(_path: &Path) -> io::Result<Dir> {
        Err(io::ErrorKind::Unsupported.into())
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
