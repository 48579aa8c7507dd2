//! Cancelling: a launch that may be cancelled, or has a deadline, stands behind a marker that the adapter stops it by
//! ([`cancel`](crate::device::cancel)).

use std::sync::Arc;
use std::time::Duration;

use super::{Ending, Ground, Part, Parts, Rank, Stop, Submission};
use crate::device::Aspect;
use crate::device::cancel::Cancellable;
#[cfg(embedded)]
use crate::device::queue::Recorder;
use crate::launch::{Launch, LaunchError};

/// Whether the launch may be cancelled.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::launch) struct Setting {
    is_cancellable: bool,
    deadline: Option<Duration>,
}

impl Setting {
    fn is_set(&self) -> bool {
        self.is_cancellable || self.deadline.is_some()
    }
}

/// The stop of a submission.
pub(in crate::launch) struct Cancel {
    /// What the adapter knows the launch by; `None` where the adapter cannot stop kernels.
    #[cfg(embedded)]
    stop: Option<(Arc<str>, tombolo_cpu::Stop)>,
}

impl Cancel {
    /// The stop of a launch that asks for one.
    #[cfg(embedded)]
    fn of(launch: &Launch, ground: &Ground) -> Result<Self, LaunchError> {
        let deadline = launch.settings.cancel.deadline;
        let stop = crate::device::embedded::stop(&ground.device.raw, deadline);
        let stop = stop.map_err(|error| LaunchError::Refused {
            kernel: launch.name(),
            message: format!("there is no thread to watch the deadline: {error}"),
        })?;
        Ok(Self { stop })
    }

    /// Nothing: without the adapter no kernel can be stopped.
    #[cfg(not(embedded))]
    fn of(_launch: &Launch, _ground: &Ground) -> Result<Self, LaunchError> {
        Ok(Self {})
    }

    /// The debug marker of the launch.
    #[cfg(embedded)]
    pub(super) fn marker(&self) -> Option<&Arc<str>> {
        self.stop.as_ref().map(|(marker, _)| marker)
    }
}

impl<'s> Part<'s> for Cancel {
    const RANK: Rank = Rank::Queue;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        let setting = launch.settings.cancel;
        if !setting.is_set() {
            return Ok(());
        }
        let (kernel, capabilities) = (&launch.kernel.shared, &launch.kernel.device.capabilities);
        if setting.deadline.is_some() && !capabilities.has(Aspect::Cancellation) {
            return Err(LaunchError::NoDeadline {
                kernel: kernel.name.to_string(),
                device: capabilities.name.clone(),
            });
        }
        // Stopped in the middle, these would leave ports and pages behind in nobody's hands.
        let what = match &kernel.compiled {
            compiled if compiled.calls.is_some() => "calls functions of the host, or of a server",
            compiled if compiled.system => "follows pointers into lent memory",
            _ => return Ok(()),
        };
        Err(LaunchError::NotCancellable {
            kernel: kernel.name.to_string(),
            what,
        })
    }

    #[inline]
    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        match launch.settings.cancel.is_set() {
            true => Ok(Some(Self::of(launch, ground)?)),
            // Nearly all launches.
            false => Ok(None),
        }
    }

    fn follows(&self) -> bool {
        #[cfg(embedded)]
        return self.stop.is_some();
        #[cfg(not(embedded))]
        false
    }

    #[cfg(embedded)]
    fn before(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) {
        if let Some((marker, _)) = &self.stop {
            queue.mark(marker);
        }
    }

    #[cfg(embedded)]
    fn after(&mut self, _to: &Submission<'_>, queue: &mut Recorder<'_>) -> Result<(), LaunchError> {
        if self.stop.is_some() {
            // The next commands are not the launch's.
            queue.mark("tombolo");
        }
        Ok(())
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        ending.hooks.push(Arc::new(Cancellable {
            kernel: Arc::clone(&to.kernel.name),
            #[cfg(embedded)]
            deadline: to.launch.settings.cancel.deadline,
            #[cfg(embedded)]
            stop: self.stop.take().map(|(_, stop)| stop),
        }));
    }
}

impl Launch {
    /// Submits the launch as one that [`Event::cancel`](crate::Event::cancel) may cancel. Such a launch has an outcome, as
    /// launches have that can fail: a wait asks wgpu for its end, and buffers remember it.
    ///
    /// On devices that cannot stop kernels this changes nothing, and `cancel` is an error. Kernels that call functions of the
    /// host or of a server, or follow pointers into lent memory, cannot be cancelled
    /// ([`LaunchError::NotCancellable`]): ask by a call whether to go on.
    pub fn cancellable(mut self) -> Self {
        self.settings.cancel.is_cancellable = true;
        self.checked = false;
        self
    }

    /// Gives the kernel so much time, counted from when its first work-group begins, however long the launch has waited in
    /// line. A launch that takes longer is cancelled ([`Event::cancel`](crate::Event::cancel), which such a launch allows as
    /// well), and its event ends with [`ExecutionError::DeadlinePassed`](crate::device::ExecutionError::DeadlinePassed). The
    /// kernel stops at its next look, a little later.
    ///
    /// A deadline is not that of a wait ([`Event::wait_timeout`](crate::Event::wait_timeout)), whose end leaves the kernel
    /// running.
    ///
    /// On devices that cannot stop kernels ([`Aspect::Cancellation`]) the launch is refused:
    /// [`LaunchError::NoDeadline`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.cancel.deadline = Some(deadline);
        self.checked = false;
        self
    }
}
