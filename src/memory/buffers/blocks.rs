//! Blocks of a device's memory, out of which small buffers are carved: only the books, without access to the memory.
//!
//! Each block has a [`Region`] of its own, because wgpu has rules for whole buffers, and a block is one buffer to wgpu:
//! bytes written by a dispatch must not lie in the same block as the dispatch's other arguments. So callers name the
//! blocks to avoid.
//!
//! Memory made for a launch avoids the blocks of the launch's other arguments, and a root in the wrong block already is
//! copied to another block, on the device and in the order of the queue; the second time the root gets memory of its
//! own, so roots used in turns do not wander.
//!
//! Bytes are free as soon as a root gives them up, since the queue is in order and the next owner's commands come
//! behind. Bytes are zeroed before reuse: no program sees another's bytes. One empty block is kept; the others go back
//! to the device at once, and the last block when room is needed or on a trim. Blocks are at most the 64th part of a
//! cap, which counts whole blocks; where no further block fits, a small root gets memory of its own. wgpu tracks blocks
//! as it tracks buffers, so dispatches on roots of one block wait for each other without need: roots of more than 1
//! MiB, for which the wait might matter, have memory of their own.

use crate::addresses::region::{AllocationId, Region, RegionOptions};

/// The largest block without a cap.
const MOST_BYTES: u64 = 4 << 20;
/// The first block. Each further block is as large as all before.
const FIRST_BYTES: u64 = 256 << 10;
/// Smaller blocks are not made.
const LEAST_BYTES: u64 = 64 << 10;
/// The largest part of a device's cap in one block, so that free bytes of blocks do not starve other buffers.
const PART_OF_CAP: u64 = 64;
/// Buffers below this part of the largest block are carved.
const PART: u64 = 4;
/// Empty blocks kept for the next buffer, so that making and dropping one buffer in turns allocates nothing.
const KEPT: usize = 1;

/// The largest block of a device with `cap` bytes for buffers and `limit` for one buffer; 0 for no blocks.
pub(super) fn largest(cap: Option<u64>, limit: u64) -> u64 {
    let cap = cap.map_or(u64::MAX, |cap| cap / PART_OF_CAP);
    let most = MOST_BYTES.min(cap).min(limit);
    match most.checked_ilog2().map(|bits| 1 << bits) {
        Some(most) if most >= LEAST_BYTES => most,
        _ => 0,
    }
}

/// Whether a buffer of `bytes` bytes is carved out of blocks of at most `most` bytes.
pub(super) fn is_small(bytes: u64, most: u64) -> bool {
    bytes < most / PART
}

/// The blocks of one device, with the memory of each.
#[derive(Debug)]
pub(crate) struct Blocks<M> {
    blocks: Vec<Block<M>>,
    /// The next block's number.
    next: u64,
}

#[derive(Debug)]
struct Block<M> {
    number: u64,
    memory: M,
    bytes: u64,
    region: Region,
    /// Bytes from here on were never handed out.
    fresh: u64,
}

/// A part of a block, handed out.
#[derive(Debug)]
pub(super) struct Room {
    /// The block's number.
    pub(super) block: u64,
    allocation: AllocationId,
    /// First byte.
    pub(super) start: u64,
    /// Some of these bytes were handed out before, and may not be zero.
    pub(super) is_used: bool,
}

/// Figures of the blocks at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Figures {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) used: u64,
    pub(super) largest_free: u64,
}

impl<M> Default for Blocks<M> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            next: 0,
        }
    }
}

impl<M> Blocks<M> {
    /// `bytes` bytes at a multiple of `align` in a block outside of `avoid`, and the block's memory.
    pub(super) fn take(&mut self, bytes: u64, align: u64, avoid: &[u64]) -> Option<(Room, &M)> {
        // The oldest block with room, so that younger blocks become empty.
        let mut found = None;
        for (at, block) in self.blocks.iter_mut().enumerate() {
            if avoid.contains(&block.number) {
                continue;
            }
            if let Ok(allocation) = block.region.allocate(bytes, align) {
                found = Some((at, allocation));
                break;
            }
        }
        let (at, allocation) = found?;
        let block = &mut self.blocks[at];
        let room = Room {
            block: block.number,
            allocation: allocation.id,
            start: allocation.address,
            is_used: allocation.address < block.fresh,
        };
        block.fresh = block.fresh.max(allocation.end());
        Some((room, &block.memory))
    }

