//! Devices that are gone, and bytes that therefore did not arrive: others that have the bytes are asked instead.
//!
//! A lost device is found when it is asked for bytes, if not before. wgpu reports nothing to those who ask something
//! of a device that was destroyed; but a buffer made there is none, which is how the question is put. Other places
//! that have the bytes are asked next.

use std::ops::Range;

use super::root::State;
use crate::device::DeviceShared;
use crate::memory::migrate::{Content, Place};

impl State {
    /// Finds out which devices are gone, after something went wrong; true if there are any.
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

    /// Takes note of devices that are gone, and of bytes that therefore did not arrive.
    pub(super) fn notice_losses(&mut self) {
        for (outcome, place, range) in std::mem::take(&mut self.arrivals) {
            match outcome.went_wrong() {
                None => self.arrivals.push((outcome, place, range)),
                Some(false) => {}
                Some(true) => self.not_arrived(place, &range),
            }
        }
        for place in self.places() {
            let gone = self
                .copy(place)
                .is_some_and(|copy| copy.shared.device.lost.is_raised());
            if gone {
                self.residency.lost(place);
                self.take_copy(place);
            }
        }
    }

    /// Bytes that should be at a place are not. Where they are elsewhere they can be had from there; what was written
    /// over them meanwhile, or was nowhere else, stays with the failure that the place remembers.
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
            // Within the buffer, as its contents are.
            let _ = self.residency.failed(place, part.clone());
            if let Some(copy) = self.copy(place) {
                copy.overwritten(&part);
            }
        }
    }
}

/// Raises the flag of a device that is gone. wgpu reports nothing to those who ask something of a device that was
/// destroyed.
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
    use crate::memory::buffers::Placement;
    use crate::memory::buffers::root::{BufferExtensions, Root};
    use crate::memory::migrate::{Access, Routes, Want};

    #[test]
    fn bytes_that_did_not_arrive_are_had_from_where_they_are() {
        let extensions = BufferExtensions {
            buffers: Arc::default(),
            heap: Arc::default(),
        };
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
        // Written there since, so that nobody else has it.
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
        // What is not known yet is asked again.
        assert_eq!(state.arrivals.len(), 1);
        unknown.settle(Err(ExecutionError::Refused {
            message: "lost".to_owned(),
        }));
        state.notice_losses();
        assert!(state.arrivals.is_empty());
        assert!(!state.residency.is_current(other, 0..10));
        // It is brought again, from where it is.
        bring(&mut state, one, 0..100);
        assert!(state.residency.is_current(one, 0..100));
    }
}
