//! Frames given to other pages while the kernel runs.
//!
//! *How it works.* Invocations translate an address, and access the frame a little later: a frame taken away in between
//! would hold another page. So
//!
//! 1. The host takes the place of the page back, and only then looks whether the frame has been written; an invocation
//!    that writes marks the frame as written, and only then looks at the place again. Either the host or the invocation
//!    sees the other's step (Dekker's mutual exclusion): the page stays, or the invocation asks for the page again. A
//!    written page stays until the launch ends.
//! 2. An invocation that reads looks at the place again once the words are loaded, and believes the words only if the
//!    place is unchanged (a sequence lock). Each page of a frame gets another *generation* in its place, so that a page
//!    that has gone and come back to the same frame is told apart. A frame without further numbers keeps its page.
//! 3. The page with the longest stay goes first; not as long as an invocation holds the lock of the page's post: the
//!    invocation gives the lock back after its access. So every miss is a step further for an invocation, however few
//!    frames there are. A lock by which another page has been asked for since protects nothing.
//!
//! Kernels that keep a translation (`shaders/system_once_evict.wgsl`) keep the place's word with it: 2. holds however long
//! ago the place was read. A translation kept by a write is that of a page that stays.
//!
//! Both looks have to come behind the steps before them. On x86-64 the first look of 1. follows a locked operation on
//! either side, and loads keep their order; barriers or an atomic operation (`shaders/system_evict.wgsl`) keep drivers'
//! compilers from reordering. Processors of GPUs promise less, and their caches may hold old contents of the frame:
//! there no frame is taken away (`Capabilities::evicts_pages`). `src/memory/system/live/evict/model.rs` walks through
//! all orders of steps.

#[cfg(test)]
mod model;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Brought, FIRST_PLACE, FLAGS_START, LivePages, Pager};
use crate::addresses::live_posts::live_lock;
use crate::device::words::Words as _;
use crate::memory::system::frames::Lacking;
use crate::memory::system::lends::Rights;
use crate::memory::system::table::WRITTEN;

/// Which page goes next.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    /// Pages in frames, the oldest first, without pages that stay.
    order: VecDeque<u64>,
    /// How many pages each frame has had.
    generations: Vec<u32>,
}

impl Eviction {
    /// Notes the page in a frame; returns the generation.
    pub(super) fn brought(&mut self, page: u64, frame: u32) -> u32 {
        self.order.push_back(page);
        let frame = frame as usize;
        if self.generations.len() <= frame {
            self.generations.resize(frame + 1, 0);
        }
        self.generations[frame] += 1;
        self.generations[frame]
    }
}

/// What a page's frame can be used for.
enum Frame {
    /// Free: no invocation finds the page any more.
    Free,
    /// An invocation is about to use the frame.
    Busy,
    /// The frame keeps its page.
    Kept,
}

impl LivePages {
    /// The lock by which invocations post a page, as `shaders/system_live.wgsl` finds it.
    fn lock_of(&self, page: u64) -> u32 {
        FLAGS_START + self.frames + live_lock(page)
    }
}

impl Pager<'_> {
    /// Puts a page in the frame of another page; `is_posted` where an invocation waits for the page.
    pub(super) fn replace(&mut self, page: u64, is_posted: bool) -> Result<Brought, Lacking> {
        let posted = is_posted.then_some(page);
        let pages = self.eviction.as_ref().map_or(0, |all| all.order.len());
        for _ in 0..pages {
            let Some(oldest) = self.eviction.as_mut().and_then(|all| all.order.pop_front()) else {
                break;
            };
            match self.take_back(oldest, posted) {
                (Frame::Free, place) => {
                    let done = self.frames.replace(self.lends, oldest, page);
                    if done.is_err() {
                        // The page is in its frame as before.
                        self.put_back(oldest, place);
                    }
                    done?;
                    self.dropped += 1;
                    return Ok(Brought::Now);
                }
                (Frame::Busy, _) => self.put_back(oldest, None),
                (Frame::Kept, _) => {}
            }
        }
        match self
            .eviction
            .as_ref()
            .is_none_or(|all| all.order.is_empty())
        {
            true => Err(Lacking::Frames),
            false => Ok(Brought::Later),
        }
    }

    /// Has a page take its turn again, and restores a place that has been taken back.
    fn put_back(&mut self, page: u64, place: Option<(u32, u32)>) {
        if let Some((at, word)) = place
            && let Some(place) = self.memory.place(at)
        {
            tell(place, word);
        }
        if let Some(eviction) = &mut self.eviction {
            eviction.order.push_back(page);
        }
    }

    /// Whether another page has been asked for by a lock since: an invocation has a single lock, and posts a single page
    /// with the lock.
    fn has_asked_since(&self, lock: u32, posted: Option<u64>) -> bool {
        let mut waiting = self.waiting.iter().copied().chain(posted);
        waiting.any(|page| self.memory.lock_of(page) == lock)
    }

    /// Takes back the place of a page, so that no invocation finds the page, unless the page stays; returns the place
    /// and its old word. An invocation waits for the page `posted`.
    fn take_back(&mut self, page: u64, posted: Option<u64>) -> (Frame, Option<(u32, u32)>) {
        let memory = self.memory;
        let found = (self.places.of_page(page)).zip(self.frames.frame(page));
        let Some((at, frame)) = found else {
            return (Frame::Kept, None);
        };
        let (Some(place), Some(flags)) = (
            memory.place(at).filter(|_| at >= FIRST_PLACE),
            memory.posts.words().get((FLAGS_START + frame) as usize),
        ) else {
            return (Frame::Kept, None);
        };
        let generation = self
            .eviction
            .as_ref()
            .and_then(|all| all.generations.get(frame as usize));
        let is_numbered =
            generation.is_some_and(|last| memory.place_of(frame, last.saturating_add(1)).is_some());
        // A mark may be that of an invocation that meant the page before this one.
        let is_written =
            |flags: u32| flags & WRITTEN != 0 && self.lends.rights(page).write != Rights::NONE;
        if !is_numbered || is_written(flags.load(Ordering::Relaxed)) {
            return (Frame::Kept, None);
        }
        let lock = memory.lock_of(page);
        let is_held = (memory.posts.words().get(lock as usize))
            .is_some_and(|lock| lock.load(Ordering::Acquire) != 0);
        if is_held && !self.has_asked_since(lock, posted) {
            return (Frame::Busy, None);
        }
        // Nobody else writes it.
        let word = place.load(Ordering::SeqCst);
        tell(place, 0);
        if is_written(flags.load(Ordering::SeqCst)) {
            tell(place, word);
            return (Frame::Kept, None);
        }
        (Frame::Free, Some((at, word)))
    }
}

/// Writes a word of the places, in front of everything that follows. By a fence: the exchange that a sequentially consistent
/// store is on some processors locks the bus where the memory is the device's, and the system may forbid that.
pub(super) fn tell(place: &AtomicU32, word: u32) {
    place.store(word, Ordering::Release);
    fence(Ordering::SeqCst);
}
