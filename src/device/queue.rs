//! The in-order queue: commands are recorded into an open batch, and a batch is a single submission.
//!
//! Consecutive launches share a compute pass: a batch of launches costs as much as the same dispatches in raw wgpu, and
//! state already bound is not bound again. Small uniform values of a batch are gathered on the host and written with a
//! single copy when the batch is submitted.
//!
//! Kernels reach uniform values by dynamic offsets, so a new value needs no new bind group. A batch full of values is
//! closed and stands in line; the recording thread goes on with the queue in hand, and the next command submits the
//! batch, unless it waits for another device: such batches are submitted by the thread that completes what they wait for.
//!
//! Error scopes of wgpu surround every call that wgpu might refuse, and a caught error becomes a typed one. A device
//! opened by the runtime also has a handler for errors without a scope, which logs them instead of ending the process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::DeviceShared;
use super::external_dependency::{ExternalDependencies, ExternalDependency};
use super::outcome::ExecutionError;
use super::profile::{Profiler, TimingSlot};
use super::status::{PendingMirror, Record, StatusPool};
pub(crate) use super::submissions::Batch;
use super::submissions::{ClosedBatch, Commands, in_handler};

pub(super) mod settle;
mod uniforms;

use settle::Unsettled;
use uniforms::UniformRing;

/// Batches in line that wait for other devices, before a thread that records more waits as well.
const MOST_IN_LINE: usize = 4;

/// How long such a thread leaves the others' work to others.
const TURN_TIMEOUT: Duration = Duration::from_millis(2);

/// Turns a status record into the verdict of its launch.
pub(crate) type Decoder = Arc<dyn Fn(&Record) -> Result<(), ExecutionError> + Send + Sync>;

/// The record to read after the launch, and its meaning.
pub(crate) struct Watch {
    pub(crate) record: u32,
    pub(crate) decode: Decoder,
}

/// The dispatch part of a launch.
pub(crate) enum Dispatch<'a> {
    Direct([u32; 3]),
    Indirect(&'a wgpu::Buffer, u64),
}

/// A bind group for binding by a launch.
pub(crate) struct Bound<'a> {
    pub(crate) index: u32,
    pub(crate) group: &'a wgpu::BindGroup,
    pub(crate) offsets: &'a [u32],
}

pub(crate) struct Queue {
    state: Mutex<State>,
}

pub(crate) struct State {
    batch: Arc<Batch>,
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<OpenPass>,
    commands: u32,
    /// The dependencies of the open batch.
    dependencies: ExternalDependencies,
    uniforms: UniformRing,
    status: Option<StatusPool>,
    unsettled: VecDeque<Unsettled>,
    profiler: Option<Profiler>,
    submissions: u64,
}

/// The dynamic offsets of a bind group.
type Offsets = SmallVec<[u32; 4]>;

struct OpenPass {
    pass: wgpu::ComputePass<'static>,
    pipeline: Option<wgpu::ComputePipeline>,
    groups: SmallVec<[Option<(wgpu::BindGroup, Offsets)>; 4]>,
}

impl Queue {
    pub(crate) fn new(limits: &wgpu::Limits) -> Self {
        Self {
            state: Mutex::new(State {
                batch: Arc::default(),
                encoder: None,
                pass: None,
                commands: 0,
                dependencies: ExternalDependencies::default(),
                uniforms: UniformRing::new(limits),
                status: None,
                unsettled: VecDeque::new(),
                profiler: None,
                submissions: 0,
            }),
        }
    }

    pub(crate) fn lock<'d>(&'d self, device: &'d DeviceShared) -> Recorder<'d> {
        Recorder {
            device,
            state: self.state.lock(),
        }
    }
}

/// The queue, held: everything recorded through a recorder is consecutive, except for commands let in by
/// [`Recorder::flush`] and [`Recorder::commit`], which release the queue while wgpu submits.
pub(crate) struct Recorder<'d> {
    device: &'d DeviceShared,
    state: MutexGuard<'d, State>,
}