    /// The size of the next block, to hold `bytes` bytes, at most `most`.
    pub(super) fn next_bytes(&self, bytes: u64, most: u64, avoid: &[u64]) -> u64 {
        // Blocks to avoid may have room, and are not the reason for another one.
        let full = (self.blocks.iter()).filter(|block| !avoid.contains(&block.number));
        let all: u64 = full.map(|block| block.bytes).sum();
        let wanted = all.max(FIRST_BYTES).max(bytes.saturating_mul(PART));
        wanted.min(most).next_power_of_two().min(most)
    }

    /// Adds an empty block.
    pub(super) fn add(&mut self, memory: M, bytes: u64) {
        let mut region = Region::new(RegionOptions::default());
        // Fails for less than a granule: then nothing fits the block.
        let _ = region.add_block(0, bytes);
        self.blocks.push(Block {
            number: self.next,
            memory,
            bytes,
            region,
            fresh: 0,
        });
        self.next += 1;
    }

    /// Takes bytes back. Returns the bytes of blocks dropped because more were empty than are kept.
    pub(super) fn give(&mut self, room: &Room) -> u64 {
        let number = room.block;
        if let Some(block) = (self.blocks.iter_mut()).find(|block| block.number == number) {
            // Cannot fail: the allocation is of this block, and freed once.
            let _ = block.region.free(room.allocation);
        }
        self.trim(KEPT).iter().map(|(_, bytes)| bytes).sum()
    }

