//! Invocations running one by one, and waiting in their frames for their subgroup or their work-group.
//!
//! ```text
//! frame of an invocation that waits
//! ┌───────┬───────────┬────────┬───────┬───┬──────────────────────┬───────────────────────────────┐
//! │ state │ operation │ number │ loops │ … │ (loop, passes) × max │ operands, and results, by row │
//! └───────┴───────────┴────────┴───────┴───┴──────────────────────┴───────────────────────────────┘
//! ```

use std::{cmp::Ordering, slice};

use super::{AT_BARRIER, AT_OPERATION, ENDED, Operation, ROW_BYTES, ROWS, SIZE};
use crate::compile::abi::BoundResource;

/// The frames of a work-group whose invocations run one by one.
struct Frames {
    start: *mut u8,
    stride: usize,
    /// Where in a frame the loops are, and the rows
    loops: usize,
    rows: usize,
}

/// Where an invocation waits.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    operation: Operation,
    number: u32,
    /// Loops by their numbers, and passes
    passes: &'a [[u32; 2]],
}

impl Frames {
    /// # Safety
    /// The invocation must be one of the work-group.
    unsafe fn word(&self, invocation: u32, at: usize) -> *mut u32 {
        // SAFETY: by contract, the frame is a part of the memory of the work-group.
        unsafe {
            self.start
                .add(invocation as usize * self.stride + at)
                .cast()
        }
    }

    /// # Safety
    /// The contract of [`Self::word`].
    unsafe fn state(&self, invocation: u32) -> u32 {
        // SAFETY: by contract.
        unsafe { self.word(invocation, 0).read() }
    }

    /// The place where an invocation waits for its subgroup, if waiting.
    ///
    /// # Safety
    /// The contract of [`Self::word`].
    unsafe fn waiting(&self, invocation: u32) -> Option<Waiting<'_>> {
        // SAFETY: by contract; a kernel writes the head before the state tells of a waiting invocation.
        unsafe {
            let state = self.state(invocation);
            if state == ENDED || state & AT_OPERATION == 0 {
                return None;
            }
            let loops = self.word(invocation, 12).read() as usize;
            let passes = self.word(invocation, self.loops).cast::<[u32; 2]>();
            Some(Waiting {
                operation: Operation::decode(self.word(invocation, 4).read())?,
                number: self.word(invocation, 8).read(),
                passes: slice::from_raw_parts(passes, loops),
            })
        }
    }

    /// Lets an invocation go on.
    ///
    /// # Safety
    /// The contract of [`Self::word`].
    unsafe fn release(&self, invocation: u32, kind: u32) {
        // SAFETY: by contract.
        unsafe {
            let state = self.state(invocation);
            self.word(invocation, 0).write(state & !kind);
        }
    }

    /// Does the earliest operation with waiting invocations of a subgroup. Returns whether there was one.
    ///
    /// # Safety
    /// The contract of [`Self::word`], for all of `members`.
    unsafe fn meet(&self, members: std::ops::Range<u32>) -> bool {
        let first = members.start;
        let mut earliest: Option<Waiting<'_>> = None;
        let mut lanes = 0u32;
        for invocation in members {
            // SAFETY: by contract.
            let Some(waiting) = (unsafe { self.waiting(invocation) }) else {
                continue;
            };
            let order = earliest.map_or(Ordering::Less, |earliest| waiting.order(&earliest));
            if order == Ordering::Less {
                earliest = Some(waiting);
                lanes = 0;
            }
            if order != Ordering::Greater {
                lanes |= 1 << (invocation - first);
            }
        }
        let Some(Waiting { operation, .. }) = earliest else {
            return false;
        };
        let taking_part = || (0..SIZE).filter(|&lane| lanes >> lane & 1 != 0);
        let mut rows = [[0; SIZE as usize]; ROWS];
        for lane in taking_part() {
            for (row, ty) in operation.given().enumerate() {
                // SAFETY: by contract; kernels have as many rows of eight bytes in frames.
                rows[row][lane as usize] = unsafe {
                    let at = self.word(first + lane, self.rows + row * ROW_BYTES as usize);
                    match ty.own_bytes() {
                        8 => at.cast::<u64>().read(),
                        _ => at.read().into(),
                    }
                };
            }
        }
        operation.run(&mut rows, lanes);
        for lane in taking_part() {
            for (row, ty) in operation.taken().enumerate() {
                let bits = rows[row][lane as usize];
                // SAFETY: as above.
                unsafe {
                    let at = self.word(first + lane, self.rows + row * ROW_BYTES as usize);
                    match ty.own_bytes() {
                        8 => at.cast::<u64>().write(bits),
                        _ => at.write(bits as u32),
                    }
                }
            }
            // SAFETY: by contract.
            unsafe { self.release(first + lane, AT_OPERATION) };
        }
        true
    }
}

