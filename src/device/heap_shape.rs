//! The shape in which a device sees the shared heap, and the question for it: kernels that follow pointers are compiled for a
//! shape, and the heap is kept in a higher room.

use std::error::Error;
use std::sync::Arc;

use super::DeviceShared;

/// In how many parts, and how, a kernel following pointers binds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HeapShape {
    /// Segments of the shared heap.
    pub(crate) shared: u32,
    /// Segments of the device's own memory.
    pub(crate) own: u32,
    /// The upper 16 bits of pointers into the first segment of the device's own memory; 1 without such memory: devices
    /// share modules compiled the same way for all.
    pub(crate) first_tag: u16,
    /// The low word of the heap's first address is zero.
    pub(crate) window_aligned: bool,
    /// Parts of the allocation table of the heap.
    pub(crate) tables: u32,
}

impl HeapShape {
    /// Memory for arguments alone, in this many parts.
    pub(crate) fn of_arguments(parts: u32) -> Self {
        Self {
            shared: parts,
            own: 0,
            first_tag: 1,
            window_aligned: true,
            tables: 0,
        }
    }
}

/// A source of knowledge about a context's heap.
pub(crate) trait HeapSource {
    /// The shape in which `device` sees the heap now, with the tables of allocations if `with_tables`.
    ///
    /// # Errors
    /// Why the device has no heap to follow pointers into.
    fn shape(
        &self,
        device: &Arc<DeviceShared>,
        with_tables: bool,
    ) -> Result<HeapShape, Box<dyn Error>>;
}

/// Bytes of a whole segment on a device: the largest power of two within its binding limit.
pub(crate) fn segment_bytes(limits: &wgpu::Limits) -> u64 {
    let most = limits
        .max_storage_buffer_binding_size
        .min(limits.max_buffer_size)
        .max(1);
    // Some drivers report a round number and refuse exactly that much.
    (1 << most.ilog2()).min(1 << 29)
}
