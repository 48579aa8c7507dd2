//! The pieces of a large transfer: the bytes through one staging buffer, and the words around the bytes.

use std::ops::Range;

/// The most bytes of one piece: enough to make a piece's fixed cost negligible, and few enough for an early first
/// piece, and for all pieces under way to stay in the processor's caches.
pub(crate) const PIECE: u64 = 4 << 20;

/// One piece of a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// In the buffer.
    pub bytes: Range<u64>,
}

impl Piece {
    /// The words around the bytes: the unit of wgpu's copies.
    pub(crate) fn words(&self) -> Range<u64> {
        self.bytes.start / 4 * 4..self.bytes.end.next_multiple_of(4)
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// The pieces of `range`, one behind the other, each within `most` bytes of whole words; `most` is at least 4. All but
/// the first begin with a word, all but the last end with a word.
pub(crate) fn pieces(range: Range<u64>, most: u64) -> impl Iterator<Item = Piece> {
    let most = (most / 4 * 4).max(4);
    let mut at = range.start;
    std::iter::from_fn(move || {
        let bytes = at..(at / 4 * 4).saturating_add(most).min(range.end);
        at = bytes.end;
        (bytes.start < bytes.end).then_some(Piece { bytes })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Copied by pieces through memory of whole words, every byte of a range arrives once, and no other does.
        #[test]
        fn pieces_bring_every_byte_once(
            before in 0u64..40, len in 0u64..400, after in 0u64..8, most in 4u64..64,
        ) {
            let size = (before + len + after).next_multiple_of(4);
            let source: Vec<u8> = (0..size).map(|byte| (byte * 7 + 1) as u8).collect();
            let range = before..before + len;
            let mut target = Vec::new();
            let mut times = vec![0; size as usize];
            for piece in pieces(range.clone(), most) {
                let words = piece.words();
                prop_assert!(words.start % 4 == 0 && words.end % 4 == 0 && words.end <= size);
                prop_assert!(words.end - words.start <= most.next_multiple_of(4));
                prop_assert!(piece.len() > 0);
                prop_assert!(piece.bytes.start == range.start || piece.bytes.start % 4 == 0);
                prop_assert!(piece.bytes.end == range.end || piece.bytes.end % 4 == 0);
                let staging = &source[words.start as usize..words.end as usize];
                let skip = (piece.bytes.start - words.start) as usize;
                target.extend_from_slice(&staging[skip..skip + piece.len() as usize]);
                piece.bytes.for_each(|byte| times[byte as usize] += 1);
            }
            let wanted = range.start as usize..range.end as usize;
            prop_assert_eq!(&target, &source[wanted.clone()]);
            for (byte, times) in times.into_iter().enumerate() {
                prop_assert_eq!(times, usize::from(wanted.contains(&byte)));
            }
        }
    }

    #[test]
    fn ranges_at_the_end_of_all_numbers_end() {
        let end = u64::MAX / 4 * 4;
        let all: Vec<Piece> = pieces(end - 9..end, 8).collect();
        assert_eq!(all.last().map(|piece| piece.bytes.end), Some(end));
        assert_eq!(all.iter().map(Piece::len).sum::<u64>(), 9);
    }
}
