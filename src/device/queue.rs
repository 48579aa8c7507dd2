//! The in-order queue: commands are recorded into one open batch, and a batch is one submission.
//!
//! Consecutive launches share one compute pass, so that a batch of launches costs what the same
//! dispatches cost in raw wgpu; state that is already bound is not bound again. Small uniform values
//! of a batch are gathered on the host and written with a single copy when the batch is submitted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::DeviceShared;
use super::follower::Follower;
use super::gate::Gates;
use super::outcome::{ExecutionError, Outcome};
use super::prints::Job;
use super::profile::{Profiler, TimingSlot};
use super::status::{Mirror, Record, StatusPool};
use super::wait::{LostFlag, Progress, lock, wait_for};

/// One submission: open while commands are recorded, then on its way, then complete.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    submitted: OnceLock<Result<wgpu::SubmissionIndex, Arc<ExecutionError>>>,
}

impl Batch {
    /// One that went without being recorded here.
    pub(crate) fn sent(index: wgpu::SubmissionIndex) -> Self {
        Self {
            submitted: OnceLock::from(Ok(index)),
        }
    }

    /// `None` while the batch is still open.
    pub(crate) fn submission(&self) -> Option<&Result<wgpu::SubmissionIndex, Arc<ExecutionError>>> {
        self.submitted.get()
    }
}

/// A launch whose outcome is not known yet.
struct Unsettled {
    batch: Arc<Batch>,
    outcome: Arc<Outcome>,
    watch: Option<Watch>,
    mirror: Option<Mirror>,
    prints: Option<Arc<Job>>,
    follower: Option<Arc<dyn Follower>>,
}

/// Turns a status record into the verdict of its launch.
pub(crate) type Decoder = Arc<dyn Fn(&Record) -> Result<(), ExecutionError> + Send + Sync>;

/// What to read when the launch is done, and what it means.
pub(crate) struct Watch {
    pub(crate) record: u32,
    pub(crate) decode: Decoder,
}

/// The dispatch part of a launch.
pub(crate) enum Dispatch<'a> {
    Direct([u32; 3]),
    Indirect(&'a wgpu::Buffer, u64),
}

/// A bind group as a launch wants it bound.
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
    /// What the open batch waits for.
    gates: Gates,
    uniforms: UniformRing,
    status: Option<StatusPool>,
    unsettled: VecDeque<Unsettled>,
    profiler: Option<Profiler>,
    submissions: u64,
}

struct OpenPass {
    pass: wgpu::ComputePass<'static>,
    pipeline: Option<wgpu::ComputePipeline>,
    groups: Vec<Option<(wgpu::BindGroup, Vec<u32>)>>,
}

/// Host copy of the uniform values of the open batch, and the buffer they go to.
struct UniformRing {
    buffer: Option<wgpu::Buffer>,
    /// Changes whenever the buffer does, for the bind-group cache.
    generation: u64,
    data: Vec<u8>,
    alignment: usize,
}

impl Queue {
    pub(crate) fn new(limits: &wgpu::Limits) -> Self {
        Self {
            state: Mutex::new(State {
                batch: Arc::default(),
                encoder: None,
                pass: None,
                commands: 0,
                gates: Gates::default(),
                uniforms: UniformRing {
                    buffer: None,
                    generation: 0,
                    data: Vec::new(),
                    alignment: (limits.min_uniform_buffer_offset_alignment)
                        .max(limits.min_storage_buffer_offset_alignment)
                        .max(16) as usize,
                },
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
            state: lock(&self.state),
        }
    }
}

/// The queue, held: everything recorded through one recorder is consecutive.
pub(crate) struct Recorder<'d> {
    device: &'d DeviceShared,
    state: MutexGuard<'d, State>,
}

impl Recorder<'_> {
    /// The batch that the next command goes into.
    pub(crate) fn batch(&self) -> Arc<Batch> {
        Arc::clone(&self.state.batch)
    }

    pub(crate) fn has_commands(&self) -> bool {
        self.state.commands > 0
    }

    pub(crate) fn submissions(&self) -> u64 {
        self.state.submissions
    }

    /// Makes room for `bytes` of uniform values, flushing the batch when its ring is full.
    pub(crate) fn reserve_uniforms(&mut self, bytes: usize) {
        let ring = &self.state.uniforms;
        let capacity = ring.buffer.as_ref().map_or(0, wgpu::Buffer::size) as usize;
        if ring.data.len() + bytes <= capacity {
            return;
        }
        if !ring.data.is_empty() {
            // The values recorded so far belong to the buffer that is full.
            let _ = self.flush();
        }
        if bytes > capacity || capacity == 0 {
            let size = bytes.next_power_of_two().max(64 << 10) as u64;
            let buffer = self.device.raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo uniforms"),
                size,
                usage: wgpu::BufferUsages::UNIFORM
                    | wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let ring = &mut self.state.uniforms;
            ring.buffer = Some(buffer);
            ring.generation += 1;
        }
    }