impl Recorder<'_> {
    /// The batch that the next command goes into.
    pub(crate) fn batch(&self) -> Arc<Batch> {
        Arc::clone(&self.state.batch)
    }

    /// Whether a recorded command may not have reached wgpu yet, in which case wgpu's own writes would overtake the
    /// command.
    pub(crate) fn has_commands(&self) -> bool {
        self.state.commands > 0 || self.device.submissions.last_in_line().is_some()
    }

    pub(crate) fn submissions(&self) -> u64 {
        self.state.submissions
    }

    /// The status buffer, created on first use.
    pub(crate) fn status_buffer(&mut self) -> wgpu::Buffer {
        let device = self.device;
        self.state
            .status
            .get_or_insert_with(|| device.new_status_pool())
            .buffer()
            .clone()
    }

    /// Takes a status record; `None` when all are in flight, see [`DeviceShared::limit_records`].
    pub(crate) fn take_record(&mut self) -> Option<(u32, u32)> {
        let _ = self.status_buffer();
        let pool = self.state.status.as_mut()?;
        let record = pool.take()?;
        let offset = pool.offset(record);
        if !pool.is_live() {
            self.end_pass();
            self.open_encoder();
            let state = &mut *self.state;
            if let (Some(pool), Some(encoder)) = (&state.status, state.encoder.as_mut()) {
                pool.prepare(encoder, record);
            }
        }
        Some((record, offset))
    }

    /// Takes a record back that no launch will use.
    pub(crate) fn give_back_record(&mut self, record: u32) {
        if let Some(pool) = self.state.status.as_mut() {
            pool.release(record);
        }
    }

    /// Records one launch; `timing` asks for a pass of its own between two timestamps.
    pub(crate) fn launch(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        groups: &[Bound<'_>],
        immediates: &[u8],
        dispatch: &Dispatch<'_>,
    ) {
        self.open_pass(None);
        if let Some(open) = self.state.pass.as_mut() {
            open.record(pipeline, groups, immediates, dispatch);
        }
        self.state.commands += 1;
    }

    /// Opens a separate pass for the launches until [`Self::end_timed`], with timestamps around the pass.
    pub(crate) fn begin_timed(&mut self) -> TimingSlot {
        self.end_pass();
        let device = self.device;
        let slot = self
            .state
            .profiler
            .get_or_insert_with(|| Profiler::new(&device.raw, &device.queue_raw))
            .take(&device.raw, device.capabilities.is_lavapipe());
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            slot.begin(encoder);
        }
        self.open_pass(Some(&slot));
        slot
    }

    pub(crate) fn end_timed(&mut self, slot: &TimingSlot) {
        self.end_pass();
        if let Some(encoder) = self.state.encoder.as_mut() {
            slot.end(encoder);
        }
    }

    fn open_encoder(&mut self) {
        if self.state.encoder.is_none() {
            let encoder = self
                .device
                .raw
                .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
            self.state.encoder = Some(encoder);
        }
    }

    fn open_pass(&mut self, timing: Option<&TimingSlot>) {
        if self.state.pass.is_some() {
            return;
        }
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            let pass = encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: timing.and_then(TimingSlot::of_launch),
                })
                .forget_lifetime();
            self.state.pass = Some(OpenPass {
                pass,
                pipeline: None,
                groups: SmallVec::new(),
            });
        }
    }

    fn end_pass(&mut self) {
        self.state.pass = None;
    }

    /// Puts a debug marker before what is recorded next. A marker is no command: batches are as long as without.
    #[cfg(embedded)]
    pub(crate) fn mark(&mut self, marker: &str) {
        self.end_pass();
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            encoder.insert_debug_marker(marker);
        }
    }

    /// Records a command that belongs outside compute passes (a copy, a fill).
    pub(crate) fn encode(&mut self, command: impl FnOnce(&mut wgpu::CommandEncoder)) {
        self.end_pass();
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            command(encoder);
        }
        self.state.commands += 1;
    }

    /// The dependencies of the open batch.
    pub(crate) fn dependencies(&mut self) -> &mut ExternalDependencies {
        &mut self.state.dependencies
    }

    /// Ends a command: submits the batch when full, unless the batch has pending dependencies and is not far too full, or
    /// this thread serves a call of a kernel on the device, behind which drivers may have a submission wait. The last
    /// step with a recorder, since the queue may be released.
    pub(crate) fn commit(&mut self) {
        let submissions = &self.device.submissions;
        if submissions.is_served_here() && !submissions.is_idle() {
            return;
        }
        let (full, commands) = (self.device.options.max_batch, self.state.commands);
        let is_full = commands >= full && {
            let in_line = self.device.submissions.pending();
            (self.state.dependencies).may_go(commands / full.max(1), &in_line)
        };
        if is_full {
            // The batch's events carry the error.
            let _ = self.flush();
        } else if self.device.submissions.last_in_line().is_some() {
            // Batches that were closed for having too many values, or for what they waited for.
            self.submit_ready();
            self.keep_line_short();
        }
    }

    /// Closes the open batch, which waits for other devices, so that what is recorded next does not wait with it. The batch
    /// is submitted by the thread that completes its dependencies; without any, now.
    pub(crate) fn pass_on(&mut self) {
        if self.pending().is_empty() {
            // Failures are reported by the batches' events.
            let _ = self.flush();
            return;
        }
        self.line_up([]);
        self.keep_line_short();
    }

    /// Waits while more batches than a few are in line for other devices. Releases the queue meanwhile.
    fn keep_line_short(&mut self) {
        let submissions = &self.device.submissions;
        while let Some(oldest) = submissions.in_line_before(MOST_IN_LINE) {
            let mut may_wait = !submissions.never_blocks();
            MutexGuard::unlocked(&mut self.state, || {
                // The thread that completes dependencies is not helped as long as it gets on: one that waits for another
                // one's work is woken late.
                if may_wait && !submissions.await_turn_of(&oldest, TURN_TIMEOUT) {
                    may_wait = submissions.complete_until(&oldest, None);
                }
            });
            if !may_wait {
                // Threads that serve calls of kernels are refused.
                return;
            }
            self.submit_ready();
        }
    }

    /// Submits the batches in line whose dependencies are complete.
    pub(crate) fn submit_ready(&mut self) {
        if let Some(ready) = self.device.submissions.last_ready() {
            self.submit_until(&ready);
        }
    }

    /// The incomplete dependencies of all that is recorded and not submitted.
    pub(crate) fn pending(&mut self) -> Vec<Arc<dyn ExternalDependency>> {
        let mut pending = self.device.submissions.pending();
        pending.extend_from_slice(self.state.dependencies.pending());
        pending
    }

    /// Submits the open batch, if there are commands, after its dependencies: other dependencies are better completed
    /// before a thread takes the queue ([`DeviceShared::complete_dependencies`]). Releases the queue meanwhile: wgpu
    /// runs callbacks of the program during a submission. Inside a callback that a submission runs, the batch is
    /// submitted at once, too.
    pub(crate) fn flush(&mut self) -> Result<(), Arc<ExecutionError>> {
        self.complete_dependencies(true)?;
        let own = self.close();
        if own.is_none() {
            // Values of refused launches: no recorded command uses them.
            self.state.uniforms.clear();
        }
        let Some(last) = own
            .clone()
            .or_else(|| self.device.submissions.last_in_line())
        else {
            return Ok(());
        };
        self.submit_until(&last);
        self.settle();
        match own.as_ref().and_then(|own| own.submission()) {
            Some(Err(error)) => Err(Arc::clone(error)),
            _ => Ok(()),
        }
    }

    /// Completes what the line waits for, and what the open batch does, without the queue in hand.
    fn complete_dependencies(&mut self, with_open: bool) -> Result<(), Arc<ExecutionError>> {
        loop {
            let mut pending = self.device.submissions.pending();
            if with_open && self.state.encoder.is_some() {
                pending.extend_from_slice(self.state.dependencies.pending());
            }
            if pending.is_empty() {
                return Ok(());
            }
            let mut are_complete = false;
            MutexGuard::unlocked(&mut self.state, || {
                are_complete = (pending.iter()).all(|dependency| dependency.complete(None));
            });
            if !are_complete {
                // The batches stay, and go when their dependencies are complete.
                let what = "a batch that comes behind what another device does";
                return Err(Arc::new(in_handler(what)));
            }
        }
    }

    /// Submits `commands` in front of the open batch, and at once, behind what the line waits for. What others record
    /// meanwhile comes behind the commands.
    pub(crate) fn submit_now(
        &mut self,
        commands: wgpu::CommandBuffer,
    ) -> Result<Arc<Batch>, Arc<ExecutionError>> {
        let batch = self.send_now(commands)?;
        match batch.submission() {
            Some(Err(error)) => Err(Arc::clone(error)),
            _ => Ok(batch),
        }
    }

    /// As [`Self::submit_now`], with the batch of commands that were refused, too: what they use may be in use nevertheless.
    /// An error says that they stay unsubmitted.
    pub(crate) fn send_now(
        &mut self,
        commands: wgpu::CommandBuffer,
    ) -> Result<Arc<Batch>, Arc<ExecutionError>> {
        self.complete_dependencies(false)?;
        let closed = ClosedBatch::of(commands);
        let batch = Arc::clone(&closed.batch);
        self.device.submissions.enqueue(closed);
        self.submit_until(&batch);
        Ok(batch)
    }

    /// Whether nothing was recorded that has not ended.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_commands() && self.device.submissions.is_idle()
    }

    /// Closes the open batch, and puts others in line right behind it: nothing that anybody records comes between. They
    /// are submitted by whoever asks for one of them, or for something behind them.
    pub(crate) fn line_up(&mut self, followers: impl IntoIterator<Item = ClosedBatch>) {
        if self.close().is_none() {
            self.state.uniforms.clear();
        }
        for closed in followers {
            self.device.submissions.enqueue(closed);
        }
    }

    /// Submits what is in line, up to this batch. Lets go of the queue meanwhile.
    pub(crate) fn submit_until(&mut self, batch: &Batch) {
        if batch.submission().is_some() {
            return;
        }
        let device = self.device;
        device.residents.submitting();
        MutexGuard::unlocked(&mut self.state, || {
            device.submissions.drive(&device.queue_raw, batch);
        });
    }

    /// Puts the open batch in line, if there are commands.
    fn close(&mut self) -> Option<Arc<Batch>> {
        self.end_pass();
        let device = self.device;
        let state = &mut *self.state;
        let mut encoder = state.encoder.take()?;
        let batch = std::mem::take(&mut state.batch);
        state.commands = 0;
        state.submissions += 1;
        let own = |unsettled: &&mut Unsettled| Arc::ptr_eq(&unsettled.batch, &batch);
        let records_used = (state.unsettled.iter_mut().filter(own)).any(|one| one.watch.is_some());
        let mut mirrors = Vec::new();
        let (commands, refused) = super::capture(&device.raw, || {
            if let (Some(pool), true) = (&state.status, records_used) {
                mirrors.extend(pool.collect(&device.raw, &device.downloads, &mut encoder));
            }
            if let Some(profiler) = state.profiler.as_mut() {
                profiler.resolve(&device.raw, &device.downloads, &mut encoder, &mut mirrors);
            }
            encoder.finish()
        });
        let mirror = mirrors.first().filter(|_| records_used);
        let mirror = mirror.map(PendingMirror::mirror);
        let mut hooks = Vec::new();
        for unsettled in state.unsettled.iter_mut().filter(own) {
            unsettled.mirror.clone_from(&mirror);
            hooks.extend(unsettled.hooks());
        }
        let uniforms = state.uniforms.take(device.submissions.spare());
        device.submissions.enqueue(ClosedBatch {
            batch: Arc::clone(&batch),
            commands: Commands::Made(commands),
            uniforms,
            dependencies: std::mem::take(&mut state.dependencies),
            mirrors,
            hooks,
            refused,
        });
        Some(batch)
    }
}

