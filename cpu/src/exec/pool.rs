//! Threads for work-groups.
//!
//! *Promises.* Every work-group of a dispatch is begun, even if running work-groups wait for others, as long as at most
//! [`MAX_WAITING`] work-groups wait on each thread: a waiting work-group gives its thread to the next. With more in need of each
//! other, all wait until somebody stops the dispatch; the log has a warning. That is no loss of the device: the waits may as well
//! be for the host. A loop counts as waiting
//! if memory is polled by atomic operations; polling by plain loads is a data race, without a promise.
//!
//! *Help.* Waiting work-groups may wait for work within reach of their own thread: answers of functions of the process, for
//! example. A pool with a [`Helper`] asks the helper whenever some work-groups have begun to wait, on the thread's own stack,
//! before other work-groups begin.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use super::{
    fiber::{Fiber, HELPED, OTHERS, Parts, Run, STACK_BYTES},
    float::Exact,
    grid::{Dispatch, Grid},
    loss::Loss,
};

/// The most waiting work-groups on one thread. With as many, no others are begun there.
pub(crate) const MAX_WAITING: usize = 4096;

/// Stacks kept by a thread for later.
const KEPT: usize = 4;

/// Work-groups that begin to wait before a helper is asked: enough for a common look at all their waits to pay, and few enough
/// for their stacks to stay in the processor's caches.
const ASKED_AFTER: usize = 8;

/// Rounds in vain of a thread with a helper before the thread is offered to other processes.
const ROUNDS: usize = 64;

/// A thread's work for its waiting work-groups; returns whether anything was done. Panics count as nothing done.
pub(crate) type Helper = Arc<dyn Fn() -> bool + Send + Sync>;

/// The helper of a pool, given to it once at most.
type Helping = Arc<OnceLock<Helper>>;

/// Threads helping the owner of a grid.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// The most threads of a grid, with the owner's
    threads: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// The number of listed grids, readable without the lock
    listed: Arc<AtomicUsize>,
    helping: Helping,
}

#[derive(Default)]
struct State {
    /// Grids with work-groups to claim
    grids: Vec<Arc<Grid>>,
    /// Living threads
    helpers: usize,
    /// Threads without work
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grid with work-groups to claim.
    fn pick(&self, state: &mut State) -> Option<Arc<Grid>> {
        state.grids.retain(|grid| grid.is_open());
        self.listed.store(state.grids.len(), Ordering::Relaxed);
        state.grids.first().cloned()
    }
}

impl Pool {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            shared: Arc::default(),
            threads: threads.max(1),
        }
    }

    /// The most threads working at a time, the asking thread included.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Has threads with waiting work-groups ask `helper`. Returns `false` if the pool has a helper already.
    pub(crate) fn help_by(&self, helper: Helper) -> bool {
        self.shared.helping.set(helper).is_ok()
    }

    /// Whether this thread is with the pool's helper now, so that work-groups of the pool wait for the thread.
    pub(crate) fn is_helping(&self) -> bool {
        HELPING.get() == Arc::as_ptr(&self.shared.helping)
    }

    /// Runs a dispatch on this thread and helpers, and returns after the end.
    ///
    /// # Errors
    /// If a work-group could not be run, or failed.
    pub(crate) fn run(&self, dispatch: Dispatch, stop: &Arc<AtomicU32>) -> Result<(), Loss> {
        let grid = Arc::new(Grid::new(dispatch, stop.clone(), self.threads as u64));
        if self.threads > 1 {
            self.ask_for_help(&grid);
        }
        work(&grid, Some(&self.shared.helping));
        while !grid.has_ended() {
            std::thread::park();
        }
        if self.threads > 1 {
            // No thread claims any more, but the list would keep the grid's resources.
            self.shared
                .lock()
                .grids
                .retain(|other| !Arc::ptr_eq(other, &grid));
        }
        grid.failure().cloned().map_or(Ok(()), Err)
    }

    /// Runs a dispatch on this thread alone.
    ///
    /// # Errors
    /// If a work-group could not be run, or failed.
    pub(crate) fn run_alone(dispatch: Dispatch, stop: &Arc<AtomicU32>) -> Result<(), Loss> {
        let grid = Arc::new(Grid::new(dispatch, stop.clone(), 1));
        work(&grid, None);
        grid.failure().cloned().map_or(Ok(()), Err)
    }

    fn ask_for_help(&self, grid: &Arc<Grid>) {
        let mut state = self.shared.lock();
        state.grids.push(grid.clone());
        self.shared
            .listed
            .store(state.grids.len(), Ordering::Relaxed);
        let most = self.threads - 1;
        let missing = most
            .saturating_sub(state.idle)
            .min(most - state.helpers.min(most));
        for _ in 0..missing {
            let shared = Arc::downgrade(&self.shared);
            match spawn("tombolo-cpu", move || help(&shared)) {
                Ok(()) => state.helpers += 1,
                // The owner of the grid then runs the grid with the existing threads.
                Err(error) => {
                    log::warn!("a thread for work-groups cannot be started: {error}");
                    break;
                }
            }
        }
        drop(state);
        self.shared.wake.notify_all();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

/// Starts a thread for work-groups, with the stack for a work-group from the beginning: later there may be no memory for a stack,
/// and a grid taken on by the thread would fail.
///
/// # Errors
/// If the system has no thread, or no memory for the stack.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let parts = Parts::new()?;
    let work = move || {
        PARTS.with_borrow_mut(|kept| kept.push(parts));
        work();
    };
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).map(drop)
}

