//! The entrance of a heap: commands of devices kept out by another thread's [`HostAccess`](super::HostAccess) wait for
//! its end, and are let in before the next access.
//!
//! # How it works
//! 1. A command that finds the host inside fails with [`HeapError::HostAccess`], with nothing recorded, and releases
//!    every lock: the accessing thread may need them (the queue, to submit the awaited batch; a buffer, for questions).
//! 2. The command then waits here, with nothing held, and tries again when the access has ended.
//! 3. While commands wait, the next access lets the waiting commands try first, for at most [`COURTESY`]: two threads
//!    reading in alternation would keep launches out for ever. The bound exists because a trying command may itself
//!    wait, and no thread may wait for its own waiter.
//!
//! A thread with the access would wait for itself: such a command is refused at once, whatever the policy.
//!
//! Why commands wait: reads of buffers in the heap hold the access for as long as a read takes, which must not be the
//! error of a program that never asked for the heap. The thread with the access is known by the thread, which is why a
//! `HostAccess` is not `Send`.
//!
//! The order of locks is: access of the host, root of a buffer, turn, queue, state. No thread waits for an access with
//! any of the others in hand, so writes to a buffer in the heap take the access first and look at the buffer then.
//! Servers on devices refuse instead of waiting: the relay tries again, and callers meanwhile get an error that names
//! the holder of the heap.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{HeapError, HeapShared, SharedHeap};
use crate::clock::Instant;
use crate::device::HostAccessPolicy;
use crate::device::outcome::Outcome;
use crate::device::wait::lock;

/// The longest time for a new access of the host to stand back behind commands that have waited for the last one.
const COURTESY: Duration = Duration::from_millis(10);
/// The longest uninterrupted sleep.
const SLICE: Duration = Duration::from_millis(20);

/// Who waits at the entrance of a heap.
#[derive(Debug, Default)]
pub(super) struct Entrance {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    /// Commands that wait, or have waited and are trying.
    waiting: u64,
    /// Commands after their try.
    tried: u64,
}

