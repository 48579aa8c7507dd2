//! Pages in frames of a pool on the device, from the host's side: the frame of each page, and the words read from the
//! page.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::PAGE_WORDS;
use super::in_place::InPlace;
use super::lends::{Lends, Page};
use super::table::{self, Demands, FaultList};
use crate::memory::MemoryError;

/// The first frame with a page: frame 0 has words for accesses that fail.
const FIRST: u32 = 1;

/// Why a page has no frame.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// All frames are taken.
    Frames,
    /// The memory is not there.
    Memory,
    /// The host has no memory for the copy.
    Host(MemoryError),
}

/// The frames of a launch.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The most frames, the first included.
    most: u32,
    /// The frame of each page.
    pages: BTreeMap<u64, u32>,
    /// The words as read, by frames.
    image: Vec<u32>,
    /// Pages used in place as frames.
    in_place: Option<InPlace>,
    /// Pages in place.
    own: BTreeMap<u64, u32>,
    /// Pages changed by work-groups that have ended.
    changed: BTreeMap<u64, Changed>,
}

/// A changed page, not written back yet.
#[derive(Debug)]
struct Changed {
    /// The words as lent.
    before: Vec<u32>,
    /// The present words, where no frame holds the page.
    dropped: Vec<u32>,
}

/// A copy of the words.
fn copied(words: &[u32]) -> Result<Vec<u32>, MemoryError> {
    let mut copy = Vec::new();
    (copy.try_reserve_exact(words.len())).map_err(|_| no_memory())?;
    copy.extend_from_slice(words);
    Ok(copy)
}

fn no_memory() -> MemoryError {
    MemoryError::HostMemory {
        what: "system allocations",
        bytes: 4 * PAGE_WORDS as u64,
    }
}

impl Frames {
    /// Room for `most` pages, and the words for accesses that fail.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most.saturating_add(FIRST),
            pages: BTreeMap::new(),
            image: vec![0; PAGE_WORDS * FIRST as usize],
            in_place: None,
            own: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    /// The same, with pages used in place, without room for them in the pool.
    pub(crate) fn with_pages_in_place(most: u32, in_place: InPlace) -> Self {
        Self {
            in_place: Some(in_place),
            ..Self::new(most)
        }
    }

    /// The window of pages used in place.
    pub(crate) fn in_place(&mut self) -> Option<&mut InPlace> {
        self.in_place.as_mut()
    }

    /// Pages used in place.
    pub(crate) fn count_in_place(&self) -> u64 {
        let solid = self.in_place.as_ref().and_then(InPlace::solid);
        self.own.len() as u64 + solid.map_or(0, |solid| u64::from(solid.pages))
    }

    /// Frames in use, the first included.
    pub(crate) fn count(&self) -> u32 {
        FIRST + self.pages.len() as u32
    }

    /// Pages with room in the pool.
    pub(crate) fn room(&self) -> u32 {
        self.most - FIRST
    }

    /// Frames left.
    pub(crate) fn left(&self) -> u32 {
        self.most - self.count()
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// The frame of a page.
    pub(crate) fn frame(&self, page: u64) -> Option<u32> {
        self.pages.get(&page).copied()
    }

    /// Drops the pages for whose frames `keep` is false: the others move together, in the same order.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`] where the host has no memory for changed words of the dropped pages.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) -> Result<(), MemoryError> {
        let mut kept = FIRST;
        for (frame, page) in self.by_frame() {
            let start = frame as usize * PAGE_WORDS;
            if !keep(frame) {
                if let Some(changed) = self.changed.get_mut(&page) {
                    changed.dropped = copied(&self.image[start..start + PAGE_WORDS])?;
                }
                self.pages.remove(&page);
                continue;
            }
            let to = kept as usize * PAGE_WORDS;
            self.image.copy_within(start..start + PAGE_WORDS, to);
            self.pages.insert(page, kept);
            kept += 1;
        }
        self.image.truncate(kept as usize * PAGE_WORDS);
        Ok(())
    }

