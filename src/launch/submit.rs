//! Submission: a checked launch becomes commands of the open batch, by the steps of its parts ([`parts`](super::parts)).

use std::sync::Arc;

use super::Launch;
use super::dispatch::{Dispatches, Extents};
use super::error::LaunchError;
use super::groups::{BoundGroups, bind};
use super::parts::{Ending, Ground, Parts, Stop, Submission};
use crate::device::completion_hook::CompletionHooks;
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::queue::{Batch, Recorder};
use crate::device::{Event, HostAccessPolicy};
use crate::memory::HeapError;
use crate::memory::heap::{WaitingCommand, heap_of};
use crate::span::span;

impl Launch {
    /// Records the launch into the device's open batch and returns the launch's event.
    ///
    /// A grid of no invocations is no error and runs nothing. A launch using the shared heap waits while another thread
    /// has the heap ([`Launch::host_access`]).
    ///
    /// # Errors
    /// [`LaunchError`] for every fault known beforehand; [`LaunchError::Heap`] with [`HeapError::HostAccess`] where
    /// this thread has a [`HostAccess`](crate::heap::HostAccess) of a heap used by the launch. A later fault is the
    /// event's error.
    pub fn submit(&mut self) -> Result<Event, LaunchError> {
        let policy = (self.settings.heap).unwrap_or(self.kernel.device.options.host_access);
        self.submit_by(policy)
    }

    /// As [`Launch::submit`], but tells instead of waiting while another thread has the shared heap, whatever
    /// [`Launch::host_access`] and [`DeviceOptions::host_access`](crate::DeviceOptions::host_access) say. The launch can
    /// be tried again at any time. A launch that does not use the heap is submitted either way.
    ///
    /// Only the wait for another thread's access is left out: like `submit`, a try takes the locks of the queue and of
    /// the buffers, and makes memory where some is missing.
    ///
    /// # Errors
    /// As [`Launch::submit`]; [`LaunchError::Heap`] with [`HeapError::HostAccess`] where any thread has a
    /// [`HostAccess`](crate::heap::HostAccess) of a heap used by the launch.
    pub fn try_submit(&mut self) -> Result<Event, LaunchError> {
        self.submit_by(HostAccessPolicy::Refuse)
    }

    fn submit_by(&mut self, policy: HostAccessPolicy) -> Result<Event, LaunchError> {
        let _span = span!("launch", kernel = %self.kernel.shared.name, device = %self.kernel.device.capabilities.name);
        let mut waiting = WaitingCommand::new(policy);
        let ground = Ground::of(self);
        let ending = loop {
            // Nothing is held here: a holder of the heap may ask for anything, and making room may wait for the heap's
            // turn.
            Parts::ready(self)?;
            match self.attempt(&ground) {
                Ok(ending) => break Some(ending),
                Err(Stop::Empty) => break None,
                Err(Stop::Refused(LaunchError::Heap(HeapError::HostAccess { what }))) => {
                    let heap = heap_of(&self.kernel.device)?;
                    waiting.wait(&heap.shared, what)?;
                }
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Lacks(missing)) => self.make_room(missing)?,
                Err(Stop::Overtaken) => {}
            }
        };
        Parts::follow_up(self)?;
        let device = ground.device;
        Ok(match ending {
            Some(ending) => Event::of(device, Some(ending.batch))
                .with_outcome(ending.outcome)
                .with_hooks(ending.hooks),
            None => Event::of(device, None),
        })
    }

    /// Whether something was, or may be, recorded behind the last submission of this launch in the same batch.
    pub(crate) fn is_followed_in(&self, batch: &Batch) -> bool {
        batch.commands() != Some(self.recorded)
    }

    fn attempt(&mut self, ground: &Ground) -> Result<Ending, Stop> {
        self.validate()?;
        ground.device.lost.check().map_err(Arc::new)?;
        Parts::begin(self)?;
        let groups = match self.extents()? {
            Extents::Groups(groups) if groups.is_empty() => return Err(Stop::Empty),
            Extents::Groups(groups) => Some(groups),
            _ => None,
        };
        // Before the queue, so that the queue is let go first: undoing a part may take the queue.
        let mut parts = Parts::default();
        parts.acquire(self, ground)?;
        let kept = self.bound.take();
        let form = parts.form().cloned();
        let kernel = form.as_ref().unwrap_or(&self.kernel.shared);
        let dispatches = Dispatches::of(self, kernel, groups)?;
        let to = Submission {
            launch: self,
            device: &ground.device,
            kernel,
            dispatches: &dispatches,
        };
        let mut queue = ground.device.queue.lock(&ground.device);
        if !parts.confirm() {
            return Err(Stop::Overtaken);
        }
        let (bound, mut ending) = record(&to, &mut parts, &mut queue, kept)?;
        let recorded = queue.commands();
        queue.commit();
        drop(queue);
        parts.released(&to, &mut ending);
        self.recorded = recorded;
        self.bound = Some(bound).filter(|bound| bound.is_reusable);
        Ok(ending)
    }
}

/// Records a launch whose parts have acquired their resources: nobody else's launch comes between.
fn record(
    to: &Submission<'_>,
    parts: &mut Parts<'_>,
    queue: &mut Recorder<'_>,
    kept: Option<Box<BoundGroups>>,
) -> Result<(Box<BoundGroups>, Ending), Stop> {
    let inherits = parts.inherit(to).0;
    let outcome = (parts.follows() || !inherits.is_empty())
        .then(|| Outcome::new(Arc::clone(&to.kernel.name), inherits));
    let needed = parts.reserve(to, queue) + to.dispatches.reserve(queue);
    to.dispatches.check_room(to, queue, needed)?;
    if needed > 0 {
        queue.reserve_uniforms(needed);
    }
    let mut places = parts.place(to, queue)?;
    let bound = bind(to, parts, queue, &places, kept)?;
    // The last step with a possible refusal: nothing is recorded yet but copies to staging memory.
    parts.enter(to, queue, outcome.as_ref())?;
    parts.before(to, queue);
    to.dispatches.record(to, queue, &bound, &mut places);
    let returned = parts.after(to, queue);
    let mut ending = Ending {
        batch: queue.batch(),
        outcome,
        lost: returned.err().map(|error| lost(to, &error)),
        watch: None,
        hooks: CompletionHooks::new(),
    };
    parts.recorded(to, &mut ending);
    if let Some(outcome) = &ending.outcome {
        queue.watch(outcome, ending.watch.take(), ending.hooks.clone());
    }
    Ok((bound, ending))
}

/// The outcome of bytes not back from staging memory.
fn lost(to: &Submission<'_>, error: &LaunchError) -> Arc<Outcome> {
    let lost = Outcome::new(Arc::clone(&to.kernel.name), Vec::new());
    let message = error.to_string();
    lost.settle(Err(ExecutionError::Refused { message }));
    lost
}
