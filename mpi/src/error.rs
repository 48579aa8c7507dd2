//! Why a message, or an operation of all ranks, did not come to an end.

use std::fmt;
use std::os::raw::{c_char, c_int};
use std::time::Duration;

use mpi::ffi;

use crate::operator::Operator;
use tombolo::buffers::{BufferError, MemoryError, ReadError};
use tombolo::device::WaitError;
use tombolo::kernel::KernelError;
use tombolo::launch::LaunchError;

/// An operation under way: the name, and the other rank. Part of every error of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The operation, as MPI calls it.
    pub name: &'static str,
    /// The other rank, or the root; `None` for any source, and for operations without a root.
    pub peer: Option<i32>,
    /// The tag; `None` for any tag, and for operations of all ranks.
    pub tag: Option<i32>,
}

impl Operation {
    pub(crate) const fn new(name: &'static str, peer: Option<i32>, tag: Option<i32>) -> Self {
        Self { name, peer, tag }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(peer) = self.peer {
            write!(f, " with rank {peer}")?;
        }
        match self.tag {
            Some(tag) => write!(f, ", tag {tag}"),
            None => Ok(()),
        }
    }
}

/// Why an operation of ranks was refused, or has failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI is already in use by this process, or was.
    #[error("MPI was initialized by this process before, which it can be once: keep the one `Mpi`")]
    AlreadyInitialized,
    /// The library was built without threads.
    #[error(
        "the MPI library offers {provided} and the runtime needs MPI_THREAD_MULTIPLE: take a library built with threads"
    )]
    Threads {
        /// The level of threads offered by the library.
        provided: String,
    },
    /// The `Mpi` value is gone.
    #[error("{operation}: MPI was finalized: keep the `Mpi` value until all ranks are done")]
    Finalized {
        /// The operation asked for.
        operation: Operation,
    },
    /// There is no such rank.
    #[error("{operation}: there are {size} ranks, from 0 on")]
    NoRank {
        /// The operation asked for, with the rank.
        operation: Operation,
        /// How many ranks there are.
        size: i32,
    },
    /// A tag below zero, or above what the MPI library has.
    #[error("{operation}: tags are between 0 and {most}")]
    Tag {
        /// The operation asked for, with the tag.
        operation: Operation,
        /// The largest tag.
        most: i32,
    },
    /// Memory of an unsuitable length for the operation.
    #[error("{operation}: {what} has {len} elements, and needs {needed}")]
    Length {
        /// The operation asked for.
        operation: Operation,
        /// Which memory.
        what: &'static str,
        /// The elements of the memory.
        len: usize,
        /// How many elements there have to be.
        needed: usize,
    },
    /// Floating-point numbers have no bits to combine.
    #[error(
        "{operation}: `{element}` has no operator {operator:?}: take an integer type, or an operator in WGSL"
    )]
    NoOperator {
        /// The operation asked for.
        operation: Operation,
        /// The operator.
        operator: Operator,
        /// The type of the elements.
        element: &'static str,
    },
    /// The elements of an operator in WGSL are of another size than the elements in Rust.
    #[error(
        "an array of `{wgsl}` has {stride} bytes for each element, and `{element}` has {bytes}: take types of one layout"
    )]
    OperatorType {
        /// The type in WGSL.
        wgsl: String,
        /// Bytes from one element to the next.
        stride: usize,
        /// The type in Rust.
        element: &'static str,
        /// Bytes of the type in Rust.
        bytes: usize,
    },
    /// The message is longer than the memory of the receive.
    #[error(
        "{operation}: the message is longer than the {capacity} bytes there are for it; receive into more"
    )]
    Truncated {
        /// The receive.
        operation: Operation,
        /// Bytes of the memory.
        capacity: u64,
    },
    /// The deadline passed first.
    #[error(
        "{operation}: not done within {waited:?}; has every rank made its call, and in the same order?"
    )]
    Deadline {
        /// The awaited operation.
        operation: Operation,
        /// How long.
        waited: Duration,
    },
    /// Another rank has failed: by the rank's own report, or by MPI's.
    #[error("{operation}: rank {} has failed: {reason}", rank_text(*.rank))]
    RankFailed {
        /// The operation under way here.
        operation: Operation,
        /// The failed rank, where known.
        rank: Option<i32>,
        /// The failed rank's own words, or MPI's.
        reason: String,
    },
    /// A receive was taken back before there was a message.
    #[error("{operation}: cancelled before a message was there")]
    Cancelled {
        /// The receive.
        operation: Operation,
    },
    /// A request whose memory was taken before.
    #[error("{operation}: its memory was given out before")]
    Taken {
        /// The operation.
        operation: Operation,
    },
    /// An error of the MPI library.
    #[error("{operation}: {message} (MPI error class {class})")]
    Library {
        /// The operation under way.
        operation: Operation,
        /// The class of the error, of MPI's section 9.4.
        class: i32,
        /// The library's words.
        message: String,
    },
    /// No function of the name, or only a function of other types, is served by the rank.
    #[error("rank {rank} serves no function `{name}` of the types {types}: it has {served}")]
    NoFunction {
        /// The rank.
        rank: i32,
        /// The function asked for.
        name: String,
        /// The types of its calls in Rust.
        types: String,
        /// The served functions, with the types of each.
        served: String,
    },
    /// The function failed on the serving rank.
    #[error("`{name}` failed on rank {rank}: {reason}")]
    Call {
        /// The rank.
        rank: i32,
        /// The function.
        name: String,
        /// The error of the call there.
        reason: String,
    },
    /// A thread could not be started.
    #[error("no thread for {what}: {reason}")]
    Thread {
        /// The thread's purpose.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
    /// A buffer to send from or to receive into.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// Memory of the host or of a device.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A read of values combined by a device.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The text of an operator.
    #[error(transparent)]
    Kernel(Box<KernelError>),
    /// A launch of an operator.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// A launch awaited by an operator.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl From<KernelError> for MpiError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(Box::new(error))
    }
}

