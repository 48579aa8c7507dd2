//! A stack of its own for work-groups, so that one that waits for others can be left and taken up again.
//!
//! A work-group cannot be moved to another stack once it runs. So all of them run on fibers, one after the other on the
//! same as long as none waits. One that does keeps its fiber, and a fresh one goes on with the next work-group.
//!
//! A fiber is also what a fault leaves ([`fault`](super::fault)): the stack with the kernel on it is given up, and the
//! thread goes on.

use std::{
    cell::{Cell, RefCell},
    ffi::c_void,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};

use super::{
    fault::{self, Fault},
    grid::Grid,
    loss::{self, Loss},
    scratch::Scratch,
};
use crate::compile::{
    abi::{Group, POLL_STOP, POLL_WAITS, STOPPED},
    host::FUNCTIONS,
};

/// Bytes of a stack. Kernels keep arrays elsewhere; what they call is shallow.
const STACK_BYTES: usize = 256 * 1024;

/// How long a work-group that works and may wait as well keeps its thread from others.
const SLICE: Duration = Duration::from_millis(1);

/// Calls by a waiting kernel that nobody else needs the thread for, before the system is asked whether another process
/// does: some ten microseconds.
const SPINS: u32 = 256;

/// What a fiber is made of, kept for the next one.
pub(super) struct Parts {
    stack: DefaultStack,
    scratch: Box<Scratch>,
}

impl Parts {
    /// # Errors
    /// If the system has no memory for a stack.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            stack: DefaultStack::new(STACK_BYTES)?,
            scratch: Box::new(Scratch::empty()),
        })
    }
}

/// How a fiber stands after it ran.
pub(super) enum Run {
    /// It waits for other work-groups.
    Waits(Fiber),
    /// It has no work any more.
    Ended(Parts),
}

/// How the code on a fiber came to its end.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// There was no work-group any more.
    Done,
    /// A kernel did what a processor does not do.
    Fault(Fault),
    /// [`Report::panic`] has the message.
    Panicked,
}

/// What the code on a fiber reports to whoever resumes it.
#[derive(Default)]
struct Report {
    /// Work-groups that are claimed and have not ended
    claimed: Cell<u64>,
    panic: RefCell<String>,
}

/// Work-groups of a grid on a stack.
///
/// A fiber that has been started must be resumed until it ends: it cannot be dropped before.
pub(super) struct Fiber {
    coroutine: Coroutine<(), (), End, DefaultStack>,
    /// What the coroutine has pointers to
    grid: Arc<Grid>,
    scratch: Box<Scratch>,
    report: Box<Report>,
}

impl Fiber {
    /// A fiber that will claim work-groups of a grid until there are none.
    pub(super) fn new(grid: Arc<Grid>, parts: Parts) -> Self {
        let Parts { stack, mut scratch } = parts;
        let report = Box::<Report>::default();
        let of = NonNull::from(&*grid);
        let memory = NonNull::from(&mut *scratch);
        let reported = NonNull::from(&*report);
        let body = move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: the fiber owns the grid's handle, the scratch and the report, in places that do not move, and
            // neither uses the scratch nor drops any of them before the coroutine has ended.
            let (grid, scratch, report) =
                unsafe { (of.as_ref(), &mut *memory.as_ptr(), reported.as_ref()) };
            match catch_unwind(AssertUnwindSafe(|| run(grid, scratch, report, yielder))) {
                Ok(()) => End::Done,
                Err(panic) => {
                    report.panic.replace(loss::message(&*panic));
                    End::Panicked
                }
            }
        };
        // SAFETY: what `body` points to lives as long as the fiber, as said above.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Self {
            coroutine,
            grid,
            scratch,
            report,
        }
    }

    /// Runs until the work-group waits or there is none any more.
    pub(super) fn resume(mut self) -> Run {
        let code = self.grid.kernel.code();
        let resumed = fault::catching(code, self.coroutine.trap_handler(), || {
            self.coroutine.resume(())
        });
        let end = match resumed {
            CoroutineResult::Yield(()) => return Run::Waits(self),
            CoroutineResult::Return(end) => end,
        };
        let loss = match end {
            End::Done => None,
            End::Fault(fault) => Some(fault.loss(&self.grid.kernel.name)),
            End::Panicked => Some(Loss::Panicked {
                message: self.report.panic.take(),
            }),
        };
        if let Some(loss) = loss {
            self.grid.fail(loss);
            self.grid.end(self.report.claimed.get());
        }
        Run::Ended(Parts {
            stack: self.coroutine.into_stack(),
            scratch: self.scratch,
        })
    }
}

