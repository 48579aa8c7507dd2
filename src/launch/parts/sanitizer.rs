//! The sanitizer: a launch on a sanitized device fails with the defects found in the launch. On a statement-counting
//! device, the launch's statements are counted at the end of the launch.

use std::sync::{Arc, Weak};

use super::cancel::Cancel;
use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::ExecutionError;
use crate::device::queue::Recorder;
use crate::device::sanitizer::{Findings, TextPosition, defect};
use crate::kernel::pipeline::KernelShared;
use crate::kernel::report::Places;
use crate::launch::{Launch, LaunchError};

/// The marker of a submission.
pub(in crate::launch) struct Sanitizer {
    marker: Arc<str>,
}

/// Asks for the findings when the launch has ended.
struct Asker {
    device: Weak<DeviceShared>,
    marker: Arc<str>,
    kernel: Arc<str>,
    places: Option<Arc<Places>>,
}

impl<'s> Part<'s> for Sanitizer {
    const RANK: Rank = Rank::Queue;

    fn acquire(
        _launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        let sanitized = ground.device.findings.is_some();
        // The marker that the launch is stopped by will do.
        let known = earlier.cancel.as_ref().and_then(Cancel::marker);
        Ok(sanitized.then(|| Self {
            marker: known.cloned().unwrap_or_else(Findings::marker),
        }))
    }

    fn follows(&self) -> bool {
        true
    }

    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        queue.mark(&self.marker);
    }

    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        // The next commands are not the launch's.
        queue.mark("tombolo");
        Ok(())
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let kernel: &KernelShared = to.kernel;
        ending.hooks.push(Arc::new(Asker {
            device: Arc::downgrade(to.device),
            marker: Arc::clone(&self.marker),
            kernel: Arc::clone(&kernel.name),
            places: kernel.compiled.places.clone(),
        }));
    }
}

impl CompletionHook for Asker {
    fn ended(&self, _done: bool) -> Result<(), ExecutionError> {
        let Some(device) = self.device.upgrade() else {
            return Ok(());
        };
        let Some(findings) = &device.findings else {
            return Ok(());
        };
        let position = |range| match &self.places {
            Some(places) => places.position(range),
            None => TextPosition {
                file: self.kernel.to_string(),
                line: 1,
                column: 1,
                excerpt: String::new(),
            },
        };
        let own = |range| self.places.as_ref()?.own_position(range);
        let executed = &findings.executed;
        executed.count(&device.raw, (&self.marker, &self.kernel), &own);
        let found = findings.behind(&device.raw, &self.marker);
        let defects: Vec<_> = found
            .iter()
            .map(|finding| defect(finding, &position))
            .collect();
        if defects.is_empty() {
            return Ok(());
        }
        Err(ExecutionError::Sanitizer {
            kernel: self.kernel.to_string(),
            defects: defects.into(),
        })
    }
}
