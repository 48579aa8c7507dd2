//! Pages that come while the kernel runs: the memory that host and kernel see, and the thread that fills the memory.
//!
//! *How it works.*
//!
//! 1. The table has all lent pages, with their rights, before the launch. Only a word for each page changes meanwhile,
//!    the *place*: 0 while the page is not there, then the number of the page's frame, with the frame's *generation*
//!    above the number. So a kernel never sees half an entry.
//! 2. A kernel that finds no place posts the number of the page in a list (`shaders/system_live.wgsl`), and looks at
//!    the place.
//! 3. The [`Pager`] looks at the list, reads the page into a frame, and writes the place behind the page's words.
//! 4. Where no frame is left, the page with the longest stay makes room (`src/memory/system/live/evict.rs`), on
//!    adapters where eviction is allowed.
//!
//! ```text
//! pool     frame 0 | frame 1 | …                                                host writes, kernel reads and writes
//! places   not 0 once nobody answers | … | a word for each page, from 16 on       host writes, kernel reads
//! posts    count, why not, 0, 0 | a word for each frame | locks | ring of posts   kernel writes, host empties the ring
//! ```
//!
//! Ports of calls would not do: a port answers a single invocation, a place answers all invocations that wait for the
//! page. A call is also so much code that kernels with a call at each access would take minutes to compile on lavapipe.
//!
//! On devices with memory of their own, the pool and the places lie in memory of the device that the host maps, and the
//! posts in memory of the host (`src/device/live.rs`, `Reader`). Words may arrive there in any order: each word of a
//! post carries a mark of its own arrival, and a place is written behind a fence.

mod evict;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::PAGE_WORDS;
use super::frames::{Frames, Lacking};
use super::lends::Lends;
use super::prefetch::{FIRST as FIRST_AHEAD, Pattern};
use super::table::Solid;
use crate::addresses::live_posts::{LIVE_LOCKS, LIVE_POSTS};
use crate::device::live::{LiveBuffer, Reader};
use crate::device::wait::lock;
use crate::device::words::Words as _;
use crate::device::{DeviceShared, LiveError};
use crate::memory::DeviceBuffer;
use evict::Eviction;

/// The place of the first page.
const FIRST_PLACE: u32 = 16;
/// The place of a page without memory.
const NO_MEMORY: u32 = 1;
/// The first word of the frames' flags among the posts.
pub(crate) const FLAGS_START: u32 = 4;
/// The word that says why an invocation has got no page.
pub(crate) const WHY: u64 = 1;
/// The most pages with a place, in the longest run, and beside it.
const MOST_IN_RUN: u64 = 1 << 24;
const MOST_BESIDE: usize = 1 << 16;
/// The share of the frames for pages that were not missed.
const PREFETCHED_SHARE: u32 = 4;
/// Likely pages, and how many of them are fetched together with a missed page.
const MOST_SOON: usize = 4096;
const AT_ONCE: u32 = 4;
/// Frames of which some may be taken away for likely pages.
const MANY: u32 = 64;
/// Looks that follow each other at once, and how long a pager naps when there is nothing to do for long.
const AWAKE: Duration = Duration::from_micros(500);
const NAP: Duration = Duration::from_micros(50);

/// Which page has which place.
#[derive(Debug)]
pub(crate) struct Places {
    solid: Option<Solid>,
    /// The other pages, in order.
    others: Vec<u64>,
}

impl Places {
    /// Places for all lent pages; `None` where there are too many pages.
    pub(crate) fn of(lends: &Lends) -> Option<Self> {
        let mut solid = lends.longest_run();
        if let Some(solid) = &mut solid {
            if u64::from(solid.pages) > MOST_IN_RUN {
                return None;
            }
            solid.word = FIRST_PLACE;
        }
        let (start, end) = solid.map_or((0, 0), |solid| {
            (solid.first, solid.first + u64::from(solid.pages))
        });
        let before = lends.pages(0).take_while(|page| *page < start);
        let others: Vec<u64> = before
            .chain(lends.pages(end))
            .take(MOST_BESIDE + 1)
            .collect();
        (others.len() <= MOST_BESIDE).then_some(Self { solid, others })
    }

    pub(crate) fn solid(&self) -> Option<Solid> {
        self.solid
    }

