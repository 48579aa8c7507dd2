//! Fibers: stacks for work-groups, so that a waiting work-group can be suspended and resumed.
//!
//! A running work-group cannot move to another stack. So all work-groups run on fibers, one after the other on the same
//! fiber as long as none waits. A waiting work-group keeps its fiber, and a fresh fiber goes on with the next
//! work-group.
//!
//! A fault is also left by way of the fiber ([`fault`](super::fault)): the kernel's stack is given up, and the thread
//! goes on.

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
    reduction::Copies,
    scratch::Scratch,
};
use crate::{
    compile::{
        abi::{Group, PASSES_WAITING, POLL_STOP, POLL_WAITS, STOPPED},
        host::FUNCTIONS,
    },
    sanitizer::observing,
};

/// Bytes of a stack. Kernels keep arrays elsewhere, and call only shallow functions.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// How long a work-group with both work and waits keeps its thread from others.
const SLICE: Duration = Duration::from_millis(1);

/// Calls by a waiting kernel, with no other work for the thread, before the thread is offered to other processes: some
/// ten microseconds.
const SPINS: u32 = 256;

/// Memory of a fiber, kept for the next fiber.
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

/// The state of a fiber after a resume.
pub(super) enum Run {
    /// The work-group waits for others.
    Waits(Fiber),
    /// There is no more work.
    Ended(Parts),
}

/// How the code on a fiber ended.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// No work-group was left.
    Done,
    /// The processor refused an operation of the kernel.
    Fault(Fault),
    /// [`Report::panic`] has the message.
    Panicked,
}

/// The report of the code on a fiber to the resuming thread.
#[derive(Default)]
struct Report {
    /// Claimed work-groups without an end yet
    claimed: Cell<u64>,
    panic: RefCell<String>,
}

/// Work-groups of a grid on a stack.
///
/// A started fiber must be resumed until its end, and not dropped before.
pub(super) struct Fiber {
    coroutine: Coroutine<(), (), End, DefaultStack>,
    /// Memory pointed to by the coroutine
    grid: Arc<Grid>,
    scratch: Box<Scratch>,
    report: Box<Report>,
}

impl Fiber {
    /// A fiber to claim work-groups of a grid until none are left.
    pub(super) fn new(grid: Arc<Grid>, parts: Parts) -> Self {
        let Parts { stack, mut scratch } = parts;
        let report = Box::<Report>::default();
        let of = NonNull::from(&*grid);
        let memory = NonNull::from(&mut *scratch);
        let reported = NonNull::from(&*report);
        let body = move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: the fiber owns the grid's handle, the scratch and the report, at fixed addresses, and neither
            // uses the scratch nor drops any of the three before the coroutine has ended.
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
        // SAFETY: the targets of `body`'s pointers live as long as the fiber, as said above.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Self {
            coroutine,
            grid,
            scratch,
            report,
        }
    }

    /// Runs until the work-group waits or none is left.
    pub(super) fn resume(mut self) -> Run {
        let code = self.grid.kernel.code();
        let handler = self.coroutine.trap_handler();
        let coroutine = &mut self.coroutine;
        let resumed = observing(self.grid.monitor.as_deref(), || {
            fault::catching(code, handler, || coroutine.resume(()))
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

/// The state behind a kernel's calls of `poll`.
struct Runtime<'a> {
    grid: &'a Grid,
    yielder: &'a Yielder<(), ()>,
    /// When the fiber was resumed last
    since: Cell<Option<Instant>>,
    /// Calls in a row without other work for the thread
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
        let helped = reason == POLL_WAITS && HELPED.get();
        let wanted = helped || self.grid.is_open() || OTHERS.get()();
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
        // By the clock, no run could be had again.
        if self.grid.is_ordered() {
            return true;
        }
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        now.duration_since(since) >= SLICE
    }
}

thread_local! {
    /// Whether other work could use this thread. Set by the threads that resume fibers.
    pub(super) static OTHERS: Cell<fn() -> bool> = const { Cell::new(|| false) };
    /// Whether this thread may itself end the waits of its work-groups. Set as above.
    pub(super) static HELPED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work-groups until none is left to claim.
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
        apart: u32::from(grid.reductions.is_alone()),
        // An answer made on the kernel's own thread does not come while the kernel looks.
        waited: if HELPED.get() { PASSES_WAITING } else { 0 },
    };
    let mut copies = None;
    while let Some(claimed) = grid.claim() {
        if report.claimed.get() == 0 {
            copies = grid.reductions.begin(&grid.buffers, &mut scratch.copies);
            if let Some(Copies { resources }) = &copies {
                group.resources = resources.as_ptr();
                group.apart = 1;
            }
        }
        report
            .claimed
            .set(report.claimed.get() + claimed.end - claimed.start);
        if !piece(grid, claimed, &mut group) {
            grid.abandon();
        }
        if copies.is_none() {
            grid.end(report.claimed.take());
        }
    }
    // Work-groups have ended when their counts are in the buffers.
    if let Some(copies) = copies {
        grid.reductions.end(&grid.buffers, &copies);
        grid.end(report.claimed.take());
    }
}

/// Runs some work-groups. Returns `false` if a work-group had to stop.
fn piece(grid: &Grid, groups: Range<u64>, group: &mut Group) -> bool {
    let kernel = &*grid.kernel;
    let [width, height, _] = grid.count;
    // Each in a register: a copy of an array with a first number just written waits for the write to reach the cache.
    let [mut x, mut y, mut z] = grid.id(groups.start);
    for place in groups {
        if grid.is_ordered() {
            [x, y, z] = grid.id_at(place);
        }
        if grid.is_stopped() {
            return false;
        }
        if grid.zero_workgroup && kernel.workgroup_bytes > 0 {
            // SAFETY: the scratch has at least this size, and only this fiber uses the scratch.
            unsafe {
                group
                    .workgroup
                    .write_bytes(0, kernel.workgroup_bytes as usize)
            };
        }
        group.id = [x, y, z];
        // SAFETY: the group matches the compiled kernel: buffers in the order of the kernel's bindings, kept alive by
        // the commands; immediates, tables, frames and work-group memory of the required sizes, written by no other
        // thread; a stop word kept alive by the grid; and `poll` with its runtime.
        if unsafe { (kernel.function())(group) } == STOPPED {
            return false;
        }
        if let Some(monitor) = &grid.monitor {
            monitor.end_group([x, y, z]);
        }
        x += 1;
        if x == width {
            x = 0;
            y += 1;
            if y == height {
                y = 0;
                z = z.wrapping_add(1);
            }
        }
    }
    true
}

/// Called by kernels in possibly long loops. See [`crate::compile::abi::PollFn`].
unsafe extern "C" fn poll(group: *mut Group, reason: u32) -> u32 {
    // SAFETY: kernels pass on the group made by `run`, with a runtime on the stack of this fiber.
    let runtime = unsafe { &*(*group).runtime.cast::<Runtime<'_>>() };
    runtime.poll(reason)
}
