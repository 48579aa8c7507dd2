//! Lost devices: bytes that did not arrive are brought from other places.
//!
//! A lost device is found, at the latest, when bytes are asked for. wgpu reports no error for commands to a destroyed
//! device; but a buffer made there is invalid, and a test buffer shows the loss. Other places with the bytes are asked
//! next.

use std::ops::Range;
use std::sync::Arc;

use super::device_allocation::DeviceAllocation;
use super::places::let_go;
use super::root::State;
use crate::device::DeviceShared;
use crate::memory::migrate::{Content, Place};

impl State {
    /// Looks for lost devices after a failure; true if there are any.
    pub(super) fn suspect_losses(&mut self) -> bool {
        let places = self.places();
        for place in &places {
            if let Some(copy) = self.copy(*place) {
                suspect(&copy.shared.device);
            }
        }
        self.notice_losses();
        self.places().len() < places.len()
    }

    /// Removes lost devices from the books, and bytes of failed transfers.
    pub(super) fn notice_losses(&mut self) {
        // Nearly always there is nothing to do.
        let is_gone = |copy: &DeviceAllocation| copy.shared.device.lost.is_raised();
        if self.arrivals.is_empty() && !self.all_copies().any(is_gone) {
            return;
        }
        for (outcome, place, range) in std::mem::take(&mut self.arrivals) {
            match outcome.went_wrong() {
                None => self.arrivals.push((outcome, place, range)),
                Some(false) => {}
                Some(true) => self.not_arrived(place, &range),
            }
        }
        for place in self.places() {
            if self.copy(place).is_some_and(is_gone) {
                self.residency.lost(place);
                if let Some(copy) = self.take_copy(place) {
                    let device = Arc::clone(&copy.shared.device);
                    drop(copy);
                    self.devices.note_loss(place, &device.capabilities.name);
                    let_go(device);
                }
            }
        }
    }

    /// Bytes of a failed transfer to `place`. Bytes with another latest place are brought again from there; bytes
    /// overwritten meanwhile, or without another place, keep the failure as their outcome.
    fn not_arrived(&mut self, place: Place, range: &Range<u64>) {
        let mut elsewhere = Vec::new();
        let memory = self.residency.memory_of(place);
        for (part, content) in self.residency.contents() {
            let part = part.start.max(range.start)..part.end.min(range.end);
            let also = matches!(content, Content::At(places) if places.contains(place) && !places.without(memory).is_empty());
            if also && part.start < part.end {
                elsewhere.push(part);
            }
        }
        for part in elsewhere {
            // Cannot fail: contents are within the buffer.
            let _ = self.residency.failed(place, part.clone());
            if let Some(copy) = self.copy(place) {
                copy.overwritten(&part);
            }
        }
    }
}

/// Raises the flag of a lost device. wgpu reports no error for commands to a destroyed device.
fn suspect(device: &DeviceShared) {
    if !device.submissions.answers() {
        device.lost.raise("it was destroyed, or answers no more");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::ExecutionError;
    use crate::device::outcome::Outcome;
    use crate::memory::buffers::root::Root;
    use crate::memory::buffers::{BufferError, Placement};
    use crate::memory::migrate::{Access, MigrateError, Routes, Want};

    #[test]
    fn bytes_that_did_not_arrive_are_had_from_where_they_are() {
        let extensions = Arc::default();
        let root = Root::new(
            &extensions,
            100,
            Placement::Device,
            Some(Box::new(vec![1u8; 100])),
        );
        let (one, other) = (Place::new(1).unwrap(), Place::new(2).unwrap());
        let mut state = root.lock();
        let bring = |state: &mut State, place, range: Range<u64>| {
            let access = Access::Read;
            let want = Want {
                place,
                range,
                access,
            };
            let plan = state.residency.plan(&[want], &Routes::new()).unwrap();
            root.commit(state, &plan).unwrap();
        };
        let arrival = |failed: bool| {
            let outcome = Outcome::new("a transfer".into(), Vec::new());
            let message = "lost".to_owned();
            outcome.settle(match failed {
                true => Err(ExecutionError::Refused { message }),
                false => Ok(()),
            });
            outcome
        };
        for place in [one, other] {
            bring(&mut state, place, 0..100);
        }
        // Written since, so without another latest place.
        state.residency.wrote(one, 40..50).unwrap();
        state.arrivals.push((arrival(true), one, 20..60));
        state.arrivals.push((arrival(false), other, 0..100));
        let unknown = Outcome::new("a transfer".into(), Vec::new());
        state.arrivals.push((Arc::clone(&unknown), other, 0..10));
        state.notice_losses();
        for (range, place, is_current) in [
            (0..20, one, true),
            (20..40, one, false),
            (40..50, one, true),
            (50..60, one, false),
            (60..100, one, true),
            (0..40, other, true),
            (50..100, other, true),
            (0..40, Place::HOST, true),
        ] {
            assert_eq!(
                state.residency.is_current(place, range.clone()),
                is_current,
                "{range:?}"
            );
        }
        // An unknown outcome is asked again.
        assert_eq!(state.arrivals.len(), 1);
        unknown.settle(Err(ExecutionError::Refused {
            message: "lost".to_owned(),
        }));
        state.notice_losses();
        assert!(state.arrivals.is_empty());
        assert!(!state.residency.is_current(other, 0..10));
        // The bytes are brought again, from another place.
        bring(&mut state, one, 0..100);
        assert!(state.residency.is_current(one, 0..100));
    }

    /// What the planner refuses and no command causes: it is passed on in the planner's words, and changes nothing.
    #[test]
    fn a_plan_of_an_earlier_state_is_refused() {
        let extensions = Arc::default();
        let bytes = Some(Box::new(vec![1u8; 16]) as Box<_>);
        let root = Root::new(&extensions, 16, Placement::Device, bytes);
        let (one, other) = (Place::new(1).unwrap(), Place::new(2).unwrap());
        let mut state = root.lock();
        let want = Want {
            place: one,
            range: 0..16,
            access: Access::Read,
        };
        let plan = state.residency.plan(&[want], &Routes::new()).unwrap();
        state.residency.wrote(other, 0..8).unwrap();
        let moved = root.context().statistics();
        assert!(matches!(
            root.commit(&mut state, &plan),
            Err(BufferError::Migrate(MigrateError::StalePlan))
        ));
        assert_eq!(root.context().statistics(), moved);
        assert!(!state.residency.is_current(one, 8..16));
        // A loss alone has words of its own.
        let ranges = vec![0..8, 12..16];
        let only = MigrateError::OnlyCopy {
            place: one,
            ranges: ranges.clone(),
        };
        assert!(
            matches!(state.refusal(only.clone()), BufferError::Migrate(error) if error == only)
        );
        let lost = MigrateError::Lost {
            place: one,
            ranges: ranges.clone(),
        };
        assert!(
            matches!(state.refusal(lost), BufferError::Lost { ranges: lost, .. } if lost == ranges)
        );
    }
}
