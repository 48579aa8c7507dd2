//! Who moves slices: the relay, a thread of its own, or callers of batches while they wait for them, one at a time. With
//! those nobody has to be woken between the end of a slice, its answers, and the next one.
//!
//! While there are such callers the relay stands back. Should none of them be at it, since they are busy with what they
//! give or have got, it is, after a moment.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

use super::core::{Core, Stage};
use super::sliced::Slices;
use crate::device::wait::lock;
use crate::rpc::port::protocol::CallStatus;

/// The longest sleep of a relay that waits for calls.
const SLEEP: Duration = Duration::from_secs(1);
/// How long it leaves slices to callers without looking.
const STANDS_BACK: Duration = Duration::from_millis(5);

/// The relay, which is a thread.
pub(super) struct SlicedRelay(pub Arc<Core>);

impl SlicedRelay {
    pub fn run(self) -> Self {
        let core = &self.0;
        let Some(slices) = &core.slices else {
            return self;
        };
        loop {
            // Before the look at the callers: the last of them rings.
            let known = core.bell.count();
            let stage = core.stage();
            if matches!(stage, Stage::Closed | Stage::Failed) {
                return self;
            }
            let is_driven = stage == Stage::Running && core.drivers.load(Ordering::Acquire) > 0;
            if is_driven {
                core.bell.sleep(known, STANDS_BACK);
                if let Some(mut slices) = unless_locked(core) {
                    slices.turn(core);
                }
            } else if !lock(slices).turn(core) {
                match core.stage() {
                    Stage::Failed => return self,
                    // Since before the last look.
                    _ if stage == Stage::Stopping => break,
                    _ => core.sleep(SLEEP),
                }
            }
        }
        let stopped = CallStatus::Stopped.code();
        core.frame.give_up(false, stopped, 0);
        core.set_stage(Stage::Closed);
        // Posted by callers who had looked before that.
        core.frame.give_up(false, stopped, 0);
        self
    }
}

fn unless_locked(core: &Core) -> Option<MutexGuard<'_, Slices>> {
    match core.slices.as_ref()?.try_lock() {
        Ok(slices) => Some(slices),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A caller who moves slices while he waits.
pub(super) struct Driver<'c>(&'c Core);

impl<'c> Driver<'c> {
    pub fn new(core: &'c Core) -> Self {
        core.drivers.fetch_add(1, Ordering::AcqRel);
        Self(core)
    }

    /// Sends what he has written, if the device has room for it. Otherwise whoever is at it does.
    pub fn send(&self) {
        if let Some(mut slices) = self.0.turn_to_drive() {
            slices.send_bulk(self.0);
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if self.0.drivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What is left is the relay's.
            self.0.bell.ring();
        }
    }
}

impl Core {
    /// The slices, if nobody else is at it and the server runs: what ends it is the relay's.
    fn turn_to_drive(&self) -> Option<MutexGuard<'_, Slices>> {
        let slices = unless_locked(self)?;
        // With the slices in hand: the relay ends when it finds none after the server was asked to stop.
        (self.stage() == Stage::Running).then_some(slices)
    }

    /// Moves slices on by one turn; `false` if somebody else does so, or there is nothing to do.
    pub fn drive(&self) -> bool {
        let Some(mut slices) = self.turn_to_drive() else {
            return false;
        };
        let turned = slices.turn(self);
        if turned {
            // The device is not to wait for whoever takes the answers.
            slices.send_bulk(self);
        }
        drop(slices);
        if self.drivers.load(Ordering::Acquire) > 1 {
            // It may be another one's turn.
            self.landed.ring_if_asleep();
        }
        turned
    }
}
