//! A second, simple-minded allocator as a check of the real one: sorted vectors and plain loops.
//!
//! It decides nothing. The shadow is told the region's results and panics on a wrong one, or on a refusal despite a
//! large enough free range. Property tests and the fuzzer drive it from bytes.

use super::{
    Allocation, AllocationId, BlockId, Placement, Region, RegionError, RegionOptions, RegionStats,
};

/// Allocations are rounded to this; written out, since the model must not share the real constant.
const UNIT: u128 = 16;

struct ShadowBlock {
    id: BlockId,
    base: u128,
    size: u128,
    /// Live allocations, sorted by address.
    live: Vec<Allocation>,
}

impl ShadowBlock {
    fn usable(&self) -> (u128, u128) {
        let start = self.base.div_ceil(UNIT) * UNIT;
        (start, (self.base + self.size) / UNIT * UNIT)
    }

    fn gaps(&self) -> impl Iterator<Item = (u128, u128)> {
        let (start, end) = self.usable();
        let live = self.live.iter();
        let ends = live
            .clone()
            .map(|a| u128::from(a.address) + u128::from(a.size));
        let starts = live.map(|a| u128::from(a.address)).chain([end]);
        std::iter::once(start)
            .chain(ends)
            .zip(starts)
            .filter(|gap| gap.0 < gap.1)
    }
}

fn fits(gap: (u128, u128), size: u64, align: u64) -> bool {
    let align = u128::from(align).max(UNIT);
    let size = u128::from(size).div_ceil(UNIT) * UNIT;
    // Masks and no divisions, which take most of a test's time.
    ((gap.0 + align - 1) & !(align - 1)) + size <= gap.1
}

/// The model, with the region under test.
pub(crate) struct Shadow {
    pub region: Region,
    options: RegionOptions,
    /// In the order in which they were added.
    blocks: Vec<ShadowBlock>,
    stale: Vec<AllocationId>,
    in_use: u64,
    peak: u64,
}

impl Shadow {
    pub fn new(options: RegionOptions) -> Self {
        Self {
            region: Region::new(options),
            options,
            blocks: Vec::new(),
            stale: Vec::new(),
            in_use: 0,
            peak: 0,
        }
    }

    pub fn live(&self) -> usize {
        self.blocks.iter().map(|block| block.live.len()).sum()
    }

    pub fn add_block(&mut self, base: u64, size: u64) {
        let (from, to) = (u128::from(base), u128::from(base) + u128::from(size));
        let block = ShadowBlock {
            id: BlockId::default(),
            base: from,
            size: u128::from(size),
            live: Vec::new(),
        };
        let (start, end) = block.usable();
        let valid = start < end && to <= u128::from(u64::MAX);
        let overlaps = self
            .blocks
            .iter()
            .any(|other| from < other.base + other.size && other.base < to);
        match self.region.add_block(base, size) {
            Ok(id) => {
                assert!(valid && !overlaps, "added a bad block {base:#x} {size:#x}");
                self.blocks.push(ShadowBlock { id, ..block });
            }
            Err(RegionError::InvalidBlock { .. }) => assert!(!valid),
            Err(RegionError::OverlappingBlock { .. }) => assert!(valid && overlaps),
            Err(other) => panic!("add_block: {other}"),
        }
    }

    pub fn allocate(&mut self, size: u64, align: u64) -> Option<Allocation> {
        let legal = size != 0 && align.is_power_of_two();
        let gap_fits = legal
            && self
                .blocks
                .iter()
                .any(|block| block.gaps().any(|gap| fits(gap, size, align)));
        match self.region.allocate(size, align) {
            Ok(allocation) => {
                assert!(gap_fits, "allocated {allocation:?} where nothing fits");
                assert_eq!(allocation.requested, size);
                assert_eq!(
                    u128::from(allocation.size),
                    u128::from(size).div_ceil(UNIT) * UNIT
                );
                assert_eq!(allocation.address % align, 0, "align {align}");
                assert_eq!(u128::from(allocation.address) % UNIT, 0);
                let block = self
                    .blocks
                    .iter_mut()
                    .find(|block| block.id == allocation.block)
                    .expect("an allocation in a block that exists");
                let (start, end) = block.usable();
                let from = u128::from(allocation.address);
                let to = from + u128::from(allocation.size);
                assert!(
                    start <= from && to <= end,
                    "{allocation:?} leaves its block"
                );
                let at = block
                    .live
                    .partition_point(|other| other.address < allocation.address);
                if let Some(other) = at.checked_sub(1).map(|before| block.live[before]) {
                    assert!(
                        other.end() <= allocation.address,
                        "{other:?} {allocation:?}"
                    );
                }
                if let Some(other) = block.live.get(at) {
                    assert!(to <= u128::from(other.address), "{allocation:?} {other:?}");
                }
                block.live.insert(at, allocation);
                self.in_use += allocation.size;
                self.peak = self.peak.max(self.in_use);
                assert!(!self.stale.contains(&allocation.id), "a handle came back");
                Some(allocation)
            }
            Err(error) => {
                assert!(!gap_fits, "refused although a free range fits: {error}");
                self.check_refusal(size, align, error);
                None
            }
        }
    }

