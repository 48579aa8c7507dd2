//! Launches whose pages come while the kernel runs (`src/memory/system/live.rs`).
//!
//! A separate thread answers the misses: the calling thread submits the launch and waits, in a way that may keep a
//! thread in the driver until the kernel has ended. The pager's thread ends with the launch, and no invocation waits
//! once the pager has ended: so there is neither a kernel without a pager nor a pager without a kernel.
//!
//! On adapters that ration turns of loops each access takes a turn, and waiting takes many. An exhausted ration is no
//! failure there: no invocation has waited beyond the ration, and the launch is repeated in slices with the pages
//! already fetched. Only a kernel that cannot be repeated fails then. The same holds where more pages are written than
//! there are frames.
//!
//! The kernel is another form of the same kernel, made when first needed; forms without waiting have no code for
//! waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Run, SystemError, WHAT, undo, wait_until_over};
use crate::launch::LaunchError;
use crate::launch::parts::system::Lent;
use crate::launch::parts::undo::Copies;
use crate::memory::system::SystemTier;
use crate::memory::system::frames::Lacking;
use crate::memory::system::live::{LivePages, Pager, Places, WHY};
use crate::memory::system::table::{self, Demands, Entry, FaultList};
use crate::memory::{DeviceBuffer, MemoryError};
use crate::rpc::Backoff;

/// Turns that an invocation waits for a page, where no adapter counts turns: seconds, for an answer within
/// microseconds.
const TURNS: u32 = 1 << 28;
/// The loop budget of lavapipe, assumed for devices that were not probed.
const ASSUMED_LOOP_BUDGET: u32 = 65_535;

impl Run<'_, '_> {
    /// Whether pages come while the kernel runs where nothing else is asked for: not where turns of loops are rationed,
    /// since every access takes a turn there, unless the launch cannot be repeated.
    pub(super) fn prefers_live(&self) -> bool {
        let capabilities = &self.device.capabilities;
        let is_wanted = !capabilities.needs_loop_guard() || undo::check(self.launch).is_err();
        capabilities.live_calls() && is_wanted && Places::of(&self.memory.lends).is_some()
    }

    fn no_live_tier(&self, why: impl Into<String>) -> SystemError {
        SystemError::NoLiveTier {
            device: self.device.capabilities.name.clone(),
            why: why.into(),
        }
    }

    /// Turns that an invocation may wait.
    fn turns(&self) -> u32 {
        let capabilities = &self.device.capabilities;
        let wanted = self.memory.wait_turns.unwrap_or(TURNS);
        match capabilities.needs_loop_guard() {
            // The rest is for the kernel's own loops.
            true => wanted.min(capabilities.loop_budget().unwrap_or(ASSUMED_LOOP_BUDGET) / 8 * 7),
            false => wanted,
        }
    }

    /// A single launch, whose pages come when missed. Where a ration of turns is exhausted, or more pages are needed at
    /// once than there are frames, the launch is repeated in slices, if possible.
    pub(super) fn live(&mut self) -> Result<(), SystemError> {
        let capabilities = &self.device.capabilities;
        let may_fail = capabilities.needs_loop_guard() || self.may_fill_the_pool();
        let may_repeat = may_fail && undo::check(self.launch).is_ok();
        let copies = may_repeat.then(Arc::<Copies>::default);
        self.launch.settings.undo.clone_from(&copies);
        let done = self.while_it_runs();
        self.launch.settings.undo = None;
        match (done, copies) {
            (Err(SystemError::Unanswered { .. } | SystemError::PoolFull { .. }), Some(copies)) => {
                self.sliced(copies)
            }
            (done, _) => done,
        }
    }

    /// Whether the frames may be too few: written pages are never taken away, and no page where the device does not
    /// allow eviction.
    fn may_fill_the_pool(&self) -> bool {
        let lends = &self.memory.lends;
        let room = usize::try_from(self.most_pages).unwrap_or(usize::MAX);
        match self.device.capabilities.evicts_pages() {
            true => lends.pages_for_writing() >= self.most_pages,
            false => lends.pages(0).take(room.saturating_add(1)).count() > room,
        }
    }