/// The loop of a helper thread: work-groups of any grid, and waiting work-groups by turns.
fn help(shared: &Weak<Shared>) {
    let _exact = Exact::enter();
    let known = shared.upgrade();
    let Some((listed, helping)) = known.map(|known| (known.listed.clone(), known.helping.clone()))
    else {
        return;
    };
    let mut waiting = Waiting::new(Some(&helping));
    LISTED.set(Some(listed.clone()));
    OTHERS.set(|| WAITING.get() > 0 || is_listed());
    loop {
        if waiting.fibers.is_empty() {
            let Some(grid) = next_grid(shared) else {
                return;
            };
            waiting.begin(&grid);
        } else if listed.load(Ordering::Relaxed) > 0
            && waiting.may_begin()
            && let Some(grid) = shared
                .upgrade()
                .and_then(|shared| shared.pick(&mut shared.lock()))
        {
            waiting.begin(&grid);
        } else {
            waiting.go_on();
        }
    }
}

/// Waits for a grid with work-groups to claim. `None` after the end of the pool.
fn next_grid(shared: &Weak<Shared>) -> Option<Arc<Grid>> {
    let shared = shared.upgrade()?;
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        if let Some(grid) = shared.pick(&mut state) {
            return Some(grid);
        }
        state.idle += 1;
        state = shared
            .wake
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

thread_local! {
    /// Unused stacks.
    static PARTS: RefCell<Vec<Parts>> = const { RefCell::new(Vec::new()) };
    /// Waiting fibers of this thread, without the running one.
    static WAITING: Cell<usize> = const { Cell::new(0) };
    /// The pool's helper running on this thread.
    static HELPING: Cell<*const OnceLock<Helper>> = const { Cell::new(std::ptr::null()) };
    /// The number of grids listed in this thread's pool.
    static LISTED: RefCell<Option<Arc<AtomicUsize>>> = const { RefCell::new(None) };
}

fn is_listed() -> bool {
    LISTED.with_borrow(|listed| {
        listed
            .as_ref()
            .is_some_and(|listed| listed.load(Ordering::Relaxed) > 0)
    })
}

/// Runs work-groups of a grid until none is left to claim, and none waits on the thread.
fn work(grid: &Arc<Grid>, helping: Option<&Helping>) {
    let _exact = Exact::enter();
    OTHERS.set(|| WAITING.get() > 0);
    let mut waiting = Waiting::new(helping);
    loop {
        if grid.is_open() && waiting.may_begin() {
            waiting.begin(grid);
        } else if waiting.fibers.is_empty() {
            return;
        } else {
            waiting.go_on();
        }
    }
}

/// Waiting fibers of a thread.
struct Waiting<'h> {
    fibers: VecDeque<Fiber>,
    /// Resumes since the last end of a fiber, and since the helper did something
    resumed: usize,
    helping: Option<&'h Helping>,
    /// Fibers that began to wait since the helper was asked
    unasked: usize,
    /// Fibers to go on before others begin: their waits may be over
    answered: usize,
    /// Fibers gone on before others began, since the last beginning
    preferred: usize,
    /// The log knows that the thread has as many fibers as it can have
    is_full_told: bool,
}

