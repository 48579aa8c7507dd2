//! Launches that are repeated until no page is missing: the tier of devices without live memory, and of those that ration
//! turns of loops.
//!
//! *How it works.*
//!
//! 1. At first there is what the kernel has touched in its last launch, and what is lent in small ranges. An invocation that
//!    misses a page notes the address and goes on with a zero; its loops end. The launch is worth nothing then: the pages are
//!    fetched, with those that are likely to be missed next, the frames and all buffers that the kernel writes get their old
//!    contents (`src/launch/parts/undo.rs`), and the launch is repeated, until nothing is missing. So a kernel may do nothing that cannot be undone
//!    ([`SystemError::NotRepeatable`]).
//! 2. Frames say which of them a launch has touched. Where there are more missing pages than frames, pages that the last
//!    attempt has not touched make room. The pages of one launch have to fit at once, all the same: the next attempt begins
//!    from the start, and touches them again.
//! 3. An address that nothing is lent at may be that of a pointer that was not there yet. Where a launch has missed only
//!    such, it is repeated once more, with the first fault in its status record, and fails.

use std::sync::Arc;

use super::{Run, SystemError, undo};
use crate::launch::parts::system::Lent;
use crate::launch::parts::undo::Copies;
use crate::memory::system::prefetch::Pattern;
use crate::memory::system::table::TOUCHED;
use crate::memory::system::{PAGE_BYTES, SystemTier};

/// Room for faults of a launch: each page notes one.
const FAULTS: u32 = 16_384;
/// Words with a bit for each page that has noted a fault.
const NOTED_WORDS: u32 = 2048;
/// Pages fetched behind each missing one, twice as many each time, and at most.
const FIRST_AHEAD: usize = 8;
const MOST_AHEAD: usize = 4096;

/// What is known of the misses of a launch.
struct Misses {
    pattern: Pattern,
    ahead: usize,
    /// The pages that were touched when pages were dropped last: more each time, or there would be no end.
    touched: usize,
}

impl Run<'_, '_> {
    /// Launches until nothing is missing, with copies of what the launch may write, or without any yet.
    pub(super) fn sliced(&mut self, copies: Arc<Copies>) -> Result<(), SystemError> {
        self.report.tier = Some(SystemTier::Sliced);
        undo::check(self.launch)?;
        self.launch.settings.undo = Some(Arc::clone(&copies));
        let done = self.until_nothing_is_missing();
        self.launch.settings.undo = None;
        if done.is_err() {
            // The error tells more than one of these would.
            let _ = copies.restore(self.launch);
        }
        done
    }

    fn until_nothing_is_missing(&mut self) -> Result<(), SystemError> {
        let kernel = self.launch.kernel.shared.compiled.id;
        for page in self.likely(kernel, self.most_pages) {
            if self.frames.left() == 0 {
                break;
            }
            self.report.pages_prefetched += u64::from(self.fetch(page)?);
        }
        let mut misses = Misses {
            pattern: Pattern::default(),
            ahead: FIRST_AHEAD,
            touched: 0,
        };
        let mut room = Some((NOTED_WORDS, FAULTS));
        loop {
            let lent = self.bound(room)?;
            let done = self.attempt(&lent, room.is_some());
            let found = match done {
                Ok(missing) if missing.is_empty() => {
                    let done = self.write_back(&lent).and_then(|()| self.flags(&lent));
                    done.map(|flags| {
                        // The last attempt, by which an address fails, notes nothing.
                        self.touched = room.map(|_| self.touched(&flags));
                        None
                    })
                }
                Ok(missing) => self.fetch_missing(&lent, &missing, &mut misses).map(Some),
                Err(error) => Err(error),
            };
            self.give_back(lent);
            match found? {
                None => return Ok(()),
                Some(true) => {}
                Some(false) => room = None,
            }
        }
    }

    /// One launch, and the addresses that were missing.
    fn attempt(&mut self, lent: &Lent, notes: bool) -> Result<Vec<u64>, SystemError> {
        self.report.launches += 1;
        self.launch.submit()?.wait()?;
        if !notes {
            return Ok(Vec::new());
        }
        let count = lent
            .faults()
            .read_range(0..1)?
            .first()
            .copied()
            .unwrap_or(0);
        if count == 0 {
            return Ok(Vec::new());
        }
        let start = u64::from(self.faults(Some((NOTED_WORDS, FAULTS))).start);
        let words = 4 * u64::from(count.min(FAULTS));
        let list = lent.faults().read_range(start..start + words)?;
        let address = |fault: &[u32]| u64::from(fault[1]) | u64::from(fault[2]) << 32;
        Ok(list.chunks_exact(4).map(address).collect())
    }

    /// Fetches the pages of these addresses, and pages that are likely to be next; whether any was missing.
    fn fetch_missing(
        &mut self,
        lent: &Lent,
        addresses: &[u64],
        misses: &mut Misses,
    ) -> Result<bool, SystemError> {
        let lends = &self.memory.lends;
        let mut pages: Vec<u64> = (addresses.iter())
            .map(|address| address / PAGE_BYTES)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| !self.frames.has(page) && lends.has(page));
        if pages.len() > self.frames.left() as usize {
            self.make_room(lent, pages.len(), misses)?;
        }
        let mut found = false;
        for &page in &pages {
            let is_there = self.fetch(page)?;
            self.report.pages_missed += u64::from(is_there);
            found |= is_there;
        }
        // What is likely takes what room is left.
        for &page in &pages {
            let behind = lends.pages(page.saturating_add(1));
            let last = page.saturating_add(misses.ahead as u64);
            let behind: Vec<u64> = behind.take_while(|next| *next <= last).collect();
            for next in misses.pattern.missed(page).chain(behind) {
                if self.frames.left() == 0 {
                    return Ok(found);
                }
                if lends.has(next) && !self.frames.has(next) {
                    self.report.pages_prefetched += u64::from(self.fetch(next)?);
                }
            }
        }
        misses.ahead = (2 * misses.ahead).min(MOST_AHEAD);
        Ok(found)
    }

    /// Drops the pages that the last attempt has not touched, for so many others.
    fn make_room(
        &mut self,
        lent: &Lent,
        wanted: usize,
        misses: &mut Misses,
    ) -> Result<(), SystemError> {
        let flags = self.flags(lent)?;
        let before = self.frames.count();
        let touched = self.touched(&flags).len();
        let is_touched =
            |frame: u32| (flags.get(frame as usize)).is_some_and(|flags| flags & TOUCHED != 0);
        self.frames.retain(is_touched);
        let is_more = touched > misses.touched || before == self.frames.count();
        misses.touched = touched;
        if wanted > self.frames.left() as usize || !is_more {
            return Err(self.pool_full((touched + wanted) as u64));
        }
        self.report.pages_dropped += u64::from(before - self.frames.count());
        Ok(())
    }
}