    fn while_it_runs(&mut self) -> Result<(), SystemError> {
        self.report.tier = Some(SystemTier::Live);
        let capabilities = &self.device.capabilities;
        if !capabilities.live_calls() {
            return Err(self.no_live_tier(capabilities.why_live_calls()));
        }
        let Some(places) = Places::of(&self.memory.lends) else {
            let why = "more is lent than 2^24 pages in one range, and 2^16 pages beside it";
            return Err(self.no_live_tier(why));
        };
        if self.most_pages == 0 {
            return Err(self.pool_full(1));
        }
        let kernel = self.launch.kernel.shared.with_live_pages(&self.device);
        let kernel = kernel.map_err(|error| LaunchError::from(Box::new(error)))?;
        // Frame 0 is for accesses that fail.
        let frames = self.most_pages.min(places.pages().max(1)) as u32 + 1;
        let device = Arc::clone(&self.device);
        let kept = &device.extensions.memory.live_pages;
        let pages = LivePages::take(&device, kept, frames, &places);
        let pages = pages.map_err(|error| self.no_live_tier(error.to_string()))?;
        let lent = self.live_buffers(&pages, &places)?;
        self.launch.settings.system = Some(Arc::clone(&lent));
        self.launch.bound = None;
        let plain = std::mem::replace(&mut self.launch.kernel.shared, kernel);
        let done = self.answered(&pages, &places, plain.compiled.id);
        self.launch.kernel.shared = plain;
        self.launch.bound = None;
        self.launch.settings.system = None;
        done?;
        let why = lent.faults().read_range(WHY..WHY + 1)?;
        if why.first().is_some_and(|why| *why != 0) {
            return Err(SystemError::Unanswered {
                kernel: self.launch.name(),
                turns: self.turns(),
            });
        }
        let flags = self.flags(&lent)?;
        self.write_back(&lent, &flags)?;
        // Marks of a frame that has had several pages tell of none of them.
        if self.report.pages_dropped == 0 {
            self.touched = Some(self.touched(&flags));
        }
        drop(lent);
        pages.keep(kept);
        Ok(())
    }

    /// The buffers of the launch.
    fn live_buffers(&self, pages: &LivePages, places: &Places) -> Result<Arc<Lent>, SystemError> {
        let entries: Vec<Entry> = (places.others())
            .map(|(page, word)| Entry {
                page,
                word,
                in_place: false,
                rights: self.memory.lends.rights(page),
            })
            .collect();
        let none = FaultList {
            start: 0,
            capacity: 0,
        };
        let demands = Demands {
            // Frames that may be taken away are marked by each access itself (`shaders/system_evict.wgsl`).
            touched: !self.device.capabilities.evicts_pages(),
            live: Some(pages.limits(self.turns())),
        };
        let words = table::words(&entries, places.solid(), none, demands);
        let table = (self.pools()).take(&self.device, words.len() as u64, self.most_words)?;
        table.write(0, &words)?;
        let [pool, posts, places] = pages.buffers(&self.device);
        let mut buffers = vec![pool, table, posts, places];
        let backoff = Backoff::of(&self.device);
        if let Some(backoff) = backoff.map_err(|error| self.no_live_tier(error.to_string()))? {
            let (raw, words) = (backoff.buffer.clone(), backoff.buffer.size() / 4);
            buffers.push(DeviceBuffer::wrap(&self.device, raw, words));
        }
        Ok(Arc::new(Lent::new(buffers)))
    }

    /// Launches, and answers misses until the launch is over.
    fn answered(
        &mut self,
        pages: &LivePages,
        places: &Places,
        kernel: u64,
    ) -> Result<(), SystemError> {
        let likely = self.likely(kernel, self.most_pages / 4 * 3);
        let mut pager = Pager::new(
            &self.memory.lends,
            &mut self.frames,
            pages,
            places,
            self.device.capabilities.evicts_pages(),
        );
        likely.into_iter().for_each(|page| pager.prepare(page));
        let (launch, device) = (&mut *self.launch, &self.device);
        let is_over = AtomicBool::new(false);
        let (ended, served) = std::thread::scope(|scope| {
            let work = || {
                pager.serve(&is_over);
                pager
            };
            let thread = std::thread::Builder::new().name("tombolo pages".to_owned());
            let thread = thread
                .spawn_scoped(scope, work)
                .map_err(|error| refused(&error))?;
            let ended = launch.submit().map(|event| {
                let ended = event.wait();
                // Whatever `wait` returns: the kernel may still be about to ask.
                wait_until_over(device, &event);
                ended
            });
            is_over.store(true, Ordering::Release);
            let served = thread.join();
            let served = served.map_err(|_| refused(&"the thread that brings pages panicked"))?;
            let counts = [served.missed, served.prefetched, served.dropped];
            Ok::<_, MemoryError>((ended, (counts, served.failure)))
        })?;
        let ([missed, prefetched, dropped], failure) = served;
        self.report.launches += 1;
        (self.report.pages_missed, self.report.pages_prefetched) = (missed, prefetched);
        self.report.pages = missed + prefetched;
        self.report.pages_dropped = dropped;
        match failure {
            Some(Lacking::Host(error)) => return Err(error.into()),
            Some(Lacking::Frames | Lacking::Memory) => {
                return Err(self.pool_full(self.most_pages + 1));
            }
            None => {}
        }
        Ok(ended??)
    }
}

fn refused(message: &dyn std::fmt::Display) -> MemoryError {
    MemoryError::Refused {
        what: WHAT,
        message: message.to_string(),
    }
}