    /// Keeps the words of a frame, now that the work-groups of a launch have ended.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`].
    pub(crate) fn keep(&mut self, frame: u32, page: u64, after: &[u32]) -> Result<(), MemoryError> {
        let start = frame as usize * PAGE_WORDS;
        let now = &mut self.image[start..start + PAGE_WORDS];
        if *now == *after {
            return Ok(());
        }
        if let Entry::Vacant(new) = self.changed.entry(page) {
            new.insert(Changed {
                before: copied(now)?,
                dropped: Vec::new(),
            });
        }
        now.copy_from_slice(after);
        Ok(())
    }

    /// The kept pages: the words as lent, and the present words.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (u64, &[u32], &[u32])> {
        self.changed.iter().map(|(&page, changed)| {
            let now = match self.frame(page) {
                Some(frame) => self.before(frame),
                None => &changed.dropped,
            };
            (page, &*changed.before, now)
        })
    }

    /// Reads a page into a frame, unless the page lies in a frame.
    pub(crate) fn add(&mut self, lends: &Lends, page: u64) -> Result<(), Lacking> {
        let is_solid = |in_place: &InPlace| in_place.is_solid(page);
        if self.in_place.as_ref().is_some_and(is_solid) || self.has(page) {
            return Ok(());
        }
        if let Some(in_place) = &self.in_place
            && let Some(word) = in_place.word(lends, page)
        {
            self.own.insert(page, word);
            return Ok(());
        }
        if self.left() == 0 {
            return Err(Lacking::Frames);
        }
        let start = self.image.len();
        (self.image.try_reserve(PAGE_WORDS)).map_err(|_| Lacking::Host(no_memory()))?;
        if let Some(changed) = self.changed.get_mut(&page) {
            self.image.append(&mut changed.dropped);
            self.pages.insert(page, self.count());
            return Ok(());
        }
        self.image.resize(start + PAGE_WORDS, 0);
        let (frames, _) = self.image[start..].as_chunks_mut::<PAGE_WORDS>();
        let read = (frames.first_mut()).map_or(Ok(()), |frame: &mut Page| lends.read(page, frame));
        if read.is_err() {
            self.image.truncate(start);
            return Err(Lacking::Memory);
        }
        self.pages.insert(page, self.count());
        Ok(())
    }

    /// Reads a page into the frame of another page, which has no frame afterwards.
    ///
    /// # Errors
    /// [`Lacking::Memory`], and [`Lacking::Frames`] where the other page has no frame; nothing has changed then.
    pub(crate) fn replace(&mut self, lends: &Lends, old: u64, page: u64) -> Result<(), Lacking> {
        let frame = self.frame(old).ok_or(Lacking::Frames)?;
        let mut words = [0; PAGE_WORDS];
        lends.read(page, &mut words).map_err(|_| Lacking::Memory)?;
        let start = frame as usize * PAGE_WORDS;
        self.image[start..start + PAGE_WORDS].copy_from_slice(&words);
        self.pages.remove(&old);
        self.pages.insert(page, frame);
        Ok(())
    }

    /// The words of the frames in use, as read.
    pub(crate) fn image(&self) -> &[u32] {
        &self.image
    }

    /// The table of where pages lie.
    pub(crate) fn table(&self, lends: &Lends, faults: FaultList, demands: Demands) -> Vec<u32> {
        let entry = |page: u64, word: u32, in_place| table::Entry {
            page,
            word,
            in_place,
            rights: lends.rights(page),
        };
        let copies = (self.pages.iter())
            .map(|(&page, &frame)| entry(page, frame * PAGE_WORDS as u32, false));
        let own = (self.own.iter()).map(|(&page, &word)| entry(page, word, true));
        let mut entries: Vec<table::Entry> = copies.chain(own).collect();
        entries.sort_by_key(|entry| entry.page);
        let solid = self.in_place.as_ref().and_then(InPlace::solid);
        table::words(&entries, solid, faults, demands)
    }

    /// Each page with its frame, in the order of the frames.
    pub(crate) fn by_frame(&self) -> Vec<(u32, u64)> {
        let mut all: Vec<_> = (self.pages.iter())
            .map(|(&page, &frame)| (frame, page))
            .collect();
        all.sort_unstable();
        all
    }

    /// The words read into a frame.
    pub(crate) fn before(&self, frame: u32) -> &[u32] {
        let start = frame as usize * PAGE_WORDS;
        &self.image[start..start + PAGE_WORDS]
    }
}
