//! Threads of kernels serving calls themselves, on the embedded adapter.
//!
//! There a thread of the adapter whose work-groups wait for answers has nothing else to do, and shares memory and
//! processor with the answering code. An answer by another thread costs the way of four cache lines to another
//! processor and back, and where there are as many kernel threads as processors the server's thread takes the processor
//! from one of them. So the adapter asks the services' functions before it lets other work-groups begin (`Waiting::ask`
//! in the adapter's `exec/pool.rs`).
//!
//! *How it works.* Services with one thread have one [`Role`]: the holder of the role serves, so that no two functions
//! run at once, for any number of kernel threads. A kernel thread takes the role if free, serves the calls of functions
//! servable anywhere, and leaves the others posted:
//!
//! - functions timed last at more than a microsecond, or never timed: a kernel's thread must not be kept by one call
//!   while others could go on ([`Dispatcher`]);
//! - streams, and ports with a stream left open: the streams' objects are dropped on threads of the services alone;
//! - waiting functions, and functions touching files.
//!
//! The remaining calls are the server thread's: the kernel thread rings, and takes the role no more until the server
//! thread has had it. The server thread in turn naps, for longer and longer, while kernel threads come by and there is
//! no work for the server thread alone; the server thread finds unawaited calls (`f_post`), and calls posted while no
//! kernel thread has time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard, TryLockError,
};

use super::dispatcher::{Dispatcher, Known};
use super::mailbox::Mailbox;
use super::port::server::Sweeper;
use super::services::Shared;
use crate::device::DeviceShared;
use crate::device::release::release_elsewhere;
use crate::device::submissions::serve_device;

/// The most looks at busy lines of ports between two looks at all, and at the services called last between two looks at
/// all services.
const GLANCES: u32 = 64;

/// The needs of a serving thread, and the guard against others serving meanwhile.
#[derive(Default)]
pub(super) struct Role {
    pub(super) known: Known,
    pub(super) mailboxes: Vec<(Arc<Mailbox>, Sweeper)>,
    /// The services' version with these mailboxes; 0 for none.
    pub(super) version: u64,
    rhythm: Rhythm,
}

/// How often kernel threads look at all ports: the more finds at idle ports, the more often.
struct Rhythm {
    /// Looks at busy lines since the last look at all ports
    glances: u32,
    /// How many there are between two looks at all ports
    spacing: u32,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            glances: 0,
            spacing: 1,
        }
    }
}

impl Rhythm {
    /// Whether to look at all ports now, after `served` calls at busy ones.
    fn is_time(&mut self, served: usize) -> bool {
        self.glances += 1;
        served == 0 || self.glances >= self.spacing
    }

    /// Notes the calls found at other ports.
    fn found(&mut self, others: usize) {
        self.glances = 0;
        self.spacing = match others {
            0 => (self.spacing * 2).min(GLANCES),
            _ => (self.spacing / 2).max(1),
        };
    }
}

/// The role of services with one thread, and the messages among its holders.
#[derive(Default)]
pub(super) struct SharedRole {
    role: Mutex<Role>,
    /// A kernel thread has come by since the server thread looked.
    visited: AtomicBool,
    /// There is a call for the server thread alone; the server thread comes first.
    left: AtomicBool,
}

