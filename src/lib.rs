//! Tombolo (draft crate docs).
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod context;
pub(crate) mod device;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod memory;

pub use context::{AdapterDescription, Context};
pub use device::{
    Aspect, Capabilities, Capability, Device, DeviceError, DeviceOptions, Event, EventFuture,
    EventStatus, ExecutionError, Finding, LiveError, LiveFinding, LoopGuardPolicy, NotProbed,
    PipelineCacheError, ProbeOptions, ProbeReport, ProfilingError, Tier, TierReport, WaitError,
};
pub use kernel::*;
pub use launch::{Extent, Launch, LaunchError};
pub use memory::{BufferView, DeviceBuffer, LiveBuffer, MemoryError, ReadBack, ReadError};
