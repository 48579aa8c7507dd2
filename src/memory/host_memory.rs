//! Memory of the host, of a size given by a program. An unavailable size is an error: the global allocator's own answer
//! would end the process.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::{Pod, Zeroable};

use super::MemoryError;

/// From this size on new memory is asked for in large pages: the system's page faults take longer than the copy else.
#[cfg(any(target_os = "linux", test))]
const LARGE: usize = 4 << 20;

fn refused<T>(what: &'static str, len: usize) -> MemoryError {
    MemoryError::HostMemory {
        what,
        bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
    }
}

/// `count` values as a number of the host.
///
/// # Errors
/// [`MemoryError::HostMemory`] where the host has no such numbers.
pub(crate) fn count<T>(what: &'static str, count: u64) -> Result<usize, MemoryError> {
    usize::try_from(count).map_err(|_| refused::<T>(what, usize::MAX))
}

/// `len` zeroed values. Pages come from the system as zeros and are not touched.
///
/// # Errors
/// [`MemoryError::HostMemory`].
pub(crate) fn zeroed<T: Zeroable>(what: &'static str, len: usize) -> Result<Vec<T>, MemoryError> {
    let values: Vec<T> =
        bytemuck::allocation::try_zeroed_vec(len).map_err(|()| refused::<T>(what, len))?;
    advise(values.as_ptr().cast(), size_of_val(values.as_slice()));
    Ok(values)
}

/// `len` values brought by `fill`, into memory never written before.
///
/// # Errors
/// [`MemoryError::HostMemory`]; errors of `fill`; [`MemoryError::Refused`] where `fill` leaves bytes out.
#[allow(unsafe_code)]
pub(crate) fn filled<T: Pod, E: From<MemoryError>>(
    what: &'static str,
    len: usize,
    fill: impl FnOnce(Destination<'_>) -> Result<(), E>,
) -> Result<Vec<T>, E> {
    let mut values: Vec<T> = Vec::new();
    (values.try_reserve_exact(len)).map_err(|_| E::from(refused::<T>(what, len)))?;
    let room = &mut values.spare_capacity_mut()[..len];
    let bytes = size_of_val(room);
    // SAFETY: the same bytes of the vector, borrowed from the vector for as long; bytes with any content allowed need
    // no stricter alignment and have no forbidden value.
    let room: &mut [MaybeUninit<u8>] =
        unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), bytes) };
    advise(room.as_ptr().cast(), bytes);
    write_all(what, room, fill)?;
    // SAFETY: all bytes of the values were written, and `T` is plain data: any bytes are a value.
    unsafe { values.set_len(len) };
    Ok(values)
}

/// Has `fill` bring all of `bytes`.
///
/// # Errors
/// Errors of `fill`; [`MemoryError::Refused`] where `fill` leaves bytes out.
#[allow(unsafe_code)]
pub(crate) fn overwritten<E: From<MemoryError>>(
    what: &'static str,
    bytes: &mut [u8],
    fill: impl FnOnce(Destination<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let len = bytes.len();
    // SAFETY: the same bytes, borrowed for as long. A destination only ever writes bytes that hold a value there.
    let room = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) };
    write_all(what, room, fill)
}

/// Has all of `room` written, or fails: parts of a destination share no bytes, and each is written at most once, so a
/// count of written bytes equal to the length of `room` means all of `room`.
fn write_all<E: From<MemoryError>>(
    what: &'static str,
    room: &mut [MaybeUninit<u8>],
    fill: impl FnOnce(Destination<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (bytes, written) = (room.len(), AtomicUsize::new(0));
    fill(Destination {
        bytes: room,
        written: &written,
    })?;
    if written.load(Ordering::Acquire) != bytes {
        let message = "not all bytes arrived".to_owned();
        return Err(MemoryError::Refused { what, message }.into());
    }
    Ok(())
}

/// The destination of bytes copied once: a part of memory, perhaps never written before.
pub(crate) struct Destination<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    /// Bytes that were written, in all parts together.
    written: &'a AtomicUsize,
}

impl<'a> Destination<'a> {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the first `count` bytes off, or all that there are.
    pub(crate) fn split_off(&mut self, count: usize) -> Self {
        let bytes = std::mem::take(&mut self.bytes);
        let (first, rest) = bytes.split_at_mut(count.min(bytes.len()));
        self.bytes = rest;
        Self {
            bytes: first,
            written: self.written,
        }
    }

    /// Where the bytes go, and how many there are.
    pub(crate) fn place(&mut self) -> (*mut u8, usize) {
        (self.bytes.as_mut_ptr().cast(), self.bytes.len())
    }

    /// Counts all bytes as written.
    ///
    /// # Safety
    /// They were, by what was given [`Destination::place`], which writes there no more.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn assume_written(self) {
        self.written.fetch_add(self.bytes.len(), Ordering::AcqRel);
    }

    /// Copies `bytes` there, of which there have to be as many.
    pub(crate) fn put(self, bytes: &[u8]) {
        if self.bytes.len() == bytes.len() {
            self.bytes.write_copy_of_slice(bytes);
            self.written.fetch_add(bytes.len(), Ordering::AcqRel);
        }
    }
}

/// Asks for large pages for memory that is not used yet. What the system makes of it is its own affair.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn advise(start: *const u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        /// Whole large pages of the usual size, which are whole pages of any size that Linux has by default.
        const PAGE: usize = 2 << 20;
        let skip = start.align_offset(PAGE);
        let len = bytes.saturating_sub(skip) / PAGE * PAGE;
        if len > 0 {
            #[allow(unsafe_code)]
            // SAFETY: the range lies within an allocation of the caller's; the advice changes no byte, and an error means
            // that it is not taken.
            unsafe {
                let start = start.add(skip).cast_mut().cast();
                libc::madvise(start, len, libc::MADV_HUGEPAGE);
            }
        }
    }
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
    }

    #[test]
    fn vectors_are_filled_in_parts_of_any_order() {
        let sizes = [
            0usize,
            1,
            3,
            1000,
            LARGE / 2 - 1,
            LARGE / 2,
            3 * LARGE / 2 + 5,
        ];
        for len in sizes {
            let wanted: Vec<u16> = (0..len).map(|i| (i * 7 + i / 1000) as u16).collect();
            let bytes: &[u8] = bytemuck::cast_slice(&wanted);
            let values = filled::<u16, MemoryError>("a test", len, |mut to| {
                let first = to.split_off(bytes.len() / 3);
                let at = first.len();
                to.put(&bytes[at..]);
                first.put(&bytes[..at]);
                Ok(())
            });
            assert!(values.unwrap() == wanted, "{len}");
        }
    }

    #[test]
    fn a_vector_that_was_not_filled_is_none() {
        let refused = |fill: fn(Destination<'_>)| {
            let filled = filled::<u32, MemoryError>("a test", 3, |to| {
                fill(to);
                Ok(())
            });
            matches!(filled, Err(MemoryError::Refused { what: "a test", .. }))
        };
        assert!(refused(|_| ()));
        assert!(refused(|to| to.put(&[1; 11])));
        assert!(refused(|mut to| to.split_off(8).put(&[1; 8])));
        assert!(!refused(|to| to.put(&[1; 12])));
        let error = filled::<u64, MemoryError>("a test", ENDLESS, |_| Ok(())).unwrap_err();
        assert!(matches!(error, MemoryError::HostMemory { .. }), "{error}");
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
