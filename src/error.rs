//! One error for programs that tell people, and do not tell cases apart.

use std::fmt;

use crate::buffers::migrate::MigrateError;
use crate::buffers::{BufferError, MemoryError, ReadError};
use crate::calls::{PortsError, ServiceError};
use crate::device::{
    DeviceError, ExecutionError, ImportError, LiveError, PipelineCacheError, ProfilingError,
    WaitError,
};
use crate::globals::GlobalError;
use crate::heap::region::RegionError;
use crate::heap::{HeapError, HeapSizeError, WindowError};
use crate::kernel::{KernelError, LayoutMismatch};
use crate::launch::LaunchError;
use crate::server::{CallError, ServerError};
use crate::work::WorkError;

/// Any error of the crate, for `?` in functions that call several of its rooms.
///
/// Every function of the crate returns its own, precise error; each converts into this one, and is inside. `Debug`
/// gives the message for people, since that is what Rust prints of an error that `main` returns:
///
/// ```no_run
/// use tombolo::Context;
///
/// fn main() -> Result<(), tombolo::Error> {
///     let device = Context::new()?.device()?; // "Error: no adapter …", with what to do
///     println!("{:?}", device.buffer(&[1u32])?.read()?);
///     Ok(())
/// }
/// ```
#[derive(thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// Of buffers of a context.
    Buffer(#[from] BufferError),
    /// Of calls to a server.
    Call(#[from] CallError),
    /// Of opening or adopting a device.
    Device(#[from] DeviceError),
    /// Of a launch after its submission.
    Execution(#[from] ExecutionError),
    /// Of device globals.
    Global(#[from] GlobalError),
    /// Of the shared heap.
    Heap(#[from] HeapError),
    /// Of the size that a heap was to have.
    HeapSize(#[from] HeapSizeError),
    /// Of memory that a device was to import.
    Import(#[from] ImportError),
    /// Of programs and kernels.
    Kernel(#[from] KernelError),
    /// Of arguments, grids and submissions.
    Launch(#[from] LaunchError),
    /// Of live memory.
    Live(#[from] LiveError),
    /// Of buffers of one device.
    Memory(#[from] MemoryError),
    /// Of the planner of transfers.
    Migrate(#[from] MigrateError),
    /// Of the cache of compiled pipelines.
    PipelineCache(#[from] PipelineCacheError),
    /// Of services that are to start.
    Ports(#[from] PortsError),
    /// Of times that a device was to measure.
    Profiling(#[from] ProfilingError),
    /// Of reads.
    Read(#[from] ReadError),
    /// Of the region allocator.
    Region(#[from] RegionError),
    /// Of servers.
    Server(#[from] ServerError),
    /// Of services, told to kernels.
    Service(#[from] ServiceError),
    /// Of waiting for an event.
    Wait(#[from] WaitError),
    /// Of address space.
    Window(#[from] WindowError),
    /// Of queues of work.
    Work(#[from] WorkError),
    /// Of structures that Rust and WGSL declare differently.
    Layout(#[from] LayoutMismatch),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Execution(error) => error.fmt(f),
            Self::Global(error) => error.fmt(f),
            Self::Heap(error) => error.fmt(f),
            Self::HeapSize(error) => error.fmt(f),
            Self::Import(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Launch(error) => error.fmt(f),
            Self::Live(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Migrate(error) => error.fmt(f),
            Self::PipelineCache(error) => error.fmt(f),
            Self::Ports(error) => error.fmt(f),
            Self::Profiling(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Service(error) => error.fmt(f),
            Self::Wait(error) => error.fmt(f),
            Self::Window(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;
    use crate::heap::HeapError;
    use crate::launch::LaunchError;

    fn launch() -> Result<(), LaunchError> {
        Err(LaunchError::Heap(HeapError::NoWindow("none".to_owned())))
    }

    fn any() -> Result<(), Error> {
        launch()?;
        Ok(())
    }

    #[test]
    fn people_read_the_message_and_programs_find_the_error() {
        let error = any().unwrap_err();
        let Error::Launch(inner) = &error else {
            panic!("{error}");
        };
        assert_eq!(error.to_string(), inner.to_string());
        assert!(format!("{error:?}").starts_with(&inner.to_string()));
    }
}
