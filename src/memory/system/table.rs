//! The table by which kernels find pages in frames, as `shaders/system.wgsl` reads it.
//!
//! ```text
//! row 0       solid span: first page (low, high), pages; shift of the hashes
//! row 1       both multipliers, first row of the slots, room for faults
//! row 2       first word of the list of faults; of the solid span: first word, rights; shift of its pages, marks
//! row 3       where pages come while the kernel runs: what `shaders/system_live.wgsl` says
//! slots       a power of two of rows: pages elsewhere, each at one of two places
//! masks       sixteen rows for each page lent in parts: a bit for each word to read, and for each to write
//! ```
//!
//! The *solid span* is the longest run of whole pages with the same rights in neighbouring frames, as all but the ends
//! of a slice or a mapped file is: the span needs no rows, and an address there is translated without a look into the
//! table. Other pages lie at one of two slots (cuckoo hashing, Pagh and Rodler 2001): at most two steps, and no loop,
//! whose turns some adapters count.

use std::collections::HashMap;
use std::ops::Range;

use super::lends::{Mask, Rights};
use super::live::Limits;
use super::{PAGE_BYTES, PAGE_WORDS};

/// A row of the table.
type Row = [u32; 4];

/// A page without addresses.
const NO_PAGE: u64 = u64::MAX;
const EMPTY: Row = [u32::MAX, u32::MAX, 0, 0];

/// The rows in front of the slots.
const HEAD: usize = 4;
/// Multipliers tried for a number of slots before there are more slots.
const ATTEMPTS: u32 = 8;

/// Bits of a row's rights.
const READ: u32 = 1;
const WRITE: u32 = 2;
const IN_PLACE: u32 = 4;
const MASK_SHIFT: u32 = 3;

/// Flags of a frame: written by a kernel, or touched, where the kernel notes touches.
pub(crate) const WRITTEN: u32 = 1;
pub(crate) const TOUCHED: u32 = 2;
/// Above the shift from a page to its word.
const MARKS_SHIFT: u32 = 8;
const PAGE_SHIFT: u32 = PAGE_WORDS.trailing_zeros();

/// A page in a frame.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub page: u64,
    /// The first word of the page's frame.
    pub word: u32,
    /// The frame is the host's own page.
    pub in_place: bool,
    pub rights: Rights,
}

/// Neighbouring pages in neighbouring frames, all words with the same rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Solid {
    pub first: u64,
    pub pages: u32,
    /// The first word of the first frame.
    pub word: u32,
    pub writes: bool,
    pub in_place: bool,
}

/// The host's demands on kernels beside the translation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demands {
    /// Kernels note touched frames.
    pub touched: bool,
    /// Words are places of pages that come while the kernel runs.
    pub live: Option<Limits>,
}

/// The list of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultList {
    /// The first word of the list.
    pub start: u32,
    /// Room for so many faults; 0 where the first fault fails the launch.
    pub capacity: u32,
}

impl Entry {
    /// The rights, without the place of masks.
    fn flags(&self) -> u32 {
        let whole = |mask: &Mask, bit: u32| u32::from(*mask == Rights::ALL) * bit;
        whole(&self.rights.read, READ)
            | whole(&self.rights.write, WRITE)
            | (u32::from(self.in_place) * IN_PLACE)
    }

    /// Whether all words have the same rights.
    fn is_whole(&self) -> bool {
        let writes = self.rights.write;
        self.rights.read == Rights::ALL && (writes == Rights::ALL || writes == Rights::NONE)
    }
}

impl Solid {
    /// The longest run of whole pages with the same rights, of ranges with whether each is written; the first word is
    /// not known yet.
    pub(super) fn longest(
        ranges: impl Iterator<Item = (Range<u64>, bool)>,
        covered: &Range<u64>,
        in_place: bool,
    ) -> Option<Self> {
        let mut longest: Option<Self> = None;
        for (range, writes) in ranges {
            let first = range.start.div_ceil(PAGE_BYTES).max(covered.start);
            let end = (range.end / PAGE_BYTES).min(covered.end);
            // Numbers of pages have the same high word.
            let end = end.min((first | u64::from(u32::MAX)) + 1);
            let pages = end.saturating_sub(first).min(u32::MAX.into()) as u32;
            if pages > longest.map_or(0, |solid| solid.pages) {
                longest = Some(Self {
                    first,
                    pages,
                    word: 0,
                    writes,
                    in_place,
                });
            }
        }
        longest
    }

    /// Whether the page belongs to the span.
    pub(crate) fn has(&self, page: u64) -> bool {
        page.wrapping_sub(self.first) < u64::from(self.pages)
    }

    fn rights(&self) -> Rights {
        Rights {
            read: Rights::ALL,
            write: if self.writes {
                Rights::ALL
            } else {
                Rights::NONE
            },
        }
    }

    fn flags(&self) -> u32 {
        READ | (u32::from(self.writes) * WRITE) | (u32::from(self.in_place) * IN_PLACE)
    }
}

