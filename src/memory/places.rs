//! Sources and targets of transfers in buffers, and the copies between them, at any byte.
//!
//! wgpu copies and binds whole words of 4 bytes, and programs have ranges of any bytes. All movement of bytes within a
//! device decides here about ranges of partial words: transfers, read-backs, and launches with such arguments
//! ([`Place::padded`] is all that has to be known of a range for this).
//!
//! - A range ending inside a word may be taken as ending with the word where the rest of that word is unused: behind
//!   the last element of a buffer, or of an allocation of the heap, which is granted whole words.
//! - Anything else is copied by a kernel that changes exactly the bytes of the range ([`shift`]).
//!
//! What is left is a buffer of the program's own that ends inside a word: nothing in wgpu reaches that word, and the
//! error says so (`MemoryError::Misaligned`).

use std::ops::Range;

use crate::device::DeviceShared;
use crate::device::queue::Recorder;
use crate::memory::MemoryError;
use crate::memory::heap::DeviceView;
use crate::memory::shift::{self, Bytes};
use crate::memory::staging;

/// The most that goes through the scratch buffer at once.
const BETWEEN_BYTES: u64 = 16 << 20;
/// Below this size a separate copy of the whole words in the middle of a range is not worthwhile.
const FEW_BYTES: u64 = 64 << 10;

/// Where a transfer reads or writes.
pub(crate) struct Place {
    pub buffers: Buffers,
    /// First byte.
    pub start: u64,
    /// Whether the bytes behind the last one, up to the end of its word, have no other owner.
    pub padded: bool,
}

pub(crate) enum Buffers {
    One(wgpu::Buffer),
    /// The heap, and bytes of a whole segment.
    Segments(DeviceView, u64),
}

impl Place {
    pub(crate) fn in_buffer(buffer: &wgpu::Buffer, start: u64, padded: bool) -> Self {
        Self {
            buffers: Buffers::One(buffer.clone()),
            start,
            padded,
        }
    }

    /// The buffer with the byte `done` bytes further on, the byte's place there, and the bytes from that place to the
    /// end.
    pub(crate) fn after(&self, done: u64) -> Result<(&wgpu::Buffer, u64, u64), MemoryError> {
        let at = self.start + done;
        let (buffer, at) = match &self.buffers {
            Buffers::One(raw) => (Some(raw), at),
            Buffers::Segments(view, step) => {
                let segment = view.segments.get((at / step) as usize);
                (segment.map(|(_, raw)| raw), at % step)
            }
        };
        match buffer {
            Some(raw) if at < raw.size() => Ok((raw, at, raw.size() - at)),
            // Never: places are checked at creation.
            _ => Err(MemoryError::OutOfRange {
                what: "a transfer",
                start: at,
                end: at + 1,
                len: buffer.map_or(0, wgpu::Buffer::size),
            }),
        }
    }
}

/// Whether `range` may be taken in whole words: its begin is that of a word, and its end that of a word or `padded`.
pub(crate) fn is_in_words(range: &Range<u64>, padded: bool) -> bool {
    range.start.is_multiple_of(4) && (padded || range.end.is_multiple_of(4))
}

/// Checks that the words in which `range` lies are all within a buffer of `size` bytes. Only buffers of a program's own
/// may end inside a word, and then nothing reaches it: wgpu copies, maps and binds whole words.
///
/// # Errors
/// [`MemoryError::Misaligned`].
pub(crate) fn check_words(
    what: &'static str,
    range: &Range<u64>,
    size: u64,
) -> Result<(), MemoryError> {
    match range.end.next_multiple_of(4) > size {
        true => Err(MemoryError::Misaligned {
            what,
            start: range.start,
            end: range.end,
        }),
        false => Ok(()),
    }
}

/// A transfer in three consecutive pieces; the first, the middle and the last may be empty.
struct Pieces {
    /// The range copied by wgpu.
    words: Range<u64>,
    bytes: u64,
}

impl Pieces {
    fn of((from, from_padded): (u64, bool), (to, to_padded): (u64, bool), bytes: u64) -> Self {
        let none = |bytes| Self { words: 0..0, bytes };
        if from % 4 != to % 4 {
            return none(bytes);
        }
        let first = from.next_multiple_of(4) - from;
        let beyond = (from + bytes) % 4;
        let bytes = match beyond > 0 && from_padded && to_padded {
            true => bytes + 4 - beyond,
            false => bytes,
        };
        let end = ((from + bytes) / 4 * 4).saturating_sub(from);
        let words = first..end.max(first);
        let all = words == (0..bytes);
        match all || words.end - words.start >= FEW_BYTES {
            true => Self { words, bytes },
            false => none(bytes),
        }
    }

