//! Launches with lent memory: pages come to the device, the kernel runs, and what it has written goes back.
//!
//! *How it works.*
//!
//! 1. Where all pages with something lent fit into the pool, they are read into it, and there is a single launch. A pointer
//!    to anything else fails that launch, through its status record, like a pointer out of the heap.
//! 2. Otherwise only what is small is there at first. An invocation that misses a page notes the address and goes on with a zero; its
//!    loops end. The launch is worth nothing then: the pages are fetched, with neighbours, twice as many each time, the
//!    frames and all buffers that the kernel writes get their old contents, and the launch is repeated, until nothing is
//!    missing. So a kernel may do nothing that cannot be undone ([`SystemError::NotRepeatable`]).
//! 3. An address that nothing is lent at may be that of a pointer that was not there yet. Where a launch has missed only
//!    such, it is repeated once more as in 1, and fails.
//! 4. Frames say whether they have been written. These are read, compared with what they held, and words that differ are
//!    written to the host's memory. A launch that fails has changed none of it.

// A launch in place looks at the window's own pages before and after kernels do.
#![allow(unsafe_code)]

mod error;
mod undo;

use std::sync::Arc;

pub use error::SystemError;

use super::Launch;
use super::parts::system::Lent;
use crate::device::submissions::Standing;
use crate::device::{DeviceShared, Event};
use crate::memory::system::frames::{Frames, Lacking};
use crate::memory::system::in_place::{InPlace, OwnPages};
use crate::memory::system::lends::Unreachable;
use crate::memory::system::table::FaultList;
use crate::memory::system::{PAGE_BYTES, PAGE_WORDS, SystemMemory};
use crate::memory::{DeviceBuffer, MemoryError, MemoryExtension};
use undo::Undo;

/// A launch with lent memory, as errors name the operation.
const WHAT: &str = "a launch with lent memory";
/// Room for faults of a launch: each page notes one.
const FAULTS: u32 = 16_384;
/// Words in front of the frames' flags.
const FLAGS_START: u32 = 4;
/// Words with a bit for each page that has noted a fault.
const NOTED_WORDS: u32 = 2048;
/// Pages fetched behind a missing one at first, and at most.
const FIRST_AHEAD: u64 = 8;
const MOST_AHEAD: u64 = 4096;
/// The share of the frames that small ranges get before they are missed.
const SMALL_SHARE: u64 = 4;
/// Frames that are not written, and yet read between others that are: one read takes as long as many pages.
const GAP: u32 = 8;

/// What a launch with lent memory has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SystemRun {
    /// Launches: 1, and one more each time pages were missing.
    pub launches: u32,
    /// Pages of 4 KiB that were copied for the device.
    pub pages: u64,
    /// Words of 4 bytes that the kernel changed in such pages.
    pub words_written: u64,
    /// Pages that the device used where they are.
    pub pages_in_place: u64,
}

