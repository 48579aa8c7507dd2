//! Lent ranges of addresses, and the bytes behind the addresses.

use std::ops::Range;

use rangemap::RangeSet;

use super::table::Solid;
use super::{PAGE_BYTES, PAGE_WORDS, SystemAccess, raw};
use crate::memory::ranges::within;

/// Words of a page with a bit each.
pub(crate) type Mask = [u32; PAGE_WORDS / 32];

/// The contents of a page.
pub(crate) type Page = [u32; PAGE_WORDS];

/// How the host reaches lent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Borrowed by the program: there, and without other users where lent for writing.
    Borrowed,
    /// An address, perhaps with nothing behind.
    Address,
}

/// What kernels may do with a page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rights {
    /// The words that may be read.
    pub read: Mask,
    /// The words that may be written.
    pub write: Mask,
}

impl Rights {
    /// All words of a page.
    pub(crate) const ALL: Mask = [u32::MAX; PAGE_WORDS / 32];
    /// No word of a page.
    pub(crate) const NONE: Mask = [0; PAGE_WORDS / 32];
}

/// A page, or a part of a page, whose memory is not there or may not be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreachable {
    pub address: u64,
}

/// Ranges of lent bytes. A byte lent twice has the rights of both ranges.
#[derive(Debug, Default)]
pub(crate) struct Lends {
    readable: RangeSet<u64>,
    writable: RangeSet<u64>,
    /// Borrowed ranges, and the parts borrowed for writing.
    borrowed: RangeSet<u64>,
}

/// The bytes of a page. The last page of the address space ends a byte early.
fn bytes_of(page: u64) -> Range<u64> {
    let start = page.saturating_mul(PAGE_BYTES);
    start..start.saturating_add(PAGE_BYTES)
}

impl Lends {
    pub(super) fn add(&mut self, range: Range<u64>, access: SystemAccess, source: Source) {
        if range.is_empty() {
            return;
        }
        self.readable.insert(range.clone());
        if access == SystemAccess::ReadWrite {
            self.writable.insert(range.clone());
        }
        if source == Source::Borrowed {
            self.borrowed.insert(range);
        }
    }

    /// Bytes that are lent.
    pub(crate) fn bytes(&self) -> u64 {
        self.readable.iter().map(|one| one.end - one.start).sum()
    }

    /// Borrowed ranges, in order.
    pub(super) fn borrowed(&self) -> impl Iterator<Item = &Range<u64>> {
        self.borrowed.iter()
    }

    /// Whether kernels may use the page in place: all lent bytes of the page were borrowed, and in whole words, so that
    /// no foreign bytes are read or written along.
    pub(super) fn is_usable_in_place(&self, page: u64) -> bool {
        let bytes = bytes_of(page);
        let is_in_words =
            |range: &Range<u64>| range.start.is_multiple_of(4) && range.end.is_multiple_of(4);
        within(&self.readable, &bytes)
            .all(|range| is_in_words(&range) && self.borrowed.gaps(&range).next().is_none())
            && within(&self.writable, &bytes).all(|range| is_in_words(&range))
    }

    /// Borrowed ranges with the same rights everywhere, and whether the rights include writing.
    pub(super) fn uniform(&self) -> impl Iterator<Item = (Range<u64>, bool)> {
        self.borrowed.iter().flat_map(|range| {
            let written = within(&self.writable, range).map(|part| (part, true));
            written.chain(self.writable.gaps(range).map(|part| (part, false)))
        })
    }

    /// The longest run of whole pages with the same rights, borrowed or not; without a word.
    pub(super) fn longest_run(&self) -> Option<Solid> {
        let uniform = self.readable.iter().flat_map(|range| {
            let written = within(&self.writable, range).map(|part| (part, true));
            written.chain(self.writable.gaps(range).map(|part| (part, false)))
        });
        Solid::longest(uniform, &(0..u64::MAX / PAGE_BYTES), false)
    }

    /// Pages with something lent for writing; a page between two ranges may count twice.
    pub(crate) fn pages_for_writing(&self) -> u64 {
        let pages = |range: &Range<u64>| range.end.div_ceil(PAGE_BYTES) - range.start / PAGE_BYTES;
        self.writable.iter().map(pages).fold(0, u64::saturating_add)
    }

    /// Something is lent for writing.
    pub(crate) fn is_written(&self) -> bool {
        !self.writable.is_empty()
    }

