//! The books of shared transfer slots: the ranges of a window in slots, and the slots for further use. Nothing here touches
//! memory.
//!
//! # How it works
//! 1. A slot has a power of two of bytes, and begins at a multiple of the size, so that slots given up make room for larger
//!    slots.
//! 2. A slot is *lent* from [`Slots::take`] to [`Slots::give`], *busy* until the end of the last commands on the slot, and
//!    *idle* then, with memory and the devices' imports, for the next transfer of the size.
//! 3. Idle slots are *given up* on request, or where there is no room for a slot of another size. The range is *leaving*
//!    until the memory is back with the system ([`Slots::vacate`]): devices may have the pages for a little longer.

use std::ops::Range;

use rangemap::RangeSet;

/// The smallest slot, a multiple of the page size on all systems.
pub(super) const LEAST_BYTES: u64 = 64 << 10;

/// The end of commands that use a slot.
pub(super) trait Use {
    fn is_over(&self) -> bool;
}

/// A slot that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) range: Range<u64>,
    /// The range has no memory yet.
    pub(super) is_new: bool,
}

/// Bytes by the state of their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Figures {
    /// All slots, also those leaving.
    pub(super) slots: u64,
    pub(super) bytes: u64,
    pub(super) idle_bytes: u64,
}

/// The slots of a window.
pub(super) struct Slots<E> {
    size: u64,
    free: RangeSet<u64>,
    lent: u64,
    idle: Vec<Range<u64>>,
    busy: Vec<(Range<u64>, Vec<E>)>,
    leaving: Vec<Range<u64>>,
}