impl From<LaunchError> for MpiError {
    fn from(error: LaunchError) -> Self {
        Self::Launch(Box::new(error))
    }
}

fn rank_text(rank: Option<i32>) -> String {
    rank.map_or_else(|| "(of unknown number)".to_owned(), |rank| rank.to_string())
}

/// Turns the code of a function of MPI into a result.
pub(crate) fn check(operation: Operation, code: c_int, capacity: u64) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut class = 0;
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: both functions write to the given places, the text up to the length named by MPI itself.
    unsafe {
        ffi::MPI_Error_class(code, &raw mut class);
        ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut len);
    }
    let end = usize::try_from(len).unwrap_or_default().min(text.len());
    let message = String::from_utf8_lossy(&text[..end]).into_owned();
    Err(of_class(operation, class, message, capacity))
}

/// The error of a class.
fn of_class(operation: Operation, class: c_int, message: String, capacity: u64) -> MpiError {
    const TRUNCATE: c_int = ffi::MPI_ERR_TRUNCATE as c_int;
    match class {
        TRUNCATE => MpiError::Truncated {
            operation,
            capacity,
        },
        // The classes of failed processes have no number in MPI 3: Open MPI and MPICH name them in their texts.
        _ if is_of_a_process(&message) => MpiError::RankFailed {
            operation,
            rank: operation.peer,
            reason: message,
        },
        _ => MpiError::Library {
            operation,
            class,
            message,
        },
    }
}

fn is_of_a_process(message: &str) -> bool {
    ["PROC_FAILED", "PROC_ABORTED", "REVOKED"]
        .iter()
        .any(|name| message.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_typed_errors() {
        let operation = Operation::new("receive", Some(3), Some(9));
        let of = |class: u32, text: &str| of_class(operation, class as c_int, text.to_owned(), 8);
        let truncated = of(ffi::MPI_ERR_TRUNCATE, "too long");
        assert!(matches!(truncated, MpiError::Truncated { capacity: 8, .. }));
        let text = "receive with rank 3, tag 9: the message is longer than the 8 bytes there are for it; receive into more";
        assert_eq!(truncated.to_string(), text);
        let failed = of(75, "MPI_ERR_PROC_FAILED: Process Failure");
        assert!(matches!(failed, MpiError::RankFailed { rank: Some(3), .. }));
        let other = of(ffi::MPI_ERR_COUNT, "MPI_ERR_COUNT: invalid count argument");
        assert!(
            matches!(other, MpiError::Library { class: 2, .. }),
            "{other}"
        );
    }
}
