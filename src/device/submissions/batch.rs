//! Batches: groups of commands submitted together, and their state.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::external_dependency::ExternalDependencies;
use super::super::outcome::ExecutionError;
use super::super::status::PendingMirror;
use crate::clock::Instant;

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Open, or waiting in line.
    Recorded,
    /// Submitted to wgpu, without proof of the end.
    Submitted,
    /// Refused by wgpu; earlier submissions may still run.
    Refused,
    /// Ended, along with everything before.
    Ended,
    /// The device is gone, and the batch with it: perhaps unfinished, but no part of the batch runs any more.
    Lost,
}

impl Standing {
    /// Whether the batch and everything before have stopped running.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Lost)
    }
}

/// A submission: open while commands are recorded, then on its way, then over.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The verdict on the submission.
    submitted: OnceLock<Result<(), Arc<ExecutionError>>>,
    /// The number in the ledger; 0 before a number is given.
    number: AtomicU64,
    /// The value of the signal at the end.
    signal: AtomicU64,
    sent: OnceLock<Instant>,
    closed: AtomicBool,
    /// The number of commands, once closed.
    commands: AtomicU32,
    /// The signal belongs to the batch's own submission, and to no other in front.
    is_own: AtomicBool,
    /// wgpu keeps little for the batch until asked about the end.
    is_light: AtomicBool,
}

/// Bytes of the buffers of a light batch at most.
const LIGHT: u64 = 16 << 20;

impl Batch {
    /// Whether wgpu has taken the batch; `None` while open or in line.
    pub(crate) fn submission(&self) -> Option<&Result<(), Arc<ExecutionError>>> {
        self.submitted.get()
    }

    /// Whether the batch is closed to additions. An open batch without commands is never submitted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The batch's commands, once closed.
    pub(crate) fn commands(&self) -> Option<u32> {
        self.is_closed()
            .then(|| self.commands.load(Ordering::Acquire))
    }

    /// Notes how many commands the batch has, and how many bytes the batch's buffers. To be called before the batch is
    /// closed.
    pub(crate) fn holds(&self, commands: u32, bytes: u64) {
        self.commands.store(commands, Ordering::Release);
        self.is_light.store(bytes <= LIGHT, Ordering::Release);
    }

    pub(super) fn is_light(&self) -> bool {
        self.is_light.load(Ordering::Acquire)
    }

    /// The number in the ledger; 0 before the batch is submitted. Batches of one device end in the order of their numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) fn signal(&self) -> u64 {
        self.signal.load(Ordering::Acquire)
    }

    /// Nobody else's submission can have taken the signal of the batch. Noted before the number.
    pub(super) fn has_own_signal(&self) {
        self.is_own.store(true, Ordering::Release);
    }

    /// Whether the end of the batch is proven when its signal is reached.
    pub(super) fn is_signal_own(&self) -> bool {
        self.is_own.load(Ordering::Acquire)
    }

    /// When the submitting call has returned.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.sent.get().copied()
    }

    /// The batch gets this number, and the signal reaches `signal` at the end.
    pub(super) fn is(&self, number: u64, signal: u64) {
        self.signal.store(signal, Ordering::Release);
        self.number.store(number, Ordering::Release);
        let _ = self.sent.set(Instant::now());
    }

    /// The verdict on the submission; the first verdict stays. The number is known by then.
    pub(super) fn submitted(&self, verdict: Result<(), Arc<ExecutionError>>) {
        let _ = self.submitted.set(verdict);
    }
}

/// Hooks to run after the submission of a batch, with no lock held and before its end can be known.
pub(crate) type Hook = Box<dyn FnOnce(&wgpu::Device) + Send>;

/// The work of a batch for wgpu.
pub(crate) enum Commands {
    /// Finished inside the submitting call: errors of both are caught once.
    Recorded(wgpu::CommandEncoder),
    Made(wgpu::CommandBuffer),
    /// Made at the batch's turn, by the submitting thread, with no lock held: so a command of many batches has a place
    /// in line at once, and memory piece by piece. Must neither submit nor poll: no later command may be submitted
    /// before.
    ///
    /// The error is in words; the batch is refused then.
    Late(Box<dyn FnOnce() -> Result<wgpu::CommandBuffer, String> + Send>),
}

/// A batch complete with its commands: nothing is added any more.
pub(crate) struct ClosedBatch {
    pub(crate) batch: Arc<Batch>,
    pub(crate) commands: Commands,
    /// Values to write in front of the batch.
    pub(crate) uniforms: Option<(wgpu::Buffer, Vec<u8>)>,
    /// The dependencies of the batch.
    pub(crate) dependencies: ExternalDependencies,
    /// Copies for the host, mapped on submission.
    pub(crate) mirrors: Vec<PendingMirror>,
    /// Further hooks for the same time.
    pub(crate) hooks: Vec<Hook>,
    /// wgpu's error while the last commands were recorded: such a batch is not submitted.
    pub(crate) refused: Option<wgpu::Error>,
}

impl ClosedBatch {
    /// A batch of these commands and nothing else.
    pub(crate) fn of(commands: wgpu::CommandBuffer) -> Self {
        Self::with(Commands::Made(commands))
    }

    /// A batch of the commands made by these and nothing else.
    pub(crate) fn with(commands: Commands) -> Self {
        Self {
            batch: Arc::default(),
            commands,
            uniforms: None,
            dependencies: ExternalDependencies::default(),
            mirrors: Vec::new(),
            hooks: Vec::new(),
            refused: None,
        }
    }
}
