//! What a launch does with buffers of the context: it brings their bytes to its device, keeps its order with the
//! commands of other devices that use the same memory, and puts what it writes into the books.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::common::CommonMemory;
use super::context::ContextBuffers;
use super::device_allocation::DeviceAllocation;
use super::error::BufferError;
use super::hop::{End, Hop, Piece};
use super::root::{Root, State};
use crate::device::DeviceShared;
use crate::device::extension::ExtensionSlot;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::submissions::Held;
use crate::memory::buffer::BufferView;
use crate::memory::migrate::{Access, Explanation, Place, Plan, Want};

/// A part of a context's buffer, wherever its bytes are.
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

    /// Whether its buffer lives in the heap.
    pub(crate) fn is_shared(&self) -> bool {
        self.root.lock().is_shared()
    }

    /// Whether it ends where its buffer does, so that nothing lies behind it in its last word.
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

/// What a launch moves for one of its arguments, or for several that are parts of one buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArgumentMoves {
    /// The arguments, by their names in WGSL.
    pub arguments: Vec<String>,
    /// What moves, from where to where, and why; in bytes of the whole buffer.
    pub moves: Explanation,
    /// Bytes that another thread has another device write, without anybody having waited for it.
    pub conflicts: Vec<Range<u64>>,
    /// The buffer is in memory that its devices have in common, or goes there with this launch.
    pub common: Option<CommonMemory>,
}

/// What a launch moves between host and devices, and why: as data, and with `Display` as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LaunchExplanation {
    /// For each buffer of the context that the launch uses.
    pub buffers: Vec<ArgumentMoves>,
}

impl LaunchExplanation {
    /// Bytes that move, each hop counted.
    pub fn moved(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.moves.moved).sum()
    }

    /// Bytes that were wanted and need not move.
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

/// The buffers of a launch, each once, in the order in which they are locked.
pub(crate) fn roots<'u>(parts: impl Iterator<Item = &'u PartView>) -> Vec<Arc<Root>> {
    let mut roots: Vec<Arc<Root>> = parts.map(|part| Arc::clone(&part.root)).collect();
    roots.sort_by_key(|root| root.id);
    roots.dedup_by_key(|root| root.id);
    roots
}

/// The buffers of a launch, locked until it is recorded.
pub(crate) struct ResidencyGuard<'r> {
    device: Arc<DeviceShared>,
    place: Place,
    context: &'r ContextBuffers,
    roots: &'r [Arc<Root>],
    states: Vec<MutexGuard<'r, State>>,
    _held: Held,
}

/// A use that was refused, by its index, and why.
pub(crate) type Refused = (usize, BufferError);

impl<'r> ResidencyGuard<'r> {
    /// `roots` are those of [`roots`], and `extension` is the slot of the device for buffers.
    pub(crate) fn begin(
        device: &Arc<DeviceShared>,
        extension: &'r ExtensionSlot,
        roots: &'r [Arc<Root>],
    ) -> Result<Self, BufferError> {
        for root in roots {
            root.check_device(device)?;
        }
        let context: &ContextBuffers = extension.get();
        let held = Held::new("a command on buffers").map_err(Arc::new)?;
        Ok(Self {
            device: Arc::clone(device),
            place: context.place_of(device)?,
            states: roots.iter().map(|root| root.lock()).collect(),
            context,
            roots,
            _held: held,
        })
    }

    fn index(&self, root: &Root) -> usize {
        // Every use is of one of them, and they are in order.
        self.roots.partition_point(|known| known.id < root.id)
    }

