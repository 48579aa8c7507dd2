//! The promises of the region, each by itself, and all against the shadow.

use proptest::prelude::*;

use super::shadow::{Shadow, drive};
use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn options(placement: Placement) -> RegionOptions {
    RegionOptions::default()
        .with_placement(placement)
        .with_lookup(true)
}

fn region(base: u64, size: u64) -> (Region, BlockId) {
    let mut region = Region::new(options(Placement::GoodFit));
    let block = region.add_block(base, size).expect("a valid block");
    (region, block)
}

/// Steps of a long trace. Miri takes its time for each, and only a few end in bounded time.
const STEPS: usize = if cfg!(miri) { 40 } else { 20_000 };

/// Bytes that say what to do, fewer than so many.
const BYTES: usize = if cfg!(miri) { 40 } else { 2700 };

/// A small generator (xorshift64*), so a trace is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number up to `2^bits`, of a magnitude drawn evenly.
    fn magnitude(&mut self, bits: u32) -> u64 {
        let exponent = self.next() >> 33;
        let mantissa = self.next() >> 33;
        let top = 1 << (exponent % u64::from(bits));
        top + mantissa % top
    }
}

#[test]
fn illegal_requests_are_typed_errors() {
    let (mut region, _) = region(0, MIB);
    assert_eq!(region.allocate(0, 16), Err(RegionError::ZeroSize));
    for align in [0, 3, 5, 12, u64::MAX] {
        let error = RegionError::InvalidAlignment { align };
        assert_eq!(region.allocate(8, align), Err(error));
    }
    assert_eq!(region.stats().allocations, 0);
}

#[test]
fn small_alignments_and_sizes_work() {
    let (mut region, block) = region(1 << 32, MIB);
    for align in [1, 2, 4, 8, 16, 32, 64] {
        for size in [1, 8, 512, 2048] {
            let allocation = region.allocate(size, align).expect("room");
            assert_eq!(allocation.address % align.max(16), 0);
            assert_eq!(allocation.requested, size);
            assert_eq!(allocation.size, size.next_multiple_of(16));
            assert_eq!(allocation.block, block);
        }
    }
}

#[test]
fn never_and_not_now_are_different() {
    let (mut region, block) = region(0, 64 * KIB);
    let never = RegionError::TooLargeEver {
        size: 65 * KIB,
        align: 4,
        largest_block: 64 * KIB,
    };
    assert_eq!(region.allocate(65 * KIB, 4), Err(never));
    let all = region.allocate(64 * KIB, 4).expect("room for all");
    let now = RegionError::NoRoom {
        size: 1,
        align: 1,
        largest_free: 0,
        in_use: 64 * KIB,
        capacity: 64 * KIB,
    };
    assert_eq!(region.allocate(1, 1), Err(now));
    assert_eq!(region.allocate(65 * KIB, 4), Err(never));
    region.free(all.id).expect("live");
    // Only 0 is a multiple of this in the block, and it will do.
    assert!(region.allocate(KIB, 1 << 63).is_ok());
    assert!(matches!(
        region.allocate(u64::MAX, 1),
        Err(RegionError::TooLargeEver { .. })
    ));
    let in_use = KIB;
    assert_eq!(
        region.remove_block(block),
        Err(RegionError::BlockInUse { id: block, in_use })
    );
}

#[test]
fn what_growth_could_hold_is_only_refused_for_now() {
    let mut region = Region::new(RegionOptions::default().with_growth(MIB));
    assert!(matches!(
        region.allocate(MIB, 16),
        Err(RegionError::NoRoom { .. })
    ));
    assert!(matches!(
        region.allocate(MIB + 1, 16),
        Err(RegionError::TooLargeEver { .. })
    ));
    region.add_block(MIB, MIB).expect("a valid block");
    assert!(region.allocate(MIB, 16).is_ok());
}

