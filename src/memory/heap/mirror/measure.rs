//! Measured launches of choosing devices: now and then a kernel using the heap runs between two timestamps, and the
//! result is told to the [`Policy`] when a later launch begins. Nothing is waited for.
//!
//! A measured launch has a compute pass of its own and a small read-back. So the first launches of a kernel in either place are
//! measured, and then one of [`EVERY`](super::policy::EVERY). Software adapters are not measured, since the time of a kernel there says nothing of a bus.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::policy::{Place, Policy};
use crate::device::profile::TimingSlot;
use crate::device::queue::Batch;
use crate::device::wait::lock;
use crate::device::{Aspect, DeviceShared};

/// Measured launches whose times are not known yet, at most.
const PENDING: usize = 8;

/// The knowledge of a choosing device.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(super) policy: Mutex<Policy>,
    pending: Mutex<VecDeque<Pending>>,
}

/// A launch to be measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    kernel: u64,
    invocations: u64,
    place: Place,
}

#[derive(Debug)]
struct Pending {
    measure: Measure,
    slot: TimingSlot,
    batch: Arc<Batch>,
}

impl Measure {
    /// The next launch of a kernel, if that is to be measured.
    pub(super) fn of(
        device: &DeviceShared,
        kernel: u64,
        invocations: u64,
        place: Place,
    ) -> Option<Self> {
        let capabilities = &device.capabilities;
        let says_something = !capabilities.software || cfg!(test);
        if !says_something || !capabilities.has(Aspect::TimestampQueries) {
            return None;
        }
        let choice = &device.extensions.memory.heap_choice;
        let is_due = lock(&choice.policy).is_due(kernel, place);
        (is_due && lock(&choice.pending).len() < PENDING).then_some(Self {
            kernel,
            invocations,
            place,
        })
    }

    /// The launch was recorded, between these timestamps.
    pub(crate) fn recorded(self, device: &DeviceShared, slot: &TimingSlot, batch: &Arc<Batch>) {
        let choice = &device.extensions.memory.heap_choice;
        lock(&choice.pending).push_back(Pending {
            measure: self,
            slot: slot.clone(),
            batch: Arc::clone(batch),
        });
    }
}

/// Tells the policy what has been measured by now.
pub(super) fn collect(device: &DeviceShared) {
    let choice = &device.extensions.memory.heap_choice;
    let mut pending = lock(&choice.pending);
    while let Some(first) = pending.front() {
        if !device.submissions.standing(&first.batch).is_over() {
            return;
        }
        match first.slot.times_now() {
            // On its way, and the next launch looks again.
            Some(None) => return,
            Some(Some((started, ended))) => {
                let Measure {
                    kernel,
                    invocations,
                    place,
                } = first.measure;
                let nanoseconds = ended.saturating_sub(started).as_nanos();
                let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
                lock(&choice.policy).measured(kernel, place, nanoseconds, invocations);
            }
            None => {}
        }
        pending.pop_front();
    }
}
