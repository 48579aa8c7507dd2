//! One error for programs that tell people, and do not tell cases apart.

use std::fmt;
use std::sync::Arc;

use crate::buffers::migrate::MigrateError;
use crate::buffers::{BufferError, MemoryError, PinnedError, ReadError, RectError};
use crate::calls::{PortsError, ServiceError};
use crate::device::{
    CancelError, DeviceError, ExecutionError, ImportError, LiveError, PauseError,
    PipelineCacheError, ProfilingError, WaitError,
};
use crate::globals::GlobalError;
use crate::heap::region::RegionError;
use crate::heap::{HeapError, HeapSizeError, WindowError};
use crate::kernel::{GlobalConflict, KernelError, LayoutMismatch, ProgramMistake};
use crate::launch::{GraphError, LaunchError};
use crate::ring::RingError;
use crate::server::{CallError, ServerError, ServerFailure};
use crate::system::SystemError;
use crate::textures::TextureError;
#[cfg(feature = "trace")]
use crate::trace::TraceError;
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
    Buffer(Box<BufferError>),
    /// Of calls to a server.
    Call(Box<CallError>),
    /// Of two uses of a device global's name.
    Conflict(Box<GlobalConflict>),
    /// Of opening or adopting a device.
    Device(Box<DeviceError>),
    /// Of a launch after its submission.
    Execution(Box<ExecutionError>),
    /// Of device globals.
    Global(Box<GlobalError>),
    /// Of launch graphs.
    Graph(Box<GraphError>),
    /// Of the shared heap.
    Heap(Box<HeapError>),
    /// Of the size that a heap was to have.
    HeapSize(Box<HeapSizeError>),
    /// Of memory that a device was to import.
    Import(Box<ImportError>),
    /// Of programs and kernels.
    Kernel(Box<KernelError>),
    /// Of arguments, grids and submissions.
    Launch(Box<LaunchError>),
    /// Of live memory.
    Live(Box<LiveError>),
    /// Of buffers of one device.
    Memory(Box<MemoryError>),
    /// Of the planner of transfers.
    Migrate(Box<MigrateError>),
    /// Of servers that were to stay away.
    Pause(Box<PauseError>),
    /// Of the cache of compiled pipelines.
    PipelineCache(Box<PipelineCacheError>),
    /// Of services that are to start.
    Ports(Box<PortsError>),
    /// Of times that a device was to measure.
    Profiling(Box<ProfilingError>),
    /// Of reads.
    Read(Box<ReadError>),
    /// Of the region allocator.
    Region(Box<RegionError>),
    /// Of rings.
    Ring(Box<RingError>),
    /// Of servers.
    Server(Box<ServerError>),
    /// Of services, told to kernels.
    Service(Box<ServiceError>),
    /// Of launches with lent memory.
    System(Box<SystemError>),
    /// Of textures.
    Texture(Box<TextureError>),
    /// Of waiting for an event.
    Wait(Box<WaitError>),
    /// Of address space.
    Window(Box<WindowError>),
    /// Of queues of work.
    Work(Box<WorkError>),
    /// Of rectangles of buffers.
    Rect(Box<RectError>),
    /// Of a server that stopped by itself.
    Failure(Box<ServerFailure>),
    /// Of options of a program that exclude each other.
    Mistake(Box<ProgramMistake>),
    /// Of launches that were to be cancelled.
    Cancel(Box<CancelError>),
    /// Of traces.
    #[cfg(feature = "trace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
    Trace(Box<TraceError>),
    /// Of structures that Rust and WGSL declare differently.
    Layout(Box<LayoutMismatch>),
}

/// Lets each precise error become the one for all. In a box, since the largest would make every `Result` large.
macro_rules! from_each {
    ($($(#[$only:meta])* $variant:ident($error:ty),)+) => {
        $($(#[$only])*
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })+

        impl fmt::Debug for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($(#[$only])* Self::$variant(error) => error.fmt(f),)+
                }
            }
        }
    };
}

from_each! {
    Buffer(BufferError),
    Call(CallError),
    Conflict(GlobalConflict),
    Device(DeviceError),
    Execution(ExecutionError),
    Global(GlobalError),
    Graph(GraphError),
    Heap(HeapError),
    HeapSize(HeapSizeError),
    Import(ImportError),
    Kernel(KernelError),
    Launch(LaunchError),
    Live(LiveError),
    Memory(MemoryError),
    Migrate(MigrateError),
    Pause(PauseError),
    PipelineCache(PipelineCacheError),
    Ports(PortsError),
    Profiling(ProfilingError),
    Read(ReadError),
    Region(RegionError),
    Ring(RingError),
    Server(ServerError),
    Service(ServiceError),
    System(SystemError),
    Texture(TextureError),
    Wait(WaitError),
    Window(WindowError),
    Work(WorkError),
    Rect(RectError),
    Failure(ServerFailure),
    Mistake(ProgramMistake),
    Cancel(CancelError),
    #[cfg(feature = "trace")]
    Trace(TraceError),
    Layout(LayoutMismatch),
}

/// What flushing and finishing a device tell, where launches share the error.
impl From<Arc<ExecutionError>> for Error {
    fn from(error: Arc<ExecutionError>) -> Self {
        Arc::unwrap_or_clone(error).into()
    }
}

/// Drops the vector.
impl<T: bytemuck::Pod> From<PinnedError<T>> for Error {
    fn from(error: PinnedError<T>) -> Self {
        error.error.into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Error;
    use crate::device::ExecutionError;
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

    #[test]
    fn an_error_that_launches_share_is_the_same_in_the_one_for_all() {
        let error = Arc::new(ExecutionError::DeviceLost {
            reason: "unplugged".to_owned(),
        });
        let both = [
            Error::from(Arc::clone(&error)),
            Error::from(error.as_ref().clone()),
        ];
        for one in both {
            assert!(matches!(&one, Error::Execution(inner)
                if matches!(inner.as_ref(), ExecutionError::DeviceLost { reason } if reason == "unplugged")));
        }
    }
}