    fn are_words(&self) -> bool {
        self.words == (0..self.bytes)
    }
}

/// The required usage of a copy's target: a kernel writes the bytes beyond wgpu's copies.
pub(crate) fn needed_of_target(
    (from, from_padded): (u64, bool),
    to: &Place,
    bytes: u64,
) -> wgpu::BufferUsages {
    let pieces = Pieces::of((from, from_padded), (to.start, to.padded), bytes);
    match pieces.are_words() {
        true => wgpu::BufferUsages::COPY_DST,
        false => wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::STORAGE,
    }
}

/// Records the copy of `bytes` bytes between places that share none.
///
/// # Errors
/// [`MemoryError::OutOfMemory`] where there is no room for a scratch buffer; [`MemoryError::Refused`].
pub(crate) fn copy(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    from: &Place,
    to: &Place,
    bytes: u64,
) -> Result<(), MemoryError> {
    let Pieces { words, bytes } =
        Pieces::of((from.start, from.padded), (to.start, to.padded), bytes);
    copy_bytes(queue, device, (from, to), 0..words.start)?;
    let mut done = words.start;
    while done < words.end {
        let (source, source_at, source_left) = from.after(done)?;
        let (target, target_at, target_left) = to.after(done)?;
        let mut count = source_left.min(target_left).min(words.end - done);
        if source == target {
            // wgpu refuses copies inside one buffer.
            count = count.min(BETWEEN_BYTES);
            let scratch = staging::of(device).scratch(device, count)?;
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(source, source_at, &scratch, 0, count);
                encoder.copy_buffer_to_buffer(&scratch, 0, target, target_at, count);
            });
        } else {
            queue.encode(|encoder| {
                encoder.copy_buffer_to_buffer(source, source_at, target, target_at, count);
            });
        }
        done += count;
    }
    copy_bytes(queue, device, (from, to), words.end..bytes)
}

/// Records the copy of a part of a transfer, at any byte.
fn copy_bytes(
    queue: &mut Recorder<'_>,
    device: &DeviceShared,
    (from, to): (&Place, &Place),
    part: Range<u64>,
) -> Result<(), MemoryError> {
    let mut done = part.start;
    while done < part.end {
        let (source, source_at, source_left) = from.after(done)?;
        let (target, target_at, target_left) = to.after(done)?;
        let most = source_left.min(target_left).min(shift::most_bytes(device));
        let bytes = Bytes {
            source,
            source_at,
            target,
            target_at,
            count: most.min(part.end - done),
        };
        shift::shift(queue, device, &bytes)?;
        done += bytes.count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_in_words() {
        for (range, padded, expected) in [
            (0..8, false, true),
            (0..7, false, false),
            (0..7, true, true),
            (1..8, true, false),
            (4..4, false, true),
        ] {
            assert_eq!(is_in_words(&range, padded), expected, "{range:?} {padded}");
        }
        assert!(check_words("a test", &(3..8), 8).is_ok());
        assert!(check_words("a test", &(3..5), 8).is_ok());
        assert!(matches!(
            check_words("a test", &(3..5), 6),
            Err(MemoryError::Misaligned {
                start: 3,
                end: 5,
                ..
            })
        ));
    }

    proptest! {
        /// wgpu's copies are of whole words on both sides, without owned bytes beyond the range.
        #[test]
        fn pieces_cover_a_transfer(
            from in 0u64..64, to in 0u64..64, bytes in prop_oneof![1u64..40, 65_500u64..65_600],
            from_padded: bool, to_padded: bool,
        ) {
            let pieces = Pieces::of((from, from_padded), (to, to_padded), bytes);
            let Range { start, end } = pieces.words;
            prop_assert!(start <= end && end <= pieces.bytes);
            if start < end {
                prop_assert!((from + start).is_multiple_of(4) && (to + start).is_multiple_of(4));
                prop_assert!((end - start).is_multiple_of(4));
            }
            let reaches_beyond = pieces.bytes > bytes;
            prop_assert!(pieces.bytes >= bytes);
            prop_assert!(!reaches_beyond || (from_padded && to_padded && pieces.bytes - bytes < 4));
            prop_assert!(!reaches_beyond || (to + pieces.bytes).is_multiple_of(4));
        }
    }
}
