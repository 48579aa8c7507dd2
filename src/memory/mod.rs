//! Device memory: typed buffers and textures of a device, transfers to, from and between them, and read-backs
//! without waits. Pointers, shared heaps and migration build on this room.

#[cfg(embedded)]
mod at_once;
pub(crate) mod buffer;
pub(crate) mod buffers;
mod error;
pub(crate) mod fill;
pub(crate) mod heap;
pub(crate) mod host_memory;
pub(crate) mod live;
pub mod migrate;
mod own_kernel;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod pointer;
pub(crate) mod ranges;
pub(crate) mod readback;
pub(crate) mod rect;
pub(crate) mod shift;
pub(crate) mod staging;
pub(crate) mod system;
pub(crate) mod texture;
pub(crate) mod transfer;

pub use buffer::{BufferView, DeviceBuffer};
pub use buffers::{
    ArgumentMoves, Buffer, BufferArgument, BufferError, BufferMemory, BufferStatistics,
    CommonMemory, ExchangeMemory, LaunchExplanation, MappedRead, MappedWrite, Placement,
};
pub use error::MemoryError;
pub use heap::{
    AtomicTarget, AtomicView, HeapAdvice, HeapAllocation, HeapAllocator, HeapBound, HeapError,
    HeapSize, HostAccess, MirrorStatistics, SharedHeap,
};
pub use live::LiveBuffer;
pub use pinned::{PinnedError, PinnedTransfer, PinnedVec};
pub use pointer::{PointerKind, Ptr};
pub use readback::{ReadBack, ReadError};
pub use rect::{Rect, RectError};
pub use staging::TransferStatistics;
pub use system::{SystemAccess, SystemMemory, SystemTier};
pub use texture::{
    DeviceTexture, TextureArgument, TextureDimension, TextureError, TextureOptions, TextureRegion,
};

/// State of this module for each device.
#[derive(Debug, Default)]
pub(crate) struct MemoryExtension {
    staging: staging::Staging,
    device_memory: heap::device_memory::DeviceMemory,
    /// Where the device uses the shared heap, if it chooses.
    heap_choice: heap::Choice,
    /// Memory of context buffers on the device.
    buffers: std::sync::Mutex<buffers::BufferMemory>,
    /// Commands of context buffers that keep the device open.
    buffer_holds: std::sync::atomic::AtomicU64,
    /// The memory shared by small buffers.
    blocks: std::sync::Mutex<buffers::Blocks<wgpu::Buffer>>,
    /// Memory through which devices pass bytes on, as far as the device has imported it.
    slots: buffers::SlotImports,
    /// Pinned memory that the device has imported.
    pinned: pinned::Imports,
    /// Buffers for memory lent to launches.
    pub(crate) system: system::pools::Pools,
    /// Memory for pages that come while kernels run.
    pub(crate) live_pages: system::live::Kept,
    /// The pipeline of `shaders/fill.wgsl`.
    fill: std::sync::OnceLock<wgpu::ComputePipeline>,
    /// The pipeline of `shaders/copy_bytes.wgsl`.
    shift: std::sync::OnceLock<wgpu::ComputePipeline>,
    /// The pipeline of `shaders/copy_rows.wgsl`.
    copy_rows: std::sync::OnceLock<wgpu::ComputePipeline>,
}
