//! Undoing a launch that is repeated: buffers that the launch may write are copied by the first submission, and
//! restored by the next submissions.
//!
//! The copies are commands of the submission itself, behind the transfers of the context's buffers to the device and in
//! the device's turn with the heap. So the copies find every buffer where the launch finds the buffer, and no other
//! launch comes between. The copies precede the copies to staging memory, which then hold the restored words.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::device::wait::lock;
use crate::launch::arguments::Given;
use crate::launch::{Launch, LaunchError};
use crate::memory::places::{Place, copy};
use crate::memory::{BufferView, DeviceBuffer};

/// Old contents of everything that a launch may write, by the slots of the arguments.
#[derive(Debug, Default)]
pub(in crate::launch) struct Copies {
    kept: Mutex<HashMap<usize, DeviceBuffer<u32>>>,
    /// The copies are made: commands of a submission.
    is_made: AtomicBool,
}

/// The copies, while a launch is repeated.
pub(in crate::launch) type Setting = Option<Arc<Copies>>;

/// The copies of a submission.
pub(in crate::launch) struct Undo(Arc<Copies>);

impl<'s> Part<'s> for Undo {
    const RANK: Rank = Rank::HeapTurn;

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.settings.undo.clone().map(Self))
    }

    fn enter(
        &mut self,
        to: &Submission<'_>,
        queue: &mut Recorder<'_>,
        _outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), LaunchError> {
        let mut kept = lock(&self.0.kept);
        for (slot, view) in to.launch.written() {
            let known = match kept.entry(slot) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    let words = view.bytes.div_ceil(4).max(1);
                    free.insert(DeviceBuffer::allocate(to.device, words)?)
                }
            };
            let own = Place::in_buffer(known.raw(), 0, true);
            match self.0.is_made.load(Ordering::Acquire) {
                true => copy(queue, to.device, &own, &view.place(), view.bytes)?,
                false => copy(queue, to.device, &view.place(), &own, view.bytes)?,
            }
        }
        Ok(())
    }

    /// A submission that was given up has kept nothing.
    fn released(&mut self, _to: &Submission<'_>, _ending: &mut Ending) {
        self.0.is_made.store(true, Ordering::Release);
    }
}

impl Copies {
    /// Has the next submission copy anew what is there then.
    pub(in crate::launch) fn renew(&self) {
        self.is_made.store(false, Ordering::Release);
    }

    /// Restores buffers of the device, where the launch is not repeated after all. Buffers of the context may be
    /// elsewhere by now, and the heap in other hands: both keep their contents.
    ///
    /// # Errors
    /// The errors of copies.
    pub(in crate::launch) fn restore(&self, launch: &Launch) -> Result<(), LaunchError> {
        if !self.is_made.load(Ordering::Acquire) {
            return Ok(());
        }
        let device = &launch.kernel.device;
        let kept = lock(&self.kept);
        let mut queue = device.queue.lock(device);
        for (slot, view) in launch.written() {
            let is_migratable = (launch.settings.buffers.iter()).any(|one| one.slot == slot);
            if let Some(known) = kept
                .get(&slot)
                .filter(|_| !is_migratable && !view.shared.is_heap)
            {
                let own = Place::in_buffer(known.raw(), 0, true);
                copy(&mut queue, device, &own, &view.place(), view.bytes)?;
            }
        }
        queue.commit();
        Ok(())
    }
}

impl Launch {
    /// The buffers that the launch may write, by slot.
    pub(in crate::launch) fn written(&self) -> impl Iterator<Item = (usize, &BufferView)> {
        let given = self.given.iter().enumerate();
        given.filter_map(|(slot, given)| match given {
            Some(Given::Buffer { view, .. }) if self.writes(slot) => Some((slot, view)),
            _ => None,
        })
    }
}
