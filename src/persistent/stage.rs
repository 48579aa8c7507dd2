//! The stage of a server, as seen by the relay, the callers and the stopping thread.

use super::sync::atomic::{AtomicU32, Ordering};

/// Where a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    Running,
    /// Posted calls are still served.
    Stopping,
    Closed,
    Failed,
}

/// A changing stage.
#[derive(Debug, Default)]
pub(super) struct StageWord(AtomicU32);

impl StageWord {
    pub fn get(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            0 => Stage::Running,
            1 => Stage::Stopping,
            2 => Stage::Closed,
            _ => Stage::Failed,
        }
    }

    /// A reader of the stage sees all earlier writes: above all, calls answered in the kernel's place.
    pub fn set(&self, stage: Stage) {
        self.0.store(stage as u32, Ordering::Release);
    }

    /// Whether the server was running, and is to stop now.
    pub fn begin_stop(&self) -> bool {
        let (from, to) = (Stage::Running as u32, Stage::Stopping as u32);
        (self.0)
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}