    /// The pages with something lent from page `first` on, in order.
    pub(crate) fn pages(&self, first: u64) -> impl Iterator<Item = u64> {
        let mut next = first;
        let start = first.saturating_mul(PAGE_BYTES);
        let ranges = self.readable.overlapping(start..u64::MAX);
        ranges.flat_map(move |range| {
            let pages = (range.start / PAGE_BYTES).max(next)..(range.end - 1) / PAGE_BYTES + 1;
            next = next.max(pages.end);
            pages
        })
    }

    /// The pages of the smallest ranges, `most` at most: small ranges are fetched before any miss.
    pub(crate) fn small(&self, most: u64) -> Vec<u64> {
        let mut ranges: Vec<_> = self.readable.iter().collect();
        ranges.sort_by_key(|range| range.end - range.start);
        let mut pages = Vec::new();
        for range in ranges {
            let of_range = range.start / PAGE_BYTES..(range.end - 1) / PAGE_BYTES + 1;
            if pages.len() as u64 + (of_range.end - of_range.start) > most {
                break;
            }
            pages.extend(of_range);
        }
        pages
    }

    /// Whether something of the page is lent.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.readable.overlaps(&bytes_of(page))
    }

    /// What kernels may do with a page.
    pub(crate) fn rights(&self, page: u64) -> Rights {
        Rights {
            read: mask(&self.readable, page),
            write: mask(&self.writable, page),
        }
    }

    /// Reads the lent bytes of a page into `words`; other bytes stay as before.
    ///
    /// # Errors
    /// [`Unreachable`] where memory lent by address is not there.
    pub(crate) fn read(&self, page: u64, words: &mut Page) -> Result<(), Unreachable> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        let base = page * PAGE_BYTES;
        for range in within(&self.readable, &bytes_of(page)) {
            for (part, is_borrowed) in self.by_source(&range) {
                let to = &mut bytes[(part.start - base) as usize..(part.end - base) as usize];
                match is_borrowed {
                    // SAFETY: the bytes are borrowed, for reading at least, as long as `self` lives, and hold plain
                    // data whose address was exposed by the lending; `to` is the host's own memory of the same length.
                    true => unsafe {
                        let from = std::ptr::with_exposed_provenance::<u8>(part.start as usize);
                        from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
                    },
                    false => raw::read(part.start, to)?,
                }
            }
        }
        Ok(())
    }

    /// Writes the words of a page that differ between `before` and `after` to memory lent for writing, and counts these
    /// words. Bytes not lent for writing stay as before.
    ///
    /// # Errors
    /// [`Unreachable`] where memory lent by address cannot be written any more.
    pub(crate) fn write_back(
        &self,
        page: u64,
        before: &[u32],
        after: &[u32],
    ) -> Result<u64, Unreachable> {
        let base = page * PAGE_BYTES;
        let bytes: &[u8] = bytemuck::cast_slice(after);
        let mut count = 0;
        for run in changed(before, after) {
            count += (run.end - run.start) as u64;
            let range = base + 4 * run.start as u64..base + 4 * run.end as u64;
            for part in within(&self.writable, &range) {
                for (part, is_borrowed) in self.by_source(&part) {
                    let from = &bytes[(part.start - base) as usize..(part.end - base) as usize];
                    match is_borrowed {
                        // SAFETY: the bytes are borrowed, bytes in `writable` by exclusive references whose address was
                        // exposed, or else the program answers for the bytes (`lend_range`); plain data may have any
                        // bytes.
                        true => unsafe {
                            let start = part.start as usize;
                            let to = std::ptr::with_exposed_provenance_mut::<u8>(start);
                            to.copy_from_nonoverlapping(from.as_ptr(), from.len());
                        },
                        false => raw::write(part.start, from)?,
                    }
                }
            }
        }
        Ok(count)
    }

    /// The parts of a range, each with whether the program has borrowed it.
    fn by_source(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts: Vec<_> = (within(&self.borrowed, range).map(|part| (part, true)))
            .chain(self.borrowed.gaps(range).map(|part| (part, false)))
            .collect();
        parts.sort_by_key(|(part, _)| part.start);
        parts
    }
}

/// The words of a page with a byte in the set.
fn mask(set: &RangeSet<u64>, page: u64) -> Mask {
    let bytes = bytes_of(page);
    let mut mask = Rights::NONE;
    for part in within(set, &bytes) {
        if part == bytes {
            return Rights::ALL;
        }
        for word in (part.start - bytes.start) / 4..=(part.end - 1 - bytes.start) / 4 {
            mask[word as usize / 32] |= 1 << (word % 32);
        }
    }
    mask
}

/// Runs of words that differ.
fn changed(before: &[u32], after: &[u32]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        if old == new {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}
