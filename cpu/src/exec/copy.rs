//! Copies of bytes, of many by several threads: a single thread does not use the memory's full bandwidth, and pages of new memory
//! are made by the first writing thread.

use std::thread;

/// Bytes worth the start of another thread.
const SHARE: usize = 8 << 20;

/// More threads do not make a copy faster: the memory is busy.
const MOST: usize = 8;

/// A single thread's part of a copy.
#[derive(Clone, Copy)]
struct Part {
    from: *const u8,
    to: *mut u8,
    count: usize,
}

// SAFETY: the bytes belong to `copy`, and its caller lets any thread access the bytes until `copy` returns.
unsafe impl Send for Part {}

impl Part {
    /// # Safety
    /// The bytes belong to a running [`copy`], and no other thread copies the same bytes.
    unsafe fn copy(self) {
        // SAFETY: by contract. The ranges may overlap.
        unsafe { self.from.copy_to(self.to, self.count) };
    }
}

/// Copies `count` bytes, whose two ranges may overlap, with the help of up to `threads - 1` threads more.
///
/// # Safety
/// The bytes must be valid for reads and writes of any thread, and nobody else may access the bytes meanwhile but for reads of
/// the source.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, count: usize, threads: usize) {
    let threads = (count / SHARE).min(threads).min(MOST);
    let all = Part { from, to, count };
    let are_apart = from.addr().abs_diff(to.addr()) >= count;
    if threads < 2 || !are_apart {
        // SAFETY: by contract.
        return unsafe { all.copy() };
    }
    // Whole pages, so that no two threads make the same page.
    let step = count.div_ceil(threads).next_multiple_of(4096);
    thread::scope(|scope| {
        let mut mine = Vec::new();
        for start in (0..count).step_by(step) {
            // SAFETY: both places lie within the ranges, with starts below `count`.
            let (from, to) = unsafe { (from.add(start), to.add(start)) };
            let count = step.min(count - start);
            let part = Part { from, to, count };
            // SAFETY: by contract; the parts have no bytes in common, as the ranges have none.
            let copy = move || unsafe { part.copy() };
            let thread = thread::Builder::new().name("tombolo-cpu copy".into());
            if start == 0 || thread.spawn_scoped(scope, copy).is_err() {
                // Without a new thread, the present thread copies.
                mine.push(part);
            }
        }
        for part in mine {
            // SAFETY: as above.
            unsafe { part.copy() };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_whoever_copies_it() {
        let most = 3 * SHARE + 4097;
        let source: Vec<u8> = (0..most).map(|at| (at * 7 + at / 251) as u8).collect();
        for (count, threads) in [
            (0, 4),
            (5, 4),
            (2 * SHARE - 1, 4),
            (2 * SHARE, 1),
            (2 * SHARE + 1, 2),
            (most - 3, 3),
            (most - 3, 100),
        ] {
            let mut target = vec![0xee; count + 2];
            // SAFETY: both ranges lie in memory of the present thread, and the thread waits.
            unsafe {
                copy(
                    source.as_ptr().add(3),
                    target.as_mut_ptr().add(1),
                    count,
                    threads,
                );
            }
            assert!(target[1..=count] == source[3..3 + count], "{count}");
            assert_eq!((target[0], target[count + 1]), (0xee, 0xee));
        }
    }

    #[test]
    fn ranges_that_overlap_are_copied_as_if_by_one_thread() {
        let before: Vec<u8> = (0..3 * SHARE).map(|at| (at / 3) as u8).collect();
        for (from, to) in [(0, SHARE - 5), (SHARE - 5, 0)] {
            let (mut bytes, count) = (before.clone(), 2 * SHARE);
            let start = bytes.as_mut_ptr();
            // SAFETY: both ranges lie in the vector, used by nobody else.
            unsafe { copy(start.add(from), start.add(to), count, 4) };
            assert!(bytes[to..to + count] == before[from..from + count]);
        }
    }
}