    /// The pages beside the longest run, each with its place.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u64, u32)> {
        let first = FIRST_PLACE + self.solid.map_or(0, |solid| solid.pages);
        self.others.iter().copied().zip(first..)
    }

    /// Pages with a place.
    pub(crate) fn pages(&self) -> u64 {
        u64::from(self.solid.map_or(0, |solid| solid.pages)) + self.others.len() as u64
    }

    /// The place of a page; `None` where nothing of the page is lent.
    fn of_page(&self, page: u64) -> Option<u32> {
        if let Some(solid) = self.solid.filter(|solid| solid.has(page)) {
            return Some(FIRST_PLACE + (page - solid.first) as u32);
        }
        let at = self.others.binary_search(&page).ok()?;
        Some(FIRST_PLACE + self.solid.map_or(0, |solid| solid.pages) + at as u32)
    }

    /// Words of the places.
    fn words(&self) -> u64 {
        u64::from(FIRST_PLACE) + self.pages()
    }
}

/// The memory of launches with live pages, kept by the device from launch to launch.
#[derive(Debug)]
pub(crate) struct LivePages {
    pool: LiveBuffer,
    places: LiveBuffer,
    posts: LiveBuffer,
    /// Frames that the pool has room for.
    frames: u32,
}

/// The memory that no launch uses.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<LivePages>>);

/// Where things lie among the posts, and how long invocations wait: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) locks: u32,
    pub(crate) list: u32,
    /// The bits of a place that are the number of a frame.
    pub(crate) frames: u32,
    pub(crate) turns: u32,
}

impl LivePages {
    /// Memory for `frames` frames, and for the places, cleared.
    ///
    /// # Errors
    /// [`LiveError`].
    pub(crate) fn take(
        device: &Arc<DeviceShared>,
        kept: &Kept,
        frames: u32,
        places: &Places,
    ) -> Result<Self, LiveError> {
        let found = lock(&kept.0).take();
        let fits = |found: &Self| {
            (frames..=frames.saturating_mul(4).max(1024)).contains(&found.frames)
                && found.places.len() >= 4 * places.words()
        };
        let memory = match found.filter(fits) {
            Some(found) => found,
            None => Self::new(device, frames, places.words())?,
        };
        let places = &memory.places.words()[..places.words() as usize];
        let posts = &memory.posts.words()[..(memory.list() + 2 * LIVE_POSTS) as usize];
        // Frame 0 is for accesses that fail.
        let pool = &memory.pool.words()[..PAGE_WORDS];
        for word in places.iter().chain(posts).chain(pool) {
            word.store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        Ok(memory)
    }

    fn new(device: &Arc<DeviceShared>, frames: u32, places: u64) -> Result<Self, LiveError> {
        let capabilities = &device.capabilities;
        let make = |reader, words: u64, label| {
            LiveBuffer::new(&device.raw, capabilities.backend, reader, 4 * words, label)
        };
        let posts = u64::from(FLAGS_START + frames + LIVE_LOCKS + 2 * LIVE_POSTS);
        Ok(Self {
            pool: make(
                Reader::Kernel,
                u64::from(frames) * PAGE_WORDS as u64,
                "tombolo pages",
            )?,
            places: make(Reader::Kernel, places.next_power_of_two(), "tombolo places")?,
            posts: make(Reader::Host, posts, "tombolo missing pages")?,
            frames,
        })
    }

    /// Keeps the memory for the next launch.
    pub(crate) fn keep(self, kept: &Kept) {
        *lock(&kept.0) = Some(self);
    }

    /// The bits of a place that are the number of a frame.
    fn frame_bits(&self) -> u32 {
        self.frames.next_power_of_two() - 1
    }

    /// The place of the `generation`th page in a frame; `None` where the place has no bits for such a number.
    fn place_of(&self, frame: u32, generation: u32) -> Option<u32> {
        let shift = self.frame_bits().count_ones();
        let is_number = generation <= u32::MAX >> shift;
        is_number.then_some(generation << shift | frame)
    }

    fn list(&self) -> u32 {
        FLAGS_START + self.frames + LIVE_LOCKS
    }

    /// For invocations that wait at most `turns` turns.
    pub(crate) fn limits(&self, turns: u32) -> Limits {
        Limits {
            locks: FLAGS_START + self.frames,
            list: self.list(),
            frames: self.frame_bits(),
            turns,
        }
    }

    /// The pool, the posts and the places as buffers.
    pub(crate) fn buffers(&self, device: &Arc<DeviceShared>) -> [DeviceBuffer<u32>; 3] {
        [&self.pool, &self.posts, &self.places]
            .map(|live| DeviceBuffer::wrap(device, live.buffer().clone(), live.len() / 4))
    }

    /// Ends the waits of all invocations.
    fn close(&self) {
        evict::tell(&self.places.words()[0], 1);
    }

    fn place(&self, place: u32) -> Option<&AtomicU32> {
        self.places.words().get(place as usize)
    }
}

/// Ends the waits of all invocations when the pager's thread ends, for whatever reason.
struct Closing<'p>(&'p LivePages);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Answers the misses of one launch.
#[derive(Debug)]
pub(crate) struct Pager<'p> {
    lends: &'p Lends,
    frames: &'p mut Frames,
    memory: &'p LivePages,
    places: &'p Places,
    pattern: Pattern,
    /// Pages that may be missed soon.
    soon: VecDeque<u64>,
    /// The last miss was foretold by earlier misses.
    goes_on: bool,
    /// The next post.
    next: u32,
    /// Pages that are posted and have no frame yet.
    waiting: VecDeque<u64>,
    /// Which pages may make room, where any may.
    eviction: Option<Eviction>,
    pub(crate) missed: u64,
    pub(crate) prefetched: u64,
    pub(crate) dropped: u64,
    /// Why the pager answers no more.
    pub(crate) failure: Option<Lacking>,
}

