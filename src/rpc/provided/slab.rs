//! Handles: numbers for things of the host; a kernel may name, and forge, a handle.
//!
//! A handle is a place and its generation, and places take turns: a closed handle leads nowhere for 2^19 - 2 more uses
//! of its place.

use std::collections::VecDeque;

const INDEX_BITS: u32 = 12;
/// Handles have 31 bits, so literals can have the other half of the numbers.
const GENERATIONS: u32 = 1 << (31 - INDEX_BITS);

/// The most things of a slab.
pub(super) const MOST: usize = 1 << INDEX_BITS;

/// Things with handles. A handle is a place and its generation: after a removal the handle leads nowhere, for 2^19 - 2
/// more uses of its place, and places take turns. Handles are at least [`MOST`], so small numbers are none.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<usize>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// For at most `limit` things.
    pub fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            limit: limit.min(MOST),
        }
    }

    /// The handle of `value`; nothing where there are as many as there may be.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let index = if self.slots.len() < self.limit {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            self.slots.len() - 1
        } else {
            self.free.pop_front()?
        };
        let slot = self.slots.get_mut(index)?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        // Generation 0 would make small handles.
        slot.generation = slot.generation.max(1);
        slot.value = Some(value);
        Some(slot.generation << INDEX_BITS | index as u32)
    }

    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.limit && self.free.is_empty()
    }

    fn slot(&mut self, handle: u32) -> Option<(usize, &mut Slot<T>)> {
        let index = handle as usize % MOST;
        let slot = self.slots.get_mut(index)?;
        (slot.generation == handle >> INDEX_BITS).then_some((index, slot))
    }

    pub fn get(&mut self, handle: u32) -> Option<&mut T> {
        self.slot(handle)?.1.value.as_mut()
    }

    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let (index, slot) = self.slot(handle)?;
        let value = slot.value.take()?;
        self.free.push_back(index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In any order of operations: handles lead to their own object, or nowhere.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0u8..4, any::<u32>()), 0..200)) {
            let mut slab = Slab::new(8);
            let mut known: HashMap<u32, u32> = HashMap::new();
            let mut old: Vec<u32> = Vec::new();
            for (step, number) in steps {
                let some = old.get(number as usize % old.len().max(1)).copied();
                match step {
                    0 => {
                        let handle = slab.insert(number);
                        prop_assert_eq!(handle.is_none(), known.len() == 8);
                        if let Some(handle) = handle {
                            prop_assert!(handle >> 31 == 0 && handle >= MOST as u32);
                            prop_assert!(!old.contains(&handle));
                            known.insert(handle, number);
                            old.push(handle);
                        }
                    }
                    1 => if let Some(handle) = some {
                        prop_assert_eq!(slab.remove(handle), known.remove(&handle));
                    },
                    2 => if let Some(handle) = some {
                        prop_assert_eq!(slab.get(handle).copied(), known.get(&handle).copied());
                    },
                    _ => prop_assert_eq!(slab.get(number).copied(), known.get(&number).copied()),
                }
                prop_assert_eq!(slab.is_full(), known.len() == 8);
            }
        }
    }

    #[test]
    fn generations_go_round() {
        let mut slab = Slab::new(1);
        let first = slab.insert(0).unwrap();
        for _ in 0..GENERATIONS - 2 {
            let handle = slab.insert(0);
            assert_eq!(handle, None);
            let last = slab.slots[0].generation << INDEX_BITS;
            slab.remove(last).unwrap();
            assert!(slab.insert(1).unwrap() >> 31 == 0);
        }
        let last = slab.slots[0].generation << INDEX_BITS;
        slab.remove(last).unwrap();
        assert_eq!(slab.insert(2), Some(first));
    }
}