impl SharedRole {
    /// The role, unless another thread has it.
    fn try_take(&self) -> Option<MutexGuard<'_, Role>> {
        match self.role.try_lock() {
            Ok(role) => Some(role),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`Self::try_take`], for the server thread: calls left for the server thread are its own from here on.
    pub(super) fn try_take_first(&self) -> Option<MutexGuard<'_, Role>> {
        let role = self.try_take()?;
        self.left.store(false, Ordering::Release);
        Some(role)
    }

    /// Whether a kernel thread has come by since the last such question.
    pub(super) fn was_visited(&self) -> bool {
        self.visited.load(Ordering::Relaxed) && self.visited.swap(false, Ordering::Relaxed)
    }

    /// Waits until no thread serves.
    pub(super) fn wait(&self) {
        drop(self.role.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The services served by the threads of a device.
#[derive(Default)]
pub(crate) struct KernelThreads {
    served: RwLock<Vec<(Arc<Shared>, Arc<Mailbox>)>>,
    /// The services called last, and how often the threads have since looked at no others.
    last: AtomicUsize,
    passes: AtomicU32,
}

/// [`KernelThreads`] of a device, if any.
#[derive(Default)]
pub(crate) struct KeptKernelThreads(OnceLock<Option<Arc<KernelThreads>>>);

impl KernelThreads {
    /// The kernel threads of `device`, if able to serve calls.
    pub(super) fn of(device: &DeviceShared) -> Option<Arc<Self>> {
        let kept = &device.extensions.kernel_threads.0;
        kept.get_or_init(|| {
            let made = Arc::new(Self::default());
            let own = Arc::clone(&made);
            device.helps_kernels(move || own.help()).then_some(made)
        })
        .clone()
    }

    /// Has the threads serve the calls at a mailbox until [`Self::remove`], or until the services are stopped.
    pub(super) fn add(self: &Arc<Self>, services: &Arc<Shared>, mailbox: &Arc<Mailbox>) {
        let (services, mailbox) = (Arc::clone(services), Arc::clone(mailbox));
        self.change(move |threads| {
            let (stopped, id) = (Arc::clone(&services), mailbox.id);
            threads.list().push((services, mailbox));
            if stopped.is_stopped() {
                // The stopping thread may have come too early.
                threads.forget(id);
            }
        });
    }

    /// Has the threads serve the mailbox no more. No thread serves the mailbox after the return, unless the caller
    /// serves calls itself.
    pub(super) fn remove(self: &Arc<Self>, mailbox: &Mailbox) {
        let id = mailbox.id;
        self.change(move |threads| threads.forget(id));
    }

    fn forget(&self, id: u64) {
        let mut list = self.list();
        let gone: Vec<_> = list.extract_if(.., |(_, own)| own.id == id).collect();
        drop(list);
        drop(gone);
    }

    fn list(&self) -> RwLockWriteGuard<'_, Vec<(Arc<Shared>, Arc<Mailbox>)>> {
        self.served.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list: on another thread where the caller serves calls, since the caller may hold the list.
    fn change(self: &Arc<Self>, change: impl FnOnce(&Self) + Send + 'static) {
        if !super::services::is_server_thread() {
            change(self);
            return;
        }
        let threads = Arc::clone(self);
        release_elsewhere(Deferred(Some(Box::new(move || change(&threads)))));
    }

    /// Serves calls, on a thread with waiting kernels; whether there were any calls.
    fn help(&self) -> bool {
        // A function served here may run kernels of its own.
        if super::services::is_server_thread() {
            return false;
        }
        let Ok(served) = self.served.try_read() else {
            return false;
        };
        // Uncalled services would be looked at port by port for each call of others.
        let last = self.last.load(Ordering::Relaxed);
        let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        if !passes.is_multiple_of(GLANCES)
            && let Some((services, mailbox)) = served.get(last)
            && services.help(mailbox) > 0
        {
            return true;
        }
        let mut calls = 0;
        for (index, (services, mailbox)) in served.iter().enumerate() {
            let own = services.help(mailbox);
            if own > 0 {
                self.last.store(index, Ordering::Relaxed);
            }
            calls += own;
        }
        calls > 0
    }
}

/// A change done when dropped.
struct Deferred(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(change) = self.0.take() {
            change();
        }
    }
}

/// A kernel's thread while it serves.
struct Serving;

impl Serving {
    fn begin(services: &Shared) -> Self {
        services.serve_on_this_thread();
        Self
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        serve_device(None);
        super::services::end_serving();
    }
}

impl Shared {
    /// Serves calls at a mailbox on a kernel's thread; the number of calls served.
    fn help(&self, mailbox: &Mailbox) -> usize {
        let shared = &self.role;
        if !shared.visited.load(Ordering::Relaxed) {
            shared.visited.store(true, Ordering::Relaxed);
        }
        if shared.left.load(Ordering::Acquire) {
            return 0;
        }
        let Some(mut role) = shared.try_take() else {
            return 0;
        };
        if self.is_stopped() {
            return 0;
        }
        let Role {
            known,
            mailboxes,
            rhythm,
            ..
        } = &mut *role;
        let own = |(known, _): &&mut (Arc<Mailbox>, Sweeper)| known.id == mailbox.id;
        let Some((_, sweeper)) = mailboxes.iter_mut().find(own) else {
            // The server thread was told when the mailbox was added.
            return 0;
        };
        let _serving = Serving::begin(self);
        let dispatcher = Dispatcher::of_kernel_thread(self, known);
        let mut served = mailbox.glance(sweeper, &dispatcher);
        if rhythm.is_time(served) {
            let others = mailbox.sweep(sweeper, &dispatcher);
            rhythm.found(others);
            served += others;
        }
        if dispatcher.has_left() && !shared.left.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_for_the_server_thread_once_it_has_the_role() {
        let shared = SharedRole::default();
        let role = shared.try_take().unwrap();
        shared.left.store(true, Ordering::Release);
        assert!(shared.try_take_first().is_none());
        assert!(shared.left.load(Ordering::Acquire), "nobody has looked");
        drop(role);
        drop(shared.try_take_first().unwrap());
        assert!(!shared.left.load(Ordering::Acquire));
        shared.wait();
    }

    #[test]
    fn all_ports_are_looked_at_as_often_as_calls_are_found_there() {
        let mut rhythm = Rhythm::default();
        // Looks at all ports in so many visits, with one call at busy ports each, and so many at others.
        let mut looks = |visits: usize, others: usize| {
            let is_look = |_: &usize| {
                let is_look = rhythm.is_time(1);
                if is_look {
                    rhythm.found(others);
                }
                is_look
            };
            (0..visits).filter(is_look).count()
        };
        assert_eq!(looks(127, 0), 7, "after 1, 2, 4, 8, 16, 32 and 64");
        assert_eq!(looks(640, 0), 10);
        assert_eq!(looks(127, 1), 7);
        assert_eq!(looks(100, 1), 100);
        assert!(rhythm.is_time(0), "nothing at busy ports");
    }

    #[test]
    fn a_visit_is_told_once() {
        let shared = SharedRole::default();
        assert!(!shared.was_visited());
        shared.visited.store(true, Ordering::Relaxed);
        assert!(shared.was_visited());
        assert!(!shared.was_visited());
    }
}