impl<'p> Pager<'p> {
    pub(crate) fn new(
        lends: &'p Lends,
        frames: &'p mut Frames,
        memory: &'p LivePages,
        places: &'p Places,
        evicts: bool,
    ) -> Self {
        Self {
            lends,
            frames,
            memory,
            places,
            pattern: Pattern::default(),
            soon: VecDeque::new(),
            goes_on: false,
            next: 0,
            waiting: VecDeque::new(),
            eviction: evicts.then(Eviction::default),
            missed: 0,
            prefetched: 0,
            dropped: 0,
            failure: None,
        }
    }

    /// Fetches a page before the launch.
    pub(crate) fn prepare(&mut self, page: u64) {
        self.prefetched += u64::from(self.bring(page, false) == Brought::Now);
    }

    /// Answers until the launch is over, or a page cannot be had.
    pub(crate) fn serve(&mut self, is_over: &AtomicBool) {
        let _closing = Closing(self.memory);
        let mut last = Instant::now();
        while self.failure.is_none() {
            if self.answer() || self.look_ahead(false) {
                last = Instant::now();
                continue;
            }
            if is_over.load(Ordering::Acquire) {
                return;
            }
            // Never by a yield: src/rpc/idle.rs.
            match last.elapsed() < AWAKE {
                true => std::hint::spin_loop(),
                false => std::thread::sleep(NAP),
            }
        }
    }

    /// Answers all posts; returns whether there were any.
    fn answer(&mut self) -> bool {
        let mut is_any = false;
        for _ in 0..self.waiting.len() {
            let Some(page) = self.waiting.pop_front() else {
                break;
            };
            if !self.answer_page(page) {
                // Every frame is busy, for the others as well.
                break;
            }
            is_any = true;
        }
        while self.failure.is_none()
            && let Some(page) = self.posted()
        {
            is_any = true;
            if self.lacking(page).is_none() {
                continue;
            }
            self.foretell(page);
            // Before the answer: an invocation that goes on would miss each likely page first.
            (0..AT_ONCE).for_each(|_| _ = self.look_ahead(true));
            self.answer_page(page);
        }
        is_any
    }

    /// Brings a posted page; false where the page has to wait until an invocation has used a page in a frame.
    fn answer_page(&mut self, page: u64) -> bool {
        match self.bring(page, true) {
            Brought::Now => self.missed += 1,
            Brought::Not => {}
            Brought::Later => {
                self.waiting.push_back(page);
                return false;
            }
        }
        true
    }

    /// Notes the pages that may be missed after `page`.
    fn foretell(&mut self, page: u64) {
        let likely: Vec<u64> = self.pattern.missed(page).take(MOST_SOON).collect();
        self.goes_on = likely.len() as u64 > FIRST_AHEAD;
        // Older guesses are less likely.
        likely
            .into_iter()
            .rev()
            .for_each(|page| self.soon.push_front(page));
        self.soon.truncate(MOST_SOON);
    }

