//! Launches with lent memory: pages come to the device, the kernel runs, and changed words go back.
//!
//! *How it works.* In the order of attempts, unless a tier is asked for ([`SystemMemory::set_tier`]):
//!
//! 1. On the embedded adapter borrowed pages are used in place ([`in_place`]): a single launch, without fetches and
//!    write-backs. A failing launch leaves its writes there.
//! 2. Where all pages with something lent fit into the pool, all are read into the pool, and there is a single launch.
//!    A pointer to anything else fails the launch, through the status record, like a pointer out of the heap.
//! 3. Where host and running kernel see the same memory, an invocation missing a page waits until the host has brought
//!    the page ([`live`]): a single launch again, of any kernel.
//! 4. Elsewhere a launch missing pages is worth nothing, and is repeated with the pages ([`sliced`]); in parts of the
//!    grid where the pages do not fit at once.
//!
//! Flags tell written frames. Written frames are read and compared with their old contents, and differing words are
//! written to the host's memory ([`write_back`]). A failing launch has changed none of the host's memory.

mod error;
mod in_place;
mod live;
mod sliced;
#[cfg(all(test, embedded, unix))]
mod tests;
mod undo;
mod write_back;

use std::sync::Arc;

pub use error::SystemError;

use super::Launch;
use super::grid::GridPart;
use super::parts::system::Lent;
use crate::device::submissions::Standing;
use crate::device::{DeviceShared, Event};
use crate::memory::system::frames::{Frames, Lacking};
use crate::memory::system::live::FLAGS_START;
use crate::memory::system::table::{Demands, FaultList, TOUCHED};
use crate::memory::system::{PAGE_WORDS, SystemMemory, SystemTier};

/// A launch with lent memory, as errors name the operation.
const WHAT: &str = "a launch with lent memory";
/// The share of the frames for small ranges ahead of any miss.
const SMALL_SHARE: u64 = 4;

/// The cost of a launch with lent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SystemRun {
    /// Launches: 1, and another each time pages were missing.
    pub launches: u32,
    /// Parts of the grid run in turn: more than 1 where the pages of all work-groups did not fit at once.
    pub parts: u32,
    /// How pages came; `None` where all lent pages were there from the beginning.
    pub tier: Option<SystemTier>,
    /// Pages of 4 KiB copied for the device.
    pub pages: u64,
    /// Copied pages fetched at a miss of the kernel.
    pub pages_missed: u64,
    /// Copied pages fetched as likely misses: by the pattern of misses, by the touched pages of the kernel's last
    /// launch, or as pages of small ranges.
    pub pages_prefetched: u64,
    /// Pages dropped to make room for others.
    pub pages_dropped: u64,
    /// Words of 4 bytes changed by the kernel in copied pages.
    pub words_written: u64,
    /// Pages used in place by the device.
    pub pages_in_place: u64,
}

impl Launch {
    /// Runs a kernel following pointers into lent memory
    /// ([`TranslationMode::System`](crate::kernel::TranslationMode::System)), and waits for the kernel's end: the
    /// writes behind its pointers are in the host's memory then.
    ///
    /// Where all lent pages fit into the pool ([`SystemMemory::set_pool_bytes`]) there is a single launch. Otherwise
    /// pages come while the kernel runs, or the launch is repeated until no page is missing, and has no effects of the
    /// attempts in between ([`SystemMemory::set_tier`]); atomic operations work within a single launch. Words that the
    /// kernel does not change stay as the host has them. Memory used in place ([`SystemMemory::set_in_place`]) needs no
    /// room, and is changed while the kernel runs.
    ///
    /// # Errors
    /// [`SystemError::Launch`] for everything that [`Launch::submit`] refuses; [`SystemError::Wait`] with
    /// [`ExecutionError::Pointer`](crate::device::ExecutionError::Pointer) for a pointer to memory not lent or not
    /// there, or for a write to memory lent for reading; [`SystemError::PoolFull`], [`SystemError::NotRepeatable`],
    /// [`SystemError::NoLiveTier`], [`SystemError::Unanswered`], [`SystemError::Memory`], [`SystemError::WriteBack`].
    pub fn run_system(&mut self, memory: &mut SystemMemory<'_>) -> Result<SystemRun, SystemError> {
        if !self.kernel.shared.compiled.system {
            self.submit()?.wait()?;
            return Ok(SystemRun {
                launches: 1,
                parts: 1,
                ..SystemRun::default()
            });
        }
        let submissions = &self.kernel.device.submissions;
        // A launch in a function serving the same device could not be waited for.
        let instead = "`Launch::submit`, with what is to be followed in the shared heap";
        (submissions.may_wait(WHAT, instead)).map_err(Arc::new)?;
        let mut run = Run::new(self, memory);
        let done = run.all();
        let (report, touched) = (run.report, run.touched.take());
        let kernel = self.kernel.shared.compiled.id;
        self.settings.system = None;
        if let Some(touched) = touched {
            memory.history.note(kernel, touched);
        }
        done.map(|()| report)
    }
}

