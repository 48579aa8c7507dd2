//! The numbers that the runtime's services and their callers agree on: an enum, or a constant in Rust, and a constant of
//! the prelude in WGSL, from one list.

/// Declares constants, and lists them with their names.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: u32 = $value;)*

        const NUMBERS: &[(&str, u32)] = &[$((stringify!($name), $value)),*];
    };
}

numbers! {
    /// A mode of opening, to be added up with others, as those below.
    FILE_READ = 1;
    FILE_WRITE = 2;
    FILE_APPEND = 4;
    FILE_CREATE = 8;
    FILE_TRUNCATE = 16;
    FILE_NEW = 32;
    /// What `file_metadata` finds.
    FILE_IS_FILE = 1;
    FILE_IS_FOLDER = 2;
    FILE_IS_OTHER = 3;
    /// Where `file_seek` counts from.
    FILE_START = 0;
    FILE_CURRENT = 1;
    FILE_END = 2;
    /// The handle of a standard stream.
    FILE_STDIN = 0;
    FILE_STDOUT = 1;
    FILE_STDERR = 2;
    /// Bytes of a block, a whole number of words.
    FILE_BLOCK_BYTES = 256;
}

/// All constants of the prelude.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, u32)> {
    let lists = [FileStatus::NAMES, FreeStatus::NAMES, NUMBERS];
    lists.into_iter().flatten().copied()
}

macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $code:literal, $wgsl:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$of])* #[doc = concat!("`", $wgsl, "`, ", $code, ".")] $variant,)*
        }

        impl $name {
            /// The number seen by kernels.
            pub const fn code(self) -> u32 {
                match self { $(Self::$variant => $code,)* }
            }

            /// The status of a number; `None` for others, such as the 0 of a value not given by any call.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// Names in WGSL and their numbers.
            pub(crate) const NAMES: &[(&str, u32)] = &[$(($wgsl, $code)),*];
        }
    };
}

statuses! {
    /// The result of a function for files or texts: the `status` of its reply, and in WGSL a constant with the name
    /// given here. 0 is no status, but the value of a call never answered.
    FileStatus {
        /// The work was done, as far as the reply says: fewer bytes than wanted were read where the file ends.
        Ok = 1, "FILE_OK";
        /// The handle was never given out, or its file is closed.
        UnknownHandle = 2, "FILE_UNKNOWN_HANDLE";
        /// The number of no text, or of a dropped text.
        UnknownText = 3, "FILE_UNKNOWN_TEXT";
        /// The text is no file name: empty, with a zero inside, or not UTF-8.
        BadName = 4, "FILE_BAD_NAME";
        /// There is no such file.
        NotFound = 5, "FILE_NOT_FOUND";
        /// The file exists, and a new file was wanted.
        Exists = 6, "FILE_EXISTS";
        /// The name leads out of the granted folder: an absolute name, too many steps up, or a link leading out.
        Outside = 7, "FILE_OUTSIDE";
        /// No folder was granted for the name, or none for writing.
        NotGranted = 8, "FILE_NOT_GRANTED";
        /// The system denies it.
        Denied = 9, "FILE_DENIED";
        /// It is a folder, a pipe or a device.
        NotAFile = 10, "FILE_NOT_A_FILE";
        /// As many files are open, or as many texts are there, as may be.
        TooMany = 11, "FILE_TOO_MANY";
        /// The mode makes no sense, or the file was not opened for this.
        BadMode = 12, "FILE_BAD_MODE";
        /// The length is beyond the length of a block, a word or a text.
        BadLength = 13, "FILE_BAD_LENGTH";
        /// The pointer is not aligned to four bytes, or the bytes do not lie in a single live allocation.
        BadPointer = 14, "FILE_BAD_POINTER";
        /// The services have no heap, or the host is looking at the heap, or has a view of 64-bit atomics of the block, or a
        /// kernel using the heap runs on a device with a copy, or with memory of its own: blocks go there.
        NoPointers = 15, "FILE_NO_POINTERS";
        /// A stream, or a file appended to, has no positions.
        NotSeekable = 16, "FILE_NOT_SEEKABLE";
        /// The position is before the file's beginning or beyond 2^63.
        BadPosition = 17, "FILE_BAD_POSITION";
        /// There is no room for the bytes to be written; the reply says how many were.
        Full = 18, "FILE_FULL";
        /// The system failed in some other way.
        Failed = 19, "FILE_FAILED";
        /// The folder to be removed, or replaced, has something in it.
        NotEmpty = 20, "FILE_NOT_EMPTY";
        /// The name is no folder's, and a folder was wanted.
        NotAFolder = 21, "FILE_NOT_A_FOLDER";
        /// The names are on different file systems: no file is copied for a change of its name.
        OtherSystem = 22, "FILE_OTHER_SYSTEM";
        /// The number of the format is that of no literal, or the values are not those of the format: never where a program
        /// calls with a format string.
        BadFormat = 23, "FILE_BAD_FORMAT";
    }
}

statuses! {
    /// How `free` fared in a kernel.
    FreeStatus {
        /// It is free, or the pointer was null.
        Done = 1, "FREE_DONE";
        /// The pointer is not from `malloc`, or was freed before. Nothing was done.
        Unknown = 2, "FREE_UNKNOWN";
        /// The pointer leads into the middle of a block from `malloc`. Nothing was done.
        Interior = 3, "FREE_INTERIOR";
    }
}
