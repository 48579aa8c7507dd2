//! Devices with a choice between the host's memory and a mirror: cards with memory of their own that import the heap as
//! well ([`HeapPlacement::Auto`]). [`Policy`] decides; this module has the consequences for turns, and says when a
//! decision may be followed.
//!
//! A mirror is right only while nobody changes the heap without asking, and while nobody has to see a kernel's writes
//! before the kernel's end. In place all of this works, and nothing possible in place is refused for the sake of a
//! mirror:
//!
//! - A launch with a possible wait for the host (a call, or live words for an argument) works in place. While such a
//!   launch runs on any device, no device moves to a mirror, and before such a launch is recorded every mirror of a
//!   choosing device is brought down: a function of the host using the heap then never has to wait for its own caller.
//! - While there are claims ([`Hold`](super::super::Hold)) launches work in place.
//! - A device moves to its mirror only when nothing that uses the heap is under way: no launch waits for another one that would
//!   not have waited in place. The way back waits for launches on the mirror, none of which waits for the host.
//! - Where the copy cannot be had, for want of device memory, the launch works in place, and no other is tried before the heap
//!   has become smaller, or the program asks.
//!
//! No shadow is kept for these mirrors (see [`mirror`](super)): launches in place note what they may have written, and a kernel
//! that follows pointers in place leaves the mirror lacking everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::measure;
use super::policy::{Look, Missing, Place, Policy};
use super::turn::{Taken, Task, Turn, Work};
use super::{
    DeviceView, HeapError, HeapShared, InFlight, Memory, PAGE, PageSet, State, TURN, Table,
};
use crate::device::queue::Batch;
use crate::device::submissions::Held;
use crate::device::wait::{Waits, lock};
use crate::device::{DeviceShared, HeapPlacement};

impl HeapShared {
    /// Whether the device uses the heap in place or on a mirror, as it likes.
    pub(in crate::memory::heap) fn may_choose(&self, device: &DeviceShared) -> bool {
        let capabilities = &device.capabilities;
        !capabilities.unified_memory
            && capabilities.heap_placement == HeapPlacement::Auto
            && capabilities.imports_heap()
            && matches!(self.memory, Memory::Window(_))
            // Coming back from a mirror is a wait.
            && !device.submissions.never_blocks()
    }

    /// Shows the known facts about a choosing device. No lock is taken meanwhile.
    pub(in crate::memory::heap) fn with_policy<R>(
        &self,
        device: &DeviceShared,
        work: impl FnOnce(&mut Policy) -> R,
    ) -> R {
        let extension = &device.extensions.memory;
        work(&mut lock(&extension.heap_choice.policy))
    }

