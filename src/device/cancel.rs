//! Cancelling launches: the adapter that can stop a kernel does so for the launches that asked for it.
//!
//! *How it works.* A launch that may be cancelled stands behind a debug marker of its own, for which the embedded adapter has a
//! stop word (`tombolo_cpu::Stop`). The stop is a hook of the launch, so that the event finds it, and the queue asks it at the end
//! what has become of the launch. Everything else is as with any failure: the memory that the launch wrote has its outcome
//! ([`outcome`](super::outcome)).
//!
//! Drivers of graphics processors have no call that stops a kernel and keeps the device. So there the answer is an error.

use std::sync::Arc;
#[cfg(embedded)]
use std::time::Duration;

use super::Event;
use super::completion_hook::CompletionHook;
use super::outcome::ExecutionError;
use crate::error_text::debug_by_text;

/// The answer of [`Event::cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancellation {
    /// The launch is cancelled: its kernel stops soon, or never begins, and its event ends with
    /// [`ExecutionError::Cancelled`], or with [`ExecutionError::DeadlinePassed`] where the launch's deadline came first.
    Cancelled,
    /// The kernel had ended already; its event ends as if nobody had cancelled.
    Over,
}

/// Why a launch was not cancelled. It goes on.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The device's driver has no way to stop a kernel
    /// ([`Aspect::Cancellation`](super::Aspect::Cancellation)).
    #[error(
        "kernel `{kernel}` cannot be cancelled: {device} has no way to stop a kernel without losing the device: bound the \
         kernel's loops, have them look at a word in live memory, or run the kernel on the embedded adapter \
         (WGPU_ADAPTER_NAME=embedded)"
    )]
    Unsupported {
        /// The kernel's entry point.
        kernel: String,
        /// The device's name.
        device: String,
    },
    /// The event is that of another command than a launch, or of a launch that was not submitted as one that may be cancelled.
    #[error(
        "the command on {device} cannot be cancelled: only launches can that were submitted with Launch::cancellable or \
         Launch::deadline"
    )]
    NotCancellable {
        /// The device's name.
        device: String,
    },
}

debug_by_text!(CancelError {
    Unsupported,
    NotCancellable
});

/// The hook of a launch that may be cancelled.
pub(crate) struct Cancellable {
    pub(crate) kernel: Arc<str>,
    #[cfg(embedded)]
    pub(crate) deadline: Option<Duration>,
    /// `None` where the adapter has none.
    #[cfg(embedded)]
    pub(crate) stop: Option<tombolo_cpu::Stop>,
}

impl Cancellable {
    /// `None` where kernels cannot be stopped.
    fn cancel(&self) -> Option<Cancellation> {
        #[cfg(embedded)]
        if let Some(stop) = &self.stop {
            let is_over = !stop.stop() && stop.state() == tombolo_cpu::StopState::Over;
            return Some(match is_over {
                true => Cancellation::Over,
                false => Cancellation::Cancelled,
            });
        }
        None
    }
}

impl CompletionHook for Cancellable {
    fn ended(&self, _done: bool) -> Result<(), ExecutionError> {
        #[cfg(embedded)]
        match (
            self.stop.as_ref().map(tombolo_cpu::Stop::state),
            self.deadline,
        ) {
            (Some(tombolo_cpu::StopState::TimeLimit), Some(deadline)) => {
                return Err(ExecutionError::DeadlinePassed {
                    kernel: self.kernel.to_string(),
                    deadline,
                });
            }
            (Some(tombolo_cpu::StopState::Asked), _) => {
                return Err(ExecutionError::Cancelled {
                    kernel: self.kernel.to_string(),
                });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Event {
    /// Cancels the launch, which was submitted with [`Launch::cancellable`](crate::Launch::cancellable) or
    /// [`Launch::deadline`](crate::Launch::deadline). Never waits: the event tells when the launch has ended.
    ///
    /// - A launch that has not begun never does. A running kernel stops at its next look at a stop word: in loops whose number
    ///   of turns is not known when the kernel is compiled, and between work-groups. A work-group with nothing but short loops
    ///   of a known number of turns comes to its end.
    /// - The event ends with [`ExecutionError::Cancelled`], also where the kernel had no more to do. The device lives on.
    /// - What was written until then stays in memory, part of the work done: reads of it, and later launches that use it, fail
    ///   as behind any failed launch, until it is overwritten
    ///   ([`DeviceBuffer::clear_error`](crate::DeviceBuffer::clear_error) takes it as it is). Later launches are not cancelled:
    ///   those that use what this one wrote run, and end with [`ExecutionError::Inherited`]. Locks, rings and other states in
    ///   memory stay as the kernel left them.
    ///
    /// A launch can be cancelled again, with the same answer. A failure that the kernel has reported itself before, such as an
    /// assertion, or that it has inherited, stays the event's error.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tombolo::{Constants, Context, Program, device::{CancelError, WaitError}};
    ///
    /// let device = Context::new()?.device()?;
    /// let source = "
    ///     @group(0) @binding(0) var<storage, read_write> n: u32;
    ///     @compute @workgroup_size(1) fn search() { for (var i = 0u; i < n; i++) { n += i & 1u; } }";
    /// let kernel = device.kernel(&Program::new("search.wgsl", source)?, "search", &Constants::new())?;
    /// let n = device.buffer(&[1u32])?;
    /// let event = kernel.launch().buffer("n", &n).workgroups(1).cancellable().submit()?;
    /// if let Err(WaitError::Deadline) = event.wait_timeout(Duration::from_secs(60)) {
    ///     match event.cancel() {
    ///         Ok(_) => assert!(event.wait().is_err()),
    ///         Err(CancelError::Unsupported { .. }) => println!("this driver has to be waited for"),
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CancelError::Unsupported`] where the device cannot stop a kernel: all but the embedded adapter
    /// ([`Aspect::Cancellation`](super::Aspect::Cancellation)). [`CancelError::NotCancellable`] for every other event.
    pub fn cancel(&self) -> Result<Cancellation, CancelError> {
        let Some((device, batch)) = self.command() else {
            return Ok(Cancellation::Over);
        };
        let device = || device.capabilities.name.clone();
        let Some(launch) = self.hook::<Cancellable>() else {
            return Err(CancelError::NotCancellable { device: device() });
        };
        match launch.cancel() {
            // The event has the refusal.
            Some(_) if matches!(batch.submission(), Some(Err(_))) => Ok(Cancellation::Over),
            Some(cancelled) => Ok(cancelled),
            None => Err(CancelError::Unsupported {
                kernel: launch.kernel.to_string(),
                device: device(),
            }),
        }
    }
}