impl Launch {
    /// Runs a kernel that follows pointers into lent memory
    /// ([`TranslationMode::System`](crate::kernel::TranslationMode::System)), and waits for its end: what the kernel has
    /// written behind its pointers is in the host's memory then.
    ///
    /// Where all that is lent fits into the pool ([`SystemMemory::set_pool_bytes`]) there is one launch. Otherwise the launch
    /// is repeated until no page is missing, and has no effects of the attempts in between; atomic operations work within
    /// one launch. Words that the kernel does not change stay as the host has them.
    ///
    /// # Errors
    /// [`SystemError::Launch`] for everything that [`Launch::submit`] refuses; [`SystemError::Wait`] with
    /// [`ExecutionError::Pointer`](crate::device::ExecutionError::Pointer) for a pointer to memory that is not lent, not
    /// there, or lent for reading and written; [`SystemError::PoolFull`], [`SystemError::NotRepeatable`],
    /// [`SystemError::Memory`], [`SystemError::WriteBack`].
    pub fn run_system(&mut self, memory: &mut SystemMemory<'_>) -> Result<SystemRun, SystemError> {
        if !self.kernel.shared.compiled.system {
            self.submit()?.wait()?;
            return Ok(SystemRun {
                launches: 1,
                ..SystemRun::default()
            });
        }
        let submissions = &self.kernel.device.submissions;
        // A launch in a function that serves its device could not be waited for.
        let instead = "`Launch::submit`, with what is to be followed in the shared heap";
        (submissions.may_wait(WHAT, instead)).map_err(Arc::new)?;
        let mut run = Run::new(self, memory);
        let done = run.until_nothing_is_missing();
        self.settings.system = None;
        done
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
    /// The pages that fit.
    most_pages: u64,
    /// Pages fetched behind a missing one.
    ahead: u64,
    report: SystemRun,
}

/// The end of a launch.
enum End {
    /// Nothing was missing.
    Done,
    /// The pages of these addresses were missing.
    Missing(Vec<u64>),
}

impl<'r, 'm> Run<'r, 'm> {
    fn new(launch: &'r mut Launch, memory: &'r SystemMemory<'m>) -> Self {
        let device = Arc::clone(&launch.kernel.device);
        let limits = &device.limits;
        let most_bytes = (limits.max_storage_buffer_binding_size).min(limits.max_buffer_size);
        // Words of the pool have numbers of 32 bits.
        let most_words = (most_bytes / 4).min(u64::from(u32::MAX));
        let wanted = memory.pool_bytes / 4;
        // One frame has words for accesses that fail.
        let most_pages = (most_words.min(wanted) / PAGE_WORDS as u64).saturating_sub(1);
        Self {
            launch,
            device,
            memory,
            frames: Frames::new(most_pages as u32),
            most_words,
            most_pages,
            ahead: FIRST_AHEAD,
            report: SystemRun::default(),
        }
    }

    fn until_nothing_is_missing(&mut self) -> Result<SystemRun, SystemError> {
        let room = usize::try_from(self.most_pages).unwrap_or(usize::MAX);
        if self.memory.in_place && is_host(&self.device) {
            let window = InPlace::around(&self.memory.lends, room, 4 * self.most_words);
            if let Some(window) = window {
                self.frames = Frames::with_pages_in_place(self.most_pages as u32, window);
                return self.in_place();
            }
        }
        let lent: Vec<u64> = self
            .memory
            .lends
            .pages(0)
            .take(room.saturating_add(1))
            .collect();
        let mut is_final = lent.len() <= room;
        let mut undo = None;
        if is_final {
            for page in lent {
                self.fetch(page)?;
            }
        } else {
            undo = Some(Undo::of(self.launch)?);
            for page in self.memory.lends.small(self.most_pages / SMALL_SHARE) {
                self.fetch(page)?;
            }
        }
        loop {
            let lent = self.bound(is_final)?;
            if let Some(undo) = undo.as_ref().filter(|_| self.report.launches > 0) {
                undo.restore()?;
            }
            let ended = self.attempt(&lent, is_final);
            let done = match ended {
                Ok(End::Done) => Some(self.write_back(&lent)),
                Ok(End::Missing(_)) => None,
                Err(ref error) => Some(Err(error.clone())),
            };
            // Nobody uses the buffers any more: the launch has ended, or the device is lost.
            self.launch.settings.system = None;
            self.give_back(lent);
            match (done, ended) {
                (Some(done), _) => return done.map(|()| self.report),
                (None, Ok(End::Missing(addresses))) => {
                    is_final = !self.fetch_missing(&addresses)?
                }
                (None, _) => return Ok(self.report),
            }
        }
    }

