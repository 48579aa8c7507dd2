//! Servers that stay away from their device while a program submits for itself.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::ExecutionError;
use super::pauses::Pauses;
use super::resident;
use super::{Device, DeviceShared};
use crate::clock::Instant;
use crate::error_text::debug_by_text;

/// The operation, as errors name it.
const PAUSE: &str = "Device::pause_servers";

/// Why the servers of a device were not paused.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// Launches of servers did not end in time. The servers go on.
    #[error(
        "{launches} launches of servers on {device} have not ended within {waited:?}: wait longer, shorten what a handler \
         does at a time, or stop the server"
    )]
    Timeout {
        /// The device's name.
        device: String,
        /// The launches of servers that are left: leases, and slices.
        launches: usize,
        /// How long they were waited for.
        waited: Duration,
    },
    /// The wait was refused: [`ExecutionError::InHandler`] in a function of the host that serves a call of the device,
    /// [`ExecutionError::InCallback`] in a callback that the launch of a server runs, [`ExecutionError::WouldBlock`] where
    /// threads never wait.
    #[error(transparent)]
    Refused(#[from] ExecutionError),
}

debug_by_text!(PauseError { Timeout, Refused });

/// Keeps the servers of a device away: from [`Device::pause_servers`]. Servers go on when the last guard of the device is
/// dropped, on any thread.
#[must_use = "servers go on when the guard is dropped"]
#[derive(Debug)]
pub struct ServerPause {
    pauses: Arc<Pauses>,
}

impl ServerPause {
    pub(super) fn begin(device: &DeviceShared, timeout: Duration) -> Result<Self, PauseError> {
        let begun = Instant::now();
        (device.submissions)
            .may_wait(PAUSE, "submit through `Device::raw_queue`, which asks once")?;
        if resident::is_relay() {
            return Err(ExecutionError::InCallback { what: PAUSE }.into());
        }
        let residents = &device.residents;
        residents.pauses.begin();
        let pause = Self {
            pauses: Arc::clone(&residents.pauses),
        };
        residents.submitting();
        let left = || timeout.saturating_sub(begun.elapsed());
        let mut launches = pause.pauses.wait_for_launches(left);
        // A stuck lease counts no more, and may be there all the same.
        launches += residents.stuck(left);
        match launches {
            0 => Ok(pause),
            launches => Err(PauseError::Timeout {
                device: device.capabilities.name.clone(),
                launches,
                waited: begun.elapsed(),
            }),
        }
    }
}

impl Drop for ServerPause {
    fn drop(&mut self) {
        self.pauses.end();
    }
}

/// A counted launch of a server, until dropped.
#[derive(Debug, Default)]
pub(crate) struct ServerLaunch(Option<Arc<Pauses>>);

impl ServerLaunch {
    /// `None` during a pause.
    pub(crate) fn begin(device: &Device) -> Option<Self> {
        let pauses = &device.shared.residents.pauses;
        (pauses.begin_launch()).then(|| Self(Some(Arc::clone(pauses))))
    }
}

impl Drop for ServerLaunch {
    fn drop(&mut self) {
        if let Some(pauses) = &self.0 {
            pauses.end_launch();
        }
    }
}
