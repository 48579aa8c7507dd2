//! What can be wrong with services.

/// Why services could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The signature of a function is none, or does not fit the Rust function.
    #[error("the function `{signature}` cannot be called: {why}")]
    Signature {
        /// As it was given.
        signature: String,
        /// The fault.
        why: String,
    },
    /// Two functions have the same name, or names that stand for the same number.
    #[error(
        "`{name}` cannot be told from `{other}`, which was registered before: give it another name"
    )]
    Duplicate {
        /// The later function.
        name: String,
        /// The signature of the earlier one.
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
        /// The number that was wanted.
        ports: usize,
        /// The most that is possible.
        limit: usize,
    },
    /// The number of server threads is out of range.
    #[error("{threads} server threads: choose from 1 to {limit}")]
    Threads {
        /// The number that was wanted.
        threads: usize,
        /// The most that is possible.
        limit: usize,
    },
    /// A folder that kernels should be granted cannot be.
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
        /// What the system said.
        message: String,
    },
}

/// Why a device has no ports.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PortsError {
    /// There is no live memory for them.
    #[error(transparent)]
    Live(#[from] crate::device::LiveError),
    /// wgpu refused their buffer.
    #[error("wgpu refused their buffer: {0}")]
    Refused(String),
}
