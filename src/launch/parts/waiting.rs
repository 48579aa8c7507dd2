//! Launches with a possible wait for the host, beside a heap whose devices choose the place of use: the functions of
//! the host awaited by such a launch may use the heap, whether or not the launch does, and must not have to wait for
//! the launch.
//!
//! So no device has changes of the heap in a copy of its own while such a launch runs. For a launch using the heap, the
//! launch's turn rules such changes out ([`heap`](super::heap)).

use std::sync::Arc;

use super::{Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::launch::arguments::Given;
use crate::launch::{Launch, LaunchError};
use crate::memory::SharedHeap;
use crate::memory::heap::{Turn, known_heap};

/// A guard to keep devices in place until the launch is noted.
pub(in crate::launch) struct Waiting<'s> {
    heap: &'s SharedHeap,
    _turn: Option<Turn<'s>>,
}

impl<'s> Part<'s> for Waiting<'s> {
    const RANK: Rank = Rank::HeapTurn;

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        if earlier.heap.is_some() || !launch.may_wait_for_host() {
            return Ok(None);
        }
        let Some(heap) = known_heap(&ground.device) else {
            return Ok(None);
        };
        let heap = ground.heap.get_or_init(|| heap);
        Ok(Some(Self {
            heap,
            _turn: heap.shared.turn_of_waiting()?,
        }))
    }

    fn enter(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        _outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), LaunchError> {
        (self.heap.shared).note_waiting(to.device, &queue.batch());
        Ok(())
    }
}

impl Launch {
    /// Whether the kernel calls somebody, or sees words open to the host's writes meanwhile.
    pub(super) fn may_wait_for_host(&self) -> bool {
        let is_live = |given: &Option<Given>| matches!(given, Some(Given::Buffer { view, .. }) if view.shared.is_live);
        self.kernel.shared.compiled.calls.is_some() || self.given.iter().any(is_live)
    }
}
