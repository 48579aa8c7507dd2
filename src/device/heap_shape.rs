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

/// The most bytes of a segment: places in a segment are counted in 32 bits, with a member's offset on top, and drivers count them
/// with a sign.
const MOST_SEGMENT_BYTES: u64 = 1 << 31;

/// Bytes of a whole segment of the shared heap on a device: the largest power of two within its binding limit.
pub(crate) fn segment_bytes(limits: &wgpu::Limits) -> u64 {
    1 << own_segment_bytes(limits).ilog2()
}

/// The most bytes of a segment of a device's own memory, which begins anywhere: whole pages within its binding limit.
pub(crate) fn own_segment_bytes(limits: &wgpu::Limits) -> u64 {
    // SwiftShader names a longest buffer and refuses exactly that much: its memory would need room for the alignment, too.
    let buffer = limits.max_buffer_size - limits.max_buffer_size / 1024;
    let most = (limits.max_storage_buffer_binding_size)
        .min(buffer)
        .min(MOST_SEGMENT_BYTES);
    match most >> 12 << 12 {
        0 => most.max(1),
        pages => pages,
    }
}
