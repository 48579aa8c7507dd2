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
//!
//! - [`record`]: commands on their way into the open batch.
//! - [`uniforms`]: the small values of a batch.
//! - [`submit`]: the batch on its way into the line, and the line on its way to wgpu.
//! - [`settle`]: what has become of launches whose batches have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::DeviceShared;
use super::external_dependency::ExternalDependencies;
use super::outcome::ExecutionError;
use super::profile::Profiler;
use super::status::{Record, StatusPool};
pub(crate) use super::submissions::Batch;

mod record;
pub(super) mod settle;
mod submit;
mod uniforms;

use record::OpenPass;
pub(crate) use record::{Bound, Dispatch};
use settle::Unsettled;
use uniforms::UniformRing;

/// Turns a status record into the verdict of its launch.
pub(crate) type Decoder = Arc<dyn Fn(&Record) -> Result<(), ExecutionError> + Send + Sync>;

/// The record to read after the launch, and its meaning.
pub(crate) struct Watch {
    pub(crate) record: u32,
    pub(crate) decode: Decoder,
}

pub(crate) struct Queue {
    state: Mutex<State>,
}

pub(crate) struct State {
    batch: Arc<Batch>,
    encoder: Option<wgpu::CommandEncoder>,
    /// The encoder of the next batch.
    spare_encoder: Option<wgpu::CommandEncoder>,
    pass: Option<OpenPass>,
    commands: u32,
    /// Bytes of the buffers that the launches of the open batch use; `u64::MAX` where there are other commands.
    held: u64,
    /// How many commands the open batch has, at least, when the device is asked next whether it needs more work.
    next_look: u32,
    /// The dependencies of the open batch.
    dependencies: ExternalDependencies,
    uniforms: UniformRing,
    status: Option<StatusPool>,
    unsettled: VecDeque<Unsettled>,
    profiler: Option<Profiler>,
    submissions: u64,
}

impl Queue {
    pub(crate) fn new(limits: &wgpu::Limits) -> Self {
        Self {
            state: Mutex::new(State {
                batch: Arc::default(),
                encoder: None,
                spare_encoder: None,
                pass: None,
                commands: 0,
                held: 0,
                next_look: 0,
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

    /// Commands of the open batch.
    pub(crate) fn commands(&self) -> u32 {
        self.state.commands
    }

    pub(crate) fn submissions(&self) -> u64 {
        self.state.submissions
    }

    /// Whether nothing was recorded that has not ended.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_commands() && self.device.submissions.is_idle()
    }

    /// The dependencies of the open batch.
    pub(crate) fn dependencies(&mut self) -> &mut ExternalDependencies {
        &mut self.state.dependencies
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
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
