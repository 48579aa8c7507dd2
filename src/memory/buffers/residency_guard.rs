//! A launch's lock on buffers of the context.
//!
//! The guard brings the bytes to the launch's device, orders the launch behind commands of other devices in the same
//! memory, and enters the launch's writes into the books.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::common::CommonMemory;
use super::context::ContextBuffers;
use super::device_allocation::DeviceAllocation;
use super::error::BufferError;
use super::hop::{End, Hop, Piece, has_come};
use super::root::{Locked, Root, State};
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::submissions::Held;
use crate::memory::buffer::BufferView;
use crate::memory::migrate::{Access, Explanation, Place, Plan, Want};

/// A part of a context's buffer.
#[derive(Debug, Clone)]
pub(crate) struct PartView {
    pub(crate) root: Arc<Root>,
    /// First byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    pub(crate) element_bytes: usize,
    pub(crate) element: &'static str,
}

impl PartView {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    /// Whether the buffer lives in the heap.
    pub(crate) fn is_shared(&self) -> bool {
        self.root.is_shared()
    }

    /// Whether the part ends with the buffer, so that the last word holds no other bytes.
    pub(crate) fn is_last(&self) -> bool {
        self.offset + self.bytes == self.root.bytes
    }
}

/// A use of a part by a launch.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) part: PartView,
    pub(crate) access: Access,
    /// The argument's name.
    pub(crate) argument: String,
}

/// Moves of a launch for one argument, or for several arguments that are parts of one buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArgumentMoves {
    /// The arguments' names in WGSL.
    pub arguments: Vec<String>,
    /// The moves, with sources, targets and reasons; in bytes of the whole buffer.
    pub moves: Explanation,
    /// Bytes written at the same time by another thread's command on another device, without a wait in between.
    pub conflicts: Vec<Range<u64>>,
    /// The buffer is in memory common to its devices, or moves there with this launch.
    pub common: Option<CommonMemory>,
}

/// A launch's moves between host and devices, with reasons: as data, and with `Display` as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LaunchExplanation {
    /// For each buffer of the context used by the launch.
    pub buffers: Vec<ArgumentMoves>,
}

/// The launch's event finds the moves by this hook.
impl CompletionHook for LaunchExplanation {}

impl LaunchExplanation {
    /// Bytes that move, each hop counted.
    pub fn moved(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.moves.moved).sum()
    }

    /// Wanted bytes that need not move.
    pub fn avoided(&self) -> u64 {
        let avoided = self
            .buffers
            .iter()
            .map(|buffer| buffer.moves.avoided.total());
        avoided.sum()
    }
}

impl fmt::Display for LaunchExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.buffers.is_empty() {
            return f.write_str("no buffer of the context is used");
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let names: Vec<String> = buffer
                .arguments
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            write!(f, "{}:", names.join(", "))?;
            for line in buffer.moves.to_string().lines() {
                write!(f, "\n  {line}")?;
            }
            if let Some(common) = &buffer.common {
                write!(f, "\n  {common}")?;
            }
            for range in &buffer.conflicts {
                let Range { start, end } = range;
                write!(
                    f,
                    "\n  conflict: another thread has another device write bytes {start}..{end}, and nobody has waited"
                )?;
            }
        }
        Ok(())
    }
}

/// The buffers of a launch, each once, in the order of locking.
pub(crate) fn roots<'u>(parts: impl Iterator<Item = &'u PartView>) -> Vec<Arc<Root>> {
    let mut roots: Vec<Arc<Root>> = parts.map(|part| Arc::clone(&part.root)).collect();
    roots.sort_by_key(|root| root.id);
    roots.dedup_by_key(|root| root.id);
    roots
}

/// The uses of one buffer, by their indices.
type UsesOf<'u> = SmallVec<[(usize, &'u Use); 2]>;
/// The uses of each buffer of a launch.
type ByRoot<'u> = SmallVec<[UsesOf<'u>; 4]>;

/// The buffers of a launch, locked until the launch is recorded.
pub(crate) struct ResidencyGuard<'r> {
    device: Arc<DeviceShared>,
    context: &'r ContextBuffers,
    roots: &'r [Arc<Root>],
    states: Vec<Locked<'r>>,
    /// The device's place in each buffer.
    places: Vec<Place>,
    _held: Held,
}

