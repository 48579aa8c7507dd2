//! Launches repeated until no page is missing: the tier of devices without live memory, and of devices that ration
//! turns of loops.
//!
//! *How it works.*
//!
//! 1. At first there are the pages touched in the kernel's last launch, and the pages of small ranges. An invocation
//!    that misses a page notes the address and goes on with a zero; its loops end. The launch is worth nothing then:
//!    missing pages and likely next misses are fetched, the frames and all buffers that the kernel writes get their old
//!    contents (`src/launch/parts/undo.rs`), and the launch is repeated, until nothing is missing. So a kernel may only
//!    do what can be undone ([`SystemError::NotRepeatable`]).
//! 2. Flags of frames say which frames a launch has touched. Where there are more missing pages than frames, pages
//!    untouched by the last attempt make room. The pages of an attempt have to fit at once, all the same: the next
//!    attempt begins from the start, and touches the same pages again.
//! 3. Where the pages do not fit, the grid is halved: the first half of the work-groups runs to its end, and its
//!    changes are kept for the other half, in the frames, or by the host where a page is dropped. WGSL lets no
//!    work-group wait for a later work-group, so a kernel cannot tell. A single work-group whose pages do not fit is
//!    [`SystemError::PoolFull`].
//! 4. An address with nothing lent may come from a pointer that was itself missing. A launch that has missed only such
//!    addresses is repeated once more, with the first fault in its status record, and fails.

use std::sync::Arc;

use super::{Run, SystemError, undo};
use crate::launch::dispatch::Extents;
use crate::launch::grid::GridPart;
use crate::launch::parts::system::Lent;
use crate::launch::parts::undo::Copies;
use crate::memory::system::prefetch::Pattern;
use crate::memory::system::table::TOUCHED;
use crate::memory::system::{PAGE_BYTES, SystemTier};

/// Room for faults of a launch: each page notes a single fault.
const FAULTS: u32 = 16_384;
/// Words with a bit for each page that has noted a fault.
const NOTED_WORDS: u32 = 2048;
/// Pages fetched behind each missing page, twice as many each time, and at most.
const FIRST_AHEAD: usize = 8;
const MOST_AHEAD: usize = 4096;

/// The known misses of a launch.
struct Misses {
    pattern: Pattern,
    ahead: usize,
    /// The touched pages when pages were last dropped: more each time, or there would be no end.
    touched: Option<usize>,
}

impl Misses {
    fn none() -> Self {
        Self {
            pattern: Pattern::default(),
            ahead: FIRST_AHEAD,
            touched: None,
        }
    }
}

/// The outcome of an attempt.
enum Attempt {
    /// Nothing was missing.
    Done,
    /// Pages were missing, and are there now.
    Fetched,
    /// Nothing is lent at the addresses that were missing.
    NotLent,
    /// At least so many pages are needed at once: too many.
    TooMany(u64),
}

impl Run<'_, '_> {
    /// Launches until nothing is missing, with copies of everything that the launch may write, or without any yet.
    pub(super) fn sliced(&mut self, copies: Arc<Copies>) -> Result<(), SystemError> {
        self.report.tier = Some(SystemTier::Sliced);
        undo::check(self.launch)?;
        let done = self.in_parts(&copies);
        self.launch.settings.undo = None;
        self.part = None;
        if done.is_err() {
            // This error tells more than an error of `restore` would.
            let _ = copies.restore(self.launch);
        }
        done
    }

    /// All work-groups; in parts, one after the other, where their pages do not fit at once.
    fn in_parts(&mut self, copies: &Arc<Copies>) -> Result<(), SystemError> {
        // A grid known only to the device has no parts.
        let whole = match self.launch.extents()? {
            Extents::Groups(groups) => Some(groups.part()),
            _ => None,
        };
        let kernel = self.launch.kernel.shared.compiled.id;
        for page in self.likely(kernel, self.most_pages) {
            if self.frames.left() == 0 {
                break;
            }
            self.report.pages_prefetched += u64::from(self.fetch(page)?);
        }
        self.launch.settings.undo = Some(Arc::clone(copies));
        // What the next parts find; `copies` keep what the launch has found.
        let later = Arc::<Copies>::default();
        let mut next: Vec<GridPart> = Vec::new();
        loop {
            match self.until_nothing_is_missing()? {
                None => match next.pop() {
                    None => break,
                    Some(part) => {
                        self.part = Some(part);
                        self.report.parts += 1;
                        // The next part begins at the end of the finished part.
                        later.renew();
                        self.launch.settings.undo = Some(Arc::clone(&later));
                    }
                },
                Some(needed) => {
                    let part = self.part.or(whole);
                    let Some([first, second]) = part.and_then(GridPart::halves) else {
                        return Err(self.pool_full(needed));
                    };
                    self.part = Some(first);
                    next.push(second);
                }
            }
        }
        self.write_back_kept()
    }

