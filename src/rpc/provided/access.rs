//! A program's grants of its files.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Mutex;

use super::folder::{Dir, open_folder};
use super::slab::MOST;
use super::streams::Stream;
use crate::kernel::calls::service_numbers::{FILE_STDERR, FILE_STDIN, FILE_STDOUT};
use crate::rpc::ServiceError;

/// The rights of kernels below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RootMode {
    /// Read the existing contents.
    ReadOnly,
    /// Write, and make new files, too. Nothing is ever deleted but by truncating.
    ReadWrite,
    /// All the former, and remove files and empty folders, make folders, and change names.
    Manage,
}

/// For people: the variant in words.
impl fmt::Display for RootMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read",
            Self::ReadWrite => "read and write",
            Self::Manage => "read, write and manage",
        })
    }
}

/// The files and streams granted to kernels, for
/// [`HostServicesBuilder::files`](crate::calls::HostServicesBuilder::files). Nothing is granted unless named here.
///
/// Folders are opened when granted, and everything below is reached through them (by the crate cap-std), so no name
/// leads out: not by `..`, not by a symbolic link, not during moves of folders. A hard link is no such way but another
/// name of a file, and the system does not say which name came first: a file with a name below a granted folder is
/// granted, wherever its other names are. Grant for writing only folders where nobody makes such names without being
/// trusted by the program to write the files.
///
/// ```
/// # use tombolo::calls::FileAccess;
/// let access = FileAccess::new().read_only(std::env::temp_dir())?.standard_streams();
/// # Ok::<(), tombolo::calls::ServiceError>(())
/// ```
pub struct FileAccess {
    pub(super) roots: Vec<Root>,
    pub(super) streams: [Option<Stream>; 3],
    pub(super) open_files: usize,
    pub(super) quota: u64,
}

pub(super) struct Root {
    pub name: String,
    pub dir: Dir,
    pub mode: RootMode,
}

impl Default for FileAccess {
    fn default() -> Self {
        Self::new()
    }
}

impl FileAccess {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            roots: Vec::new(),
            streams: [None, None, None],
            open_files: 64,
            quota: u64::MAX,
        }
    }

    /// Lets kernels read the files below a folder, by names relative to it.
    ///
    /// # Errors
    /// [`ServiceError::Root`] when it cannot be opened, or another folder was granted without a name.
    pub fn read_only(self, folder: impl AsRef<Path>) -> Result<Self, ServiceError> {
        self.root("", folder, RootMode::ReadOnly)
    }

    /// Lets kernels read, write and make files below a folder, by names relative to it.
    ///
    /// # Errors
    /// As [`FileAccess::read_only`].
    pub fn read_write(self, folder: impl AsRef<Path>) -> Result<Self, ServiceError> {
        self.root("", folder, RootMode::ReadWrite)
    }

    /// Lets kernels do everything below a folder, by names relative to it: also remove and rename earlier files and
    /// folders.
    ///
    /// # Errors
    /// As [`FileAccess::read_only`].
    pub fn manage(self, folder: impl AsRef<Path>) -> Result<Self, ServiceError> {
        self.root("", folder, RootMode::Manage)
    }

    /// Grants a folder under a name: kernels know its file `a/b` as `<name>/a/b`. A folder with an empty name is for
    /// all names beginning with no other folder's name.
    ///
    /// # Errors
    /// [`ServiceError::Root`] when the folder cannot be opened, or the name is taken or has a `/` or `\` in it.
    pub fn root(
        mut self,
        name: &str,
        folder: impl AsRef<Path>,
        mode: RootMode,
    ) -> Result<Self, ServiceError> {
        let folder = folder.as_ref();
        let wrong = |message: String| ServiceError::Root {
            folder: folder.to_owned(),
            message,
        };
        if name.contains(['/', '\\']) {
            return Err(wrong(format!(
                "`{name}` is no name for it: it has a separator in it"
            )));
        }
        if self.roots.iter().any(|root| root.name == name) {
            return Err(wrong(format!("another folder has the name `{name}`")));
        }
        let dir = open_folder(folder);
        self.roots.push(Root {
            name: name.to_owned(),
            dir: dir.map_err(|error| wrong(error.to_string()))?,
            mode,
        });
        Ok(self)
    }

    /// Grants the standard streams of the process: handles 0, 1 and 2.
    pub fn standard_streams(self) -> Self {
        self.stdin(std::io::stdin())
            .stdout(std::io::stdout())
            .stderr(std::io::stderr())
    }

    /// The source of kernels' reads from handle 0. A server thread waits until there is something, and stopping the
    /// services waits for the thread.
    pub fn stdin(mut self, input: impl Read + Send + 'static) -> Self {
        self.streams[FILE_STDIN as usize] = Some(Stream::Input(Mutex::new(Box::new(input))));
        self
    }

    /// The target of kernels' writes by handle 1.
    pub fn stdout(mut self, output: impl Write + Send + 'static) -> Self {
        self.streams[FILE_STDOUT as usize] = Some(Stream::Output(Mutex::new(Box::new(output))));
        self
    }

    /// The target of kernels' writes by handle 2.
    pub fn stderr(mut self, output: impl Write + Send + 'static) -> Self {
        self.streams[FILE_STDERR as usize] = Some(Stream::Output(Mutex::new(Box::new(output))));
        self
    }

    /// How many files may be open at once (default 64, at most 4,096).
    pub fn open_files(mut self, most: usize) -> Self {
        self.open_files = most.clamp(1, MOST);
        self
    }

    /// How many bytes may be written to files, all together and for as long as the services live (default: no limit);
    /// then the status is [`FileStatus::Full`](crate::calls::FileStatus::Full). Overwriting counts, too, and truncation gives
    /// nothing back. Streams do not count.
    pub fn quota(mut self, bytes: u64) -> Self {
        self.quota = bytes;
        self
    }
}

impl std::fmt::Debug for FileAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roots = self.roots.iter().map(|root| (&root.name, root.mode));
        f.debug_map().entries(roots).finish()
    }
}