/// What a kernel that polls comes back to.
struct Runtime<'a> {
    grid: &'a Grid,
    yielder: &'a Yielder<(), ()>,
    /// When the fiber was resumed last
    since: Cell<Option<Instant>>,
    /// Calls in a row that found nobody else to run
    alone: Cell<u32>,
}

impl Runtime<'_> {
    fn poll(&self, reason: u32) -> u32 {
        if self.grid.is_stopped() {
            return STOPPED;
        }
        if reason == POLL_STOP {
            return 0;
        }
        let wanted = self.grid.is_open() || OTHERS.get()();
        if wanted && (reason == POLL_WAITS || self.slice_is_over()) {
            self.alone.set(0);
            self.since.set(None);
            self.yielder.suspend(());
        } else if reason == POLL_WAITS {
            let alone = self.alone.get() + 1;
            self.alone.set(alone % (SPINS + 16));
            if alone > SPINS {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        u32::from(self.grid.is_stopped()) * STOPPED
    }

    fn slice_is_over(&self) -> bool {
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        now.duration_since(since) >= SLICE
    }
}

thread_local! {
    /// Whether somebody else could use this thread. Set by who resumes fibers.
    pub(super) static OTHERS: Cell<fn() -> bool> = const { Cell::new(|| false) };
}

/// Runs work-groups until nobody has any left.
fn run(grid: &Grid, scratch: &mut Scratch, report: &Report, yielder: &Yielder<(), ()>) {
    let kernel = &*grid.kernel;
    let enough = scratch.reserve(kernel.workgroup_bytes, kernel.frame_bytes);
    let Some((workgroup, frames)) = scratch.parts().filter(|_| enough) else {
        grid.fail(Loss::OutOfMemory {
            kernel: kernel.name.clone(),
            bytes: kernel.workgroup_bytes.saturating_add(kernel.frame_bytes),
        });
        return;
    };
    let mut runtime = Runtime {
        grid,
        yielder,
        since: Cell::new(None),
        alone: Cell::new(0),
    };
    let mut group = Group {
        resources: grid.buffers.as_ptr(),
        immediates: grid.immediates.as_ptr(),
        tables: kernel.tables.as_ptr(),
        workgroup: workgroup.as_ptr(),
        frames: frames.as_ptr(),
        stop: grid.stop.as_ptr(),
        poll,
        functions: FUNCTIONS.as_ptr(),
        runtime: NonNull::from(&mut runtime).as_ptr().cast::<c_void>(),
        id: [0; 3],
        count: grid.count,
    };
    while let Some(claimed) = grid.claim() {
        report.claimed.set(claimed.end - claimed.start);
        if !piece(grid, claimed, &mut group) {
            grid.abandon();
        }
        grid.end(report.claimed.take());
    }
}

/// Runs some work-groups. Returns `false` if one had to stop.
fn piece(grid: &Grid, groups: Range<u64>, group: &mut Group) -> bool {
    let kernel = &*grid.kernel;
    let [x, y, _] = grid.count;
    let mut id = grid.id(groups.start);
    for _ in groups {
        if grid.is_stopped() {
            return false;
        }
        if grid.zero_workgroup && kernel.workgroup_bytes > 0 {
            // SAFETY: the scratch has been made as large, and this fiber alone uses it.
            unsafe {
                group
                    .workgroup
                    .write_bytes(0, kernel.workgroup_bytes as usize)
            };
        }
        group.id = id;
        // SAFETY: the group describes what the kernel was compiled for: buffers in the order of its bindings, which the
        // commands keep alive; immediates, tables, frames and work-group memory of the sizes that it needs, which no other
        // thread writes; a stop word that the grid keeps alive; and `poll` with the runtime that it expects.
        if unsafe { (kernel.function())(group) } == STOPPED {
            return false;
        }
        id[0] += 1;
        if id[0] == x {
            id[0] = 0;
            id[1] += 1;
            if id[1] == y {
                id[1] = 0;
                id[2] = id[2].wrapping_add(1);
            }
        }
    }
    true
}

/// Called by kernels in loops that may run long. See [`crate::compile::abi::PollFn`].
unsafe extern "C" fn poll(group: *mut Group, reason: u32) -> u32 {
    // SAFETY: kernels pass the group on that `run` made, whose runtime lives on the stack of this fiber.
    let runtime = unsafe { &*(*group).runtime.cast::<Runtime<'_>>() };
    runtime.poll(reason)
}
