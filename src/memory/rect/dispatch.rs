//! The kernel for copies of many short rows between two buffers (`shaders/copy_rows.wgsl`).
//!
//! A dispatch covers as many rows as bindings and a line of work-groups reach. Offsets in the kernel are sums of words, modulo
//! 2^32: pitches may be longer than a binding, as long as the rows of the dispatch lie within a binding.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::rows::{Rows, Transfer};
use crate::device::queue::{Bound, Dispatch, Recorder};
use crate::device::{DeviceShared, capture};
use crate::memory::MemoryError;
use crate::memory::own_kernel::own_pipeline;

const SOURCE: &str = include_str!("../../../shaders/copy_rows.wgsl");
/// The most invocations of a dispatch: 65,535 work-groups of 64, the least limit of adapters.
const MOST_INVOCATIONS: u64 = 65_535 * 64;
/// The most of a buffer within reach of a dispatch, so all sums of offsets fit words.
const MOST_SPAN: u64 = 1 << 30;
/// The most rows of a slice with a dispatch going on in the next slice, for the same reason.
const MOST_ROWS: u64 = 1 << 30;

/// `Rows` of `shaders/copy_rows.wgsl`, as long as a uniform has to be.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Parameters {
    from_origin: u32,
    from_row: u32,
    from_slice: u32,
    bytes: u32,
    to_origin: u32,
    to_row: u32,
    to_slice: u32,
    words: u32,
    rows: u32,
    first: u32,
    count: u32,
    padding: u32,
}

/// Records the copy of rows by the kernel, in as many dispatches as needed. Both buffers can be bound, and differ.
///
/// # Errors
/// [`MemoryError::Refused`].
pub(super) fn by_kernel(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    transfer: &Transfer,
    rows: Range<u64>,
) -> Result<(), MemoryError> {
    let alignment = u64::from(device.limits.min_storage_buffer_offset_alignment).max(4);
    let bindable = device.limits.max_storage_buffer_binding_size;
    // A binding begins at an aligned offset before the rows, and ends with a word behind.
    let most = bindable.min(MOST_SPAN).saturating_sub(alignment + 4);
    let mut first = rows.start;
    while first < rows.end {
        let count = reach(transfer, first..rows.end, most);
        let (refused, error) = capture(&device.raw, || {
            // May submit the batch, before anything of this dispatch is in it.
            queue.reserve_uniforms(queue.uniform_footprint(size_of::<Parameters>()));
            dispatch(queue, device, (from, to), transfer, (first, count))
        });
        if let Some(error) = refused.or(error) {
            return Err(MemoryError::Refused {
                what: "a copy of rows",
                message: error.to_string(),
            });
        }
        first += count;
    }
    Ok(())
}

/// The most words of a target with bytes of a row.
fn words_of_row(bytes: u64) -> u64 {
    (bytes + 6) / 4
}

/// How many of `rows` a dispatch copies: at least 1, within `most` bytes of both buffers.
fn reach(transfer: &Transfer, rows: Range<u64>, most: u64) -> u64 {
    let Transfer { from, to } = transfer;
    let mut most_rows = (rows.end - rows.start).min(MOST_INVOCATIONS / words_of_row(from.bytes));
    if from.rows > MOST_ROWS {
        most_rows = most_rows.min(from.rows - rows.start % from.rows);
    }
    let fits = |count: u64| {
        [from, to].into_iter().all(|side| {
            let last = side.at(rows.start + count - 1);
            last.wrapping_sub(side.at(rows.start)) + side.bytes <= most
        })
    };
    // The greatest fitting count, between 1 and `most_rows`.
    let (mut low, mut high) = (1, most_rows.max(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

/// A dispatch: the kernel's figures, and the bound parts of both buffers.
struct Figures {
    parameters: Parameters,
    source: Binding,
    target: Binding,
}

/// Whole words of a buffer.
struct Binding {
    offset: u64,
    size: u64,
}

impl Binding {
    /// Around the first `count` rows from row `first` on.
    fn of(side: &Rows, (first, count): (u64, u64), alignment: u64) -> Self {
        let offset = side.at(first) / alignment * alignment;
        let end = side.row(first + count - 1).end - offset;
        Self {
            offset,
            size: end.next_multiple_of(4),
        }
    }

    /// Where the first row of the first slice would begin, behind the binding's begin and modulo 2^32, if `first` is row
    /// `line` of the slice.
    fn origin(&self, side: &Rows, first: u64, line: u64) -> u32 {
        let before = line.wrapping_mul(side.row_pitch);
        (side.at(first) - self.offset).wrapping_sub(before) as u32
    }

    fn resource<'b>(&self, buffer: &'b wgpu::Buffer) -> wgpu::BindingResource<'b> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset: self.offset,
            size: wgpu::BufferSize::new(self.size),
        })
    }
}

impl Figures {
    /// For `count` rows from row `first` on, as many as [`reach`] allows. Casts keep the bits that the kernel's sums modulo 2^32
    /// need.
    fn of(transfer: &Transfer, (first, count): (u64, u64), alignment: u64) -> Self {
        let Transfer { from, to } = transfer;
        let source = Binding::of(from, (first, count), alignment);
        let target = Binding::of(to, (first, count), alignment);
        let line = first % from.rows;
        // Within one slice, whose number of rows may not fit a word, rows are counted from the first.
        let (line, rows) = match line + count <= from.rows {
            true => (0, u64::from(u32::MAX)),
            false => (line, from.rows),
        };
        let parameters = Parameters {
            from_origin: source.origin(from, first, line),
            from_row: from.row_pitch as u32,
            from_slice: from.slice_pitch as u32,
            bytes: from.bytes as u32,
            to_origin: target.origin(to, first, line),
            to_row: to.row_pitch as u32,
            to_slice: to.slice_pitch as u32,
            words: words_of_row(from.bytes) as u32,
            rows: rows as u32,
            first: line as u32,
            count: count as u32,
            padding: 0,
        };
        Self {
            parameters,
            source,
            target,
        }
    }
}

