//! Memory of the host whose size a program gives. A size that cannot be had is an error: the global allocator's own
//! answer would end the process.

use bytemuck::{Pod, Zeroable};

use super::MemoryError;

fn refused<T>(what: &'static str, len: usize) -> MemoryError {
    MemoryError::HostMemory {
        what,
        bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
    }
}

/// `len` zeroed values. Pages come from the system as zeros and are not touched.
///
/// # Errors
/// [`MemoryError::HostMemory`].
pub(crate) fn zeroed<T: Zeroable>(what: &'static str, len: usize) -> Result<Vec<T>, MemoryError> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| refused::<T>(what, len))
}

/// A copy of `values`.
///
/// # Errors
/// [`MemoryError::HostMemory`].
pub(crate) fn copied<T: Copy>(what: &'static str, values: &[T]) -> Result<Vec<T>, MemoryError> {
    let mut copy = Vec::new();
    (copy.try_reserve_exact(values.len())).map_err(|_| refused::<T>(what, values.len()))?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// The values of `bytes`, at any alignment; the last value is filled up with zeros.
///
/// # Errors
/// [`MemoryError::HostMemory`].
pub(crate) fn values_of<T: Pod>(what: &'static str, bytes: &[u8]) -> Result<Vec<T>, MemoryError> {
    let len = bytes.len().div_ceil(size_of::<T>().max(1));
    let mut values = zeroed::<T>(what, len)?;
    let to: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    to[..bytes.len()].copy_from_slice(bytes);
    Ok(values)
}

/// Repeats `pattern` over `target`, from the pattern's beginning on.
pub(crate) fn repeat(target: &mut [u8], pattern: &[u8]) {
    if let [one] = pattern {
        return target.fill(*one);
    }
    let first = pattern.len().min(target.len());
    target[..first].copy_from_slice(&pattern[..first]);
    // The filled part is copied behind itself.
    let mut filled = first;
    while filled < target.len() && filled > 0 {
        let more = filled.min(target.len() - filled);
        target.copy_within(..more, filled);
        filled += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any address space has.
    const ENDLESS: usize = isize::MAX as usize / 8;

    #[test]
    fn what_cannot_be_had_is_an_error_with_its_size() {
        let error = zeroed::<u64>("a test", ENDLESS).unwrap_err();
        assert!(
            matches!(error, MemoryError::HostMemory { what: "a test", bytes } if bytes == ENDLESS as u64 * 8),
            "{error}"
        );
        // The size itself does not fit a number.
        let error = zeroed::<u64>("a test", usize::MAX).unwrap_err();
        assert!(matches!(
            error,
            MemoryError::HostMemory {
                bytes: u64::MAX,
                ..
            }
        ));
    }

    #[test]
    fn what_can_be_had_is_what_was_asked_for() {
        assert_eq!(zeroed::<u32>("a test", 3).unwrap(), [0; 3]);
        assert_eq!(zeroed::<u32>("a test", 0).unwrap(), []);
        assert_eq!(copied("a test", &[1u16, 2]).unwrap(), [1, 2]);
        let bytes = [9, 1, 0, 2, 0, 3];
        assert_eq!(values_of::<u16>("a test", &bytes[1..]).unwrap(), [1, 2, 3]);
        assert_eq!(
            values_of::<u32>("a test", &bytes[1..]).unwrap(),
            [0x2_0001, 3]
        );
        assert_eq!(values_of::<u64>("a test", &[]).unwrap(), []);
    }

    #[test]
    fn patterns_of_every_length_repeat_over_targets_of_every_length() {
        for pattern in 1..9usize {
            let pattern: Vec<u8> = (1..=pattern as u8).collect();
            for len in 0..40 {
                let mut target = vec![0xee; len];
                repeat(&mut target, &pattern);
                let expected: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                assert_eq!(target, expected);
            }
        }
    }
}
