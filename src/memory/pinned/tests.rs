use super::*;
use crate::buffers::MemoryError;
use crate::heap::WindowError;

#[test]
fn slices_are_found_in_the_vector_that_they_are_of() {
    let one = PinnedVec::<u32>::zeroed(5).unwrap();
    let other = PinnedVec::<u32>::zeroed(GRAIN as usize).unwrap();
    let found = |values: &[u32]| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let (region, at) = Region::around(bytes.as_ptr(), bytes.len())?;
        Some((region.start().addr(), at, region.bytes))
    };
    let start = |values: &[u32]| values.as_ptr().addr();
    assert_eq!(found(&one), Some((start(&one), 0, GRAIN)));
    assert_eq!(found(&one[2..]), Some((start(&one), 8, GRAIN)));
    assert_eq!(found(&other[7..9]), Some((start(&other), 28, 4 * GRAIN)));
    assert_eq!(found(&[1, 2, 3]), None);
    assert_eq!(found(&vec![1; 1 << 20]), None);
    // Bytes that begin in the vector and end behind its memory are no slice of it.
    let first: *const u32 = one.as_ptr();
    assert!(Region::around(first.cast(), GRAIN as usize).is_some());
    assert!(Region::around(first.cast(), GRAIN as usize + 1).is_none());
    assert!(Region::around(first.cast(), usize::MAX).is_none());
}

#[test]
fn a_vector_that_is_gone_is_not_found() {
    let vector = PinnedVec::<u64>::zeroed(100).unwrap();
    let (first, len) = (vector.as_ptr().cast::<u8>(), size_of_val(&*vector));
    assert!(Region::around(first, len).is_some());
    drop(vector);
    assert!(Region::around(first, len).is_none());
}

#[test]
fn values_are_zeros_and_keep_what_is_written() {
    let mut vector = PinnedVec::<[u8; 3]>::zeroed(70_001).unwrap();
    assert!(vector.iter().all(|value| *value == [0; 3]));
    for (value, i) in vector.iter_mut().zip(0u32..) {
        *value = [i as u8, (i >> 8) as u8, 7];
    }
    assert_eq!(vector[70_000], [0x70, 0x11, 7]);
    assert_eq!(vector.len(), 70_001);
    assert_eq!(format!("{vector:?}"), "PinnedVec { len: 70001, .. }");
}

#[test]
fn nothing_needs_no_memory() {
    let mut none = PinnedVec::<u32>::zeroed(0).unwrap();
    assert_eq!(*none, []);
    none.fill(3);
    assert!(none.is_empty() && none.region.is_none());
}

#[test]
fn what_cannot_be_had_is_an_error_with_its_size() {
    for len in [(4usize << 30) / 8 + 1, usize::MAX / 8, usize::MAX] {
        let error = PinnedVec::<u64>::zeroed(len).unwrap_err();
        let asked = (len as u64).saturating_mul(8);
        assert!(
            matches!(
                error,
                MemoryError::Pinned { bytes, reason: WindowError::Size { .. } } if bytes == asked
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("several vectors"), "{error}");
    }
}