impl<'h> Waiting<'h> {
    fn new(helping: Option<&'h Helping>) -> Self {
        Self {
            fibers: VecDeque::new(),
            resumed: 0,
            helping,
            unasked: 0,
            answered: 0,
            preferred: 0,
            is_full_told: false,
        }
    }

    /// Whether another work-group may begin now. Work-groups waiting in spite of all help may wait for the beginning of others.
    /// So others begin all the same, but the more seldom the more work-groups wait: they share caches and what they wait for.
    fn may_begin(&self) -> bool {
        let rounds = ROUNDS * self.fibers.len();
        (self.answered == 0 || self.preferred >= rounds) && self.fibers.len() < MAX_WAITING
    }

    /// Begins a fiber for a grid. Without memory for a fiber, a waiting fiber goes on; without a waiting fiber, the
    /// grid fails.
    fn begin(&mut self, grid: &Arc<Grid>) {
        self.preferred = 0;
        match PARTS.with_borrow_mut(Vec::pop).map_or_else(Parts::new, Ok) {
            Ok(parts) => self.resume(Fiber::new(grid.clone(), parts)),
            Err(error) if self.fibers.is_empty() => {
                log::error!("there is no stack for a kernel: {error}");
                grid.fail(Loss::OutOfMemory {
                    kernel: grid.kernel.name.clone(),
                    bytes: STACK_BYTES as u64,
                });
            }
            Err(_) => self.go_on(),
        }
    }

    /// Resumes the fiber with the longest wait.
    fn go_on(&mut self) {
        let patience = match self.helper() {
            Some(_) => self.fibers.len().max(ROUNDS),
            None => self.fibers.len(),
        };
        if self.resumed > patience {
            // All fibers wait, for work-groups on other threads, or for the host.
            self.resumed = 0;
            std::thread::yield_now();
        }
        if let Some(fiber) = self.fibers.pop_front() {
            self.resumed += 1;
            if self.answered > 0 {
                self.answered -= 1;
                self.preferred += 1;
            }
            self.resume(fiber);
        }
    }

    fn resume(&mut self, fiber: Fiber) {
        WAITING.set(self.fibers.len());
        HELPED.set(self.helper().is_some());
        match fiber.resume() {
            Run::Waits(fiber) => {
                self.fibers.push_back(fiber);
                self.tell_if_full();
                self.unasked += 1;
                if self.unasked >= self.fibers.len().min(ASKED_AFTER) {
                    self.ask();
                }
            }
            Run::Ended(parts) => {
                self.resumed = 0;
                PARTS.with_borrow_mut(|kept| {
                    if kept.len() < KEPT {
                        kept.push(parts);
                    }
                });
            }
        }
    }

    fn tell_if_full(&mut self) {
        if self.fibers.len() >= MAX_WAITING && !self.is_full_told {
            self.is_full_told = true;
            log::warn!(
                "{MAX_WAITING} work-groups wait on a thread, and no others begin there before one goes on: if they wait for others \
                 that have not begun, launch fewer work-groups, or give the adapter more threads"
            );
        }
    }

    fn helper(&self) -> Option<&'h Helper> {
        self.helping.and_then(|helping| helping.get())
    }

    /// Lets the helper work for the waiting fibers. The helper may run the program's code, even code with devices on this thread.
    fn ask(&mut self) {
        self.unasked = 0;
        let (Some(helping), Some(helper)) = (self.helping, self.helper()) else {
            return;
        };
        let others = OTHERS.get();
        let outer = HELPING.replace(Arc::as_ptr(helping));
        let done = catch_unwind(AssertUnwindSafe(|| helper())).unwrap_or(false);
        HELPING.set(outer);
        OTHERS.set(others);
        if done {
            self.resumed = 0;
            self.answered = self.fibers.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    #[test]
    fn threads_have_a_stack_for_a_work_group_from_their_beginning() {
        let (tell, told) = channel();
        spawn("test", move || {
            let _ = tell.send(PARTS.with_borrow(Vec::len));
        })
        .unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(1));
        // The test's own thread has had no work.
        assert_eq!(PARTS.with_borrow(Vec::len), 0);
    }
}
