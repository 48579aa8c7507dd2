//! Errors of services.

use crate::error_text::debug_by_text;

/// Why services could not be started.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The signature of a function is none, or does not fit the Rust function.
    #[error("the function `{signature}` cannot be called: {why}")]
    Signature {
        /// As given.
        signature: String,
        /// The fault.
        why: String,
    },
    /// Two functions have the same name, or names standing for the same number.
    #[error(
        "`{name}` cannot be told from `{other}`, which was registered before: give it another name"
    )]
    Duplicate {
        /// The later function.
        name: String,
        /// The signature of the earlier function.
        other: String,
    },
    /// Arguments or result are longer than a port can be.
    #[error(
        "{name}: {bytes} bytes are more than the {limit} of a port: pass a pointer into the shared heap"
    )]
    TooLong {
        /// The function.
        name: String,
        /// Bytes of the arguments or of the result.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The number of ports is out of range.
    #[error("{ports} ports: choose from 1 to {limit}")]
    Ports {
        /// The wanted number.
        ports: usize,
        /// The most possible.
        limit: usize,
    },
    /// The number of server threads is out of range.
    #[error("{threads} server threads: choose from 1 to {limit}")]
    Threads {
        /// The wanted number.
        threads: usize,
        /// The most possible.
        limit: usize,
    },
    /// A folder cannot be granted to kernels.
    #[error("`{}` cannot be granted to kernels: {message}", folder.display())]
    Root {
        /// The folder.
        folder: std::path::PathBuf,
        /// Why not.
        message: String,
    },
    /// There is no memory for kernels to allocate from.
    #[error("no memory for kernels: {message}")]
    Memory {
        /// Why not.
        message: String,
    },
    /// The operating system gave no thread.
    #[error("no server thread could be started: {message}")]
    Thread {
        /// The system's error.
        message: String,
    },
}

debug_by_text!(ServiceError {
    Signature,
    Duplicate,
    TooLong,
    Ports,
    Threads,
    Root,
    Memory,
    Thread,
});

/// Why a device has no ports.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PortsError {
    /// The ports are more than a kernel of the device can reach as a single buffer.
    #[error(
        "{bytes} bytes of ports are more than {device} binds, which is {limit}: set fewer ports \
         (HostServicesBuilder::ports), or shorter ones (HostServicesBuilder::payload)"
    )]
    TooLarge {
        /// Bytes of all ports.
        bytes: u64,
        /// The device's longest binding, in bytes.
        limit: u64,
        /// The device's name.
        device: String,
    },
    /// There is no live memory for the ports.
    #[error(transparent)]
    Live(#[from] crate::device::LiveError),
    /// There is no memory for ports travelling with launches, or for a [`Loopback`](crate::calls::Loopback).
    #[error(transparent)]
    Memory(#[from] crate::memory::MemoryError),
}

debug_by_text!(PortsError {
    TooLarge,
    Live,
    Memory
});
