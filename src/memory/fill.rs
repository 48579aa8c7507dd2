//! Filling ranges of buffers with a value of any size, at any alignment.

use std::ops::{Range, RangeBounds};

use bytemuck::{Pod, Zeroable};

use super::MemoryError;
use super::buffer::{DeviceBuffer, bounds};
use super::own_kernel::own_pipeline;
use super::places::{check_words, is_in_words};
use super::staging;
use crate::device::queue::{Bound, Dispatch, Recorder};
use crate::device::{DeviceShared, Event, capture};
use crate::span::span;

const SOURCE: &str = include_str!("../../shaders/fill.wgsl");
/// Words covered by a row of work-groups: WebGPU allows at least 65,535 groups.
const WORDS_PER_ROW: u32 = 64 * 32_768;
/// The most filled at once, so all offsets fit words with much to spare.
const MOST_BYTES: u64 = 1 << 30;
/// Patterns up to this many bytes go to the device with the batch's other small values.
const SHORT_PATTERN: usize = 4 << 10;

/// `Fill` of `shaders/fill.wgsl`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Fill {
    first: u32,
    end: u32,
    pattern_bytes: u32,
    words_per_row: u32,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Sets a range of elements to `value`. Works for every element size and alignment.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::TooLarge`] for a value larger than one binding;
    /// [`MemoryError::MissingUsage`] for an imported buffer without `STORAGE`, or without `COPY_DST` where whole words
    /// become zero; [`MemoryError::Misaligned`] where an imported buffer ends inside the last word of the range;
    /// [`MemoryError::OutOfMemory`], [`MemoryError::Execution`] when the device is gone.
    pub fn fill(&self, value: T, range: impl RangeBounds<u64>) -> Result<Event, MemoryError> {
        const WHAT: &str = "fill";
        let range = bounds(range, self.len);
        let count = range.end.saturating_sub(range.start);
        let range = self.byte_range(WHAT, range.start, count)?;
        let _span = span!("fill", bytes = range.end - range.start);
        let device = &self.shared.device;
        if range.is_empty() {
            return Ok(Event::complete(device));
        }
        let pattern = bytemuck::bytes_of(&value);
        self.needs(WHAT, usage(pattern, &range))?;
        check_words(WHAT, &range, self.shared.raw.size())?;
        let mut queue = device.queue.lock(device);
        fill_bytes(&mut queue, device, &self.shared.raw, pattern, &range)?;
        self.shared.overwritten(&range);
        let batch = queue.batch();
        queue.commit();
        Ok(Event::of_batch(device, batch))
    }
}

/// Whether wgpu itself can fill the range.
fn clears(pattern: &[u8], range: &Range<u64>) -> bool {
    is_in_words(range, false) && pattern.iter().all(|&byte| byte == 0)
}

/// The buffer's properties needed by [`fill_bytes`].
fn usage(pattern: &[u8], range: &Range<u64>) -> wgpu::BufferUsages {
    if clears(pattern, range) {
        wgpu::BufferUsages::COPY_DST
    } else {
        wgpu::BufferUsages::STORAGE
    }
}

/// Records the repetition of `pattern` over the bytes of `range`, not empty and, with all touched words, inside the
/// buffer. Buffers may be larger than a binding: the words of a part are bound at a time.
///
/// # Errors
/// [`MemoryError::TooLarge`] for a pattern that no binding holds, [`MemoryError::OutOfMemory`],
/// [`MemoryError::Refused`].
pub(crate) fn fill_bytes(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    raw: &wgpu::Buffer,
    pattern: &[u8],
    range: &Range<u64>,
) -> Result<(), MemoryError> {
    const WHAT: &str = "fill";
    if clears(pattern, range) {
        queue.encode(|encoder| {
            encoder.clear_buffer(raw, range.start, Some(range.end - range.start));
        });
        return Ok(());
    }
    check_words(WHAT, range, raw.size())?;
    let alignment = u64::from(device.limits.min_storage_buffer_offset_alignment).max(4);
    let bindable = device.limits.max_storage_buffer_binding_size;
    // The excess of a part's binding is less than the alignment in front, and less than a word behind.
    let most = bindable.min(MOST_BYTES).saturating_sub(alignment + 4);
    let length = pattern.len() as u64;
    if length > most {
        return Err(MemoryError::TooLarge {
            bytes: length,
            limit: most,
            device: device.capabilities.name.clone(),
        });
    }
    // Whole repetitions, so each part begins with the pattern.
    let most = most / length * length;
    let words = pattern_words(device, pattern)?;
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + most);
        let (refused, error) = capture(&device.raw, || {
            let binding = start / alignment * alignment;
            let part = Part {
                raw,
                binding,
                bytes: start - binding..end - binding,
            };
            fill_by_kernel(queue, device, &part, &words, pattern)
        });
        if let Some(error) = refused.or(error) {
            return Err(MemoryError::Refused {
                what: WHAT,
                message: error.to_string(),
            });
        }
        start = end;
    }
    Ok(())
}

/// Bytes visible through a binding.
struct Part<'b> {
    raw: &'b wgpu::Buffer,
    /// Where the binding begins.
    binding: u64,
    /// The bytes, counted from there.
    bytes: Range<u64>,
}

/// A pattern that is too long to go with the parameters, in a buffer.
fn pattern_words(
    device: &DeviceShared,
    pattern: &[u8],
) -> Result<Option<wgpu::Buffer>, MemoryError> {
    if pattern.len() <= SHORT_PATTERN {
        return Ok(None);
    }
    let (usage, bytes) = (wgpu::BufferUsages::STORAGE, pattern.len() as u64);
    let buffer = staging::make_filled(device, "fill", "fill pattern", usage, bytes, pattern)?;
    Ok(Some(buffer))
}

/// Records one part. The answer is wgpu's refusal of the binding, with nothing recorded: a refused command must not
/// take other commands of its batch along.
fn fill_by_kernel(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    part: &Part<'_>,
    words: &Option<wgpu::Buffer>,
    pattern: &[u8],
) -> Option<wgpu::Error> {
    let pipeline = device
        .extensions
        .memory
        .fill
        .get_or_init(|| own_pipeline(&device.raw, "tombolo fill", SOURCE));
    let Range { start, end } = part.bytes;
    let parameters = Fill {
        // All fit: limited by `MOST_BYTES`.
        first: start as u32,
        end: end as u32,
        pattern_bytes: pattern.len() as u32,
        words_per_row: WORDS_PER_ROW,
    };
    let short = if words.is_none() { pattern } else { &[] };
    let size = short.len().next_multiple_of(4);
    // May submit the batch, before any command of this part.
    queue.reserve_uniforms(
        queue.uniform_footprint(size_of::<Fill>()) + queue.uniform_footprint(size),
    );
    let parameters = queue.push_uniform(bytemuck::bytes_of(&parameters), size_of::<Fill>());
    let pattern = queue.push_uniform(short, size);
    let Some((ring, _)) = queue.uniform_buffer() else {
        // Never: room was reserved.
        return None;
    };
    let in_ring = |offset: u32, size: usize| {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &ring,
            offset: offset.into(),
            size: wgpu::BufferSize::new(size as u64),
        })
    };
    let entries = [
        wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: part.raw,
                offset: part.binding,
                size: wgpu::BufferSize::new(end.next_multiple_of(4)),
            }),
        },
        wgpu::BindGroupEntry {
            binding: 1,
            resource: match words {
                Some(words) => words.as_entire_binding(),
                None => in_ring(pattern, size),
            },
        },
        wgpu::BindGroupEntry {
            binding: 2,
            resource: in_ring(parameters, size_of::<Fill>()),
        },
    ];
    let (group, refused) = capture(&device.raw, || {
        device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("fill"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    });
    if refused.is_some() {
        return refused;
    }
    let words = end.div_ceil(4) - start / 4;
    let row = u64::from(WORDS_PER_ROW);
    // Below 2^30 bytes there are at most 128 rows.
    let groups = [
        words.min(row).div_ceil(64) as u32,
        words.div_ceil(row) as u32,
        1,
    ];
    let bound = Bound {
        index: 0,
        group: &group,
        offsets: &[],
    };
    queue.launch(pipeline, &[bound], &[], &Dispatch::Direct(groups), u64::MAX);
    None
}
