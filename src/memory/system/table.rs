//! The table by which kernels find pages in frames, as `shaders/system.wgsl` reads it.
//!
//!     row 0       dense span: first page (low, high), pages; shift of the hashes
//!     row 1       both multipliers, first row of the slots, room for faults
//!     row 2       first word of the list of faults
//!     rows 3..    the pages of the dense span, one after the other
//!     slots       a power of two of rows: pages elsewhere, each at one of two places
//!     masks       sixteen rows for each page lent in parts: a bit for each word to read, and for each to write
//!
//! The longest run of pages is the dense span: an address there is translated in one step, as one behind a single slice or
//! a mapped file always is. Pages elsewhere lie at one of two slots (cuckoo hashing, Pagh and Rodler 2001): at most two
//! steps, and no loop, whose turns some adapters count.

use super::lends::{Mask, Rights};

/// A row of the table.
type Row = [u32; 4];

/// A page that no address has.
const NO_PAGE: u64 = u64::MAX;
const EMPTY: Row = [u32::MAX, u32::MAX, 0, 0];

/// The rows in front of the dense span.
const HEAD: usize = 3;
/// Multipliers that are tried for a number of slots before there are more slots.
const ATTEMPTS: u32 = 8;

/// A page in a frame.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub page: u64,
    pub frame: u32,
    pub rights: Rights,
}

/// The list of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultList {
    /// Its first word.
    pub start: u32,
    /// Room for so many faults; 0 where the first one fails the launch.
    pub capacity: u32,
}

/// The words of the table for these pages, in the order of their numbers.
pub(crate) fn words(entries: &[Entry], faults: FaultList) -> Vec<u32> {
    let dense = longest_run(entries);
    let first = entries.get(dense.start).map_or(0, |entry| entry.page);
    let mut rows: Vec<Row> = vec![EMPTY; HEAD];
    let mut masks: Vec<Row> = Vec::new();
    let mut row_of = |entry: &Entry| {
        let rights = &entry.rights;
        let whole = |mask: &Mask, bit: u32| u32::from(*mask == Rights::ALL) * bit;
        let mut flags = whole(&rights.read, 1) | whole(&rights.write, 2);
        if flags != 3 {
            // Relative to the first mask, for now.
            flags |= (masks.len() as u32) << 2;
            for words in rights.read.chunks(4).chain(rights.write.chunks(4)) {
                masks.push([words[0], words[1], words[2], words[3]]);
            }
        }
        let [low, high] = split(entry.page);
        [low, high, entry.frame * super::PAGE_WORDS as u32, flags]
    };
    let mut all: Vec<Row> = entries.iter().map(&mut row_of).collect();
    let scattered: Vec<u64> = (entries.iter().enumerate())
        .filter(|(index, _)| !dense.contains(index))
        .map(|(_, entry)| entry.page)
        .collect();
    let slots = Slots::of(&scattered);
    let first_slot = HEAD + dense.len();
    let first_mask = (first_slot + slots.pages.len()) as u32;
    for row in &mut all {
        if row[3] & 3 != 3 {
            row[3] += first_mask << 2;
        }
    }
    let [low, high] = split(first);
    rows[0] = [low, high, dense.len() as u32, slots.shift];
    rows[1] = [
        slots.seeds[0],
        slots.seeds[1],
        first_slot as u32,
        faults.capacity,
    ];
    rows[2] = [faults.start, 0, 0, 0];
    rows.extend_from_slice(&all[dense]);
    rows.extend(slots.pages.iter().map(|page| {
        let found = entries.binary_search_by_key(page, |entry| entry.page);
        found.map_or(EMPTY, |index| all[index])
    }));
    rows.extend(masks);
    rows.into_flattened()
}

fn split(page: u64) -> [u32; 2] {
    [page as u32, (page >> 32) as u32]
}

/// The longest run of neighbours whose numbers have the same high word.
fn longest_run(entries: &[Entry]) -> std::ops::Range<usize> {
    let (mut longest, mut start) = (0..0, 0);
    for at in 0..entries.len() {
        let goes_on = at > 0
            && entries[at].page == entries[at - 1].page + 1
            && split(entries[at].page)[1] == split(entries[at - 1].page)[1];
        if !goes_on {
            start = at;
        }
        if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    longest
}

/// Pages by their slots.
struct Slots {
    pages: Vec<u64>,
    seeds: [u32; 2],
    /// How far a hash is shifted down to be the number of a slot.
    shift: u32,
}

/// The slots where a page may lie.
fn places(page: u64, seeds: [u32; 2], shift: u32) -> [usize; 2] {
    let [low, high] = split(page);
    let first = low.wrapping_add(high.wrapping_mul(0x9e37_79b9));
    let second = low ^ high.wrapping_mul(0x85eb_ca6b);
    [
        (first.wrapping_mul(seeds[0]) >> shift) as usize,
        (second.wrapping_mul(seeds[1]) >> shift) as usize,
    ]
}

impl Slots {
    fn of(pages: &[u64]) -> Self {
        // A third full: nearly every choice of multipliers will do.
        let mut bits = (3 * pages.len())
            .next_power_of_two()
            .trailing_zeros()
            .max(2);
        let mut random = 0x2545_f491u32;
        let mut next = || {
            // Marsaglia's xorshift; multipliers are odd.
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random | 1
        };
        loop {
            for _ in 0..ATTEMPTS {
                let seeds = [next(), next()];
                if let Some(found) = Self::placed(pages, seeds, bits) {
                    return found;
                }
            }
            // At 31 bits there are more slots than frames could ever be: not reached.
            bits = (bits + 1).min(31);
        }
    }

    /// The pages at their slots, each moving others to their other slots; `None` where that goes round in circles.
    fn placed(pages: &[u64], seeds: [u32; 2], bits: u32) -> Option<Self> {
        let shift = 32 - bits;
        let mut slots = vec![NO_PAGE; 1 << bits];
        for &page in pages {
            let mut moving = page;
            let mut at = places(moving, seeds, shift)[0];
            let mut left = 8 * bits + 32;
            loop {
                std::mem::swap(&mut slots[at], &mut moving);
                if moving == NO_PAGE {
                    break;
                }
                left = left.checked_sub(1)?;
                let [first, second] = places(moving, seeds, shift);
                at = if at == first { second } else { first };
            }
        }
        Some(Self {
            pages: slots,
            seeds,
            shift,
        })
    }
}

/// What `shaders/system.wgsl` finds for a page: its frame's first word and its rights.
#[cfg(test)]
pub(super) fn find(words: &[u32], page: u64) -> Option<(u32, u32)> {
    let row = |index: usize| &words[4 * index..4 * index + 4];
    let [low, high] = split(page);
    let (head, more) = (row(0), row(1));
    let seeds = [more[0], more[1]];
    let slots = places(page, seeds, head[3]);
    let ahead = low.wrapping_sub(head[0]);
    let first = match high == head[1] && ahead < head[2] {
        true => HEAD + ahead as usize,
        false => more[2] as usize + slots[0],
    };
    let second = more[2] as usize + slots[1];
    let found = [first, second].into_iter().map(row);
    let mut found = found.filter(|row| row[0] == low && row[1] == high);
    found.next().map(|row| (row[2], row[3]))
}
