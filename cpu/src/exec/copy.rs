//! Copies of bytes, of many by several threads: one thread does not use all of what the memory can do, and the pages of new
//! memory are made by the thread that first writes there.

use std::thread;

/// Bytes for which another thread is worth its start.
const SHARE: usize = 8 << 20;

/// More threads do not make a copy faster: the memory is busy.
const MOST: usize = 8;

/// The part of a copy that one thread makes.
#[derive(Clone, Copy)]
struct Part {
    from: *const u8,
    to: *mut u8,
    count: usize,
}

// SAFETY: the bytes are those of `copy`, whose caller lets any thread access them until it returns.
unsafe impl Send for Part {}

impl Part {
    /// # Safety
    /// The bytes are those of a running [`copy`], and no other thread copies them.
    unsafe fn copy(self) {
        // SAFETY: by contract. The ranges may overlap.
        unsafe { self.from.copy_to(self.to, self.count) };
    }
}

/// Copies `count` bytes, whose two ranges may overlap, with the help of up to `threads - 1` threads more.
///
/// # Safety
/// The bytes must be valid for reads and writes of any thread, and nobody else may access them meanwhile but for reads of the
/// source.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, count: usize, threads: usize) {
    let threads = (count / SHARE).min(threads).min(MOST);
    let all = Part { from, to, count };
    let are_apart = from.addr().abs_diff(to.addr()) >= count;
    if threads < 2 || !are_apart {
        // SAFETY: by contract.
        return unsafe { all.copy() };
    }
    // Whole pages, so that two threads do not make the same one.
    let step = count.div_ceil(threads).next_multiple_of(4096);
    thread::scope(|scope| {
        let mut mine = Vec::new();
        for start in (0..count).step_by(step) {
            // SAFETY: both places lie within the ranges, which begin below `count`.
            let (from, to) = unsafe { (from.add(start), to.add(start)) };
            let count = step.min(count - start);
            let part = Part { from, to, count };
            // SAFETY: by contract; the parts have no bytes in common, as the ranges have none.
            let copy = move || unsafe { part.copy() };
            let thread = thread::Builder::new().name("tombolo-cpu copy".into());
            if start == 0 || thread.spawn_scoped(scope, copy).is_err() {
                // Without a thread this one copies.
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
            // SAFETY: both ranges lie in memory of this thread's, which waits.
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
            // SAFETY: both ranges lie in the vector, which nobody else uses.
            unsafe { copy(start.add(from), start.add(to), count, 4) };
            assert!(bytes[to..to + count] == before[from..from + count]);
        }
    }
}