#[test]
fn an_alignment_that_no_address_has_can_never_be() {
    let (mut region, _) = region(4096 + 16, 64 * KIB);
    assert!(matches!(
        region.allocate(16, 1 << 20),
        Err(RegionError::TooLargeEver { .. })
    ));
}

#[test]
fn freeing_twice_is_an_error_even_when_the_place_is_used_again() {
    let (mut region, _) = region(0, MIB);
    let first = region.allocate(100, 16).expect("room");
    assert_eq!(region.free(first.id), Ok(112));
    let second = region.allocate(100, 16).expect("room");
    assert_eq!(second.address, first.address);
    let unknown = RegionError::UnknownAllocation { id: first.id };
    assert_eq!(region.free(first.id), Err(unknown));
    assert_eq!(region.get(first.id), None);
    assert_eq!(region.get(second.id), Some(second));
    assert_eq!(
        region.free(AllocationId::default()),
        Err(RegionError::UnknownAllocation {
            id: AllocationId::default()
        })
    );
}

#[test]
fn alignment_wastes_nothing() {
    let (mut region, _) = region(2048, 62 * KIB);
    let aligned = region.allocate(4096, 4096).expect("room");
    assert_eq!(aligned.address, 4096);
    assert_eq!(region.stats().in_use, 4096);
    // The gap in front is a free range like any other.
    let front = region.allocate(2048, 16).expect("room in front");
    assert_eq!(front.address, 2048);
}

#[test]
fn the_last_fitting_gap_is_found() {
    // The gap lies in the very bin of the size, among smaller ones, and starts misaligned.
    let (mut region, _) = region(0, 64 * KIB);
    let cells: Vec<Allocation> = (0..16)
        .map(|_| region.allocate(4 * KIB, 16).expect("room"))
        .collect();
    for cell in cells.iter().step_by(2) {
        region.free(cell.id).expect("live");
    }
    let filled: Vec<Allocation> = cells
        .iter()
        .step_by(2)
        .map(|_| region.allocate(4 * KIB - 16, 16).expect("room"))
        .collect();
    let one = filled[5];
    region.free(one.id).expect("live");
    let again = region.allocate(4 * KIB, 4 * KIB).expect("the only gap");
    assert_eq!(again.address, one.address);
}

#[test]
fn blocks_are_never_merged() {
    let (mut region, first) = region(0, 64 * KIB);
    let second = region.add_block(64 * KIB, 64 * KIB).expect("a neighbour");
    assert!(matches!(
        region.allocate(65 * KIB, 16),
        Err(RegionError::TooLargeEver { .. })
    ));
    let a = region.allocate(40 * KIB, 16).expect("room");
    let b = region.allocate(40 * KIB, 16).expect("room");
    assert_ne!(a.block, b.block);
    let stats = region.stats();
    assert_eq!((stats.blocks, stats.free_ranges), (2, 2));
    assert_eq!(stats.capacity, 128 * KIB);
    assert!(region.blocks().map(|block| block.id).eq([first, second]));
    assert!(matches!(
        region.add_block(64 * KIB - 1, 1000),
        Err(RegionError::OverlappingBlock { .. })
    ));
    assert!(matches!(
        region.add_block(1 << 20, 15),
        Err(RegionError::InvalidBlock { .. })
    ));
    assert!(matches!(
        region.add_block(u64::MAX - 15, 32),
        Err(RegionError::InvalidBlock { .. })
    ));
}

