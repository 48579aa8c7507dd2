//! How calls of the provided services fare.

pub use crate::kernel::calls::service_numbers::{FileStatus, FreeStatus};

impl FileStatus {
    /// The status of an error of the system.
    pub(super) fn of(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::NotFound,
            ErrorKind::AlreadyExists => Self::Exists,
            // The system was not asked: the name itself leads out.
            ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::Outside,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Denied,
            ErrorKind::InvalidInput | ErrorKind::InvalidFilename => Self::BadName,
            ErrorKind::IsADirectory => Self::NotAFile,
            ErrorKind::DirectoryNotEmpty => Self::NotEmpty,
            ErrorKind::CrossesDevices => Self::OtherSystem,
            ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::WriteZero => Self::Full,
            _ => Self::Failed,
        }
    }
}