fn bytes(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl<E: Use> Slots<E> {
    /// No slots in a window of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let mut free = RangeSet::new();
        if size > 0 {
            free.insert(0..size);
        }
        Self {
            size,
            free,
            lent: 0,
            idle: Vec::new(),
            busy: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Lends a slot of at least `bytes` bytes: an idle slot of the size, or a new slot while all slots have at most `most`
    /// bytes, or a larger idle slot.
    pub(super) fn take(&mut self, bytes: u64, most: u64) -> Option<Found> {
        let size = bytes.checked_next_power_of_two()?.max(LEAST_BYTES);
        self.settle();
        let found = match self.idle.iter().position(|slot| self::bytes(slot) == size) {
            Some(at) => Some(self.reuse(at)),
            None => self.cut(size, most).or_else(|| self.larger(size)),
        };
        self.lent += u64::from(found.is_some());
        found
    }

    fn reuse(&mut self, at: usize) -> Found {
        let range = self.idle.swap_remove(at);
        let is_new = false;
        Found { range, is_new }
    }

    /// A new slot.
    fn cut(&mut self, size: u64, most: u64) -> Option<Found> {
        if self.cut_bytes().checked_add(size)? > most {
            return None;
        }
        let fits = |free: &Range<u64>| {
            let start = free.start.checked_next_multiple_of(size)?;
            let end = start.checked_add(size)?;
            (end <= free.end).then_some(start..end)
        };
        let range = self.free.iter().find_map(fits)?;
        self.free.remove(range.clone());
        let is_new = true;
        Some(Found { range, is_new })
    }

    /// The smallest larger idle slot.
    fn larger(&mut self, size: u64) -> Option<Found> {
        let all = self.idle.iter().enumerate();
        let larger = all.filter(|(_, slot)| self::bytes(slot) > size);
        let (at, _) = larger.min_by_key(|(_, slot)| self::bytes(slot))?;
        Some(self.reuse(at))
    }

    /// Takes a slot back, to be reused after all of `uses`.
    pub(super) fn give(&mut self, slot: Range<u64>, uses: Vec<E>) {
        self.lent = self.lent.saturating_sub(1);
        match uses.is_empty() {
            false => self.busy.push((slot, uses)),
            true => self.idle.push(slot),
        }
    }

    /// Takes back a slot without memory.
    pub(super) fn give_unused(&mut self, slot: Range<u64>) {
        self.lent = self.lent.saturating_sub(1);
        self.free.insert(slot);
    }

    /// Gives up the idle slots chosen by `which`, and returns the ranges: nobody uses the memory any more.
    pub(super) fn give_up(
        &mut self,
        mut which: impl FnMut(&Range<u64>) -> bool,
    ) -> Vec<Range<u64>> {
        self.settle();
        let given = self.idle.extract_if(.., |slot| which(slot));
        let given: Vec<Range<u64>> = given.collect();
        self.leaving.extend(given.iter().cloned());
        given
    }

    /// Frees the ranges given up for which `is_gone` holds, asked once for each: the memory is back with the system.
    pub(super) fn vacate(&mut self, mut is_gone: impl FnMut(&Range<u64>) -> bool) {
        for slot in self.leaving.extract_if(.., |slot| is_gone(slot)) {
            self.free.insert(slot);
        }
    }

    /// Bytes in slots.
    fn cut_bytes(&self) -> u64 {
        self.size - self.free.iter().map(bytes).sum::<u64>()
    }

    /// Moves busy slots whose commands have ended to the idle slots.
    fn settle(&mut self) {
        let is_over = |(_, uses): &mut (_, Vec<E>)| uses.iter().all(Use::is_over);
        let over = self.busy.extract_if(.., is_over).map(|(slot, _)| slot);
        self.idle.extend(over);
    }

    pub(super) fn figures(&mut self) -> Figures {
        self.settle();
        let others = self.idle.len() + self.busy.len() + self.leaving.len();
        Figures {
            slots: self.lent + others as u64,
            bytes: self.cut_bytes(),
            idle_bytes: self.idle.iter().map(bytes).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Command(Rc<Cell<bool>>);

    impl Use for Command {
        fn is_over(&self) -> bool {
            self.0.get()
        }
    }

    const KIB: u64 = 1 << 10;
    const WINDOW: u64 = 32 * LEAST_BYTES;

    #[test]
    fn a_slot_of_a_size_is_used_again_by_that_size() {
        let mut slots: Slots<Command> = Slots::new(WINDOW);
        let first = slots.take(5, WINDOW).unwrap();
        assert!(first.is_new && bytes(&first.range) == 64 * KIB);
        let command = Command::default();
        slots.give(first.range.clone(), vec![command.clone()]);
        let other = slots.take(64 * KIB, WINDOW).unwrap();
        assert!(other.is_new, "the first is busy");
        command.0.set(true);
        let again = slots.take(1, WINDOW).unwrap();
        assert_eq!((again.range, again.is_new), (first.range, false));
        let large = slots.take(64 * KIB + 1, WINDOW).unwrap();
        assert!(bytes(&large.range) == 128 * KIB);
        assert!(large.range.start.is_multiple_of(128 * KIB));
        let figures = slots.figures();
        assert_eq!((figures.slots, figures.bytes), (3, 256 * KIB));
        for bytes in [0, u64::MAX, WINDOW + 1] {
            let found = slots.take(bytes, u64::MAX);
            assert_eq!(found.is_some(), bytes == 0, "{bytes}");
        }
    }

    #[test]
    fn a_full_window_serves_other_sizes() {
        let mut slots: Slots<Command> = Slots::new(WINDOW);
        let large = slots.take(WINDOW, WINDOW).unwrap().range;
        assert_eq!(slots.take(1, WINDOW), None);
        slots.give(large.clone(), Vec::new());
        // Nothing smaller is there.
        let small = slots.take(1, WINDOW).unwrap();
        assert_eq!((&small.range, small.is_new), (&large, false));
        slots.give(small.range, Vec::new());
        assert_eq!(slots.give_up(|_| false), []);
        assert_eq!(slots.give_up(|_| true), std::slice::from_ref(&large));
        // Its pages are still a device's.
        slots.vacate(|_| false);
        assert_eq!(slots.take(1, WINDOW), None);
        slots.vacate(|slot| *slot == large);
        let many: Vec<_> = (0..32).map(|_| slots.take(1, WINDOW).unwrap()).collect();
        assert!(many.iter().all(|found| found.is_new));
        assert_eq!(slots.take(1, WINDOW), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take { bytes: u64, half: bool },
        Give { at: usize, commands: usize },
        GiveUnused(usize),
        End(usize),
        GiveUp(u64),
        Vacate(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let size = (0..5u32, 0..4u64).prop_map(|(class, less)| (LEAST_BYTES << class) - less);
        let step = prop_oneof![
            6 => (size, any::<bool>()).prop_map(|(bytes, half)| Step::Take { bytes, half }),
            4 => (any::<usize>(), 0..3usize).prop_map(|(at, commands)| Step::Give { at, commands }),
            1 => any::<usize>().prop_map(Step::GiveUnused),
            3 => any::<usize>().prop_map(Step::End),
            1 => any::<u64>().prop_map(Step::GiveUp),
            2 => any::<u64>().prop_map(Step::Vacate),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// What a part of the window is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Cell64 {
        Free,
        Lent,
        /// Given back, with the number of the give.
        Back(usize),
        Leaving,
    }

    fn mixed(value: u64, seed: u64) -> bool {
        (value ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0
    }

    proptest! {
        /// Against a model with the state of each part of the window.
        #[test]
        fn no_byte_is_in_two_slots(steps in steps()) {
            let mut slots: Slots<Command> = Slots::new(WINDOW);
            let mut cells = [Cell64::Free; (WINDOW / LEAST_BYTES) as usize];
            let at = |range: &Range<u64>| {
                (range.start / LEAST_BYTES) as usize..(range.end / LEAST_BYTES) as usize
            };
            let mut lent: Vec<Range<u64>> = Vec::new();
            // By the number of the give.
            let mut given: Vec<Vec<Command>> = Vec::new();
            let is_over = |given: &[Vec<Command>], back: usize| given[back].iter().all(Use::is_over);
            for step in steps {
                match step {
                    Step::Take { bytes: wanted, half } => {
                        let most = if half { WINDOW / 2 } else { WINDOW };
                        let cut = |cells: &[Cell64]| {
                            cells.iter().filter(|cell| **cell != Cell64::Free).count() as u64 * LEAST_BYTES
                        };
                        let before = cut(&cells);
                        match slots.take(wanted, most) {
                            Some(Found { range, is_new }) => {
                                prop_assert!(bytes(&range) >= wanted.max(LEAST_BYTES));
                                prop_assert!(bytes(&range).is_power_of_two());
                                prop_assert!(range.start.is_multiple_of(bytes(&range)) && range.end <= WINDOW);
                                for cell in &cells[at(&range)] {
                                    match cell {
                                        Cell64::Free => prop_assert!(is_new),
                                        Cell64::Back(back) => prop_assert!(!is_new && is_over(&given, *back)),
                                        other => prop_assert!(false, "{other:?}"),
                                    }
                                }
                                prop_assert!(!is_new || before + bytes(&range) <= most);
                                cells[at(&range)].fill(Cell64::Lent);
                                lent.push(range);
                            }
                            None => {
                                let size = wanted.next_power_of_two().max(LEAST_BYTES);
                                let step = (size / LEAST_BYTES) as usize;
                                let is_free = |cells: &[Cell64]| cells.iter().all(|cell| *cell == Cell64::Free);
                                let has_room = cells.chunks(step).any(is_free);
                                prop_assert!(!has_room || before + size > most, "there was room");
                            }
                        }
                    }
                    Step::Give { .. } | Step::GiveUnused(_) if lent.is_empty() => {}
                    Step::Give { at: which, commands } => {
                        let range = lent.swap_remove(which % lent.len());
                        let uses: Vec<_> = (0..commands).map(|_| Command::default()).collect();
                        cells[at(&range)].fill(Cell64::Back(given.len()));
                        given.push(uses.clone());
                        slots.give(range, uses);
                    }
                    Step::GiveUnused(which) => {
                        let range = lent.swap_remove(which % lent.len());
                        cells[at(&range)].fill(Cell64::Free);
                        slots.give_unused(range);
                    }
                    Step::End(which) => {
                        let all: Vec<&Command> = given.iter().flatten().collect();
                        if !all.is_empty() {
                            all[which % all.len()].0.set(true);
                        }
                    }
                    Step::GiveUp(seed) => {
                        for range in slots.give_up(|slot| mixed(slot.start, seed)) {
                            prop_assert!(mixed(range.start, seed));
                            for cell in &cells[at(&range)] {
                                let is_idle = matches!(cell, Cell64::Back(back) if is_over(&given, *back));
                                prop_assert!(is_idle, "{cell:?}");
                            }
                            cells[at(&range)].fill(Cell64::Leaving);
                        }
                    }
                    Step::Vacate(seed) => slots.vacate(|slot| {
                        assert!(cells[at(slot)].iter().all(|cell| *cell == Cell64::Leaving));
                        let is_gone = mixed(slot.start, seed);
                        if is_gone {
                            cells[at(slot)].fill(Cell64::Free);
                        }
                        is_gone
                    }),
                }
                let count = |is: &dyn Fn(&Cell64) -> bool| {
                    cells.iter().filter(|cell| is(cell)).count() as u64 * LEAST_BYTES
                };
                let figures = slots.figures();
                prop_assert_eq!(figures.bytes, count(&|cell| *cell != Cell64::Free));
                let idle = |cell: &Cell64| matches!(cell, Cell64::Back(back) if is_over(&given, *back));
                prop_assert_eq!(figures.idle_bytes, count(&idle));
            }
            // In the end all of the window is to be had again.
            for range in lent {
                slots.give(range, Vec::new());
            }
            given.iter().flatten().for_each(|command| command.0.set(true));
            slots.give_up(|_| true);
            slots.vacate(|_| true);
            prop_assert_eq!(slots.figures(), Figures::default());
            let whole = slots.take(WINDOW, WINDOW).expect("all of it is free");
            prop_assert_eq!(whole, Found { range: 0..WINDOW, is_new: true });
        }
    }
}
