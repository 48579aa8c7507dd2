//! Functions taking names: facts about files, the contents of a folder, and changes of names.
//!
//! A name leads no further than for [`files`](super::files): everything is asked of the granted folder by cap-std.
//! Removing and renaming need [`RootMode::Manage`], a grant of its own: kernels allowed to write a folder can otherwise
//! spoil the contents of a file, and take nothing away.
//!
//! A folder's names are given as texts of zero-ended names, in order, from behind a given name on. So a listing keeps
//! no state on the host, a long one takes several calls, and a listing beside coming and going names still meets every
//! staying name.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::access::{Root, RootMode};
use super::files::Files;
use super::folder::{self, Dir, Kind};
use super::narrow;
use super::status::FileStatus;
use super::texts::LENGTH;
use crate::kernel::calls::service_numbers::{FILE_IS_FILE, FILE_IS_FOLDER, FILE_IS_OTHER};
use crate::rpc::HostServicesBuilder;

/// `FileMetadata` in WGSL: status, kind, bytes, and time.
type Metadata = [u32; 6];

/// A granted folder, and a name below the folder.
struct Named<'a> {
    root: &'a Root,
    path: String,
}

impl Named<'_> {
    fn dir(&self) -> &Dir {
        &self.root.dir
    }

    fn managed(self) -> Result<Self, FileStatus> {
        match self.root.mode {
            RootMode::Manage => Ok(self),
            RootMode::ReadOnly | RootMode::ReadWrite => Err(FileStatus::NotGranted),
        }
    }
}

fn failed(error: std::io::Error) -> FileStatus {
    FileStatus::of(&error)
}

/// The same where a folder was wanted: there a file is not a step on the way to something else.
fn failed_folder(error: std::io::Error) -> FileStatus {
    match error.kind() {
        std::io::ErrorKind::NotADirectory => FileStatus::NotAFolder,
        _ => failed(error),
    }
}

/// Removes a file, or a link. A folder is an error saying so: Windows and macOS only deny the removal.
fn remove_file(dir: &Dir, path: &str) -> std::io::Result<()> {
    dir.remove_file(path).map_err(|error| {
        let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        // Of a link itself, as the removal is.
        let is_folder = || dir.symlink_metadata(path).is_ok_and(|it| it.is_dir());
        match denied && is_folder() {
            true => std::io::ErrorKind::IsADirectory.into(),
            false => error,
        }
    })
}

fn status(done: Result<(), FileStatus>) -> u32 {
    done.err().unwrap_or(FileStatus::Ok).code()
}

impl Files {
    pub(super) fn register_names(
        self: &Arc<Self>,
        builder: HostServicesBuilder,
    ) -> HostServicesBuilder {
        macro_rules! with {
            ($files:ident, $call:expr) => {{
                let $files = Arc::clone(self);
                $call
            }};
        }
        builder
            .call(
                "fn file_metadata(name: u32) -> FileMetadata",
                with!(f, move |name: u32| match f.metadata(name) {
                    Ok(found) => found,
                    Err(status) => [status.code(), 0, 0, 0, 0, 0],
                }),
            )
            .call(
                "fn file_rename(name: u32, new_name: u32) -> u32",
                with!(f, move |name: u32, new: u32| status(f.rename(name, new))),
            )
            .call(
                "fn file_remove(name: u32) -> u32",
                with!(f, move |name: u32| status(f.manage(name, remove_file))),
            )
            .call(
                "fn folder_make(name: u32) -> u32",
                with!(f, move |name: u32| status(
                    f.manage(name, |dir, path| dir.create_dir(path))
                )),
            )
            .call(
                "fn folder_remove(name: u32) -> u32",
                with!(f, move |name: u32| status(
                    f.manage(name, |dir, path| dir.remove_dir(path))
                )),
            )
            .call(
                "fn folder_names(name: u32, behind: u32) -> TextReply",
                with!(
                    f,
                    move |name: u32, behind: u32| match f.names(name, behind) {
                        Ok(text) => [FileStatus::Ok.code(), text],
                        Err(status) => [status.code(), 0],
                    }
                ),
            )
    }

    /// The folder of a text's name, and the rest of the name; `.` for the folder itself.
    fn named(&self, name: u32) -> Result<Named<'_>, FileStatus> {
        let name = self.name(name)?;
        let (root, path) = self.root(&name)?;
        let path = match path {
            "" => ".".to_owned(),
            path => path.to_owned(),
        };
        Ok(Named { root, path })
    }

    fn manage(
        &self,
        name: u32,
        change: impl FnOnce(&Dir, &str) -> std::io::Result<()>,
    ) -> Result<(), FileStatus> {
        let named = self.named(name)?.managed()?;
        change(named.dir(), &named.path).map_err(failed_folder)
    }

    fn rename(&self, name: u32, new: u32) -> Result<(), FileStatus> {
        let from = self.named(name)?.managed()?;
        let to = self.named(new)?.managed()?;
        let renamed = from.dir().rename(&from.path, to.dir(), &to.path);
        renamed.map_err(failed)
    }

    fn metadata(&self, name: u32) -> Result<Metadata, FileStatus> {
        let named = self.named(name)?;
        let found = folder::describe(named.dir(), &named.path).map_err(failed)?;
        let since = found
            .modified
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified = narrow(since.map_or(0, |since| since.as_nanos() as u64));
        let bytes = narrow(found.bytes);
        let kind = match found.kind {
            Kind::File => FILE_IS_FILE,
            Kind::Folder => FILE_IS_FOLDER,
            Kind::Other => FILE_IS_OTHER,
        };
        Ok([
            FileStatus::Ok.code(),
            kind,
            bytes[0],
            bytes[1],
            modified[0],
            modified[1],
        ])
    }

    /// A text of the names in a folder behind `behind`, as many as a text has room for.
    fn names(&self, name: u32, behind: u32) -> Result<u32, FileStatus> {
        let named = self.named(name)?;
        let behind = match behind {
            0 => Vec::new(),
            behind => self.texts.get(behind).ok_or(FileStatus::UnknownText)?,
        };
        let mut names = folder::names(named.dir(), &named.path).map_err(failed_folder)?;
        names.retain(|name| *name > behind);
        names.sort_unstable();
        let mut text = Vec::new();
        for name in names {
            if text.len() + name.len() + 1 > LENGTH {
                break;
            }
            text.extend_from_slice(&name);
            text.push(0);
        }
        self.texts.make(text)
    }
}