impl OpenPass {
    fn record(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        groups: &[Bound<'_>],
        immediates: &[u8],
        dispatch: &Dispatch<'_>,
    ) {
        if self.pipeline.as_ref() != Some(pipeline) {
            self.pass.set_pipeline(pipeline);
            self.pipeline = Some(pipeline.clone());
            // A pipeline with another layout invalidates the bindings.
            self.groups.clear();
        }
        for bound in groups {
            let at = bound.index as usize;
            if self.groups.len() <= at {
                self.groups.resize(at + 1, None);
            }
            let (index, group, offsets) = (bound.index, bound.group, bound.offsets);
            match &mut self.groups[at] {
                Some((known, at_offsets)) if known == group => {
                    if at_offsets.as_slice() != offsets {
                        self.pass.set_bind_group(index, group, offsets);
                        at_offsets.clear();
                        at_offsets.extend_from_slice(offsets);
                    }
                }
                other => {
                    self.pass.set_bind_group(index, group, offsets);
                    *other = Some((group.clone(), Offsets::from_slice(offsets)));
                }
            }
        }
        if !immediates.is_empty() {
            self.pass.set_immediates(0, immediates);
        }
        match dispatch {
            Dispatch::Direct([x, y, z]) => self.pass.dispatch_workgroups(*x, *y, *z),
            Dispatch::Indirect(buffer, offset) => {
                self.pass.dispatch_workgroups_indirect(buffer, *offset);
            }
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
