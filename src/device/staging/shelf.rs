//! Staging memory kept for the next transfer, and limits of the kept memory: only the books, without access to memory.
//!
//! Small memory and large memory are kept apart, each with a budget of its own. A transfer of hundreds of megabytes may
//! push out other large memory, but never memory of small transfers: these make driver memory once for each size in
//! flight at a time, whatever comes between. Within a budget the least recently used memory goes first, so that a
//! change of sizes does not leave a budget full of unused sizes.
//!
//! Small memory is up to 1 MiB, in five sizes; the budgets are 16 MiB and 64 MiB. With one budget, a large read filled
//! the budget for good, and on a discrete GPU each small read then paid 35 ms for memory made and freed by the driver.

use std::cmp::Reverse;

/// The largest small memory.
pub(crate) const SMALL: u64 = 1 << 20;
/// The smallest memory: making less costs as much.
const LEAST: u64 = 4 << 10;
/// Idle small memory beyond this budget is dropped.
pub(crate) const SMALL_BUDGET: u64 = 16 << 20;
/// Idle large memory beyond this budget is dropped.
pub(crate) const LARGE_BUDGET: u64 = 64 << 20;

/// The size of memory to make for `bytes` bytes, for reuse by transfers of similar sizes: powers of four up to
/// [`SMALL`], a quarter of a power of two apart above; at most `most`, if enough for `bytes`.
pub(crate) fn size_class(bytes: u64, most: u64) -> u64 {
    let class = if bytes <= SMALL {
        let bits = bytes.max(LEAST).next_power_of_two().ilog2();
        1 << bits.next_multiple_of(2)
    } else {
        // The largest power of two below, at least.
        let step = ((bytes - 1).checked_ilog2().map_or(1, |bits| 1u64 << bits) / 4).max(1);
        bytes.checked_next_multiple_of(step).unwrap_or(bytes)
    };
    class.min(most).max(bytes.next_multiple_of(4))
}

/// Whether kept memory can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// Not before the end of the last transfer; the same holds for all memory given back later.
    Busy,
    /// Never again.
    Gone,
}

/// The kept memory of one direction.
#[derive(Debug)]
pub(crate) struct Shelf<M> {
    kept: Vec<Kept<M>>,
    /// Counts memory given back.
    clock: u64,
}

#[derive(Debug)]
struct Kept<M> {
    memory: M,
    bytes: u64,
    since: u64,
}

impl<M> Default for Shelf<M> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            clock: 0,
        }
    }
}

