//! Reductions of a dispatch: each fiber combines into copies of its own, and at its end the copies into the buffers.
//!
//! Buffers used by a kernel for nothing else are found by `compile/passes/reduction.rs`, and among these the buffers seen by
//! nobody else by `hal/encoder.rs`. Code has both ways to combine, and asks its group ([`Group::apart`]).
//!
//! [`Group::apart`]: crate::compile::abi::Group::apart

use std::{
    slice,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use smallvec::SmallVec;

use crate::compile::{Combine, Kernel, Reduction, abi::BoundResource};

/// The most bytes of a fiber's copies: copies stay in the processor's cache.
const MOST_BYTES: u64 = 64 << 10;

/// Invocations for each word of each thread's copies, at least: a copy is zeroed, and read once.
const INVOCATIONS_A_WORD: u64 = 4;

/// A reduced buffer of a grid.
#[derive(Clone, Copy, Debug)]
struct Reduced {
    /// Among the resources of the grid
    resource: usize,
    reduction: Reduction,
    /// Where a copy begins, in words of 64 bits
    start: usize,
    /// Words of the reduction's size
    words: usize,
}

/// The reductions of a grid.
#[derive(Debug, Default)]
pub(super) struct Reductions {
    reduced: SmallVec<[Reduced; 1]>,
    /// Words of 64 bits of all copies of a fiber
    words: usize,
    /// Whether a single thread runs all work-groups, and needs no copies
    alone: bool,
}

/// The resources of a fiber's kernel instead of the grid's.
pub(super) struct Copies {
    pub(super) resources: Vec<BoundResource>,
}

impl Reductions {
    /// The reductions among `candidates`, places in `resources`, of so many invocations in `groups` work-groups on `threads`
    /// threads. None if reductions do not pay.
    pub(super) fn new(
        kernel: &Kernel,
        resources: &[BoundResource],
        candidates: &[usize],
        groups: u64,
        threads: u64,
    ) -> Self {
        let mut found = Self::default();
        let all = kernel
            .bindings
            .iter()
            .filter(|used| used.reduction.is_some());
        // A kernel waiting for others may wait for the counts of others.
        if candidates.is_empty() || all.count() > candidates.len() || kernel.waits {
            return found;
        }
        if threads < 2 || groups < 2 {
            found.alone = true;
            return found;
        }
        for &resource in candidates {
            let used = kernel.bindings.get(resource);
            let (Some(used), Some(bound)) = (used, resources.get(resource)) else {
                continue;
            };
            let Some(reduction) = used.reduction else {
                continue;
            };
            // A type of fixed size may be bound to more bytes, out of the kernel's reach.
            let bytes = match used.array {
                Some(_) => bound.bytes,
                None => bound.bytes.min(used.least),
            };
            if bytes > MOST_BYTES {
                return Self::default();
            }
            let bytes = bytes as usize;
            found.reduced.push(Reduced {
                resource,
                reduction,
                start: found.words,
                words: bytes / usize::from(reduction.word_bytes),
            });
            found.words += bytes.div_ceil(8);
        }
        let invocations = kernel.workgroup_size.iter().map(|&n| u64::from(n));
        let invocations = invocations.product::<u64>().saturating_mul(groups);
        let words = found.words as u64;
        if words * 8 > MOST_BYTES || words * threads * INVOCATIONS_A_WORD > invocations {
            return Self::default();
        }
        found
    }

    /// Whether kernels without copies have the buffers to themselves.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Copies of zeros in `memory`. `None` without reductions, or without memory: then fibers combine in the buffers.
    pub(super) fn begin(
        &self,
        resources: &[BoundResource],
        memory: &mut Vec<u64>,
    ) -> Option<Copies> {
        if self.reduced.is_empty() {
            return None;
        }
        memory.clear();
        memory.try_reserve(self.words).ok()?;
        memory.resize(self.words, 0);
        let mut resources = resources.to_vec();
        for reduced in &self.reduced {
            // Inside the memory, whose length is the sum of all.
            resources[reduced.resource].address =
                memory.as_mut_ptr().wrapping_add(reduced.start).cast();
        }
        Some(Copies { resources })
    }

    /// Combines copies into the buffers.
    pub(super) fn end(&self, resources: &[BoundResource], copies: &Copies) {
        for reduced in &self.reduced {
            let from = copies.resources[reduced.resource].address;
            let to = resources[reduced.resource].address;
            let Reduced {
                reduction:
                    Reduction {
                        combine,
                        word_bytes,
                    },
                words,
                ..
            } = *reduced;
            // SAFETY: both have at least so many words, aligned as their type: a copy begins at a word of 64 bits, and a binding
            // as aligned as its type asks. The copy is the fiber's own; other threads access the buffer by atomic operations
            // alone, by the plan of reductions.
            unsafe {
                if word_bytes == 8 {
                    let to = slice::from_raw_parts(to.cast::<AtomicU64>(), words);
                    combine_64(combine, slice::from_raw_parts(from.cast(), words), to);
                } else {
                    let to = slice::from_raw_parts(to.cast::<AtomicU32>(), words);
                    combine_32(combine, slice::from_raw_parts(from.cast(), words), to);
                }
            }
        }
    }
}

macro_rules! combine {
    ($name:ident, $word:ty, $atomic:ty) => {
        fn $name(combine: Combine, from: &[$word], to: &[$atomic]) {
            for (&word, to) in from.iter().zip(to).filter(|&(&word, _)| word != 0) {
                match combine {
                    Combine::Add => to.fetch_add(word, Relaxed),
                    Combine::Or => to.fetch_or(word, Relaxed),
                    Combine::Xor => to.fetch_xor(word, Relaxed),
                    Combine::Max => to.fetch_max(word, Relaxed),
                };
            }
        }
    };
}
combine!(combine_32, u32, AtomicU32);
combine!(combine_64, u64, AtomicU64);