/// A launch under way.
struct Run<'r, 'm> {
    launch: &'r mut Launch,
    device: Arc<DeviceShared>,
    memory: &'r SystemMemory<'m>,
    frames: Frames,
    /// Words of the largest pool.
    most_words: u64,
    /// The number of fitting pages.
    most_pages: u64,
    report: SystemRun,
    /// The work-groups of the next launch, where not all run at once.
    part: Option<GridPart>,
    /// The pages touched by the kernel, once known.
    touched: Option<Vec<u64>>,
}

impl<'r, 'm> Run<'r, 'm> {
    fn new(launch: &'r mut Launch, memory: &'r SystemMemory<'m>) -> Self {
        let device = Arc::clone(&launch.kernel.device);
        let limits = &device.limits;
        let most_bytes = (limits.max_storage_buffer_binding_size).min(limits.max_buffer_size);
        // Words of the pool have numbers of 32 bits.
        let most_words = (most_bytes / 4).min(u64::from(u32::MAX));
        let wanted = memory.pool_bytes / 4;
        // Frame 0 holds words for failing accesses.
        let most_pages = (most_words.min(wanted) / PAGE_WORDS as u64).saturating_sub(1);
        Self {
            launch,
            device,
            memory,
            frames: Frames::new(most_pages as u32),
            most_words,
            most_pages,
            report: SystemRun {
                parts: 1,
                ..SystemRun::default()
            },
            part: None,
            touched: None,
        }
    }

    /// The launch, in the first possible way.
    fn all(&mut self) -> Result<(), SystemError> {
        match self.memory.tier {
            Some(SystemTier::Live) => return self.live(),
            Some(SystemTier::Sliced) => return self.sliced(Arc::default()),
            None => {}
        }
        if let Some(window) = self.window() {
            self.frames = Frames::with_pages_in_place(self.most_pages as u32, window);
            return self.in_place();
        }
        let room = usize::try_from(self.most_pages).unwrap_or(usize::MAX);
        let lent = self.memory.lends.pages(0).take(room.saturating_add(1));
        let lent: Vec<u64> = lent.collect();
        if lent.len() <= room {
            return self.whole(lent);
        }
        match self.prefers_live() {
            true => self.live(),
            false => self.sliced(Arc::default()),
        }
    }

    /// A single launch, with all lent pages.
    fn whole(&mut self, lent: Vec<u64>) -> Result<(), SystemError> {
        for page in lent {
            self.fetch(page)?;
        }
        let lent = self.bound(None)?;
        self.report.launches += 1;
        let ended = self.launch.submit().map_err(SystemError::from);
        let ended = ended.and_then(|event| Ok(event.wait()?));
        let flags = ended.and_then(|()| self.flags_of_writes(&lent));
        let done = flags.and_then(|flags| self.write_back(&lent, &flags));
        self.give_back(lent);
        done
    }

    /// The pages fetched before any miss: pages touched in the kernel's last launch, and pages of small ranges; `most`
    /// at most.
    fn likely(&self, kernel: u64, most: u64) -> Vec<u64> {
        let lends = &self.memory.lends;
        let known = self.memory.history.of(kernel);
        let known = known.iter().copied().filter(|page| lends.has(*page));
        let small = lends.small(self.most_pages / SMALL_SHARE);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        known.chain(small).take(most).collect()
    }

