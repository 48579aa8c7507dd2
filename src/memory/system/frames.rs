//! Pages in frames of a pool on the device, from the host's side: which page lies where, and what was read of it.

use std::collections::BTreeMap;

use super::PAGE_WORDS;
use super::lends::{Lends, Page};
use super::table::{self, Entry, FaultList};
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
}

impl Frames {
    /// Room for `most` pages, and the words for accesses that fail.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most.saturating_add(FIRST),
            pages: BTreeMap::new(),
            image: vec![0; PAGE_WORDS * FIRST as usize],
        }
    }

    /// Frames in use, the first included.
    pub(crate) fn count(&self) -> u32 {
        FIRST + self.pages.len() as u32
    }

    /// Frames that are left.
    pub(crate) fn left(&self) -> u32 {
        self.most - self.count()
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// Reads a page into a frame, unless it lies in one.
    pub(crate) fn add(&mut self, lends: &Lends, page: u64) -> Result<(), Lacking> {
        if self.has(page) {
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
    pub(crate) fn table(&self, lends: &Lends, faults: FaultList) -> Vec<u32> {
        let entries: Vec<Entry> = (self.pages.iter())
            .map(|(&page, &frame)| Entry {
                page,
                frame,
                rights: lends.rights(page),
            })
            .collect();
        table::words(&entries, faults)
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