#[test]
fn trim_gives_back_what_is_free() {
    let mut region = Region::new(RegionOptions::default().with_keep(192 * KIB));
    let blocks: Vec<BlockId> = (0..6)
        .map(|i| region.add_block(i * MIB, 64 * KIB).expect("valid"))
        .collect();
    let held = loop {
        let allocation = region.allocate(64 * KIB, 16).expect("room");
        if allocation.block == blocks[4] {
            break allocation;
        }
    };
    for other in region.allocations().collect::<Vec<_>>() {
        if other.id != held.id {
            region.free(other.id).expect("live");
        }
    }
    // The youngest go first, the one in use stays, and 192 KiB are kept.
    let gone: Vec<BlockId> = region.trim().iter().map(|block| block.id).collect();
    assert_eq!(gone, [blocks[5], blocks[3], blocks[2]]);
    assert_eq!(region.stats().capacity, 192 * KIB);
    region.options_mut().keep = 0;
    region.free(held.id).expect("live");
    assert_eq!(region.trim().len(), 2);
    assert!(region.blocks().map(|block| block.id).eq([blocks[0]]));
    assert!(region.trim().is_empty(), "the oldest block stays");
    assert!(region.remove_block(blocks[0]).is_ok());
    assert_eq!(region.stats().capacity, 0);
    let id = blocks[0];
    assert_eq!(
        region.remove_block(id),
        Err(RegionError::UnknownBlock { id })
    );
}

#[test]
fn interior_addresses_find_their_allocation() {
    let (mut region, _) = region(0x1_0000_0000, MIB);
    let a = region.allocate(100_000, 4096).expect("room");
    let b = region.allocate(10, 16).expect("room");
    assert_eq!(region.find(a.address + 99_999), Some(a));
    assert_eq!(region.find(b.address + 9), Some(b));
    // Granted, though not asked for.
    assert_eq!(region.find(b.address + 15), Some(b));
    assert_eq!(region.find(b.address + 16), None);
    for nowhere in [0, 1, 0xffff_ffff, 0x1_0010_0000, u64::MAX] {
        assert_eq!(region.find(nowhere), None);
    }
    region.free(a.id).expect("live");
    assert_eq!(region.find(a.address), None);
}

#[test]
fn look_ups_reach_the_last_page() {
    // 64 pages fill one word of the index, 4096 pages two levels; the others leave some open.
    let pages = [1, 2, 63, 64, 65, 128, 4095, 4096, 4097];
    for pages in pages.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
        let size = pages * 4096;
        let mut shadow = Shadow::new(options(Placement::GoodFit));
        shadow.add_block(0x1_0000_0000, size);
        shadow.allocate(size / 2, 16);
        shadow.allocate(size / 2, 16);
        for _ in 0..2 {
            for at in 0..64 {
                shadow.find(0x1_0000_0000 + (size - 1) / 63 * at);
            }
            shadow.find(0x1_0000_0000 + size - 1);
            shadow.free_nth(1);
        }
    }
}

#[test]
fn without_the_index_look_ups_still_answer() {
    let mut shadow = Shadow::new(RegionOptions::default());
    shadow.add_block(0, MIB);
    let sizes = if cfg!(miri) { 8 } else { 40 };
    for size in 1..sizes {
        shadow.allocate(size * size, 16);
    }
    for n in (0..sizes as usize / 2).rev() {
        shadow.find_nth(n);
        shadow.free_nth(n);
        shadow.find_nth(n);
    }
}

#[test]
fn equal_sizes_go_where_equal_sizes_were() {
    // Gaps of a size that is no bin's least: the direct search skips their bin.
    let (mut region, _) = region(0, 5040 * 100);
    let cells: Vec<Allocation> = (0..100)
        .map(|_| region.allocate(5040, 16).expect("room"))
        .collect();
    for cell in cells.iter().step_by(2) {
        region.free(cell.id).expect("live");
    }
    for _ in 0..50 {
        assert!(region.allocate(5040, 16).is_ok());
    }
    assert_eq!(region.stats().free(), 0);
}

#[test]
fn fragmentation_is_what_the_largest_range_lacks() {
    let (mut region, _) = region(0, 64 * KIB);
    assert_eq!(region.stats().fragmentation, 0.0);
    let cells: Vec<Allocation> = (0..4)
        .map(|_| region.allocate(16 * KIB, 16).expect("room"))
        .collect();
    assert_eq!(region.stats().fragmentation, 0.0);
    region.free(cells[0].id).expect("live");
    region.free(cells[2].id).expect("live");
    let stats = region.stats();
    assert_eq!(stats.fragmentation, 0.5);
    assert_eq!((stats.largest_free, stats.free()), (16 * KIB, 32 * KIB));
    assert_eq!(stats.peak, 64 * KIB);
}