    /// A single launch, whose pool is a window of the host's address space.
    fn in_place(&mut self) -> Result<SystemRun, SystemError> {
        let lends = &self.memory.lends;
        for page in lends.pages(0) {
            self.fetch(page)?;
        }
        self.report.pages_in_place = self.frames.count_in_place();
        let faults = self.faults(true);
        let table = self.frames.table(lends, faults);
        let image = self.frames.image().to_vec();
        let take = |words: u64| self.pools().take(&self.device, words, self.most_words);
        let [table_buffer, flags] = [take(table.len() as u64)?, take(faults.start.into())?];
        table_buffer.write(0, &table)?;
        flags.write(0, &vec![0; faults.start as usize])?;
        let Some(window) = self.frames.in_place() else {
            return Ok(self.report);
        };
        // SAFETY: the launch is not made yet.
        let own = unsafe { window.own_words() };
        own[..image.len()].copy_from_slice(&image);
        let (address, bytes, keeper) = window.window();
        let raw = window_buffer(&self.device, address, bytes, keeper)?;
        let pool = DeviceBuffer::wrap(&self.device, raw, bytes / 4);
        let lent = Arc::new(Lent([pool, table_buffer, flags]));
        self.launch.settings.system = Some(Arc::clone(&lent));
        self.launch.bound = None;
        self.report.launches += 1;
        let event = self.launch.submit()?;
        let ended = event.wait();
        // Whatever the wait says: what is lent must not be given back while a kernel may use it.
        wait_until_over(&self.device, &event);
        self.launch.settings.system = None;
        let done = match ended {
            Ok(()) => self.write_back(&lent),
            Err(error) => Err(error.into()),
        };
        if let Ok(Lent([_, table, flags])) = Arc::try_unwrap(lent) {
            self.pools().give(table);
            self.pools().give(flags);
        }
        done.map(|()| self.report)
    }

    fn faults(&self, is_final: bool) -> FaultList {
        let flags_end = FLAGS_START + self.frames.count();
        match is_final {
            true => FaultList {
                start: flags_end,
                capacity: 0,
            },
            false => FaultList {
                start: flags_end + NOTED_WORDS,
                capacity: FAULTS,
            },
        }
    }

    /// The buffers of the next launch, with the pages that are there.
    fn bound(&mut self, is_final: bool) -> Result<Arc<Lent>, SystemError> {
        let faults = self.faults(is_final);
        let table = self.frames.table(&self.memory.lends, faults);
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
        let lent = Arc::new(Lent(buffers));
        self.launch.settings.system = Some(Arc::clone(&lent));
        self.launch.bound = None;
        Ok(lent)
    }

    fn pools(&self) -> &crate::memory::system::pools::Pools {
        let extension = self.device.memory_extension.get::<MemoryExtension>();
        &extension.system
    }

    fn give_back(&self, lent: Arc<Lent>) {
        if let Ok(Lent(buffers)) = Arc::try_unwrap(lent) {
            buffers
                .into_iter()
                .for_each(|buffer| self.pools().give(buffer));
        }
    }

    /// One launch, and the addresses that were missing.
    fn attempt(&mut self, lent: &Lent, is_final: bool) -> Result<End, SystemError> {
        self.report.launches += 1;
        self.launch.submit()?.wait()?;
        if is_final {
            return Ok(End::Done);
        }
        let [_, _, faults] = &lent.0;
        let count = faults.read_range(0..1)?.first().copied().unwrap_or(0);
        if count == 0 {
            return Ok(End::Done);
        }
        let start = u64::from(self.faults(false).start);
        let words = 4 * u64::from(count.min(FAULTS));
        let list = faults.read_range(start..start + words)?;
        let addresses = list.chunks_exact(4);
        Ok(End::Missing(
            addresses
                .map(|fault| u64::from(fault[1]) | u64::from(fault[2]) << 32)
                .collect(),
        ))
    }

    /// Fetches the pages of these addresses, and pages behind them; whether any was missing.
    fn fetch_missing(&mut self, addresses: &[u64]) -> Result<bool, SystemError> {
        let lends = &self.memory.lends;
        let mut pages: Vec<u64> = addresses
            .iter()
            .map(|address| address / PAGE_BYTES)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| !self.frames.has(page) && lends.has(page));
        let mut found = false;
        for &page in &pages {
            found |= self.fetch(page)?;
        }
        // Neighbours take what room is left.
        for &page in &pages {
            let last = page.saturating_add(self.ahead);
            let neighbours = lends.pages(page + 1).take_while(|&next| next <= last);
            for next in neighbours {
                if self.frames.left() == 0 {
                    return Ok(found);
                }
                self.fetch(next)?;
            }
        }
        self.ahead = (2 * self.ahead).min(MOST_AHEAD);
        Ok(found)
    }