    /// Bytes that a value of `len` bytes takes in the ring.
    pub(crate) fn uniform_footprint(&self, len: usize) -> usize {
        len.next_multiple_of(self.state.uniforms.alignment)
    }

    /// Places a value in the ring; room must have been reserved. Returns its byte offset.
    pub(crate) fn push_uniform(&mut self, value: &[u8], size: usize) -> u32 {
        let alignment = self.state.uniforms.alignment;
        let data = &mut self.state.uniforms.data;
        let offset = data.len();
        data.extend_from_slice(value);
        data.resize(offset + size.max(value.len()), 0);
        let end = data.len().next_multiple_of(alignment);
        data.resize(end, 0);
        offset as u32
    }

    /// The ring's buffer and its generation; present once room was reserved.
    pub(crate) fn uniform_buffer(&self) -> Option<(wgpu::Buffer, u64)> {
        let ring = &self.state.uniforms;
        ring.buffer.clone().map(|buffer| (buffer, ring.generation))
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

    /// Takes a status record, waiting for the oldest guarded launch when all are in flight.
    pub(crate) fn take_record(&mut self) -> Result<(u32, u32), Arc<ExecutionError>> {
        let _ = self.status_buffer();
        loop {
            let Some(pool) = self.state.status.as_mut() else {
                return Ok((0, 0));
            };
            if let Some(record) = pool.take() {
                let offset = pool.offset(record);
                if !pool.is_live() {
                    self.end_pass();
                    self.open_encoder();
                    let state = &mut *self.state;
                    if let (Some(pool), Some(encoder)) = (&state.status, state.encoder.as_mut()) {
                        pool.prepare(encoder, record);
                    }
                }
                return Ok((record, offset));
            }
            let oldest = self.state.unsettled.front().map(|u| Arc::clone(&u.batch));
            let Some(oldest) = oldest else {
                // Never: whoever takes a record and does not launch gives it back.
                return Err(Arc::new(ExecutionError::Refused {
                    message: "no status record is free".to_owned(),
                }));
            };
            if oldest.submission().is_none() {
                self.flush()?;
            }
            self.device.residents.awaited(&oldest);
            if let Some(Ok(index)) = oldest.submission()
                && let Progress::Lost(reason) =
                    wait_for(&self.device.raw, &self.device.lost, index, None)
            {
                return Err(Arc::new(ExecutionError::DeviceLost { reason }));
            }
            self.settle();
        }
    }

    /// Takes a record back that no launch will use.
    pub(crate) fn give_back_record(&mut self, record: u32) {
        if let Some(pool) = self.state.status.as_mut() {
            pool.release(record);
        }
    }

    /// Remembers a launch whose outcome must be settled when its batch is done.
    pub(crate) fn watch(
        &mut self,
        outcome: &Arc<Outcome>,
        watch: Option<Watch>,
        prints: Option<Arc<Job>>,
        follower: Option<Arc<dyn Follower>>,
    ) {
        let batch = self.batch();
        if let Some(job) = &prints {
            self.device.prints.recorded(job);
        }
        self.state.unsettled.push_back(Unsettled {
            batch,
            outcome: Arc::clone(outcome),
            watch,
            mirror: None,
            prints,
            follower,
        });
    }

    /// The batch of the first launch that is not settled.
    pub(crate) fn first_unsettled(&self) -> Option<Arc<Batch>> {
        self.state.unsettled.front().map(|u| Arc::clone(&u.batch))
    }

    /// The batch of the last launch that is not settled.
    pub(crate) fn last_unsettled(&self) -> Option<Arc<Batch>> {
        self.state.unsettled.back().map(|u| Arc::clone(&u.batch))
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

    /// Opens a pass of its own for the launches until [`Self::end_timed`], with timestamps around it.
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
                groups: Vec::new(),
            });
        }
    }

    fn end_pass(&mut self) {
        self.state.pass = None;
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

    /// What the open batch waits for.
    pub(crate) fn gates(&mut self) -> &mut Gates {
        &mut self.state.gates
    }

    /// Ends a command: submits the batch when it is full, unless it waits for something and is not far too full.
    pub(crate) fn commit(&mut self) {
        let (full, commands) = (self.device.options.max_batch, self.state.commands);
        if commands >= full && self.state.gates.may_go(commands / full.max(1)) {
            // The batch's events carry what went wrong.
            let _ = self.flush();
        }
    }

    /// Submits the open batch, if it has commands, after what it waits for: others are better asked to open the gates
    /// before they take the queue ([`DeviceShared::open_gates`]).
    pub(crate) fn flush(&mut self) -> Result<(), Arc<ExecutionError>> {
        if self.state.encoder.is_none() {
            // Values of launches that were refused: nothing recorded uses them.
            self.state.uniforms.data.clear();
            return Ok(());
        }
        self.state.gates.open();
        self.end_pass();
        let device = self.device;
        device.residents.submitting();
        let state = &mut *self.state;
        let Some(mut encoder) = state.encoder.take() else {
            return Ok(());
        };
        let batch = std::mem::take(&mut state.batch);
        state.commands = 0;
        let records_used = state
            .unsettled
            .iter()
            .any(|u| Arc::ptr_eq(&u.batch, &batch) && u.watch.is_some());
        let data = std::mem::take(&mut state.uniforms.data);
        let (result, error) = super::capture(&device.raw, || {
            let mirror = match &state.status {
                Some(pool) if records_used => pool.collect(&device.raw, &mut encoder),
                _ => None,
            };
            if let Some(profiler) = state.profiler.as_mut() {
                profiler.resolve(&device.raw, &mut encoder);
            }
            if let (Some(buffer), false) = (&state.uniforms.buffer, data.is_empty()) {
                device.queue_raw.write_buffer(buffer, 0, &data);
            }
            let index = device.queue_raw.submit([encoder.finish()]);
            if let Some(profiler) = state.profiler.as_mut() {
                profiler.submitted();
            }
            (index, mirror.map(super::status::PendingMirror::map))
        });
        // Keep the allocation for the next batch.
        state.uniforms.data = data;
        state.uniforms.data.clear();
        state.submissions += 1;

        let (index, mirror) = result;
        let verdict = match (device.lost.get(), error) {
            (Some(reason), _) => Err(Arc::new(ExecutionError::DeviceLost { reason })),
            (None, Some(error)) => Err(Arc::new(ExecutionError::Refused {
                message: error.to_string(),
            })),
            (None, None) => Ok(index),
        };
        for unsettled in &mut state.unsettled {
            if Arc::ptr_eq(&unsettled.batch, &batch) {
                unsettled.mirror.clone_from(&mirror);
                if let (Some(job), Ok(_)) = (&unsettled.prints, &verdict) {
                    device.prints.submitted(job);
                }
                if let (Some(follower), Ok(_)) = (&unsettled.follower, &verdict) {
                    follower.submitted();
                }
            }
        }
        let answer = verdict.as_ref().map(|_| ()).map_err(Arc::clone);
        let _ = batch.submitted.set(verdict);
        self.settle();
        answer
    }

    /// Settles the outcomes of all launches whose batch is known to have ended.
    pub(crate) fn settle(&mut self) {
        let device = self.device;
        let state = &mut *self.state;
        while let Some(first) = state.unsettled.front() {
            let verdict = match first.batch.submission() {
                None => break,
                Some(Err(error)) => Some(Err((**error).clone())),
                Some(Ok(index)) => {
                    match wait_for(&device.raw, &device.lost, index, Some(Duration::ZERO)) {
                        Progress::Pending => break,
                        Progress::Lost(reason) => Some(Err(ExecutionError::DeviceLost { reason })),
                        Progress::Done => None,
                    }
                }
            };
            let own = match (verdict, &first.watch, &state.status) {
                (Some(verdict), _, _) => verdict,
                (None, None, _) | (None, _, None) => Ok(()),
                (None, Some(watch), Some(pool)) => {
                    match pool.read(watch.record, first.mirror.as_ref()) {
                        Some(record) => (watch.decode)(&record),
                        None => Err(ExecutionError::Refused {
                            message: "the launch's status record could not be read back".into(),
                        }),
                    }
                }
            };
            let ended = matches!(first.batch.submission(), Some(Ok(_))) && !device.lost.is_raised();
            if let Some(follower) = &first.follower {
                follower.ended(ended);
            }
            let failed = (first.prints.as_ref()).and_then(|job| device.prints.settle(job, ended));
            // What the status record tells came first: wrong values are why assertions fail.
            let own = own.and_then(|()| failed.map_or(Ok(()), Err));
            first.outcome.settle(own);
            if let Some(done) = state.unsettled.pop_front()
                && let (Some(watch), Some(pool)) = (done.watch, state.status.as_mut())
            {
                pool.release(watch.record);
            }
        }
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
            // A pipeline with another layout invalidates what is bound.
            self.groups.clear();
        }
        for bound in groups {
            let at = bound.index as usize;
            if self.groups.len() <= at {
                self.groups.resize(at + 1, None);
            }
            let same = self.groups[at]
                .as_ref()
                .is_some_and(|(group, offsets)| group == bound.group && offsets == bound.offsets);
            if !same {
                self.pass
                    .set_bind_group(bound.index, bound.group, bound.offsets);
                self.groups[at] = Some((bound.group.clone(), bound.offsets.to_vec()));
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

impl LostFlag {
    /// The error of everything that is asked of a device that is gone.
    pub(crate) fn check(&self) -> Result<(), ExecutionError> {
        match self.get() {
            Some(reason) => Err(ExecutionError::DeviceLost { reason }),
            None => Ok(()),
        }
    }
}