/// Records a dispatch. The answer is wgpu's refusal to bind the buffers, with nothing recorded.
fn dispatch(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&wgpu::Buffer, &wgpu::Buffer),
    transfer: &Transfer,
    (first, count): (u64, u64),
) -> Option<wgpu::Error> {
    let pipeline = device
        .extensions
        .memory
        .copy_rows
        .get_or_init(|| own_pipeline(&device.raw, "tombolo copy of rows", SOURCE));
    let alignment = u64::from(device.limits.min_storage_buffer_offset_alignment).max(4);
    let figures = Figures::of(transfer, (first, count), alignment);
    let parameters = figures.parameters;
    let invocations = u64::from(parameters.count) * u64::from(parameters.words);
    let parameters = queue.push_uniform(bytemuck::bytes_of(&parameters), size_of::<Parameters>());
    let Some((ring, _)) = queue.uniform_buffer() else {
        // Room was reserved, so that there is a buffer.
        return Some(wgpu::Error::Internal {
            source: "no buffer".into(),
            description: "the batch has no memory for the parameters of a copy".to_owned(),
        });
    };
    let entries = [
        figures.target.resource(to),
        figures.source.resource(from),
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &ring,
            offset: parameters.into(),
            size: wgpu::BufferSize::new(size_of::<Parameters>() as u64),
        }),
    ];
    let entries = [0, 1, 2].map(|binding| wgpu::BindGroupEntry {
        binding,
        resource: entries[binding as usize].clone(),
    });
    let (group, refused) = capture(&device.raw, || {
        device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("copy of rows"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    });
    if refused.is_some() {
        return refused;
    }
    let groups = [invocations.div_ceil(64) as u32, 1, 1];
    let bound = Bound {
        index: 0,
        group: &group,
        offsets: &[],
    };
    queue.launch(pipeline, &[bound], &[], &Dispatch::Direct(groups), u64::MAX);
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::rect::tests::any_transfer;

    /// The kernel's arithmetic: the first bytes of each row in source and target.
    fn starts(figures: &Figures) -> Vec<(u64, u64)> {
        let p = figures.parameters;
        let at = |origin: u32, row: u32, slice: u32, number: u32| {
            let (y, z) = ((p.first + number) % p.rows, (p.first + number) / p.rows);
            origin
                .wrapping_add(y.wrapping_mul(row))
                .wrapping_add(z.wrapping_mul(slice))
        };
        let rows = (0..p.count).map(|number| {
            let from = at(p.from_origin, p.from_row, p.from_slice, number);
            let to = at(p.to_origin, p.to_row, p.to_slice, number);
            for (start, binding) in [(from, &figures.source), (to, &figures.target)] {
                assert!(u64::from(start) + u64::from(p.bytes) <= binding.size);
                assert!(start % 4 + p.bytes <= p.words * 4);
            }
            (
                figures.source.offset + u64::from(from),
                figures.target.offset + u64::from(to),
            )
        });
        rows.collect()
    }

    /// All dispatches together copy every row once, to the right place.
    fn check(transfer: &Transfer, rows: Range<u64>, most: u64, alignment: u64) {
        let mut first = rows.start;
        while first < rows.end {
            let count = reach(transfer, first..rows.end, most);
            assert!(count >= 1 && first + count <= rows.end);
            let figures = Figures::of(transfer, (first, count), alignment);
            for (row, (from, to)) in (first..).zip(starts(&figures)) {
                assert_eq!((from, to), (transfer.from.at(row), transfer.to.at(row)));
            }
            for binding in [&figures.source, &figures.target] {
                assert!(binding.offset % alignment == 0 && binding.size % 4 == 0);
                assert!(count == 1 || binding.size <= most + alignment + 4);
            }
            first += count;
        }
    }

    proptest! {
        #[test]
        fn dispatches_copy_every_row_to_its_place(
            transfer in any_transfer(), most in 1u64..400, alignment in prop::sample::select(vec![4u64, 32, 256]),
        ) {
            check(&transfer, 0..transfer.from.count(), most, alignment);
            let from = Transfer {
                from: transfer.from.packed(1, transfer.from.bytes),
                to: transfer.to,
            };
            check(&from, 1..from.from.count(), most, alignment);
        }
    }

    /// Rows beyond 2^32 bytes, and more than 2^32 rows.
    #[test]
    fn dispatches_reach_the_end_of_large_buffers() {
        let rows = Rows {
            start: (5 << 32) + 3,
            row_pitch: (3 << 30) + 5,
            slice_pitch: 7 << 40,
            bytes: 9,
            rows: 3,
            slices: 4,
        };
        let to = rows.packed(0, 9);
        check(&Transfer { from: rows, to }, 0..12, MOST_SPAN, 256);
        let many = Rows {
            start: 1,
            row_pitch: 3,
            slice_pitch: 20 << 32,
            bytes: 2,
            rows: 5 << 32,
            slices: 2,
        };
        let to = Rows { start: 0, ..many };
        let transfer = Transfer { from: many, to };
        let end = 5 << 32;
        check(&transfer, end - 3..end + 2, MOST_SPAN, 32);
        assert_eq!(reach(&transfer, 0..2 * end, u64::MAX), MOST_INVOCATIONS / 2);
    }
}
