//! Errors of a page: a browser tells of them in promises, after the call, when the page goes on.
//!
//! # How it works
//! 1. [`capture`](crate::device::capture) cannot wait for its scopes here, and leaves their futures to the device ([`note`]).
//! 2. The marker behind the next submission takes the futures along. The marker goes when the browser reports the end
//!    of everything submitted before, and every scope so far has answered; so no refused command counts as ended.
//! 3. After a refusal nothing recorded since can be trusted: the device counts as lost, with the browser's words as the
//!    reason. The runtime has checked everything checkable before, so only an error of the runtime, or a lack of
//!    memory, leads here.
//! 4. Each leaving marker wakes all sleeping futures to look for themselves.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{Batch, Marker, Progress, Submissions};
use crate::device::wait::lock;

/// A popped scope.
type Scope = Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>;

thread_local! {
    /// The scopes popped since the last marker of their device. A page has one thread.
    static POPPED: RefCell<Vec<(wgpu::Device, Scope)>> = const { RefCell::new(Vec::new()) };
}

/// Leaves a popped scope to the next marker of the device.
pub(in crate::device) fn note(
    device: &wgpu::Device,
    scope: impl Future<Output = Option<wgpu::Error>> + 'static,
) {
    POPPED.with_borrow_mut(|popped| popped.push((device.clone(), Box::pin(scope))));
}

/// The scopes of a device, and no longer.
fn take(device: &wgpu::Device) -> Vec<Scope> {
    POPPED.with_borrow_mut(|popped| {
        let own = popped.extract_if(.., |(of, _)| of == device);
        own.map(|(_, scope)| scope).collect()
    })
}

/// Futures waiting for the end of a submission.
#[derive(Default)]
pub(super) struct Sleepers(Mutex<Vec<Waker>>);

impl Sleepers {
    fn wake(&self) {
        let woken = std::mem::take(&mut *lock(&self.0));
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Submissions {
    /// Registers a marker.
    pub(super) fn mark_late(&self, queue: &wgpu::Queue, mut marker: Marker) {
        let (scopes, sleepers) = (take(&self.raw), Arc::clone(&self.sleepers));
        let (tell, told) = futures::channel::oneshot::channel::<()>();
        queue.on_submitted_work_done(move || {
            // Nobody listens where the page has gone.
            let _ = tell.send(());
        });
        wasm_bindgen_futures::spawn_local(async move {
            // Also where the browser drops the callback, and so says as much.
            let _ = told.await;
            for scope in scopes {
                if let Some(error) = scope.await {
                    marker.refusal.get_or_insert_with(|| {
                        format!("the browser refused a command, as it says afterwards: {error}")
                    });
                }
            }
            if marker.refusal.is_none() {
                // A lost device ends nothing.
                marker.refusal = marker.lost.get();
            }
            drop(marker);
            sleepers.wake();
        });
    }

    /// Wakes `waker` when the submitted batch may have ended, and after the end, when the page has gone on.
    pub(in crate::device) fn wake_behind(&self, batch: &Batch, waker: &Waker) {
        lock(&self.sleepers.0).push(waker.clone());
        if self.standing(batch).is_over() || self.lost.is_raised() {
            let queue = self.queue.lock().clone();
            match queue {
                Some(queue) => self.mark(&queue, self.ledger.claim()),
                None => self.sleepers.wake(),
            }
        }
    }

    /// Waits for the end of a submitted batch.
    pub(in crate::device) async fn ended(&self, batch: &Batch) {
        std::future::poll_fn(|context| match self.wait(batch, Some(Duration::ZERO)) {
            Progress::Pending => {
                self.wake_behind(batch, context.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
    }
}