/// A refused use, by its index, and the reason.
pub(crate) type Refused = (usize, BufferError);

impl<'r> ResidencyGuard<'r> {
    /// `roots` come from [`roots`], and `context` is of the device's context.
    pub(crate) fn begin(
        device: &Arc<DeviceShared>,
        context: &'r ContextBuffers,
        roots: &'r [Arc<Root>],
    ) -> Result<Self, BufferError> {
        for root in roots {
            root.check_device(device)?;
        }
        let held = Held::new("a command on buffers").map_err(Arc::new)?;
        let mut states: Vec<Locked<'r>> = roots.iter().map(|root| root.lock()).collect();
        let mut places = Vec::with_capacity(roots.len());
        for (root, state) in roots.iter().zip(&mut states) {
            places.push(root.place_on(state, device)?);
        }
        Ok(Self {
            device: Arc::clone(device),
            states,
            places,
            context,
            roots,
            _held: held,
        })
    }

    fn index(&self, root: &Root) -> usize {
        // The root of every use is in `roots`, which is sorted.
        self.roots.partition_point(|known| known.id < root.id)
    }

    /// The uses of each buffer, by their indices.
    fn by_root<'u>(&self, uses: &'u [Use]) -> ByRoot<'u> {
        let mut by_root: ByRoot<'u> = smallvec![UsesOf::new(); self.roots.len()];
        for (at, one) in uses.iter().enumerate() {
            by_root[self.index(&one.part.root)].push((at, one));
        }
        by_root
    }

    fn wants(&self, at: usize, uses: &[(usize, &Use)]) -> SmallVec<[Want; 2]> {
        let want = |(_, one): &(usize, &Use)| Want {
            place: self.places[at],
            range: one.part.range(),
            access: one.access,
        };
        uses.iter().map(want).collect()
    }

    /// Removes what was lost or has ended from the books, and refuses uses of mapped bytes.
    fn prepare(&mut self, by_root: &[UsesOf<'_>]) -> Result<(), Refused> {
        for (state, uses) in self.states.iter_mut().zip(by_root) {
            state.notice_losses();
            state.forget_ended();
            for (index, one) in uses {
                state
                    .check_maps("a launch", &one.part.range(), one.access.writes(), None)
                    .map_err(|error| (*index, error))?;
            }
        }
        Ok(())
    }

    /// Has memory made, and brings the bytes for `uses`. Afterwards all commands recorded on the device find the bytes.
    pub(crate) fn bring(&mut self, uses: &[Use]) -> Result<LaunchExplanation, Refused> {
        let by_root = self.by_root(uses);
        self.prepare(&by_root)?;
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let root = &self.roots[at];
            let avoid = self.apart_from(at, &by_root);
            (root.settle_in(&mut self.states[at], &self.device, self.places[at], &avoid))
                .map_err(|error| (first, error))?;
        }
        let mut told = LaunchExplanation::default();
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let root = &self.roots[at];
            let wants = self.wants(at, uses);
            let place = self.places[at];
            let state = &mut self.states[at];
            // Before any submission, so that the result does not depend on a race.
            let conflicts = Self::conflicts(state, place, uses);
            let plan = root.bring(state, &wants, &self.device, place);
            let plan = plan.map_err(|error| (first, error))?;
            let common = root.take_turn(state, &self.device, place, (&plan, &wants));
            let moves = self.explain_one(at, uses, &plan, conflicts, common);
            if !moves.conflicts.is_empty() {
                self.states[at].statistics.conflicts += 1;
                self.context.count(|totals| totals.conflicts += 1);
                log::warn!(
                    "{}: {} of a buffer that another thread has another device write: wait for one of the two",
                    self.device.capabilities.name,
                    moves.arguments.join(", ")
                );
            }
            told.buffers.push(moves);
        }
        self.keep_order(&by_root);
        Ok(told)
    }

    /// The blocks of the device's memory forbidden to a buffer: wgpu allows a written buffer one use in a dispatch, and
    /// a block is one buffer to wgpu.
    fn apart_from(&self, at: usize, by_root: &[UsesOf<'_>]) -> Vec<u64> {
        let writes = |at: usize| by_root[at].iter().any(|(_, one)| one.access.writes());
        let others = (0..by_root.len()).filter(|other| *other != at);
        let meets = others.filter(|other| writes(at) || writes(*other));
        meets
            .filter_map(|other| self.states[other].copy(self.places[other])?.block())
            .collect()
    }

    /// The result of [`Self::bring`], without a change.
    pub(crate) fn explain(&mut self, uses: &[Use]) -> Result<LaunchExplanation, Refused> {
        let by_root = self.by_root(uses);
        self.prepare(&by_root)?;
        let mut told = LaunchExplanation::default();
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let wants = self.wants(at, uses);
            let place = self.places[at];
            // A buffer in the heap is one memory from the first use on.
            let mut residency = self.states[at].residency.clone();
            if self.states[at].is_shared() {
                residency.share(Place::HOST, place);
            }
            let state = &self.states[at];
            if state.copy(place).is_none()
                && let Some(member) = self.roots[at].foresee_common(state, &self.device)
            {
                residency.share(member, place);
            }
            let plan = residency.plan(&wants, &self.states[at].routes);
            let plan = plan.map_err(|error| (first, self.states[at].refusal(error)))?;
            let conflicts = Self::conflicts(&self.states[at], place, uses);
            let state = &self.states[at];
            let common = self.roots[at].foresee_turn(state, &self.device, place, (&plan, &wants));
            told.buffers
                .push(self.explain_one(at, uses, &plan, conflicts, common));
        }
        Ok(told)
    }

    fn conflicts(state: &State, place: Place, uses: &[(usize, &Use)]) -> Vec<Range<u64>> {
        let all = uses.iter();
        all.flat_map(|(_, one)| state.rivals(place, &one.part.range(), one.access))
            .collect()
    }

    fn explain_one(
        &self,
        at: usize,
        uses: &[(usize, &Use)],
        plan: &Plan,
        conflicts: Vec<Range<u64>>,
        common: Option<CommonMemory>,
    ) -> ArgumentMoves {
        ArgumentMoves {
            arguments: uses.iter().map(|(_, one)| one.argument.clone()).collect(),
            moves: plan.explain(|place| self.states[at].devices.name_of(place)),
            conflicts,
            common,
        }
    }

    /// Orders later commands on this device behind earlier ones of other devices in common memory.
    fn keep_order(&mut self, by_root: &[UsesOf<'_>]) {
        let mut earlier: Vec<(Arc<DeviceShared>, Arc<Batch>)> = Vec::new();
        for (at, uses) in by_root.iter().enumerate() {
            let place = self.places[at];
            let state = &self.states[at];
            let is_common = state.copy(place).is_some_and(DeviceAllocation::is_common);
            if !state.is_shared() && !is_common {
                continue;
            }
            for (_, one) in uses {
                let range = one.part.range();
                for found in self.states[at].before(&self.device, place, &range, one.access) {
                    if !earlier
                        .iter()
                        .any(|(_, batch)| Arc::ptr_eq(batch, &found.1))
                    {
                        earlier.push(found);
                    }
                }
            }
        }
        for (device, batch) in &earlier {
            if batch.submission().is_none() {
                // Failures are reported by the batch's events.
                device.complete_dependencies(None);
                device.submit(batch);
            }
        }
        earlier.retain(|(source, batch)| !has_come(source, batch, &self.device));
        let Some((source, _)) = earlier.last() else {
            return;
        };
        let source = Arc::clone(source);
        let ends = (earlier.into_iter()).map(|(device, batch)| End::of(&device, batch));
        let pieces = ends.map(Piece::End).collect();
        // Failures are reported by the batches' own outcomes.
        let outcome = Outcome::new("the order between devices".into(), Vec::new());
        let hop = Hop::new(pieces, outcome);
        let mut queue = self.device.queue.lock(&self.device);
        if queue.has_commands() {
            queue.pass_on();
        }
        queue.dependencies().hold_for(Arc::clone(&hop) as _);
        // So that the batch is not empty.
        queue.encode(|_| {});
        drop(queue);
        self.context
            .transfer_threads
            .send(&hop, &source, &self.device);
    }

    /// The part as a binding on the device.
    pub(crate) fn view(&self, part: &PartView) -> Result<BufferView, BufferError> {
        let at = self.index(&part.root);
        self.states[at].view_on(&self.device, self.places[at], part)
    }

    /// After recording: enters the launch's writes as new versions. `outcome` decides about the written bytes: the
    /// launch's own, or the outcome of bytes lost on the way back from staging memory.
    pub(crate) fn recorded(
        &mut self,
        uses: &[Use],
        batch: &Arc<Batch>,
        outcome: Option<&Arc<Outcome>>,
    ) {
        let now = self.context.tick();
        for one in uses {
            let at = self.index(&one.part.root);
            let place = self.places[at];
            let state = &mut *self.states[at];
            let range = one.part.range();
            let writes = one.access.writes();
            if writes {
                // Cannot fail: parts are within the buffer.
                let _ = state.residency.wrote(place, range.clone());
            }
            if let Some(copy) = state.copy_mut(place) {
                copy.used(batch, writes.then(|| range.clone()), now);
                if writes && one.access == Access::Overwrite {
                    copy.overwritten(&range);
                }
                if let (true, Some(outcome)) = (writes, outcome) {
                    copy.poison(&range, outcome);
                }
            } else if writes {
                if one.access == Access::Overwrite {
                    state.host_taint.overwrite(&range);
                }
                if let Some(outcome) = outcome {
                    state.host_taint.add(range.clone(), outcome);
                }
            }
            state.begin(&self.device, place, &range, one.access, batch, false);
        }
    }

    /// After [`Self::recorded`]: sends what other devices are going to fetch of the written bytes.
    pub(crate) fn send_ahead(&mut self, uses: &[Use]) {
        let mut is_awaited = false;
        for one in uses.iter().filter(|one| one.access.writes()) {
            let at = self.index(&one.part.root);
            let (state, place) = (&mut self.states[at], self.places[at]);
            is_awaited |= self.roots[at].send_ahead(state, place, &one.part.range());
        }
        let device = &self.device;
        // An idle device works while the others' next launches are recorded, instead of waiting until they ask for its own.
        let can_begin = device.capabilities.software && device.capabilities.works_beside();
        if is_awaited && can_begin && device.submissions.needs_more() {
            device.queue.lock(device).pass_on();
        }
    }

    /// Poisons a part by these outcomes.
    pub(super) fn poison(&mut self, part: &PartView, outcomes: &[Arc<Outcome>]) {
        let at = self.index(&part.root);
        if let Some(copy) = self.states[at].copy(self.places[at]) {
            let range = part.range();
            for outcome in outcomes {
                copy.poison(&range, outcome);
            }
        }
    }

    /// The outcomes on which the bytes of a part depend.
    pub(crate) fn depends_on(&mut self, part: &PartView) -> Vec<Arc<Outcome>> {
        let at = self.index(&part.root);
        let place = self.places[at];
        let state = &mut *self.states[at];
        match state.copy(place) {
            Some(_) => state.depends_on(place, &part.range()),
            None => state.host_taint.touching(&part.range()),
        }
    }
}

