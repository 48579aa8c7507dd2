//! The arithmetic of rows beside loops over every byte.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::rows::{Rows, Transfer};
use super::{Rect, RectError};

prop_compose! {
    /// Any rectangle of a given extent, in memory of a few hundred elements.
    fn any_rect_of(extent: [u64; 3])(
        origin in prop::array::uniform3(0u64..4), gap in 0u64..4, slice_gap in prop_oneof![Just(0u64), 0u64..9],
    ) -> Rect {
        let row_pitch = extent[0] + gap;
        let slice = (extent[1] - 1) * row_pitch + extent[0];
        // No gap at all is common in programs.
        let slice_pitch = if gap == 0 && slice_gap < 4 { slice } else { slice + slice_gap };
        Rect::new(origin, extent, row_pitch, slice_pitch).unwrap()
    }
}

fn any_extent() -> impl Strategy<Value = [u64; 3]> {
    [1u64..7, 1u64..6, 1u64..5]
}

fn any_pair() -> impl Strategy<Value = (Rect, Rect)> {
    any_extent().prop_flat_map(|extent| (any_rect_of(extent), any_rect_of(extent)))
}

/// Rows of any size of element and their targets.
pub(super) fn any_transfer() -> impl Strategy<Value = Transfer> {
    (any_pair(), 1usize..6).prop_map(|((from, to), element)| Transfer {
        from: from.rows(element),
        to: to.rows(element),
    })
}

/// The elements of a rectangle, by the definition.
fn elements(rect: &Rect) -> Vec<u64> {
    let ([x0, y0, z0], [nx, ny, nz]) = (rect.origin(), rect.extent());
    let mut all = Vec::new();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let (y, z) = ((y0 + y) * rect.row_pitch(), (z0 + z) * rect.slice_pitch());
                all.push(x0 + x + y + z);
            }
        }
    }
    all
}

/// The bytes of rows, in the order of copying.
fn bytes(rows: &Rows) -> Vec<u64> {
    (0..rows.count()).flat_map(|row| rows.row(row)).collect()
}

fn bytes_of_elements(rect: &Rect, size: u64) -> Vec<u64> {
    let elements = elements(rect).into_iter();
    elements
        .flat_map(|element| element * size..(element + 1) * size)
        .collect()
}

