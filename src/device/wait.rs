//! Waiting for the device without trusting it: every wait here has a bound, and a lost device is an
//! answer, not a panic.
//!
//! `wgpu::Device::poll` with `Wait` holds a device-wide read lock while it blocks, and panics when the
//! device is gone. Both are contained here: long waits are cut into slices, and the panic is turned
//! into [`Progress::Lost`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::exit::{self, Worker};

/// The longest uninterrupted stay inside `wgpu::Device::poll`: other threads that need the device's
/// write lock get their turn between two slices.
const SLICE: Duration = Duration::from_millis(20);

/// What a wait found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    Pending,
    Lost(String),
}

/// Why a device is gone, once it is.
#[derive(Debug, Default)]
pub(crate) struct LostFlag {
    raised: AtomicBool,
    reason: Mutex<String>,
}

impl LostFlag {
    pub(crate) fn raise(&self, reason: impl Into<String>) {
        let mut slot = lock(&self.reason);
        if !self.raised.swap(true, Ordering::AcqRel) {
            *slot = reason.into();
        }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.raised
            .load(Ordering::Acquire)
            .then(|| lock(&self.reason).clone())
    }
}

/// Locks a mutex whose data stays consistent even when a holder panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until `index` has completed, `timeout` has passed, or the device is lost.
pub(crate) fn wait_for(
    device: &wgpu::Device,
    lost: &LostFlag,
    index: &wgpu::SubmissionIndex,
    timeout: Option<Duration>,
) -> Progress {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        if let Some(reason) = lost.get() {
            return Progress::Lost(reason);
        }
        let slice = match deadline {
            Some(end) => end.saturating_duration_since(Instant::now()).min(SLICE),
            None => SLICE,
        };
        match poll(device, index, slice) {
            Progress::Pending if deadline.is_some_and(|end| Instant::now() >= end) => {
                return Progress::Pending;
            }
            Progress::Pending => {}
            Progress::Lost(reason) => {
                lost.raise(reason.clone());
                return Progress::Lost(reason);
            }
            Progress::Done => return Progress::Done,
        }
    }
}

/// How wgpu's complaint about a poll that another one has overtaken begins.
const OVERTAKEN: &str = "If the queue is empty, the current submission index";

fn poll(device: &wgpu::Device, index: &wgpu::SubmissionIndex, timeout: Duration) -> Progress {
    // wgpu formats a device error into a panic here; nothing of ours is half-changed when it does.
    let polled = catch_unwind(AssertUnwindSafe(|| {
        device.poll(wgpu::PollType::Wait {
            submission_index: Some(index.clone()),
            timeout: Some(timeout),
        })
    }));
    match polled {
        Ok(Ok(status)) if status.wait_finished() => Progress::Done,
        Ok(Ok(_)) | Ok(Err(wgpu::PollError::Timeout)) => Progress::Pending,
        Ok(Err(error)) => {
            Progress::Lost(format!("the submission never reached the queue: {error}"))
        }
        // Between looking at the fence and at the queue, another thread has collected what was finished
        // meanwhile; wgpu takes that for a contradiction. Asked again, it has the answer.
        Err(panic) if panic_text(&*panic).starts_with(OVERTAKEN) => Progress::Pending,
        Err(panic) => Progress::Lost(panic_text(&*panic)),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_else(|| "the device stopped answering".to_string())
}

/// The thread that makes futures progress: wgpu completes nothing unless somebody polls it.
///
/// It is started by the first future that has to wait, and ends with its device.
#[derive(Default)]
pub(crate) struct Waiter {
    sender: OnceLock<Mutex<Sender<Request>>>,
    worker: Worker,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Without it there is nothing more to come.
        drop(self.sender.take());
        self.worker.join();
    }
}

struct Request {
    index: wgpu::SubmissionIndex,
    waker: Waker,
}

impl Waiter {
    /// Wakes `waker` once `index` has completed or the device is lost.
    pub(crate) fn wake_after(
        &self,
        device: &wgpu::Device,
        lost: &Arc<LostFlag>,
        index: wgpu::SubmissionIndex,
        waker: Waker,
    ) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = channel();
            let (device, lost) = (device.clone(), Arc::clone(lost));
            let spawned = std::thread::Builder::new()
                .name("tombolo-waiter".into())
                .spawn(move || {
                    serve(&device, &lost, &receiver);
                    exit::inside(|| drop(device));
                });
            match spawned {
                Ok(worker) => self.worker.is(worker),
                Err(error) => log::error!(
                    "no thread for asynchronous waits ({error}): futures are polled busily"
                ),
            }
            Mutex::new(sender)
        });
        if let Err(unsent) = lock(sender).send(Request { index, waker }) {
            // Without the thread the future would sleep for ever: let its executor poll it again.
            unsent.0.waker.wake();
        }
    }
}

fn serve(device: &wgpu::Device, lost: &LostFlag, requests: &Receiver<Request>) {
    while let Ok(request) = requests.recv() {
        exit::inside(|| {
            let _ = wait_for(device, lost, &request.index, None);
            request.waker.wake();
        });
    }
}