#[test]
fn sizes_and_addresses_of_64_bits_work() {
    for placement in [Placement::GoodFit, Placement::TightFit] {
        let mut shadow = Shadow::new(options(placement));
        shadow.add_block(5, u64::MAX - 5);
        assert!(shadow.allocate(1 << 62, 1 << 62).is_some());
        assert!(shadow.allocate((1 << 61) - 3, 1 << 40).is_some());
        assert!(shadow.allocate((1 << 63) - 16, 16).is_some());
        assert!(shadow.allocate(1 << 63, 16).is_none());
        assert!(shadow.allocate(1, 1 << 63).is_none());
        shadow.check();
        for n in 0..shadow.live() {
            shadow.find_nth(n);
        }
        shadow.find(4);
        shadow.find(u64::MAX);
        shadow.free_all();
    }
}

/// Long traces at 95 % occupancy, where exactness matters: the shadow sees every refusal.
#[test]
fn long_traces_agree_with_the_shadow() {
    for seed in 1..=3u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let placement = if seed % 3 == 0 {
            Placement::TightFit
        } else {
            Placement::GoodFit
        };
        let mut shadow = Shadow::new(options(placement));
        let capacity = 2 * MIB;
        shadow.add_block(0x1_0000_0000, MIB);
        shadow.add_block(0x1_0010_0000, MIB);
        let (mut in_use, mut refused) = (0, 0);
        for step in 0..STEPS {
            let size = random.magnitude(17);
            let align = 1 << (random.next() % 13);
            while in_use + size > capacity / 100 * 95 {
                shadow.free_nth(random.next() as usize);
                in_use = shadow.region.stats().requested;
            }
            match shadow.allocate(size, align) {
                Some(_) => in_use += size,
                None => refused += 1,
            }
            match step % 8 {
                0 => shadow.find_nth(random.next() as usize),
                1 => shadow.find(0x1_0000_0000 + random.next() % (3 * MIB)),
                2 => shadow.free_stale(random.next() as usize),
                3 => drop(shadow.check()),
                _ => {}
            }
        }
        assert!(cfg!(miri) || refused > 0, "the traces must reach the limit");
        shadow.free_all();
    }
}

/// Many small allocations in few pages, which the index of pages must tell apart.
#[test]
fn look_ups_in_crowded_pages_agree_with_the_shadow() {
    let mut random = Random(7);
    let mut shadow = Shadow::new(options(Placement::GoodFit));
    shadow.add_block(0x7000, 100 * KIB);
    for _ in 0..STEPS / 2 {
        if random.next() >> 40 & 1 == 0 {
            shadow.allocate(1 + random.next() % 100, 1);
        } else if shadow.live() > 0 {
            shadow.free_nth(random.next() as usize);
        }
        shadow.find(0x6ff0 + random.next() % (101 * KIB));
    }
    shadow.free_all();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn any_operations_agree_with_the_shadow(bytes in prop::collection::vec(any::<u8>(), 1..BYTES)) {
        drive(&bytes);
    }
}

/// What the fuzzer has found worth keeping, again on every run of the tests.
#[test]
fn inputs_of_the_fuzzer_agree_with_the_shadow() {
    let lines = include_str!("corpus.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    let (most, digits) = match cfg!(miri) {
        true => (4, 2 * BYTES),
        false => (usize::MAX, usize::MAX),
    };
    let inputs: Vec<Vec<u8>> = lines
        .filter(|line| line.len() < digits)
        .take(most)
        .map(|line| {
            let digits = line.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            digits
                .map(byte)
                .collect::<Option<_>>()
                .expect("bytes in hexadecimal")
        })
        .collect();
    assert!(inputs.len() > if cfg!(miri) { 3 } else { 100 });
    inputs.iter().for_each(|bytes| drive(bytes));
}