proptest! {
    #[test]
    fn rows_are_the_bytes_of_the_elements(rect in any_extent().prop_flat_map(any_rect_of), size in 1u64..6) {
        let all = elements(&rect);
        prop_assert_eq!(rect.len(), all.len() as u64);
        prop_assert_eq!(rect.end(), all.iter().max().unwrap() + 1);
        let rows = rect.rows(size as usize);
        let expected = bytes_of_elements(&rect, size);
        prop_assert_eq!(bytes(&rows), &expected[..]);
        prop_assert_eq!(bytes(&rows.merged()), &expected[..]);
        prop_assert_eq!(rows.span(), expected[0]..expected[expected.len() - 1] + 1);
        prop_assert_eq!(rows.are_words(), (0..rows.count()).all(|row| {
            let row = rows.row(row);
            row.start.is_multiple_of(4) && row.end.is_multiple_of(4)
        }));
    }

    #[test]
    fn merging_keeps_pairs_of_bytes(transfer in any_transfer()) {
        let merged = transfer.merged();
        prop_assert_eq!(bytes(&merged.from), bytes(&transfer.from));
        prop_assert_eq!(bytes(&merged.to), bytes(&transfer.to));
        prop_assert_eq!(merged.from.count(), merged.to.count());
        let follow = |rows: &[u64]| rows.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let is_one = follow(&bytes(&transfer.from)) && follow(&bytes(&transfer.to));
        prop_assert_eq!(merged.from.count() == 1, is_one);
    }

    #[test]
    fn rows_that_meet_a_range(rect in any_extent().prop_flat_map(any_rect_of), start in 0u64..300, len in 0u64..40) {
        let rows = rect.rows(3);
        let range = start..start + len;
        let expected: Vec<u64> = (0..rows.count()).filter(|&row| {
            let row = rows.row(row);
            row.start.max(range.start) < row.end.min(range.end)
        }).collect();
        prop_assert_eq!(rows.meeting(&range).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_first_byte_in_common((one, other) in any_pair(), size in 1u64..4) {
        let set = |rect: &Rect| bytes_of_elements(rect, size).into_iter().collect::<BTreeSet<_>>();
        let expected = set(&one).intersection(&set(&other)).min().copied();
        let rows = [&one, &other].map(|rect| rect.rows(size as usize).merged());
        prop_assert_eq!(rows[0].first_common(&rows[1]), expected);
    }

    #[test]
    fn staging_has_every_row_once(transfer in any_transfer(), most in 1u64..200) {
        let rows = transfer.to;
        let mut seen = 0;
        for group in transfer.groups(rows.bytes, most) {
            prop_assert_eq!(group.start, seen);
            let taken = group.end - group.start;
            prop_assert!(taken == 1 || taken * rows.bytes <= most);
            prop_assert!(taken < 4 || group.end == rows.count() || taken % 4 == 0);
            let (aligned, packed) = (rows.aligned(group.start), rows.packed(group.start, rows.bytes));
            prop_assert_eq!(packed.at(group.start), 0);
            prop_assert!(aligned.at(group.start) < 4);
            for row in group.clone() {
                prop_assert_eq!(packed.at(row), (row - group.start) * rows.bytes);
                prop_assert_eq!(aligned.at(row) % 4, rows.at(row) % 4);
                prop_assert!(row == group.start || aligned.at(row) >= aligned.row(row - 1).end);
            }
            seen = group.end;
        }
        prop_assert_eq!(seen, rows.count());
    }
}

#[test]
fn rectangles_that_cannot_be() {
    let max = u64::MAX;
    assert!(matches!(
        Rect::plane([0, 0], [5, 2], 4),
        Err(RectError::RowPitch {
            row_pitch: 4,
            columns: 5
        })
    ));
    assert!(matches!(
        Rect::new([0; 3], [5, 3, 2], 8, 20),
        Err(RectError::SlicePitch {
            slice_pitch: 20,
            needed: 21
        })
    ));
    for rect in [
        Rect::new([0; 3], [1, max, 1], 3, max),
        Rect::new([max, 0, 0], [1, 1, 1], 1, 1),
        Rect::new([0, max, 0], [1, 1, 1], 1, 1),
        Rect::new([0, 2, 0], [1, 1, 1], max, max),
        Rect::new([0; 3], [1, 1, 3], 1, max),
        Rect::packed([1 << 32, 1 << 32, 1]),
        Rect::packed([1 << 22, 1 << 22, 1 << 22]),
        Rect::plane([0, 0], [1 << 32, 1 << 33], 1 << 32),
    ] {
        assert!(matches!(rect, Err(RectError::TooLarge { .. })), "{rect:?}");
    }
}

#[test]
fn rectangles_at_the_ends_of_numbers() {
    let max = u64::MAX;
    // A pitch is not used for a single row.
    let row = Rect::new([7, 0, 0], [5, 1, 1], max, max).unwrap();
    assert_eq!((row.len(), row.end()), (5, 12));
    assert_eq!(bytes(&row.rows(4)), (28..48).collect::<Vec<_>>());
    assert_eq!(row.rows(4).meeting(&(30..max)), 0..1);
    for extent in [[0, max, max], [max, 0, max], [3, 2, 0]] {
        let empty = Rect::new([max; 3], extent, max, max).unwrap();
        assert!(empty.is_empty());
        assert_eq!((empty.len(), empty.end()), (0, 0));
        assert!(empty.check("a test", "the source", 0).is_ok());
    }
    for extent in [[0, 5, max], [4, 0, 1], [max, max, 0]] {
        assert!(Rect::packed(extent).unwrap().is_empty());
    }
    assert!(Rect::plane([0, 0], [4, 0], 10).unwrap().is_empty());
}

#[test]
fn errors_name_what_is_needed() {
    let rect = Rect::plane([3, 1], [4, 2], 10).unwrap();
    assert!(rect.check("a test", "the source", 27).is_ok());
    let error = rect.check("a test", "the source", 26).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a test: the last element of the rectangle is element 26 of the source, which has 26: take a smaller extent, or \
         other pitches"
    );
    let other = Rect::packed([2, 4, 1]).unwrap();
    let error = rect.check_extent("a test", &other).unwrap_err();
    assert!(matches!(
        error,
        RectError::Extents {
            from: [4, 2, 1],
            to: [2, 4, 1],
            ..
        }
    ));
}
