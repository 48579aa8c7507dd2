//! Why a primitive was refused.

use std::fmt;

use tombolo::buffers::{BufferError, MemoryError};
use tombolo::kernel::KernelError;
use tombolo::launch::LaunchError;

/// Why a primitive could not be made or run. Nothing that a caller could read has been written then: the launches before a
/// refused launch write scratch memory alone.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument holds fewer values than the call reads or writes.
    #[error("`{argument}` has {len} values, and {needed} are needed")]
    TooShort {
        /// The argument.
        argument: &'static str,
        /// The number of values in the argument.
        len: u64,
        /// The number of values needed.
        needed: u64,
    },
    /// An argument holds more values than kernels count.
    #[error(
        "`{argument}` has {len} values, and a call takes {} at most: cut it into parts",
        crate::MOST_VALUES
    )]
    TooLong {
        /// The argument.
        argument: &'static str,
        /// The number of values in the argument.
        len: u64,
    },
    /// A part reaches beyond the values of the whole.
    #[error("a part of the values {start}..{end} was asked for, and there are {len}")]
    OutOfRange {
        /// The first value.
        start: u64,
        /// One past the last value.
        end: u64,
        /// Values there are.
        len: u64,
    },
    /// The shape of work-groups cannot be had.
    #[error("{invocations} invocations with {items} values each: {why}")]
    Shape {
        /// Invocations of a work-group.
        invocations: u32,
        /// Values of each.
        items: u32,
        /// The fault.
        why: String,
    },
    /// A histogram of the given bins cannot be made.
    #[error("{bins} bins: {why}")]
    Bins {
        /// How many were asked for.
        bins: u32,
        /// The fault.
        why: String,
    },
    /// A primitive of several devices was asked for with none.
    #[error("a primitive of several devices needs at least one device")]
    NoDevices,
    /// A kernel could not be made: an operator of the program's own is wrong, or the adapter lacks something.
    #[error(transparent)]
    Kernel(#[from] Box<KernelError>),
    /// A launch was refused, for example since an argument is on another device, or is input and output at once.
    #[error(transparent)]
    Launch(#[from] Box<LaunchError>),
    /// There is no scratch memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A part of a buffer of the context could not be taken.
    #[error(transparent)]
    Buffer(#[from] Box<BufferError>),
}

impl fmt::Debug for Error {
    /// The message for people: Rust prints the message for an error returned by `main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Lets `?` put the runtime's larger errors into a box.
macro_rules! boxed {
    ($($variant:ident($error:ty)),+) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )+};
}

boxed!(
    Kernel(KernelError),
    Launch(LaunchError),
    Buffer(BufferError)
);
