//! Serving: the work of a thread taking calls out of the ports of all devices, and the thread's way to sleep.

use std::sync::atomic::Ordering;

use super::Shared;
use crate::clock::Instant;
use crate::device::release::release_elsewhere;
use crate::device::submissions::{serve, serve_device};
use crate::rpc::dispatcher::{Dispatcher, Known};
use crate::rpc::kernel_threads::{Role, SharedRole};
use crate::rpc::mailbox::Mailbox;
use crate::rpc::port::server::Sweeper;

thread_local! {
    static IS_SERVER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether the current thread serves calls, of any services.
pub(crate) fn is_server_thread() -> bool {
    IS_SERVER.get()
}

/// Notes that the current thread serves calls.
pub(crate) fn begin_serving() {
    IS_SERVER.set(true);
}

/// Notes that the current thread serves no more.
pub(in crate::rpc) fn end_serving() {
    IS_SERVER.set(false);
}

/// A server thread's view of the ports.
struct Pass {
    /// Calls served.
    served: usize,
    /// Kernels' threads could have done all the work.
    is_spare: bool,
}

/// Looks at busy ports between two sweeps of all ports.
const GLANCES: usize = 8;

impl Shared {
    /// Notes that the current thread serves the services' functions.
    pub(in crate::rpc) fn serve_on_this_thread(&self) {
        begin_serving();
        serve(&self.crew);
    }

    /// Serves calls left behind by launches, on the current thread, where no thread of the services' own does.
    /// Functions run with nothing locked; a function awaiting a launch itself does not get here again.
    pub(crate) fn serve_here(&self) {
        if !self.served_here || IS_SERVER.get() {
            return;
        }
        self.serve_on_this_thread();
        let known = Known::new(self);
        let dispatcher = Dispatcher::new(self, 0, &known);
        for mailbox in self.mailboxes() {
            let mut sweeper = Sweeper::default();
            while mailbox.sweep(&mut sweeper, &dispatcher) > 0 {}
        }
        serve_device(None);
        end_serving();
    }

    /// The loop of server thread number `thread`.
    pub(in crate::rpc) fn run(&self, thread: usize) {
        self.serve_on_this_thread();
        // With several threads, each has a role of its own.
        let own = SharedRole::default();
        let shared = if self.threads == 1 { &self.role } else { &own };
        let (mut quiet, mut naps) = (0u32, 0u32);
        // When the last call was served, or the thread was woken; noticed when there is time to look at a clock.
        let mut since = None;
        loop {
            let stopped = self.is_stopped();
            let rung = self.bell.count();
            let pass =
                (shared.try_take_first()).map(|mut role| self.pass(thread, &mut role, stopped));
            if stopped {
                // One last sweep, since an ever-posting client must not keep the thread. The sweep may drop the last
                // handle of a device; by then no call is served.
                serve_device(None);
                return;
            }
            let pass = pass.unwrap_or(Pass {
                served: 0,
                is_spare: true,
            });
            if pass.is_spare && shared.was_visited() && !self.idle.longest_sleep.is_zero() {
                // Kernels' threads serve, on processors of their own.
                quiet = self.idle.looks.saturating_add(1);
                naps = naps.max(1);
            } else if pass.served > 0 {
                (quiet, naps, since) = (0, 0, None);
                continue;
            } else {
                quiet = quiet.saturating_add(1);
            }
            let idle = || since.get_or_insert_with(Instant::now).elapsed();
            let Some(time) = self.idle.after(quiet, naps, idle) else {
                std::hint::spin_loop();
                continue;
            };
            self.bell.sleep(rung, time);
            naps = naps.saturating_add(1);
            if self.bell.count() != rung {
                (quiet, naps, since) = (0, 0, None);
            }
        }
    }

    /// Looks at all ports once, and at the busy ones some times.
    fn pass(&self, thread: usize, role: &mut Role, stopped: bool) -> Pass {
        let version = self.version.load(Ordering::Acquire);
        if role.version != version {
            if role.version == 0 {
                role.known = Known::new(self);
            }
            role.version = version;
            let current = (self.mailboxes().into_iter())
                .map(|mailbox| (mailbox, Sweeper::default()))
                .collect();
            let former = std::mem::replace(&mut role.mailboxes, current);
            let is_gone = |mailbox: &Mailbox| !mailbox.is_alive();
            if former.iter().any(|(mailbox, _)| is_gone(mailbox)) {
                // Kernels of other devices wait for this thread.
                release_elsewhere(former);
            }
        }
        let Role {
            known, mailboxes, ..
        } = role;
        let dispatcher = Dispatcher::new(self, thread, known);
        let sweeps = mailboxes.iter_mut();
        let mut served: usize = sweeps
            .map(|(mailbox, sweeper)| mailbox.sweep(sweeper, &dispatcher))
            .sum();
        // A recent caller is likely to call again; other callers are found by the next sweep.
        for _ in 0..if stopped { 0 } else { GLANCES } {
            let glances = mailboxes.iter_mut();
            served += glances
                .map(|(mailbox, sweeper)| mailbox.glance(sweeper, &dispatcher))
                .sum::<usize>();
        }
        // Ports left by clients wait until the next are made.
        let mut alive = mailboxes.iter().filter(|(mailbox, _)| mailbox.is_alive());
        let only = alive.next().filter(|(only, _)| only.has_kernel_threads());
        let is_alone = only.is_some() && alive.next().is_none();
        Pass {
            served,
            is_spare: is_alone && dispatcher.was_quick(),
        }
    }
}
