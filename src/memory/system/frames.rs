//! Pages in frames of a pool on the device, from the host's side: which page lies where, and what was read of it.

use std::collections::BTreeMap;

use super::PAGE_WORDS;
use super::in_place::InPlace;
use super::lends::{Lends, Page};
use super::table::{self, Demands, Entry, FaultList};
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
    /// What was read, by frames.
    image: Vec<u32>,
    /// Pages that are frames where they are.
    in_place: Option<InPlace>,
    /// Such pages.
    own: BTreeMap<u64, u32>,
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
        }
    }

    /// The same, with pages that are used in place and take no room.
    pub(crate) fn with_pages_in_place(most: u32, in_place: InPlace) -> Self {
        Self {
            in_place: Some(in_place),
            ..Self::new(most)
        }
    }

    /// The window of pages that are used in place.
    pub(crate) fn in_place(&mut self) -> Option<&mut InPlace> {
        self.in_place.as_mut()
    }

    /// Pages that are used in place.
    pub(crate) fn count_in_place(&self) -> u64 {
        let solid = self.in_place.as_ref().and_then(InPlace::solid);
        self.own.len() as u64 + solid.map_or(0, |solid| u64::from(solid.pages))
    }

    /// Frames in use, the first included.
    pub(crate) fn count(&self) -> u32 {
        FIRST + self.pages.len() as u32
    }

    /// Pages that there is room for.
    pub(crate) fn room(&self) -> u32 {
        self.most - FIRST
    }

    /// Frames that are left.
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
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        let mut kept = FIRST;
        for (frame, page) in self.by_frame() {
            if !keep(frame) {
                self.pages.remove(&page);
                continue;
            }
            let start = frame as usize * PAGE_WORDS;
            let to = kept as usize * PAGE_WORDS;
            self.image.copy_within(start..start + PAGE_WORDS, to);
            self.pages.insert(page, kept);
            kept += 1;
        }
        self.image.truncate(kept as usize * PAGE_WORDS);
    }

    /// Reads a page into a frame, unless it lies in one.
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
        self.image.try_reserve(PAGE_WORDS).map_err(|_| {
            Lacking::Host(MemoryError::HostMemory {
                what: "system allocations",
                bytes: 4 * PAGE_WORDS as u64,
            })
        })?;
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

    /// The words of the frames in use, as read.
    pub(crate) fn image(&self) -> &[u32] {
        &self.image
    }

    /// The table that tells where pages lie.
    pub(crate) fn table(&self, lends: &Lends, faults: FaultList, demands: Demands) -> Vec<u32> {
        let entry = |page: u64, word: u32, in_place| Entry {
            page,
            word,
            in_place,
            rights: lends.rights(page),
        };
        let copies = (self.pages.iter())
            .map(|(&page, &frame)| entry(page, frame * PAGE_WORDS as u32, false));
        let own = (self.own.iter()).map(|(&page, &word)| entry(page, word, true));
        let mut entries: Vec<Entry> = copies.chain(own).collect();
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

    /// What was read into a frame.
    pub(crate) fn before(&self, frame: u32) -> &[u32] {
        let start = frame as usize * PAGE_WORDS;
        &self.image[start..start + PAGE_WORDS]
    }
}