/// The words of the table for `entries`, in the order of their page numbers, and for `solid`, pages outside of
/// `entries`; without `solid`, the longest run of `entries` becomes the solid span.
pub(crate) fn words(
    entries: &[Entry],
    solid: Option<Solid>,
    faults: FaultList,
    demands: Demands,
) -> Vec<u32> {
    let (run, solid) = match solid {
        Some(solid) => (0..0, Some(solid)),
        None if demands.live.is_some() => (0..0, None),
        None => longest_run(entries),
    };
    let (step, marks) = (demands.live.is_none(), demands.touched);
    let limits = demands.live.map_or([0; 4], |limits| {
        [limits.locks, limits.list, limits.frames, limits.turns]
    });
    let scattered = || entries[..run.start].iter().chain(&entries[run.end..]);
    let pages: Vec<u64> = scattered().map(|entry| entry.page).collect();
    let slots = Slots::of(&pages);
    let mut masks = Masks::behind(HEAD + slots.pages.len());
    let all: Vec<Row> = scattered()
        .map(|entry| {
            let [low, high] = split(entry.page);
            let flags = entry.flags() | masks.of(&entry.rights);
            [low, high, entry.word, flags]
        })
        .collect();
    let solid_flags = solid.map_or(0, |solid| solid.flags() | masks.of(&solid.rights()));
    let [low, high] = solid.map_or([0, 0], |solid| split(solid.first));
    let mut rows = vec![
        [low, high, solid.map_or(0, |solid| solid.pages), slots.shift],
        [slots.seeds[0], slots.seeds[1], HEAD as u32, faults.capacity],
        [
            faults.start,
            solid.map_or(0, |solid| solid.word),
            solid_flags,
            (u32::from(step) * PAGE_SHIFT) | ((u32::from(marks) * TOUCHED) << MARKS_SHIFT),
        ],
        limits,
    ];
    rows.extend(slots.pages.iter().map(|page| {
        let found = pages.binary_search(page);
        found.map_or(EMPTY, |index| all[index])
    }));
    rows.extend(masks.rows);
    rows.into_flattened()
}

/// The rows with masks. Pages with the same rights share a mask.
struct Masks {
    first: usize,
    rows: Vec<Row>,
    known: HashMap<Rights, u32>,
}

impl Masks {
    /// Behind so many rows of the table.
    fn behind(first: usize) -> Self {
        Self {
            first,
            rows: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Where the masks of the rights are, as in flags; 0 where a page may be read and written as a whole, since kernels
    /// ask no mask then.
    fn of(&mut self, rights: &Rights) -> u32 {
        if rights.read == Rights::ALL && rights.write == Rights::ALL {
            return 0;
        }
        let next = (self.first + self.rows.len()) as u32;
        let at = *self.known.entry(rights.clone()).or_insert(next);
        if at == next {
            let words = rights.read.chunks(4).chain(rights.write.chunks(4));
            let rows = words.map(|words| [words[0], words[1], words[2], words[3]]);
            self.rows.extend(rows);
        }
        at << MASK_SHIFT
    }
}

fn split(page: u64) -> [u32; 2] {
    [page as u32, (page >> 32) as u32]
}

/// The longest run of neighbours that may be the solid span: the page numbers have the same high word, too.
fn longest_run(entries: &[Entry]) -> (std::ops::Range<usize>, Option<Solid>) {
    let (mut longest, mut start) = (0..0, 0);
    for (at, entry) in entries.iter().enumerate() {
        if !entry.is_whole() {
            start = at + 1;
            continue;
        }
        let before = at.checked_sub(1).map(|before| &entries[before]);
        let goes_on = before.is_some_and(|before| {
            entry.page == before.page + 1
                && entry.word == before.word.wrapping_add(PAGE_WORDS as u32)
                && entry.flags() == before.flags()
                && split(entry.page)[1] == split(before.page)[1]
        });
        if !goes_on {
            start = start.max(at);
        }
        if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    let solid = entries.get(longest.start).filter(|_| !longest.is_empty());
    let solid = solid.map(|first| Solid {
        first: first.page,
        pages: longest.len() as u32,
        word: first.word,
        writes: first.rights.write == Rights::ALL,
        in_place: first.in_place,
    });
    (longest, solid)
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

    /// The pages at their slots, each moving others to their other slots; `None` where the moves go round in circles.
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
    let (head, more, last) = (row(0), row(1), row(2));
    let ahead = low.wrapping_sub(head[0]);
    if high == head[1] && ahead < head[2] {
        return Some((last[1] + ahead * PAGE_WORDS as u32, last[2]));
    }
    let slots = places(page, [more[0], more[1]], head[3]);
    let found = slots.map(|slot| row(more[2] as usize + slot));
    let mut found = found
        .into_iter()
        .filter(|row| row[0] == low && row[1] == high);
    found.next().map(|row| (row[2], row[3]))
}