impl<M> Shelf<M> {
    /// Memory of at least `bytes` bytes, ready by `readiness`: the smallest, and among equals the first given back. A
    /// small transfer takes any small memory, a large transfer memory at most twice as large.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        mut readiness: impl FnMut(&mut M) -> Readiness,
    ) -> Option<M> {
        let most = match bytes <= SMALL {
            true => SMALL,
            false => bytes.saturating_mul(2),
        };
        let mut before = u64::MAX;
        loop {
            let fits = |kept: &Kept<M>| (bytes..=most).contains(&kept.bytes) && kept.since < before;
            let candidates = (self.kept.iter().enumerate()).filter(|(_, kept)| fits(kept));
            let (at, _) = candidates.min_by_key(|(_, kept)| (kept.bytes, kept.since))?;
            match readiness(&mut self.kept[at].memory) {
                Readiness::Ready => return Some(self.kept.swap_remove(at).memory),
                Readiness::Busy => before = self.kept[at].since,
                Readiness::Gone => drop(self.kept.swap_remove(at)),
            }
        }
    }

    /// Takes memory back. Returns memory no longer kept, better dropped without a lock.
    pub(crate) fn give(&mut self, memory: M, bytes: u64) -> Vec<M> {
        self.clock += 1;
        let since = self.clock;
        self.kept.push(Kept {
            memory,
            bytes,
            since,
        });
        let (is_small, budget) = match bytes <= SMALL {
            true => (true, SMALL_BUDGET),
            false => (false, LARGE_BUDGET),
        };
        // From the youngest on, as much as the budget has room for. Memory larger than the budget pushes out nothing.
        self.kept.sort_by_key(|kept| Reverse(kept.since));
        let mut sum = 0;
        let beyond = |kept: &mut Kept<M>| {
            if (kept.bytes <= SMALL) != is_small {
                return false;
            }
            let fits = sum + kept.bytes <= budget;
            sum += if fits { kept.bytes } else { 0 };
            !fits
        };
        let removed = self.kept.extract_if(.., beyond);
        removed.map(|kept| kept.memory).collect()
    }

    /// Passes all kept memory to `look`.
    pub(crate) fn each(&mut self, mut look: impl FnMut(&mut M)) {
        self.kept.iter_mut().for_each(|kept| look(&mut kept.memory));
    }

    /// Removes all kept memory.
    pub(crate) fn clear(&mut self) -> Vec<M> {
        self.kept.drain(..).map(|kept| kept.memory).collect()
    }

    /// Bytes of kept memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: u64 = 1 << 40;

    #[test]
    fn classes_hold_what_is_asked_for_and_little_more() {
        for bytes in (1..5000).chain((0..45).flat_map(|bit| {
            let power = 1u64 << bit;
            [
                power.saturating_sub(1).max(1),
                power,
                power + 1,
                power + power / 3,
            ]
        })) {
            let class = size_class(bytes, u64::MAX);
            assert!(
                class >= bytes && class.is_multiple_of(4),
                "{bytes}: {class}"
            );
            let waste = match bytes <= SMALL {
                true => 4,
                false => 2,
            };
            assert!(class <= (bytes * waste).max(LEAST), "{bytes}: {class}");
            // Asking for all of a class gives the same class.
            assert_eq!(size_class(class, u64::MAX), class);
        }
        assert_eq!(size_class(5 << 20, u64::MAX), 5 << 20);
        assert_eq!(size_class((5 << 20) + 1, u64::MAX), 6 << 20);
        // A device's limit between two classes, and a limit too low.
        assert_eq!(size_class(7_000_001, 7_000_004), 7_000_004);
        assert_eq!(size_class(7_000_001, 1), 7_000_004);
        assert_eq!(size_class(u64::MAX - 7, u64::MAX), u64::MAX - 7);
        let classes: std::collections::BTreeSet<u64> = (1..=SMALL)
            .step_by(100)
            .map(|bytes| size_class(bytes, MOST))
            .collect();
        assert_eq!(classes.len(), 5);
    }

    #[test]
    fn large_memory_pushes_out_no_small_one() {
        let mut shelf = Shelf::default();
        let small = [LEAST, 64 << 10, SMALL];
        for bytes in small {
            assert!(shelf.give(bytes, bytes).is_empty());
        }
        for round in 1..100 {
            let bytes = round << 21;
            shelf.give(bytes, bytes);
        }
        assert!(shelf.bytes() <= SMALL_BUDGET + LARGE_BUDGET);
        for bytes in small {
            assert_eq!(shelf.take(bytes, |_| Readiness::Ready), Some(bytes));
        }
    }

    #[test]
    fn who_waits_is_passed_over_with_all_that_came_later() {
        let mut shelf = Shelf::default();
        // The oldest is a large one: smaller memory was given back later, and so is busy, too.
        for (bytes, name) in [(SMALL, 'a'), (LEAST, 'b'), (SMALL, 'c')] {
            shelf.give(name, bytes);
        }
        let mut asked = Vec::new();
        let none = shelf.take(10, |name| {
            asked.push(*name);
            Readiness::Busy
        });
        assert_eq!((none, asked), (None, vec!['b', 'a']));
        let mut asked = Vec::new();
        let found = shelf.take(10, |name| {
            asked.push(*name);
            if *name == 'b' {
                Readiness::Gone
            } else {
                Readiness::Ready
            }
        });
        assert_eq!((found, asked), (Some('a'), vec!['b', 'a']));
        assert_eq!(shelf.bytes(), SMALL);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Transfer(u64),
        Back(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = prop_oneof![
            1..SMALL,
            SMALL..LARGE_BUDGET,
            LARGE_BUDGET..8 * LARGE_BUDGET
        ];
        let step = prop_oneof![
            bytes.prop_map(Step::Transfer),
            any::<usize>().prop_map(Step::Back),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Against a list of all memory ever made: no memory is taken twice, all is large enough, budgets are kept, and
        /// a small transfer makes memory only for a new peak of small memory in flight.
        #[test]
        fn memory_is_had_once_and_small_memory_is_made_once(steps in steps()) {
            let mut shelf: Shelf<(usize, u64)> = Shelf::default();
            let mut made = 0;
            let mut in_flight: Vec<(usize, u64)> = Vec::new();
            // Memory of the largest small size serves every small transfer.
            let mut largest_made = 0;
            let mut most_small_in_flight = 0;
            for step in steps {
                match step {
                    Step::Transfer(bytes) => {
                        let found = shelf.take(bytes, |_| Readiness::Ready);
                        let (id, size) = found.unwrap_or_else(|| {
                            made += 1;
                            let size = size_class(bytes, MOST);
                            if size == SMALL { largest_made += 1; }
                            (made, size)
                        });
                        prop_assert!(size >= bytes && (size <= SMALL || size <= 2 * bytes));
                        prop_assert!(in_flight.iter().all(|(other, _)| *other != id));
                        in_flight.push((id, size));
                        let small = in_flight.iter().filter(|(_, size)| *size <= SMALL).count();
                        most_small_in_flight = most_small_in_flight.max(small);
                    }
                    Step::Back(_) if in_flight.is_empty() => {}
                    Step::Back(at) => {
                        let (id, size) = in_flight.swap_remove(at % in_flight.len());
                        for (gone, _) in shelf.give((id, size), size) {
                            prop_assert!(in_flight.iter().all(|(other, _)| *other != gone));
                        }
                        let sum = |small: bool| -> u64 {
                            let of = shelf.kept.iter().filter(|kept| (kept.bytes <= SMALL) == small);
                            of.map(|kept| kept.bytes).sum()
                        };
                        prop_assert!(sum(true) <= SMALL_BUDGET && sum(false) <= LARGE_BUDGET);
                    }
                }
            }
            if most_small_in_flight as u64 * SMALL <= SMALL_BUDGET {
                prop_assert!(largest_made <= most_small_in_flight);
            }
        }
    }
}