impl Entrance {
    /// Lets everybody who waits now have a try. For the next access about to keep them out again.
    pub(super) fn stand_back(&self) {
        let mut counts = lock(&self.counts);
        let enough = counts.tried + counts.waiting;
        let deadline = Instant::now() + COURTESY;
        while counts.waiting > 0 && counts.tried < enough {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(counts, left);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A command with a possible wait at the entrance, until recorded or refused.
pub(crate) struct WaitingCommand {
    policy: HostAccessPolicy,
    deadline: Option<Instant>,
    /// The heap of the entrance.
    at: Option<Arc<HeapShared>>,
}

impl WaitingCommand {
    pub(crate) fn new(policy: HostAccessPolicy) -> Self {
        Self {
            policy,
            deadline: None,
            at: None,
        }
    }

    /// Waits for the end of another thread's access, which has kept the command `what` out.
    ///
    /// # Errors
    /// [`HeapError::HostAccess`] where this thread has the access, or the policy is to refuse; [`HeapError::Deadline`].
    pub(crate) fn wait(
        &mut self,
        heap: &Arc<HeapShared>,
        what: &'static str,
    ) -> Result<(), HeapError> {
        heap.check_held_here(what)?;
        match self.policy {
            HostAccessPolicy::Refuse => return Err(HeapError::HostAccess { what }),
            HostAccessPolicy::Wait => {}
            HostAccessPolicy::WaitAtMost(most) => {
                let now = Instant::now();
                // A time that no clock reaches is no limit.
                self.deadline = self.deadline.or_else(|| now.checked_add(most));
            }
        }
        heap.may_wait(what)?;
        if self.at.is_none() {
            lock(&heap.entrance.counts).waiting += 1;
            self.at = Some(Arc::clone(heap));
        }
        match heap.await_host(self.deadline) {
            true => Ok(()),
            false => Err(HeapError::Deadline),
        }
    }
}

impl Drop for WaitingCommand {
    fn drop(&mut self) {
        if let Some(heap) = &self.at {
            let mut counts = lock(&heap.entrance.counts);
            counts.waiting -= 1;
            counts.tried += 1;
            drop(counts);
            heap.entrance.changed.notify_all();
        }
    }
}

impl HeapShared {
    /// Refuses a command of the thread that has the heap.
    pub(crate) fn check_held_here(&self, what: &'static str) -> Result<(), HeapError> {
        match lock(&self.state).host == Some(std::thread::current().id()) {
            true => Err(HeapError::HostAccess { what }),
            false => Ok(()),
        }
    }

    /// Refuses a command while the host has the heap.
    pub(crate) fn check_free(&self, what: &'static str) -> Result<(), HeapError> {
        match lock(&self.state).host.is_some() {
            true => Err(HeapError::HostAccess { what }),
            false => Ok(()),
        }
    }

    /// Waits until no thread has the heap; false if `deadline` came first.
    pub(super) fn await_host(&self, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        while state.host.is_some() {
            let slice = match deadline {
                Some(end) => end.saturating_duration_since(Instant::now()).min(SLICE),
                None => SLICE,
            };
            if slice.is_zero() {
                return false;
            }
            let waited = self.released.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Has the next access of the host told of a command that is in flight already.
    pub(crate) fn report(&self, outcome: &Arc<Outcome>) {
        lock(&self.state).outcomes.push(Arc::clone(outcome));
    }
}

impl SharedHeap {
    /// Tries a command again as long as kept out by another thread's access.
    pub(crate) fn retry_command<R>(
        &self,
        policy: HostAccessPolicy,
        mut attempt: impl FnMut() -> Result<R, HeapError>,
    ) -> Result<R, HeapError> {
        let mut waiting = WaitingCommand::new(policy);
        loop {
            match attempt() {
                Err(HeapError::HostAccess { what }) => waiting.wait(&self.shared, what)?,
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::memory::heap::HeapSize;

    const WHAT: &str = "a test";

    fn heap() -> SharedHeap {
        SharedHeap::new(HeapSize::Bytes(1 << 20)).unwrap()
    }

    fn enter(heap: &SharedHeap, policy: HostAccessPolicy) -> Result<(), HeapError> {
        heap.retry_command(policy, || heap.shared.check_free(WHAT))
    }

    #[test]
    fn the_thread_that_has_the_heap_is_refused_at_once() {
        let heap = heap();
        let access = heap.host().unwrap();
        for policy in [
            HostAccessPolicy::Wait,
            HostAccessPolicy::WaitAtMost(Duration::MAX),
            HostAccessPolicy::Refuse,
        ] {
            let refused = enter(&heap, policy).unwrap_err();
            assert!(matches!(refused, HeapError::HostAccess { what: WHAT }));
        }
        drop(access);
        assert!(enter(&heap, HostAccessPolicy::Refuse).is_ok());
    }

    #[test]
    fn other_threads_do_what_they_were_told() {
        let heap = heap();
        let access = heap.host().unwrap();
        thread::scope(|scope| {
            let other = |policy| {
                scope.spawn({
                    let heap = &heap;
                    move || enter(heap, policy)
                })
            };
            let refused = other(HostAccessPolicy::Refuse).join().unwrap();
            assert!(matches!(refused, Err(HeapError::HostAccess { .. })));
            let late = other(HostAccessPolicy::WaitAtMost(Duration::from_millis(1)));
            assert!(matches!(late.join().unwrap(), Err(HeapError::Deadline)));
            // Commands given up are not waited for.
            assert_eq!(lock(&heap.shared.entrance.counts).waiting, 0);
            let waiting = [
                HostAccessPolicy::Wait,
                HostAccessPolicy::WaitAtMost(Duration::MAX),
            ]
            .map(other);
            while lock(&heap.shared.entrance.counts).waiting < 2 {
                thread::yield_now();
            }
            assert!(waiting.iter().all(|thread| !thread.is_finished()));
            drop(access);
            for thread in waiting {
                assert!(thread.join().unwrap().is_ok());
            }
        });
        let counts = lock(&heap.shared.entrance.counts);
        assert_eq!((counts.waiting, counts.tried), (0, 3));
    }

    #[test]
    fn threads_that_read_one_behind_the_other_keep_nobody_out() {
        let heap = heap();
        let ptr = heap.alloc(7u32).unwrap();
        let (over, let_in) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(heap.read(ptr, 1).unwrap(), [7]);
                    }
                });
            }
            for _ in 0..2000 {
                enter(&heap, HostAccessPolicy::Wait).unwrap();
                let_in.fetch_add(1, Ordering::Relaxed);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(let_in.into_inner(), 2000);
    }
}