    /// Attempts at the work-groups of a part; `None` once nothing was missing, and otherwise the pages that would have
    /// to fit at once. Changes are written back where the part is the whole grid, and kept otherwise.
    fn until_nothing_is_missing(&mut self) -> Result<Option<u64>, SystemError> {
        let mut misses = Misses::none();
        let mut room = Some((NOTED_WORDS, FAULTS));
        loop {
            let lent = self.bound(room)?;
            let found = match self.attempt(&lent, room.is_some()) {
                Ok(missing) if missing.is_empty() => self.finish(&lent, room.is_some()),
                Ok(missing) => self.fetch_missing(&lent, &missing, &mut misses),
                Err(error) => Err(error),
            };
            self.give_back(lent);
            match found? {
                Attempt::Done => return Ok(None),
                Attempt::TooMany(needed) => return Ok(Some(needed)),
                Attempt::Fetched => {}
                Attempt::NotLent => room = None,
            }
        }
    }

    /// Takes the changes of a part, and notes the touched pages.
    fn finish(&mut self, lent: &Lent, notes: bool) -> Result<Attempt, SystemError> {
        let flags = self.flags(lent)?;
        match self.part.is_none() {
            true => self.write_back(lent, &flags)?,
            false => self.keep(lent, &flags)?,
        }
        // The last attempt, by which an address fails, notes nothing.
        if notes {
            let touched = self.touched(&flags);
            let all = self.touched.get_or_insert_default();
            // No more is fetched before the next launch.
            if (all.len() as u64) < self.most_pages {
                all.extend(touched);
                all.sort_unstable();
                all.dedup();
            }
        }
        Ok(Attempt::Done)
    }

    /// A single launch; returns the missing addresses.
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

    /// Fetches the pages of the missing addresses, and likely next pages.
    fn fetch_missing(
        &mut self,
        lent: &Lent,
        addresses: &[u64],
        misses: &mut Misses,
    ) -> Result<Attempt, SystemError> {
        let lends = &self.memory.lends;
        let mut pages: Vec<u64> = (addresses.iter())
            .map(|address| address / PAGE_BYTES)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| !self.frames.has(page) && lends.has(page));
        if pages.len() > self.frames.left() as usize
            && let Some(needed) = self.make_room(lent, pages.len(), misses)?
        {
            return Ok(Attempt::TooMany(needed));
        }
        let mut found = false;
        for &page in &pages {
            let is_there = self.fetch(page)?;
            self.report.pages_missed += u64::from(is_there);
            found |= is_there;
        }
        let found = match found {
            true => Attempt::Fetched,
            false => Attempt::NotLent,
        };
        // Likely pages take the room that is left.
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

    /// Drops pages untouched by the last attempt, for so many others; returns how many would have to fit at once, where
    /// the dropped pages are too few.
    fn make_room(
        &mut self,
        lent: &Lent,
        wanted: usize,
        misses: &mut Misses,
    ) -> Result<Option<u64>, SystemError> {
        let flags = self.flags(lent)?;
        let before = self.frames.count();
        let touched = self.touched(&flags).len();
        let is_touched =
            |frame: u32| (flags.get(frame as usize)).is_some_and(|flags| flags & TOUCHED != 0);
        self.frames.retain(is_touched)?;
        self.report.pages_dropped += u64::from(before - self.frames.count());
        let is_more = misses.touched.is_none_or(|last| touched > last);
        misses.touched = Some(touched);
        let is_enough = wanted <= self.frames.left() as usize && is_more;
        Ok((!is_enough).then_some((touched + wanted) as u64))
    }
}
