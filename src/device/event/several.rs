//! Waiting for several events, of any devices.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use super::{Event, EventFuture, EventStatus, WaitError};
use crate::clock::Instant;
use crate::device::wait::lock;

impl Event {
    /// Waits for all of `events`, of any devices. Their batches are submitted first, so that the devices work at the same
    /// time.
    ///
    /// # Errors
    /// The error of the first event, in the order given, whose command has failed. All the others have ended all the same.
    pub fn wait_all(events: &[&Self]) -> Result<(), WaitError> {
        Self::wait_for_all(events, None)
    }

    /// As [`Event::wait_all`], giving up after `timeout`.
    ///
    /// # Errors
    /// As [`Event::wait_all`]; [`WaitError::Deadline`] when a command was not done in time, and no command done in time
    /// has failed.
    pub fn wait_all_timeout(events: &[&Self], timeout: Duration) -> Result<(), WaitError> {
        Self::wait_for_all(events, Some(timeout))
    }

    fn wait_for_all(events: &[&Self], timeout: Option<Duration>) -> Result<(), WaitError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for event in events {
            event.may_wait(timeout)?;
        }
        for event in events {
            // The wait below has the error.
            let _ = event.submitted(deadline);
        }
        let (mut failed, mut is_late) = (None, false);
        for event in events {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match event.wait_at_most(left) {
                Ok(()) => {}
                Err(WaitError::Deadline) => is_late = true,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None if is_late => Err(WaitError::Deadline),
            None => Ok(()),
        }
    }

    /// Waits until any of `events`, of any devices, has ended, with success or without, and returns the event's index:
    /// the first index where several have. [`Event::wait`] of the event returns the result at once. `None` where there
    /// are no events.
    ///
    /// Where none has ended yet, the batches of the events are submitted. An event forbidden to this thread's waits
    /// ([`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler)) counts as ended, with the same error.
    pub fn wait_any(events: &[&Self]) -> Option<usize> {
        Self::wait_for_any(events, None)
    }

    /// As [`Event::wait_any`], giving up after `timeout`; `None` where none had ended by then.
    pub fn wait_any_timeout(events: &[&Self], timeout: Duration) -> Option<usize> {
        Self::wait_for_any(events, Some(timeout))
    }

    fn wait_for_any(events: &[&Self], timeout: Option<Duration>) -> Option<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let first_over = || events.iter().position(|event| event.is_over());
        if let Some(over) = first_over() {
            return Some(over);
        }
        if let Some(first) = Self::first_to_end(events, deadline) {
            first.wait_for_end(deadline);
            if let Some(over) = first_over() {
                return Some(over);
            }
        }
        Self::poll_until_any(events, deadline)
    }

    /// The first event to end, where known: for events of a single device, whose queue is in order. Their batches are
    /// submitted then.
    fn first_to_end<'e>(events: &[&'e Self], deadline: Option<Instant>) -> Option<&'e Self> {
        let (first, others) = events.split_first()?;
        let device = first.device.as_ref()?;
        let is_same = |event: &&Self| {
            let owner = event.device.as_ref();
            owner.is_some_and(|owner| Arc::ptr_eq(owner, device))
        };
        if !others.iter().all(is_same) {
            return None;
        }
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        for event in events {
            let batch = event.batch.as_ref()?;
            event.may_wait(left).ok()?;
            if batch.submission().is_none() {
                // A batch waiting for another device is no reason to wait for the other device here.
                let is_free = device.pending_of(batch).is_empty();
                if !is_free {
                    return None;
                }
                event.submitted(deadline).ok()?;
            }
        }
        let number = |event: &&&Self| event.batch.as_ref().map(|batch| batch.number());
        events.iter().min_by_key(number).copied()
    }

    /// Whether a wait would return at once. Never blocks and submits nothing.
    fn is_over(&self) -> bool {
        match self.status() {
            EventStatus::Complete => self.hooks.iter().all(|hook| hook.poll(Waker::noop())),
            EventStatus::Failed => true,
            EventStatus::Recorded | EventStatus::Submitted => false,
        }
    }

    /// Waits until the batch of the command has ended, with whatever result.
    fn wait_for_end(&self, deadline: Option<Instant>) {
        if let Ok(Some((device, batch))) = self.submitted(deadline) {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            // The result is asked for by waits for the event.
            let _ = device.submissions.wait(batch, left);
        }
    }

    /// Has every event wake this thread, and returns the first finished event.
    fn poll_until_any(events: &[&Self], deadline: Option<Instant>) -> Option<usize> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut futures: Vec<_> = (events.iter())
            .map(|&event| EventFuture(event.clone()))
            .collect();
        loop {
            let is_ready = |future: &mut EventFuture| {
                let mut context = Context::from_waker(&waker);
                Pin::new(future).poll(&mut context).is_ready()
            };
            if let Some(over) = futures.iter_mut().position(is_ready) {
                return Some(over);
            }
            if futures.is_empty() || !bell.wait(deadline) {
                return None;
            }
        }
    }
}

/// Wakes a thread waiting for several events.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }
}

impl Bell {
    /// Waits until the bell is rung; false if the deadline came first.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut rung = lock(&self.rung);
        while !std::mem::take(&mut *rung) {
            let Some(end) = deadline else {
                rung = (self.changed.wait(rung)).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(rung, left);
            (rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
