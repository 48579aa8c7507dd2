//! Lent memory used in place, on a device that is the host's own processor: the embedded adapter.
//!
//! *How it works.* A buffer is a range of the host's address space there, whoever has made the memory. So the pool is a
//! *window* of the address space: pages of the host's own are frames in place, and nothing is copied.
//!
//! ```text
//! window   | pages of ours | … | lent | not lent, or not there | lent | …   4 GiB at most
//!          ^ word 0
//! ```
//!
//! - Kernels reach words of the window that the table names, and no other words: lent memory, with the lent rights, and
//!   the pages in front, for accesses that fail and for pages outside of the window. Other memory in the window is
//!   never touched, and may be foreign or absent. A page that goes away during a launch, against its owner's promise,
//!   ends the kernel by a fault (`cpu/src/exec/fault.rs`) and the device is lost.
//! - Lanes that a branch has switched off must not load from anywhere. The functions of `shaders/system.wgsl` have
//!   atomic operations whose results are used, so kernels with these functions run one invocation at a time
//!   (`cpu/src/compile/emit/lanes/width.rs`), and a branch is a branch. The adapter refuses a window to any other
//!   kernel (`tombolo_cpu::Buffer::from_address_space`).
//! - wgpu binds 4 GiB at most. Where lent memory lies further apart, as a program's heap and its mapped files do on
//!   Linux, the part with the most bytes is used in place, and the rest is copied.
//!
//! Our own pages have to lie in front of lent memory, and near: the system is asked for addresses there.

use std::ops::Range;
use std::sync::Arc;

use super::lends::Lends;
use super::table::Solid;
use super::{PAGE_BYTES, PAGE_WORDS};

/// Distances in front of lent memory at which our own pages are asked for, in pages.
const DISTANCES: [u64; 12] = [
    0,
    1,
    16,
    256,
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
];

/// Pages used in place as frames.
#[derive(Debug)]
pub(crate) struct InPlace {
    own: Arc<OwnPages>,
    /// The pages of the host's that the window covers.
    covered: Range<u64>,
    solid: Option<Solid>,
}

/// Pages of the runtime's own at the start of a window.
#[derive(Debug)]
pub(crate) struct OwnPages {
    start: u64,
    pages: u64,
}

impl InPlace {
    /// The window of `window_bytes` bytes around most of the lent memory, with room for as many pages as lie outside;
    /// `None` where there is none, or where more than `most` pages lie outside.
    pub(crate) fn around(lends: &Lends, most: usize, window_bytes: u64) -> Option<Self> {
        let covered = densest(lends, window_bytes)?;
        let mut solid = Solid::longest(lends.uniform(), &covered, true);
        let is_solid = |page| solid.as_ref().is_some_and(|solid| solid.has(page));
        let inside =
            |page: u64| is_solid(page) || covered.contains(&page) && lends.is_usable_in_place(page);
        let outside = lends.pages(0).filter(|&page| !inside(page));
        let copies = outside.take(most + 1).count();
        if copies > most {
            return None;
        }
        let own = OwnPages::in_front_of(&covered, copies as u64 + 1, window_bytes)?;
        if let Some(solid) = &mut solid {
            solid.word = ((solid.first * PAGE_BYTES - own.start) / 4) as u32;
        }
        Some(Self {
            own: Arc::new(own),
            covered,
            solid,
        })
    }

    /// The first word of a page's frame, if the page is used in place.
    pub(crate) fn word(&self, lends: &Lends, page: u64) -> Option<u32> {
        let is_here = self.covered.contains(&page) && lends.is_usable_in_place(page);
        is_here.then(|| self.word_of(page))
    }

    fn word_of(&self, page: u64) -> u32 {
        ((page * PAGE_BYTES - self.own.start) / 4) as u32
    }

    /// The pages that need no rows in the table.
    pub(crate) fn solid(&self) -> Option<Solid> {
        self.solid
    }

    /// Whether the page is one of [`InPlace::solid`].
    pub(crate) fn is_solid(&self, page: u64) -> bool {
        self.solid.as_ref().is_some_and(|solid| solid.has(page))
    }

