//! Whether a device is lost, and the thread that makes its futures progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use super::exit::{self, Worker};
use super::outcome::ExecutionError;
use super::submissions::{Batch, Submissions};

/// Why a device is gone, once lost.
#[derive(Default)]
pub(crate) struct LostFlag {
    raised: AtomicBool,
    reason: Mutex<String>,
    witness: OnceLock<Witness>,
}

/// Says why the device is gone, where its adapter knows: wgpu and its drivers give no reason.
type Witness = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl std::fmt::Debug for LostFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LostFlag")
            .field("reason", &self.get())
            .finish_non_exhaustive()
    }
}

impl LostFlag {
    /// Has `witness` asked for the reason. The first one stays.
    pub(crate) fn set_witness(&self, witness: impl Fn() -> Option<String> + Send + Sync + 'static) {
        // Devices are probed and used by submissions of their own, which all ask the same adapter.
        let _ = self.witness.set(Box::new(witness));
    }

    /// Says that the device is gone, for a reason that the witness knows, or for this one.
    pub(crate) fn raise(&self, reason: impl Into<String>) {
        let known = self.witness.get().and_then(|witness| witness());
        let mut slot = lock(&self.reason);
        if !self.raised.swap(true, Ordering::AcqRel) {
            *slot = known.unwrap_or_else(|| reason.into());
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

    /// The error of everything asked of a device that is gone.
    pub(crate) fn check(&self) -> Result<(), ExecutionError> {
        match self.get() {
            Some(reason) => Err(ExecutionError::DeviceLost { reason }),
            None => Ok(()),
        }
    }
}

/// Locks a mutex whose data stays consistent even when a holder panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The thread that makes futures progress: wgpu completes nothing without a poll.
///
/// The first waiting future starts the thread, which ends with its device.
#[derive(Default)]
pub(crate) struct Waiter {
    sender: OnceLock<Mutex<Sender<Request>>>,
    worker: Worker,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Without a device nothing more is to come.
        drop(self.sender.take());
        self.worker.join();
    }
}

struct Request {
    batch: Arc<Batch>,
    waker: Waker,
}

impl Waiter {
    /// Wakes `waker` once `batch`, which was submitted, has ended or the device is lost.
    pub(crate) fn wake_after(
        &self,
        submissions: &Arc<Submissions>,
        batch: &Arc<Batch>,
        waker: &Waker,
    ) {
        let sender = self.sender.get_or_init(|| {
            let (sender, receiver) = channel();
            let submissions = Arc::clone(submissions);
            let spawned = std::thread::Builder::new()
                .name("tombolo-waiter".into())
                .spawn(move || {
                    serve(&submissions, &receiver);
                    exit::inside(|| drop(submissions));
                });
            match spawned {
                Ok(worker) => self.worker.is(worker),
                Err(error) => log::error!(
                    "no thread for asynchronous waits ({error}): futures are polled busily"
                ),
            }
            Mutex::new(sender)
        });
        let request = Request {
            batch: Arc::clone(batch),
            waker: waker.clone(),
        };
        if let Err(unsent) = lock(sender).send(request) {
            // Without the thread the future would sleep for ever: the executor polls again.
            unsent.0.waker.wake();
        }
    }
}

fn serve(submissions: &Submissions, requests: &Receiver<Request>) {
    while let Ok(request) = requests.recv() {
        exit::inside(|| {
            let _ = submissions.wait(&request.batch, None);
            request.waker.wake();
        });
    }
}
