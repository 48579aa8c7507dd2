//! Copies of bytes between any two places of buffers, for ranges that wgpu, which copies whole words, refuses.
//!
//! # How it works
//!
//! 1. A range goes, with the words around the range, through staging memory, from which a kernel
//!    (`shaders/copy_bytes.wgsl`) shifts the bytes into place.
//! 2. In a long range whose ends lie alike in their words, wgpu copies the words in the middle.
//! 3. A word at an edge is changed by one atomic exclusive-or with the difference: the word's other bytes are never
//!    written, not even with their own values.

use bytemuck::{Pod, Zeroable};

use super::MemoryError;
use super::own_kernel::own_pipeline;
use super::staging;
use crate::device::queue::{Bound, Dispatch, Recorder};
use crate::device::{DeviceShared, capture};

const SOURCE: &str = include_str!("../../shaders/copy_bytes.wgsl");
/// The most bytes copied by a dispatch: its work-groups stay below the 65,535 in a row of every adapter.
const MOST_BYTES: u64 = 8 << 20;

/// `Range` of `shaders/copy_bytes.wgsl`, as long as a uniform has to be.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Range {
    first: u32,
    end: u32,
    skip: u32,
    padding: u32,
}

/// Bytes on their way between two buffers, or within a buffer.
pub(crate) struct Bytes<'a> {
    pub source: &'a wgpu::Buffer,
    pub source_at: u64,
    pub target: &'a wgpu::Buffer,
    pub target_at: u64,
    pub count: u64,
}

/// The most bytes that [`shift`] takes at once.
pub(crate) fn most_bytes(device: &DeviceShared) -> u64 {
    // A binding begins at an aligned offset before the range.
    let alignment = u64::from(device.limits.min_storage_buffer_offset_alignment);
    let bindable = device.limits.max_storage_buffer_binding_size;
    MOST_BYTES
        .min(bindable.saturating_sub(alignment + 8))
        .max(1)
}

/// Records the copy of at most [`most_bytes`], and at least one. The words that the bytes lie in have to be within both
/// buffers; source and target may share words, but no bytes.
///
/// # Errors
/// [`MemoryError::OutOfMemory`] where there is no room for a scratch buffer; [`MemoryError::Refused`].
pub(crate) fn shift(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    bytes: &Bytes<'_>,
) -> Result<(), MemoryError> {
    let first = bytes.source_at / 4 * 4;
    let end = (bytes.source_at + bytes.count).next_multiple_of(4);
    let scratch = staging::of(device).scratch(device, end - first)?;
    let (refused, error) = capture(&device.raw, || {
        // May submit the batch, before anything of this copy is in it.
        queue.reserve_uniforms(queue.uniform_footprint(size_of::<Range>()));
        queue.encode(|encoder| {
            encoder.copy_buffer_to_buffer(bytes.source, first, &scratch, 0, end - first);
        });
        let words = wgpu::BufferBinding {
            buffer: &scratch,
            offset: 0,
            size: wgpu::BufferSize::new(end - first),
        };
        write_by_kernel(queue, device, words, bytes.source_at - first, bytes)
    });
    match refused.or(error) {
        None => Ok(()),
        Some(error) => Err(MemoryError::Refused {
            what: "a copy of bytes",
            message: error.to_string(),
        }),
    }
}

/// Records the kernel. The answer is wgpu's refusal to bind its buffers, with nothing recorded that would be refused later.
fn write_by_kernel(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    words: wgpu::BufferBinding<'_>,
    skip: u64,
    bytes: &Bytes<'_>,
) -> Option<wgpu::Error> {
    let pipeline = device
        .extensions
        .memory
        .shift
        .get_or_init(|| own_pipeline(&device.raw, "tombolo copy of bytes", SOURCE));
    // Only the words of the range are bound, so the buffer may be larger than a binding.
    let alignment = u64::from(device.limits.min_storage_buffer_offset_alignment).max(4);
    let offset = bytes.target_at / alignment * alignment;
    let (first, end) = (
        bytes.target_at - offset,
        bytes.target_at - offset + bytes.count,
    );
    let parameters = Range {
        // All fit: they are limited by `most_bytes` and the alignment of a binding.
        first: first as u32,
        end: end as u32,
        skip: skip as u32,
        padding: 0,
    };
    let parameters = queue.push_uniform(bytemuck::bytes_of(&parameters), size_of::<Range>());
    let Some((ring, _)) = queue.uniform_buffer() else {
        // Never: room was reserved.
        return None;
    };
    let entries = [
        wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: bytes.target,
                offset,
                size: wgpu::BufferSize::new(end.next_multiple_of(4)),
            }),
        },
        wgpu::BindGroupEntry {
            binding: 1,
            resource: wgpu::BindingResource::Buffer(words),
        },
        wgpu::BindGroupEntry {
            binding: 2,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &ring,
                offset: parameters.into(),
                size: wgpu::BufferSize::new(size_of::<Range>() as u64),
            }),
        },
    ];
    let (group, refused) = capture(&device.raw, || {
        device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("copy of bytes"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    });
    if refused.is_some() {
        return refused;
    }
    let words = end.div_ceil(4) - first / 4;
    let groups = [words.div_ceil(64) as u32, 1, 1];
    let bound = Bound {
        index: 0,
        group: &group,
        offsets: &[],
    };
    queue.launch(pipeline, &[bound], &[], &Dispatch::Direct(groups), u64::MAX);
    None
}