    /// The window: address and bytes, and an owner to be kept while the window is used.
    pub(crate) fn window(&self) -> (u64, u64, Arc<OwnPages>) {
        let end = self.covered.end * PAGE_BYTES;
        (self.own.start, end - self.own.start, Arc::clone(&self.own))
    }

    /// The first words of our own pages.
    ///
    /// # Safety
    /// No kernel uses the window.
    pub(crate) unsafe fn own_words(&mut self) -> &mut [u32] {
        let start = std::ptr::with_exposed_provenance_mut::<u32>(self.own.start as usize);
        // SAFETY: the pages are mapped for reading and writing as long as `own` lives, aligned, and hold plain words;
        // no kernel uses the pages, and nobody else knows them: `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(start, self.own.pages as usize * PAGE_WORDS) }
    }
}

/// The pages of neighbouring borrowed ranges with the most bytes that fit into a window.
fn densest(lends: &Lends, window_bytes: u64) -> Option<Range<u64>> {
    // The rest is for our own pages, at whatever address.
    let room = window_bytes - window_bytes / 8;
    let mut best: (u64, Option<Range<u64>>) = (0, None);
    let (mut bytes, mut pages): (u64, Option<Range<u64>>) = (0, None);
    for range in lends.borrowed() {
        let end = range.end.div_ceil(PAGE_BYTES);
        let first = range.start / PAGE_BYTES;
        let len = range.end - range.start;
        let joined = pages.as_ref().map(|pages| pages.start..end);
        match joined.filter(|joined| (joined.end - joined.start) * PAGE_BYTES <= room) {
            Some(joined) => (bytes, pages) = (bytes + len, Some(joined)),
            None => (bytes, pages) = (len, Some(first..end)),
        }
        let fits = |pages: &Range<u64>| (pages.end - pages.start) * PAGE_BYTES <= room;
        if bytes > best.0 && pages.as_ref().is_some_and(fits) {
            best = (bytes, pages.clone());
        }
    }
    best.1
}

impl OwnPages {
    /// Pages in front of others, so near that a window covers all of them.
    fn in_front_of(others: &Range<u64>, pages: u64, window_bytes: u64) -> Option<Self> {
        // Behind `DISTANCES`, in steps of 64 MiB: much of the address space may be taken.
        let steps = (1..64).map(|step| step << 14);
        DISTANCES.into_iter().chain(steps).find_map(|distance| {
            let first = others.start.checked_sub(pages + distance)?;
            if (others.end - first) * PAGE_BYTES > window_bytes {
                return None;
            }
            // Made only when the pages are ours: the drop gives the pages back.
            system::map(first * PAGE_BYTES, pages * PAGE_BYTES).then(|| Self {
                start: first * PAGE_BYTES,
                pages,
            })
        })
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        system::unmap(self.start, self.pages * PAGE_BYTES);
    }
}

#[cfg(all(unix, target_pointer_width = "64"))]
mod system {
    /// Maps pages at an address where nothing is.
    pub(super) fn map(start: u64, bytes: u64) -> bool {
        let wanted = std::ptr::without_provenance_mut::<libc::c_void>(start as usize);
        // SAFETY: a new mapping that replaces none, since the address is not fixed, touches nothing that exists.
        let found = unsafe {
            libc::mmap(
                wanted,
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        if found == libc::MAP_FAILED {
            return false;
        }
        if found.expose_provenance() as u64 == start {
            return true;
        }
        // SAFETY: the mapping was just made, elsewhere than wanted, and is known nowhere else.
        unsafe { libc::munmap(found, bytes as usize) };
        false
    }

    pub(super) fn unmap(start: u64, bytes: u64) {
        let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start as usize);
        // SAFETY: the mapping comes from `map`, and its owner is gone. A failure costs address space only.
        unsafe { libc::munmap(start, bytes as usize) };
    }
}

#[cfg(not(all(unix, target_pointer_width = "64")))]
mod system {
    /// No address is asked for here: pages are copied.
    pub(super) fn map(_start: u64, _bytes: u64) -> bool {
        false
    }

    pub(super) fn unmap(_start: u64, _bytes: u64) {}
}
