//! Whether a device is lost, and the thread behind the progress of its futures.

use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(web))]
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::DeviceShared;
#[cfg(not(web))]
use super::exit::{self, Worker};
use super::outcome::{ExecutionError, Outcome};
use super::submissions::{Batch, Progress, Submissions};

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
    /// Has `witness` asked for the reason. The first witness stays.
    pub(crate) fn set_witness(&self, witness: impl Fn() -> Option<String> + Send + Sync + 'static) {
        // A device's probe and use have submissions of their own, all asking the same adapter.
        let _ = self.witness.set(Box::new(witness));
    }

    /// Reports the device as gone, for the reason known to the witness, or else for the given reason.
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

    /// The error of everything asked of a lost device.
    pub(crate) fn check(&self) -> Result<(), ExecutionError> {
        match self.get() {
            Some(reason) => Err(ExecutionError::DeviceLost { reason }),
            None => Ok(()),
        }
    }
}

/// How an async function of the runtime waits: as the caller does.
#[derive(Clone)]
pub(crate) enum Waits {
    /// The caller blocks: the function never leaves a wait before the wait's end, and so is ready at the first poll.
    Blocks,
    /// The caller awaits, woken by the device, if still there.
    Awaits(Option<Arc<DeviceShared>>),
}

/// Waits until the submitted batch has ended or the device is lost. Where nobody is there to wake, this blocks.
pub(crate) async fn ended(
    device: Option<&DeviceShared>,
    submissions: &Arc<Submissions>,
    batch: &Arc<Batch>,
) {
    std::future::poll_fn(|context| {
        if submissions.wait(batch, Some(Duration::ZERO)) != Progress::Pending {
            return Poll::Ready(());
        }
        match device {
            Some(device) => (device.waiter).wake_after(submissions, batch, context.waker()),
            #[cfg(web)]
            None => submissions.wake_behind(batch, context.waker()),
            #[cfg(not(web))]
            None => {
                let _ = submissions.wait(batch, None);
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

/// Waits until the outcomes of launches whose batches, up to this one, have ended are settled.
pub(crate) async fn settled(device: &DeviceShared, batch: &Arc<Batch>, outcomes: &[Arc<Outcome>]) {
    std::future::poll_fn(|context| {
        device.settle();
        let is_settled = |outcome: &Arc<Outcome>| {
            outcome.resolve();
            outcome.is_settled()
        };
        // Elsewhere what is not settled by now is settled by nobody.
        if !device.submissions.never_blocks() || outcomes.iter().all(is_settled) {
            return Poll::Ready(());
        }
        (device.waiter).wake_after(&device.submissions, batch, context.waker());
        Poll::Pending
    })
    .await;
}

/// Locks a mutex whose data stays consistent even when a holder panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The thread behind the progress of futures: wgpu completes nothing without a poll.
///
/// The first waiting future starts the thread, which ends with its device.
#[cfg(not(web))]
#[derive(Default)]
pub(crate) struct Waiter {
    sender: OnceLock<Mutex<Sender<Request>>>,
    worker: Worker,
}

#[cfg(not(web))]
impl Drop for Waiter {
    fn drop(&mut self) {
        // Without a device nothing more is to come.
        drop(self.sender.take());
        self.worker.join();
    }
}

#[cfg(not(web))]
struct Request {
    batch: Arc<Batch>,
    waker: Waker,
}

/// Makes futures progress on a page: the browser does, and no thread is there to.
#[cfg(web)]
#[derive(Default)]
pub(crate) struct Waiter {}

#[cfg(web)]
impl Waiter {
    /// Wakes `waker` once the submitted `batch` has ended or the device is lost.
    pub(crate) fn wake_after(
        &self,
        submissions: &Arc<Submissions>,
        batch: &Arc<Batch>,
        waker: &Waker,
    ) {
        submissions.wake_behind(batch, waker);
    }
}

#[cfg(not(web))]
impl Waiter {
    /// Wakes `waker` once the submitted `batch` has ended or the device is lost.
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

#[cfg(not(web))]
fn serve(submissions: &Submissions, requests: &Receiver<Request>) {
    while let Ok(request) = requests.recv() {
        exit::inside(|| {
            let _ = submissions.wait(&request.batch, None);
            request.waker.wake();
        });
    }
}
