//! Why a device was lost.

use thiserror::Error;

/// Why a device was lost.
///
/// wgpu reports the loss without the reason; [`Device::loss`](crate::Device::loss) returns the reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// There was no memory for the private and work-group memory of a kernel, or its stack.
    #[error(
        "there is no memory for {bytes} bytes that the kernel {kernel} needs to run on a thread"
    )]
    OutOfMemory {
        /// The entry point
        kernel: String,
        /// Bytes of private and work-group memory for one work-group, or of its stack
        bytes: u64,
    },
    /// The processor refused an operation of a kernel: an access to missing memory, impossible with bounds checks, or a stack
    /// overflow.
    #[error("the kernel {kernel} was ended by {what} at the address {address:#x}")]
    Fault {
        /// The entry point
        kernel: String,
        /// The system's name for the fault
        what: &'static str,
        /// The address of the access, or of the instruction
        address: usize,
    },
    /// The device was dropped while a kernel ran without an end.
    #[error("the device was dropped while a kernel ran that did not come to an end")]
    Dropped,
    /// A thread of the device panicked: a defect of this crate.
    #[error("a thread of the device panicked: {message}")]
    Panicked {
        /// The message of the panic
        message: String,
    },
}

/// The message of a panic.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