    /// Where the flags of frames end, followed by a list of faults of the given room.
    fn faults(&self, room: Option<(u32, u32)>) -> FaultList {
        let flags_end = FLAGS_START + self.frames.count();
        match room {
            None => FaultList {
                start: flags_end,
                capacity: 0,
            },
            Some((noted, capacity)) => FaultList {
                start: flags_end + noted,
                capacity,
            },
        }
    }

    /// The buffers of the next launch, with the pages already in frames, and a list of faults.
    fn bound(&mut self, room: Option<(u32, u32)>) -> Result<Arc<Lent>, SystemError> {
        let faults = self.faults(room);
        let demands = Demands {
            touched: room.is_some(),
            live: None,
        };
        let table = self.frames.table(&self.memory.lends, faults, demands);
        let image = self.frames.image();
        let list = u64::from(faults.start) + 4 * u64::from(faults.capacity);
        let take = |words: u64| self.pools().take(&self.device, words, self.most_words);
        let buffers = [
            take(image.len() as u64)?,
            take(table.len() as u64)?,
            take(list)?,
        ];
        buffers[0].write(0, image)?;
        buffers[1].write(0, &table)?;
        buffers[2].write(0, &vec![0; faults.start as usize])?;
        let lent = Arc::new(Lent {
            buffers: buffers.into(),
            part: self.part,
        });
        self.launch.settings.system = Some(Arc::clone(&lent));
        self.launch.bound = None;
        Ok(lent)
    }

    fn pools(&self) -> &crate::memory::system::pools::Pools {
        &self.device.extensions.memory.system
    }

    /// Keeps the buffers of a launch for the next launch. The buffers are unused: the launch has ended, or the device
    /// is lost.
    fn give_back(&mut self, lent: Arc<Lent>) {
        self.launch.settings.system = None;
        if let Ok(Lent { buffers, .. }) = Arc::try_unwrap(lent) {
            buffers
                .into_iter()
                .for_each(|buffer| self.pools().give(buffer));
        }
    }

    /// Reads a page into a frame; false where the page's memory is not there, so that kernels find nothing there
    /// either.
    fn fetch(&mut self, page: u64) -> Result<bool, SystemError> {
        if self.frames.has(page) {
            return Ok(true);
        }
        let before = self.frames.count();
        match self.frames.add(&self.memory.lends, page) {
            Ok(()) => {
                self.report.pages += u64::from(self.frames.count() - before);
                Ok(true)
            }
            Err(Lacking::Memory) => Ok(false),
            Err(Lacking::Host(error)) => Err(error.into()),
            Err(Lacking::Frames) => Err(self.pool_full(self.most_pages + 1)),
        }
    }

    /// The error of a launch touching `needed` pages.
    fn pool_full(&self, needed: u64) -> SystemError {
        SystemError::PoolFull {
            kernel: self.launch.name(),
            needed,
            pages: self.most_pages,
            limit: 4 * self.most_words,
            device: self.device.capabilities.name.clone(),
        }
    }

    /// The pages whose frames a kernel has touched, by the flags of the frames.
    fn touched(&self, flags: &[u32]) -> Vec<u64> {
        let is_touched =
            |frame: u32| (flags.get(frame as usize)).is_some_and(|flags| flags & TOUCHED != 0);
        let frames = self.frames.by_frame().into_iter();
        let touched = frames.filter(|(frame, _)| is_touched(*frame));
        touched.map(|(_, page)| page).collect()
    }
}

/// Waits until no part of the launch runs any more, or can begin to run.
fn wait_until_over(device: &Arc<DeviceShared>, event: &Event) {
    let Some(batch) = event.batch() else {
        return;
    };
    let submissions = &device.submissions;
    loop {
        match submissions.standing(batch) {
            Standing::Ended | Standing::Lost => return,
            // A refusal may be a loss seen during the submission: the loss says nothing of work in the driver's hands.
            Standing::Submitted | Standing::Refused => {
                let _ = submissions.wait_over(batch, None);
            }
            Standing::Recorded if device.lost.is_raised() => match batch.is_closed() {
                // Another thread may be giving the batch to the driver.
                true => submissions.drive_kept(batch),
                // A lost device takes nothing any more.
                false => return,
            },
            Standing::Recorded => {
                let _ = event.wait();
            }
        }
        std::thread::yield_now();
    }
}