impl Root {
    pub(super) fn check_device(&self, device: &DeviceShared) -> Result<(), BufferError> {
        if Arc::ptr_eq(&self.extensions, &device.context) {
            return Ok(());
        }
        Err(BufferError::OtherContext {
            device: device.capabilities.name.clone(),
        })
    }

    /// Brings the wanted bytes to `place`, which has memory, and commits the plan.
    pub(super) fn bring(
        &self,
        state: &mut State,
        wants: &[Want],
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<Plan, BufferError> {
        loop {
            let plan = state.residency.plan(wants, &state.routes);
            let plan = plan.map_err(|error| state.refusal(error))?;
            if plan.steps.is_empty() {
                self.commit(state, &plan)?;
                return Ok(plan);
            }
            match self.carry(state, &plan, device, place) {
                Ok(_) => {
                    self.commit(state, &plan)?;
                    self.forget_passage(state, &plan)?;
                    return Ok(plan);
                }
                Err(error) => {
                    // After the loss of a source, others may have the bytes.
                    if !state.suspect_losses() || state.copy(place).is_none() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Drops the host's copy of bytes that only passed through the host.
    fn forget_passage(&self, state: &mut State, plan: &Plan) -> Result<(), BufferError> {
        for step in plan.steps.iter().filter(|step| step.to.is_host()) {
            let dropped = state.residency.evicted(Place::HOST, step.range.clone());
            dropped.map_err(|error| state.refusal(error))?;
        }
        Ok(())
    }
}