    /// Removes the youngest empty blocks, but for `keep`: their memory and sizes.
    pub(super) fn trim(&mut self, keep: usize) -> Vec<(M, u64)> {
        let is_empty = |block: &Block<M>| block.region.in_use() == 0;
        let mut kept = keep;
        let mut removed = Vec::new();
        let mut at = 0;
        while at < self.blocks.len() {
            if is_empty(&self.blocks[at]) {
                if kept == 0 {
                    let block = self.blocks.remove(at);
                    removed.push((block.memory, block.bytes));
                    continue;
                }
                kept -= 1;
            }
            at += 1;
        }
        removed
    }

    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for block in &self.blocks {
            let of_block = block.region.stats();
            figures.blocks += 1;
            figures.bytes += block.bytes;
            figures.used += of_block.in_use;
            figures.largest_free = figures.largest_free.max(of_block.largest_free);
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_are_a_small_part_of_the_cap() {
        assert_eq!(largest(None, u64::MAX), MOST_BYTES);
        assert_eq!(largest(None, 3 << 20), 2 << 20);
        assert_eq!(largest(Some(64 << 20), u64::MAX), 1 << 20);
        assert_eq!(largest(Some((64 << 20) - 1), u64::MAX), 512 << 10);
        assert_eq!(largest(Some(4 << 20), u64::MAX), 64 << 10);
        assert_eq!(largest(Some(10_000), u64::MAX), 0);
        assert_eq!(largest(Some(0), 0), 0);
        assert!(is_small((1 << 20) - 1, MOST_BYTES) && !is_small(1 << 20, MOST_BYTES));
        assert!(!is_small(0, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take { bytes: u64, avoid: Vec<usize> },
        Give(usize),
        Trim,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let avoid = prop::collection::vec(0..8usize, 0..3);
        let step = prop_oneof![
            5 => (1..(16u64 << 10), avoid).prop_map(|(bytes, avoid)| Step::Take { bytes, avoid }),
            4 => any::<usize>().prop_map(Step::Give),
            1 => Just(Step::Trim),
        ];
        prop::collection::vec(step, 1..150)
    }

    proptest! {
        /// Against a model of memory with the owner of each byte, and whether there ever was an owner.
        #[test]
        fn nobody_has_what_another_has(steps in steps()) {
            const MOST: u64 = 64 << 10;
            let mut blocks: Blocks<u64> = Blocks::default();
            let mut made = 0;
            // By block number: for each 16 bytes the owner, and whether there ever was an owner.
            let mut memory: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
            let mut held: Vec<(Room, u64, u64)> = Vec::new();
            let mut user = 0;
            for step in steps {
                match step {
                    Step::Take { bytes, avoid } => {
                        let numbers: Vec<u64> = memory.keys().copied().collect();
                        let avoid: Vec<u64> =
                            avoid.iter().filter_map(|&at| numbers.get(at).copied()).collect();
                        if blocks.take(bytes, 256, &avoid).map(|(room, _)| enter(&mut held, room, bytes, &mut user, &mut memory, &avoid)).is_none() {
                            let size = blocks.next_bytes(bytes, MOST, &avoid);
                            prop_assert!(size <= MOST && size >= bytes);
                            blocks.add(made, size);
                            memory.insert(made, vec![(0, false); (size / 16) as usize]);
                            made += 1;
                            let (room, of) = blocks.take(bytes, 256, &avoid).expect("it was made for it");
                            prop_assert_eq!(*of, room.block);
                            enter(&mut held, room, bytes, &mut user, &mut memory, &avoid);
                        }
                    }
                    Step::Give(_) if held.is_empty() => {}
                    Step::Give(at) => {
                        let (room, bytes, user) = held.swap_remove(at % held.len());
                        let first = (room.start / 16) as usize;
                        for cell in &mut memory.get_mut(&room.block).expect("in use")[first..][..bytes.div_ceil(16) as usize] {
                            prop_assert_eq!(cell.0, user);
                            cell.0 = 0;
                        }
                        let before = blocks.figures().bytes;
                        let dropped = blocks.give(&room);
                        prop_assert_eq!(blocks.figures().bytes + dropped, before);
                        let left: Vec<u64> = blocks.blocks.iter().map(|block| block.number).collect();
                        let empty = |cells: &Vec<(u64, bool)>| cells.iter().all(|cell| cell.0 == 0);
                        memory.retain(|number, cells| left.contains(number) || { assert!(empty(cells)); false });
                        prop_assert!(memory.values().filter(|cells| empty(cells)).count() <= KEPT);
                    }
                    Step::Trim => {
                        for (number, bytes) in blocks.trim(0) {
                            let cells = memory.remove(&number).expect("known");
                            prop_assert_eq!(cells.len() as u64 * 16, bytes);
                            prop_assert!(cells.iter().all(|cell| cell.0 == 0));
                        }
                        prop_assert!(memory.values().all(|cells| cells.iter().any(|cell| cell.0 != 0)));
                    }
                }
                let figures = blocks.figures();
                let used = memory.values().flatten().filter(|cell| cell.0 != 0).count() as u64 * 16;
                let bytes = memory.values().map(|cells| cells.len() as u64 * 16).sum::<u64>();
                let free = memory.values().map(|cells| {
                    cells.split(|cell| cell.0 != 0).map(<[_]>::len).max().unwrap_or(0) as u64 * 16
                });
                prop_assert_eq!(figures, Figures {
                    blocks: memory.len() as u64,
                    bytes,
                    used,
                    largest_free: free.max().unwrap_or(0),
                });
            }
        }
    }

    /// Enters a room into the model, where the bytes must be without an owner.
    fn enter(
        held: &mut Vec<(Room, u64, u64)>,
        room: Room,
        bytes: u64,
        user: &mut u64,
        memory: &mut BTreeMap<u64, Vec<(u64, bool)>>,
        avoid: &[u64],
    ) {
        assert!(!avoid.contains(&room.block));
        assert!(room.start.is_multiple_of(256));
        *user += 1;
        let first = (room.start / 16) as usize;
        let cells = &mut memory.get_mut(&room.block).expect("a known block")[first..]
            [..bytes.div_ceil(16) as usize];
        let was_used = cells.iter().any(|cell| cell.1);
        assert!(
            room.is_used || !was_used,
            "somebody's bytes are called fresh"
        );
        for cell in cells {
            assert_eq!(cell.0, 0, "somebody has it");
            *cell = (*user, true);
        }
        held.push((room, bytes, *user));
    }
}