    fn check_refusal(&self, size: u64, align: u64, error: RegionError) {
        let could_ever = || {
            let granted = u128::from(size).div_ceil(UNIT) * UNIT;
            granted <= u128::from(self.options.growth)
                || self
                    .blocks
                    .iter()
                    .any(|block| fits(block.usable(), size, align))
        };
        match error {
            RegionError::ZeroSize => assert_eq!(size, 0),
            RegionError::InvalidAlignment { .. } => assert!(!align.is_power_of_two()),
            RegionError::TooLargeEver { .. } => assert!(!could_ever(), "{error}"),
            RegionError::NoRoom { largest_free, .. } => {
                assert!(could_ever(), "{error}");
                assert_eq!(largest_free, self.figures().0);
            }
            other => panic!("allocate: {other}"),
        }
    }

    /// Frees the live allocation with this number, counted over all blocks.
    pub fn free_nth(&mut self, n: usize) {
        let mut n = n % self.live().max(1);
        for block in &mut self.blocks {
            if n < block.live.len() {
                let allocation = block.live.remove(n);
                assert_eq!(self.region.free(allocation.id), Ok(allocation.size));
                self.in_use -= allocation.size;
                if self.stale.len() < 64 {
                    self.stale.push(allocation.id);
                } else {
                    let slot = allocation.address as usize / 16 % 64;
                    self.stale[slot] = allocation.id;
                }
                return;
            }
            n -= block.live.len();
        }
    }

    /// Frees a handle freed before.
    pub fn free_stale(&mut self, n: usize) {
        if !self.stale.is_empty() {
            let id = self.stale[n % self.stale.len()];
            assert_eq!(
                self.region.free(id),
                Err(RegionError::UnknownAllocation { id })
            );
            assert_eq!(self.region.get(id), None);
        }
    }

    pub fn find(&self, address: u64) {
        let expected = self.blocks.iter().find_map(|block| {
            let at = block.live.partition_point(|a| a.address <= address);
            let candidate = *block.live.get(at.checked_sub(1)?)?;
            (address < candidate.end()).then_some(candidate)
        });
        assert_eq!(self.region.find(address), expected, "find {address:#x}");
    }

    /// Looks up first, last and neighbouring addresses of an allocation.
    pub fn find_nth(&self, n: usize) {
        let live = self.blocks.iter().flat_map(|block| &block.live);
        if let Some(allocation) = live.clone().nth(n % self.live().max(1)) {
            for address in [
                allocation.address,
                allocation.address + allocation.size / 2,
                allocation.end() - 1,
                allocation.end(),
                allocation.address.wrapping_sub(1),
            ] {
                self.find(address);
            }
            assert_eq!(self.region.get(allocation.id), Some(*allocation));
        }
    }

    pub fn trim(&mut self) {
        let mut capacity: u128 = self.capacity();
        let mut expected = Vec::new();
        for at in (1..self.blocks.len()).rev() {
            let (start, end) = self.blocks[at].usable();
            let left = capacity - (end - start);
            if self.blocks[at].live.is_empty() && left >= u128::from(self.options.keep) {
                expected.push(self.blocks.remove(at).id);
                capacity = left;
            }
        }
        let trimmed: Vec<BlockId> = self.region.trim().iter().map(|block| block.id).collect();
        assert_eq!(trimmed, expected);
    }

    pub fn remove_block(&mut self, n: usize) {
        if self.blocks.is_empty() {
            return;
        }
        let at = n % self.blocks.len();
        let id = self.blocks[at].id;
        match self.region.remove_block(id) {
            Ok(block) => {
                assert!(self.blocks[at].live.is_empty());
                assert_eq!(u128::from(block.base), self.blocks[at].base);
                assert_eq!(u128::from(block.size), self.blocks[at].size);
                self.blocks.remove(at);
                assert_eq!(
                    self.region.remove_block(id),
                    Err(RegionError::UnknownBlock { id })
                );
            }
            Err(RegionError::BlockInUse { in_use, .. }) => {
                let live = &self.blocks[at].live;
                assert!(!live.is_empty());
                assert_eq!(in_use, live.iter().map(|a| a.size).sum::<u64>());
            }
            Err(other) => panic!("remove_block: {other}"),
        }
    }