impl Waiting<'_> {
    /// Which of two comes first in the text, pass by pass of their common loops.
    fn order(&self, other: &Self) -> Ordering {
        let both = self.passes.iter().zip(other.passes);
        let shared = both.take_while(|([a, _], [b, _])| a == b);
        let mut passes = shared.map(|([_, a], [_, b])| a.cmp(b));
        passes
            .find(|order| order.is_ne())
            .unwrap_or_else(|| self.number.cmp(&other.number))
    }
}

/// Called by kernels when every invocation of a work-group has come somewhere. The result is zero if all have ended.
///
/// Operands: address of the frames and bytes of each, of 64 bits; number of invocations, and where in a frame loops and rows
/// are.
///
/// # Safety
/// The contract of [`HostFn`](super::host::HostFn), and there must be frames for as many invocations.
pub(crate) unsafe extern "C" fn meet(
    _resources: *const *const BoundResource,
    operands: *const u32,
    results: *mut u32,
    _lanes: u32,
    _width: u32,
    _which: u32,
) {
    // SAFETY: kernels pass two values of 64 bits, and three words behind them.
    let (start, stride, words) = unsafe {
        let long = operands.cast::<u64>();
        let words = operands.add(4).cast::<[u32; 3]>();
        (long.read_unaligned(), long.add(1).read_unaligned(), *words)
    };
    let [count, loops, rows] = words;
    let frames = Frames {
        start: std::ptr::with_exposed_provenance_mut(start as usize),
        stride: stride as usize,
        loops: loops as usize,
        rows: rows as usize,
    };
    let mut goes_on = false;
    for first in (0..count).step_by(SIZE as usize) {
        // SAFETY: the invocations are those of the work-group.
        goes_on |= unsafe { frames.meet(first..count.min(first + SIZE)) };
    }
    if !goes_on {
        for invocation in 0..count {
            // SAFETY: as above.
            unsafe {
                let state = frames.state(invocation);
                if state != ENDED && state & AT_BARRIER != 0 {
                    frames.release(invocation, AT_BARRIER);
                    goes_on = true;
                }
            }
        }
    }
    // SAFETY: kernels expect one word.
    unsafe { results.write(goes_on.into()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{ir::Type, subgroup::Function};

    #[test]
    fn passes_of_shared_loops_come_before_places() {
        let waiting = |number, passes| Waiting {
            operation: Operation {
                function: Function::Barrier,
                ty: Type::I32,
                scalars: 0,
            },
            number,
            passes,
        };
        let in_loop = |passes| waiting(2, passes);
        // The earlier pass, wherever in the loop; then the place.
        assert!(in_loop(&[[0, 1]]).order(&waiting(1, &[[0, 2]])).is_lt());
        assert!(in_loop(&[[0, 1]]).order(&waiting(1, &[[0, 1]])).is_gt());
        // Behind the loop is later than any pass; of another loop, the place decides.
        assert!(in_loop(&[[0, 9]]).order(&waiting(3, &[])).is_lt());
        assert!(in_loop(&[[0, 9]]).order(&waiting(3, &[[1, 0]])).is_lt());
        assert!(
            in_loop(&[[0, 4], [1, 2]])
                .order(&in_loop(&[[0, 4], [1, 2]]))
                .is_eq()
        );
    }
}