    /// The turn of a choosing device, on the mirror; or the command to go on with in place.
    pub(super) fn turn_by_choice<'h>(
        &'h self,
        device: &Arc<DeviceShared>,
        task: &Task,
        held: Held,
    ) -> Result<Result<Turn<'h>, Held>, HeapError> {
        self.mirrors.has_choice.store(true, Ordering::Relaxed);
        let held = match self.wants_mirror(device, task) {
            false => Err(held),
            true => self.turn_on_mirror(device, task, held)?,
        };
        if held.is_err() {
            self.leave(device, task)?;
        }
        Ok(held)
    }

    /// Whether the command should work on the mirror, whether or not that can be.
    fn wants_mirror(&self, device: &DeviceShared, task: &Task) -> bool {
        let (committed, missing) = {
            let state = lock(&self.state);
            let missing = state.missing(device.id);
            (state.committed, missing)
        };
        measure::collect(device);
        self.with_policy(device, |policy| {
            if let Work::Launch {
                kernel,
                invocations,
            } = task.work
            {
                policy.launched(kernel, invocations);
            }
            match task.work {
                Work::InPlace => false,
                // A transfer goes where the bytes are.
                Work::Transfer if policy.place() == Place::Host => false,
                _ => policy.is_open(committed) && policy.choose(missing) == Place::Copy,
            }
        })
    }

    /// The turn on the mirror, where that is possible now.
    fn turn_on_mirror<'h>(
        &'h self,
        device: &Arc<DeviceShared>,
        task: &Task,
        held: Held,
    ) -> Result<Result<Turn<'h>, Held>, HeapError> {
        let is_ahead = lock(&self.state).mirror_ahead;
        if !is_ahead {
            self.look();
        }
        let mut table = self.table_alone(TURN)?;
        if table.ahead != Some(device.id) && !lock(&self.state).is_at_rest()? {
            return Ok(Err(held));
        }
        match self.show(&mut table, device, &task.writes) {
            Ok(sent) => {
                if self.with_policy(device, |policy| policy.entered(sent)) {
                    self.mirrors.count(|statistics| statistics.moved_in += 1);
                }
                Ok(Ok(Turn::on_mirror(table, task.writes.clone(), held)))
            }
            Err(error @ HeapError::HostAccess { .. }) => Err(error),
            Err(error) if error.is_loss() => Err(error),
            Err(error) => {
                let name = &device.capabilities.name;
                log::debug!("the heap stays in the host's memory for {name}: {error}");
                if table.ahead == Some(device.id) {
                    pollster::block_on(self.bring_down(&mut table, Waits::Blocks))?;
                }
                if let HeapError::Mirror { .. } = error {
                    self.give_up(&mut table, device);
                }
                Ok(Err(held))
            }
        }
    }

    /// Does without the device's mirror, for which there is no room.
    fn give_up(&self, table: &mut Table, device: &Arc<DeviceShared>) {
        if let Some(mut mirror) = table.by_device.remove(&device.id) {
            // The device's memory goes, and bind groups with it.
            let _ = mirror.buffers.shrink(device, 0);
        }
        self.mirrors.take_stock(table);
        let committed = {
            let mut state = lock(&self.state);
            state.stale.remove(&device.id);
            state.committed
        };
        self.with_policy(device, |policy| policy.refused(committed));
    }

    /// Has the device work in place from here on.
    fn leave(&self, device: &Arc<DeviceShared>, task: &Task) -> Result<(), HeapError> {
        // A transfer beside launches on the mirror changes little.
        if !matches!(task.work, Work::Transfer) {
            self.left(device, Policy::left);
        }
        // Arguments may name buffers of the mirror: there has to be something else.
        self.view(device).map(drop)
    }

    fn left(&self, device: &DeviceShared, work: impl FnOnce(&mut Policy) -> bool) {
        if self.with_policy(device, work) {
            self.mirrors.count(|statistics| statistics.moved_out += 1);
        }
    }

    /// Asks for the device's mirror, where the device chooses. Moves nothing by itself.
    pub(in crate::memory::heap) fn await_mirror(&self, device: &DeviceShared) {
        if self.may_choose(device) {
            self.with_policy(device, Policy::prefetch);
        }
    }

    /// A launch that may wait for functions of the host, and does not use the heap itself: the functions may. The turn keeps
    /// devices in place until the launch is noted ([`Self::note_waiting`]).
    pub(crate) fn turn_of_waiting(&self) -> Result<Option<Turn<'_>>, HeapError> {
        if !self.mirrors.has_choice.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let held = Held::new(TURN).map_err(Arc::new)?;
        let together = self.table_together(TURN)?;
        let chooses = |table: &Table| {
            let mirror = table.by_device.get(&table.ahead?)?;
            let device = mirror.owner.upgrade()?;
            self.may_choose(&device).then_some(())
        };
        if chooses(&together).is_none() {
            return Ok(Some(Turn::in_place(Taken::Together(together), held)));
        }
        drop(together);
        let mut table = self.table_alone(TURN)?;
        pollster::block_on(self.bring_down(&mut table, Waits::Blocks))?;
        Ok(Some(Turn::in_place(Taken::Alone(table), held)))
    }

    /// Notes a launch that may wait for the host.
    pub(crate) fn note_waiting(&self, device: &Arc<DeviceShared>, batch: &Arc<Batch>) {
        let mut state = lock(&self.state);
        state.waiting.retain(|_, batches| !batches.is_done());
        (state.waiting.entry(device.id))
            .or_insert_with(|| InFlight::new(device, false))
            .add(batch);
    }

    /// The host looks at the heap behind launches in place of devices that choose.
    pub(in crate::memory::heap) fn looked_in_place(&self) {
        if !self.mirrors.has_choice.load(Ordering::Relaxed) {
            return;
        }
        let look = Look {
            moved: 0,
            searched: lock(&self.state).region.in_use(),
        };
        let devices: Vec<_> = (lock(&self.views).values())
            .filter_map(DeviceView::device)
            .collect();
        devices
            .iter()
            .for_each(|device| self.looked(device, Some(look)));
    }

    /// Tells the device's policy what a look has cost, where the device chooses.
    pub(super) fn looked(&self, device: &DeviceShared, look: Option<Look>) {
        if self.may_choose(device) {
            self.with_policy(device, |policy| policy.looked(look));
        }
    }
}

impl State {
    /// What the mirror of device `id` lacks.
    fn missing(&self, id: u64) -> Missing {
        let in_use = self.region.in_use();
        let stale = self.stale.get(&id);
        let pages = stale.and_then(PageSet::count);
        Missing {
            bytes: pages.map_or(in_use, |pages| pages * PAGE),
            in_use,
            is_new: stale.is_none(),
        }
    }

    /// Whether no command may be using the heap, nor any function of the host that a kernel waits for, and nothing changes
    /// without being asked.
    fn is_at_rest(&mut self) -> Result<bool, HeapError> {
        if self.host.is_some() {
            return Err(HeapError::HostAccess { what: "a launch" });
        }
        let mut running = self.in_flight.values_mut().chain(self.waiting.values_mut());
        Ok(running.all(InFlight::is_done) && self.holds.is_empty())
    }
}
