//! The commands that use a buffer and have not ended: what a later command has to come behind.

use std::ops::Range;
use std::sync::Arc;
use std::thread::ThreadId;

use super::State;
use crate::device::queue::Batch;
use crate::device::{DeviceShared, unique_id};
use crate::memory::buffers::device_allocation::DeviceHold;
use crate::memory::buffers::hop::End;
use crate::memory::migrate::{Access, Place};

/// With fewer batches than this, ended ones are not looked for.
const FEW: usize = 4;

/// A command not known to have ended.
pub(in crate::memory::buffers) struct InUse {
    pub(in crate::memory::buffers) end: End,
    pub(in crate::memory::buffers) device: DeviceHold,
    pub(in crate::memory::buffers) batch: Arc<Batch>,
    thread: ThreadId,
    /// The batch only moves bytes, for commands with entries of their own.
    is_transfer: bool,
}

fn find(uses: &[(u64, InUse)], token: u64) -> Option<&InUse> {
    let found = uses.iter().find(|(known, _)| *known == token);
    found.map(|(_, used)| used)
}

impl State {
    /// Records the reads of a transfer from common memory.
    pub(in crate::memory::buffers) fn begin_reading(
        &mut self,
        place: Place,
        range: &Range<u64>,
        batch: &Arc<Batch>,
    ) {
        if let Some(copy) = self.copy(place).filter(|copy| copy.is_common()) {
            let device = Arc::clone(&copy.shared.device);
            // Without launches, ended commands are removed only here.
            self.forget_ended();
            self.begin(&device, place, range, Access::Read, batch, true);
        }
    }

    /// Records a command until its end; `is_transfer` marks the runtime's own moves of bytes.
    pub(in crate::memory::buffers) fn begin(
        &mut self,
        device: &Arc<DeviceShared>,
        place: Place,
        range: &Range<u64>,
        access: Access,
        batch: &Arc<Batch>,
        is_transfer: bool,
    ) {
        // Commands of one batch end together.
        let known = (self.uses.iter()).position(|(_, used)| Arc::ptr_eq(&used.batch, batch));
        let token = known.map_or_else(unique_id, |at| self.uses[at].0);
        // Cannot fail: parts are within the buffer.
        let _ = self.residency.begin(token, place, range.clone(), access);
        match known {
            Some(at) => self.uses[at].1.is_transfer &= is_transfer,
            None => self.uses.push((
                token,
                InUse {
                    end: End::of(device, Arc::clone(batch)),
                    device: DeviceHold::new(device),
                    batch: Arc::clone(batch),
                    thread: std::thread::current().id(),
                    is_transfer,
                },
            )),
        }
    }

    /// The ends of all commands not known to have ended.
    pub(in crate::memory::buffers) fn unfinished_ends(&self) -> Vec<End> {
        let left = self.uses.iter().filter(|(_, used)| !used.is_over());
        left.filter_map(|(_, used)| Some(End::of(used.device.get()?, Arc::clone(&used.batch))))
            .collect()
    }

    /// Removes commands that have ended, and commands superseded by a later one.
    pub(in crate::memory::buffers) fn forget_ended(&mut self) {
        if self.uses.len() >= FEW {
            self.forget_all_ended();
        }
    }

    /// As [`Self::forget_ended`], also where there are few.
    pub(in crate::memory::buffers) fn forget_all_ended(&mut self) {
        let State {
            residency, uses, ..
        } = self;
        uses.retain(|(_, used)| !used.is_over());
        residency.forget_finished(|token| find(uses, token).is_none());
        uses.retain(|(token, _)| residency.unfinished().any(|used| used.token == *token));
    }

    /// Removes the commands of a device, ended or not.
    pub(in crate::memory::buffers) fn forget_uses_of(&mut self, device: &Arc<DeviceShared>) {
        let State {
            residency, uses, ..
        } = self;
        uses.retain(|(_, used)| !used.device.is_on(device));
        residency.forget_finished(|token| find(uses, token).is_none());
    }

    /// The commands of other devices that must come before a command of `device` in memory of both.
    pub(in crate::memory::buffers) fn before(
        &self,
        device: &Arc<DeviceShared>,
        place: Place,
        range: &Range<u64>,
        access: Access,
    ) -> Vec<(Arc<DeviceShared>, Arc<Batch>)> {
        let hazards = self.residency.hazards(place, range.clone(), access);
        let uses = hazards.filter_map(|hazard| find(&self.uses, hazard.earlier.token));
        // An ended command needs no dependency, and no thread for its completion.
        let foreign = uses.filter(|used| !used.device.is_on(device) && !used.is_over());
        foreign
            .filter_map(|used| Some((Arc::clone(used.device.get()?), Arc::clone(&used.batch))))
            .collect()
    }

    /// Unfinished writes of other devices and threads to the same bytes.
    pub(in crate::memory::buffers) fn rivals(
        &self,
        place: Place,
        range: &Range<u64>,
        access: Access,
    ) -> Vec<Range<u64>> {
        if !access.writes() {
            return Vec::new();
        }
        let this = std::thread::current().id();
        let ordered = |token: u64| {
            find(&self.uses, token)
                .is_none_or(|used| used.thread == this || used.is_transfer || used.is_over())
        };
        let meetings = self
            .residency
            .conflicts(place, range.clone(), access, ordered);
        meetings
            .filter(|hazard| hazard.earlier.writes)
            .map(|hazard| hazard.range)
            .collect()
    }
}

impl InUse {
    fn is_over(&self) -> bool {
        self.end.is_reached()
    }
}