    fn capacity(&self) -> u128 {
        self.blocks
            .iter()
            .map(|block| block.usable().1 - block.usable().0)
            .sum()
    }

    /// Largest free range and number of free ranges. The count shows that all are coalesced.
    fn figures(&self) -> (u64, usize) {
        let sizes = self.blocks.iter().flat_map(ShadowBlock::gaps);
        let (largest, count) = sizes.fold((0, 0), |(largest, count), gap| {
            (u128::max(largest, gap.1 - gap.0), count + 1)
        });
        (u64::try_from(largest).expect("64 bits"), count)
    }

    /// Compares every figure.
    pub fn check(&self) -> RegionStats {
        let stats = self.region.stats();
        let live = self.blocks.iter().flat_map(|block| &block.live);
        let (largest, ranges) = self.figures();
        assert_eq!(u128::from(stats.capacity), self.capacity());
        assert_eq!(stats.in_use, self.in_use);
        assert_eq!(self.region.in_use(), self.in_use);
        let last = live.clone().max_by_key(|a| a.address);
        assert_eq!(self.region.last(), last.copied());
        assert_eq!(stats.requested, live.map(|a| a.requested).sum::<u64>());
        assert_eq!(stats.allocations, self.live());
        assert_eq!(self.region.allocations().count(), self.live());
        assert_eq!(stats.largest_free, largest);
        assert_eq!(stats.free_ranges, ranges);
        assert_eq!(stats.blocks, self.blocks.len());
        assert_eq!(stats.peak, self.peak);
        let expected = match stats.free() {
            0 => 0.0,
            free => 1.0 - largest as f64 / free as f64,
        };
        assert!((stats.fragmentation - expected).abs() < 1e-12);
        stats
    }

    /// Frees everything: each block must be one free range again.
    pub fn free_all(&mut self) {
        while self.live() > 0 {
            self.free_nth(self.live() / 2);
        }
        let stats = self.check();
        assert_eq!(stats.free_ranges, self.blocks.len());
        assert_eq!((stats.in_use, stats.requested), (0, 0));
    }
}

/// Runs the operations that `bytes` spell: nine bytes each, an opcode and a number.
pub(crate) fn drive(bytes: &[u8]) {
    let (head, rest) = match bytes.split_first() {
        Some((head, rest)) => (*head, rest),
        None => return,
    };
    let placement = if head & 1 == 0 {
        Placement::GoodFit
    } else {
        Placement::TightFit
    };
    let growth = if head & 2 == 0 { 0 } else { 1 << 19 };
    let keep = if head & 4 == 0 { 0 } else { 3 << 18 };
    let lookup = head & 8 == 0;
    let mut shadow = Shadow::new(
        RegionOptions::default()
            .with_placement(placement)
            .with_growth(growth)
            .with_keep(keep)
            .with_lookup(lookup),
    );
    shadow.add_block(0, 1 << 18);
    for operation in rest.chunks_exact(9) {
        let number = u64::from_le_bytes(operation[1..].try_into().expect("eight bytes"));
        // A size of any magnitude below 2^17, and now and then any at all.
        let size = match number >> 56 {
            0 => number << 8,
            _ => (number & 0xffff_ffff) & ((1 << (number >> 40 & 0xf)) * 2 - 1),
        };
        let align = match number >> 48 & 0xff {
            0xff => number,
            0xfe => 1 << (number & 63),
            exponent => 1 << (exponent & 15),
        };
        match operation[0] & 15 {
            0..=6 => drop(shadow.allocate(size, align)),
            7..=11 => shadow.free_nth(number as usize),
            12 => shadow.free_stale(number as usize),
            13 => shadow.find(number & 0x3f_ffff),
            14 => shadow.find_nth(number as usize),
            _ => match number & 7 {
                0 => shadow.trim(),
                1 => shadow.remove_block(number as usize >> 3),
                2 => shadow.free_all(),
                3 => shadow.add_block(number >> 3, number >> 40),
                4 => shadow.add_block(number | 0xffff << 48, number >> 16 & 0xffff),
                _ => shadow.add_block((number >> 3 & 63) << 16, number >> 16 & 0x1_ffff),
            },
        }
        shadow.check();
    }
    shadow.free_all();
}