    /// The uses of each buffer, by their indices.
    fn by_root<'u>(&self, uses: &'u [Use]) -> Vec<Vec<(usize, &'u Use)>> {
        let mut by_root = vec![Vec::new(); self.roots.len()];
        for (at, one) in uses.iter().enumerate() {
            by_root[self.index(&one.part.root)].push((at, one));
        }
        by_root
    }

    fn wants(&self, uses: &[(usize, &Use)]) -> Vec<Want> {
        let want = |(_, one): &(usize, &Use)| Want {
            place: self.place,
            range: one.part.range(),
            access: one.access,
        };
        uses.iter().map(want).collect()
    }

    /// Brings the books up to date, and refuses what meets mapped bytes.
    fn prepare(&mut self, by_root: &[Vec<(usize, &Use)>]) -> Result<(), Refused> {
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

    /// Has memory made, and brings the bytes that the launch needs. Afterwards they are there for all that is recorded
    /// on the device.
    pub(crate) fn bring(&mut self, uses: &[Use]) -> Result<LaunchExplanation, Refused> {
        let by_root = self.by_root(uses);
        self.prepare(&by_root)?;
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let root = &self.roots[at];
            let avoid = self.apart_from(at, &by_root);
            (root.settle_in(&mut self.states[at], &self.device, self.place, &avoid))
                .map_err(|error| (first, error))?;
        }
        let mut told = LaunchExplanation::default();
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let root = &self.roots[at];
            let wants = self.wants(uses);
            let state = &mut self.states[at];
            // Before anything is submitted, so that it does not depend on who is quick.
            let conflicts = Self::conflicts(state, self.place, uses);
            let plan = root.bring(state, &wants, &self.device, self.place);
            let plan = plan.map_err(|error| (first, error))?;
            let writes = uses.iter().any(|(_, one)| one.access.writes());
            let common = root.take_turn(state, &self.device, self.place, (&plan, writes));
            let moves = self.explain_one(uses, &plan, conflicts, common);
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

    /// The blocks of the device's memory in which a buffer must not lie: wgpu allows a buffer one use in a dispatch if
    /// anything of it is written there, and to wgpu a block is a buffer.
    fn apart_from(&self, at: usize, by_root: &[Vec<(usize, &Use)>]) -> Vec<u64> {
        let writes = |at: usize| by_root[at].iter().any(|(_, one)| one.access.writes());
        let others = (0..by_root.len()).filter(|other| *other != at);
        let meets = others.filter(|other| writes(at) || writes(*other));
        meets
            .filter_map(|other| self.states[other].copy(self.place)?.block())
            .collect()
    }

    /// What [`Self::bring`] would do. Nothing changes.
    pub(crate) fn explain(&mut self, uses: &[Use]) -> Result<LaunchExplanation, Refused> {
        let by_root = self.by_root(uses);
        self.prepare(&by_root)?;
        let mut told = LaunchExplanation::default();
        for (at, uses) in by_root.iter().enumerate() {
            let first = uses.first().map_or(0, |(index, _)| *index);
            let wants = self.wants(uses);
            // Buffers in the heap are one memory, as soon as they are used.
            let mut residency = self.states[at].residency.clone();
            if self.states[at].is_shared() {
                residency.share(Place::HOST, self.place);
            }
            let state = &self.states[at];
            if state.copy(self.place).is_none()
                && let Some(member) = self.roots[at].foresee_common(state, &self.device)
            {
                residency.share(member, self.place);
            }
            let plan = residency.plan(&wants, &self.context.routes());
            let plan = plan.map_err(|error| (first, self.roots[at].refusal(error)))?;
            let conflicts = Self::conflicts(&self.states[at], self.place, uses);
            let state = &self.states[at];
            let writes = uses.iter().any(|(_, one)| one.access.writes());
            let common =
                self.roots[at].foresee_turn(state, &self.device, self.place, (&plan, writes));
            told.buffers
                .push(self.explain_one(uses, &plan, conflicts, common));
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
        uses: &[(usize, &Use)],
        plan: &Plan,
        conflicts: Vec<Range<u64>>,
        common: Option<CommonMemory>,
    ) -> ArgumentMoves {
        ArgumentMoves {
            arguments: uses.iter().map(|(_, one)| one.argument.clone()).collect(),
            moves: plan.explain(|place| self.context.name_of(place)),
            conflicts,
            common,
        }
    }

    /// In memory that several devices see, what is recorded from now on comes behind what others do there.
    fn keep_order(&mut self, by_root: &[Vec<(usize, &Use)>]) {
        let mut earlier: Vec<(Arc<DeviceShared>, Arc<Batch>)> = Vec::new();
        for (at, uses) in by_root.iter().enumerate() {
            let state = &self.states[at];
            let is_common = state
                .copy(self.place)
                .is_some_and(DeviceAllocation::is_common);
            if !state.is_shared() && !is_common {
                continue;
            }
            for (_, one) in uses {
                let range = one.part.range();
                for found in self.states[at].before(&self.device, self.place, &range, one.access) {
                    if !earlier
                        .iter()
                        .any(|(_, batch)| Arc::ptr_eq(batch, &found.1))
                    {
                        earlier.push(found);
                    }
                }
            }
        }
        let Some((source, _)) = earlier.last() else {
            return;
        };
        let source = Arc::clone(source);
        let mut pieces = Vec::with_capacity(earlier.len());
        for (device, batch) in earlier {
            if batch.submission().is_none() {
                // What went wrong is what its events tell.
                device.complete_dependencies(None);
                device.submit(&batch);
            }
            pieces.push(Piece::End(End::of(&device, batch)));
        }
        // Whether they went well is what their own outcomes tell.
        let outcome = Outcome::new("the order between devices".into(), Vec::new());
        let hop = Hop::new(pieces, outcome);
        let mut queue = self.device.queue.lock(&self.device);
        if queue.has_commands() && !queue.dependencies().has_held() {
            let _ = queue.flush();
        }
        queue.dependencies().hold_for(Arc::clone(&hop) as _);
        // So that there is something to submit.
        queue.encode(|_| {});
        drop(queue);
        self.context
            .transfer_thread
            .send(&hop, &source, &self.device);
    }

    /// The part as the device sees it.
    pub(crate) fn view(&self, part: &PartView) -> Result<BufferView, BufferError> {
        let state = &self.states[self.index(&part.root)];
        state.view_on(&self.device, self.place, part)
    }

    /// The launch is recorded: what it writes is a new version. `outcome` is the launch's own; what arguments hold that
    /// travelled through other memory is taken from there.
    pub(crate) fn recorded(
        &mut self,
        uses: &[Use],
        batch: &Arc<Batch>,
        outcome: Option<&Arc<Outcome>>,
    ) {
        let now = self.context.tick();
        for one in uses {
            let at = self.index(&one.part.root);
            let state = &mut *self.states[at];
            let range = one.part.range();
            let writes = one.access.writes();
            if writes {
                // Within the buffer, since parts are.
                let _ = state.residency.wrote(self.place, range.clone());
            }
            if let Some(copy) = state.copy_mut(self.place) {
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
            state.begin(&self.device, self.place, &range, one.access, batch, false);
        }
    }

    /// What a part holds depends on these outcomes.
    pub(super) fn poison(&mut self, part: &PartView, outcomes: &[Arc<Outcome>]) {
        let at = self.index(&part.root);
        if let Some(copy) = self.states[at].copy(self.place) {
            let range = part.range();
            for outcome in outcomes {
                copy.poison(&range, outcome);
            }
        }
    }

    /// The outcomes that decide about what a part holds.
    pub(crate) fn depends_on(&mut self, part: &PartView) -> Vec<Arc<Outcome>> {
        let at = self.index(&part.root);
        let state = &mut *self.states[at];
        match state.copy(self.place) {
            Some(_) => state.depends_on(self.place, &part.range()),
            None => state.host_taint.touching(&part.range()),
        }
    }
}

impl Root {
    pub(super) fn check_device(&self, device: &DeviceShared) -> Result<(), BufferError> {
        if Arc::ptr_eq(&self.extension, &device.buffers_extension) {
            return Ok(());
        }
        Err(BufferError::OtherContext {
            device: device.capabilities.name.clone(),
        })
    }

    /// Brings what is wanted at `place`, whose memory is there, and puts it into the books.
    pub(super) fn bring(
        &self,
        state: &mut State,
        wants: &[Want],
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> Result<Plan, BufferError> {
        loop {
            let routes = self.context().routes();
            let plan = state.residency.plan(wants, &routes);
            let plan = plan.map_err(|error| self.refusal(error))?;
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
                    // Where a source was lost meanwhile, others may have the bytes.
                    if !state.suspect_losses() || state.copy(place).is_none() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Bytes that only went through the host's hands are not kept there.
    fn forget_passage(&self, state: &mut State, plan: &Plan) -> Result<(), BufferError> {
        for step in plan.steps.iter().filter(|step| step.to.is_host()) {
            let dropped = state.residency.evicted(Place::HOST, step.range.clone());
            dropped.map_err(|error| self.refusal(error))?;
        }
        Ok(())
    }
}