    /// The page of the next post, once both words of the post are there.
    fn posted(&mut self) -> Option<u64> {
        let at = (self.memory.list() + 2 * (self.next % LIVE_POSTS)) as usize;
        let words = self.memory.posts.words();
        let [low, high] = [at, at + 1].map(|at| words[at].load(Ordering::Acquire));
        if low & high & 1 << 31 == 0 {
            return None;
        }
        // For the next post in the slot, a post that waits for the answer to an earlier post.
        [at, at + 1]
            .into_iter()
            .for_each(|at| words[at].store(0, Ordering::Relaxed));
        self.next = self.next.wrapping_add(1);
        Some(u64::from(low & 0x7fff_ffff) | u64::from(high & 0x7fff_ffff) << 31)
    }

    /// Fetches a page that may be missed soon; returns whether there was such a page. Beside a posted page, a frame is
    /// left for that one, and pages that are there may have to make room.
    fn look_ahead(&mut self, is_beside_post: bool) -> bool {
        let left = u32::from(is_beside_post);
        let room = self.frames.room() / PREFETCHED_SHARE;
        // A page fetched in vain can be taken away again, and is unlikely where the pattern goes on.
        let is_sure = self.eviction.is_some() && self.goes_on;
        let is_enough = self.prefetched >= room.into() && !is_sure;
        let is_full = self.frames.left() <= left;
        let makes_room = is_beside_post && is_sure && self.frames.room() >= MANY;
        if is_enough || is_full && !makes_room {
            self.soon.clear();
        }
        while self.failure.is_none()
            && let Some(page) = self.soon.pop_front()
        {
            match self.bring(page, false) {
                Brought::Now => {
                    self.prefetched += 1;
                    return true;
                }
                Brought::Not => {}
                // Every frame is busy: so it is for the other guesses.
                Brought::Later => {
                    self.soon.push_front(page);
                    return false;
                }
            }
        }
        false
    }

    /// Where the answer to a page's misses goes, as long as there is no answer.
    fn lacking(&self, page: u64) -> Option<&'p AtomicU32> {
        // A kernel may have posted a number that is no page.
        let place = self.memory.place(self.places.of_page(page)?)?;
        (place.load(Ordering::Relaxed) == 0).then_some(place)
    }

    /// Reads a page into a frame and writes the place; `is_posted` where an invocation waits for the page.
    fn bring(&mut self, page: u64, is_posted: bool) -> Brought {
        let Some(place) = self.lacking(page) else {
            return Brought::Not;
        };
        let added = match self.frames.add(self.lends, page) {
            Err(Lacking::Frames) if self.eviction.is_some() => self.replace(page, is_posted),
            other => other.map(|()| Brought::Now),
        };
        let found = match added {
            Ok(Brought::Now) => match self.fill(page) {
                Some(found) => found,
                None => {
                    self.failure = Some(Lacking::Frames);
                    return Brought::Not;
                }
            },
            Ok(other) => return other,
            Err(Lacking::Memory) => NO_MEMORY,
            Err(failure) => {
                self.failure = Some(failure);
                return Brought::Not;
            }
        };
        // Windows over the bus combine writes, and keep no order without a fence; the second fence sends the word.
        fence(Ordering::SeqCst);
        place.store(found, Ordering::Release);
        fence(Ordering::SeqCst);
        match found {
            NO_MEMORY => Brought::Not,
            _ => Brought::Now,
        }
    }

    /// Copies a page to its frame; returns the page's new place.
    fn fill(&mut self, page: u64) -> Option<u32> {
        let frame = self.frames.frame(page)?;
        let start = frame as usize * PAGE_WORDS;
        let words = self.memory.pool.words().get(start..start + PAGE_WORDS)?;
        for (word, value) in words.iter().zip(self.frames.before(frame)) {
            word.store(*value, Ordering::Relaxed);
        }
        let generation = match &mut self.eviction {
            Some(eviction) => eviction.brought(page, frame),
            None => 1,
        };
        self.memory.place_of(frame, generation)
    }
}

/// The result of bringing a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brought {
    /// The page is there now.
    Now,
    /// The page was there, or there is nothing to bring.
    Not,
    /// There is no frame for the page yet.
    Later,
}