    /// Reads a page into a frame; false where its memory is not there, in which case kernels find nothing there either.
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
            Err(Lacking::Frames) => Err(SystemError::PoolFull {
                kernel: self.launch.name(),
                pages: self.most_pages,
                limit: 4 * self.most_words,
                device: self.device.capabilities.name.clone(),
            }),
        }
    }

    /// Writes the words that the kernel has changed to the host's memory.
    fn write_back(&mut self, lent: &Lent) -> Result<(), SystemError> {
        if !self.memory.lends.is_written() {
            return Ok(());
        }
        let [pool, _, faults] = &lent.0;
        let flags = u64::from(FLAGS_START)..u64::from(FLAGS_START + self.frames.count());
        let flags = faults.read_range(flags)?;
        let written: Vec<(u32, u64)> = (self.frames.by_frame().into_iter())
            .filter(|(frame, _)| flags.get(*frame as usize).is_some_and(|flag| *flag != 0))
            .collect();
        for run in written.chunk_by(|(one, _), (next, _)| next - one <= GAP) {
            if let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) {
                self.write_back_run(pool, *first..*last + 1, run)?;
            }
        }
        Ok(())
    }

    /// The same for pages in neighbouring frames.
    fn write_back_run(
        &mut self,
        pool: &DeviceBuffer<u32>,
        frames: std::ops::Range<u32>,
        written: &[(u32, u64)],
    ) -> Result<(), SystemError> {
        let word = |frame: u32| u64::from(frame) * PAGE_WORDS as u64;
        let range = word(frames.start)..word(frames.end);
        let words = match self.frames.in_place() {
            Some(window) => {
                // SAFETY: the launch has ended.
                let own = unsafe { window.own_words() };
                own[range.start as usize..range.end as usize].to_vec()
            }
            None => pool.read_range(range)?,
        };
        for &(frame, page) in written {
            let start = (frame - frames.start) as usize * PAGE_WORDS;
            let after = &words[start..start + PAGE_WORDS];
            let before = self.frames.before(frame);
            let changed = (self.memory.lends).write_back(page, before, after);
            self.report.words_written +=
                changed.map_err(|Unreachable { address }| SystemError::WriteBack { address })?;
        }
        Ok(())
    }
}

/// Whether the device is the host's own processor, for which a buffer is any range of the host's address space.
fn is_host(device: &DeviceShared) -> bool {
    #[cfg(embedded)]
    return device.raw.adapter_info().backend == crate::device::embedded::BACKEND;
    #[cfg(not(embedded))]
    return {
        let _ = device;
        false
    };
}

/// A buffer over a window of the host's address space, which keeps `keeper`.
fn window_buffer(
    device: &DeviceShared,
    address: u64,
    bytes: u64,
    keeper: Arc<OwnPages>,
) -> Result<wgpu::Buffer, MemoryError> {
    #[cfg(embedded)]
    let made = crate::device::embedded::over_window(&device.raw, address, bytes, Box::new(keeper));
    #[cfg(not(embedded))]
    let made: Result<wgpu::Buffer, String> = {
        let _ = (device, address, bytes, keeper);
        Err("this device is not the host's processor".to_owned())
    };
    made.map_err(|message| MemoryError::Refused {
        what: WHAT,
        message,
    })
}

/// Waits until no part of the launch runs any more, or can begin to run.
fn wait_until_over(device: &Arc<DeviceShared>, event: &Event) {
    let Some(batch) = event.batch() else {
        return;
    };
    let submissions = &device.submissions;
    loop {
        match submissions.standing(batch) {
            Standing::Ended | Standing::Lost | Standing::Refused => return,
            Standing::Submitted => {
                let _ = submissions.wait_over(batch, None);
            }
            // A lost device takes nothing any more.
            Standing::Recorded if device.lost.is_raised() => return,
            Standing::Recorded => {
                let _ = event.wait();
            }
        }
        std::thread::yield_now();
    }
}
