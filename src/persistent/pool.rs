//! Servers of one program on several devices, behind one typed handle.
//!
//! # How it works
//!
//! 1. A call goes to the member with the fewest calls of the pool under way; of several, to the next in turn.
//! 2. A failed or stopped member gets no calls. Calls under way there are told, as by any server: whether the handlers
//!    have run is not known, so no call is made again.
//! 3. The finder of a lost member has a thread mend the member: the server is started again, and after a second failure
//!    without an answered call in between replaced by a newly made server, perhaps on another device. Attempts become
//!    rarer, from every 10 ms to every 10 s.

mod function;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::PersistentKernel;
use super::core::Stage;
use super::error::ServerError;
use crate::clock::Instant;
use crate::device::exit;
use crate::device::wait::lock;

pub use function::{PooledCall, PooledFunction};

/// Between two attempts to mend a member: the first, and the longest.
const ATTEMPTS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));
/// Failures in a row before a member is put together anew.
const FAILURES: u32 = 2;

/// Puts a member together.
type Start = dyn Fn(usize) -> Result<PersistentKernel, String> + Send + Sync;

/// Servers of one program, mostly one on each device, called through a single handle: each call goes to the member with
/// the fewest calls under way, and lost members are started again.
///
/// ```
/// use tombolo::{Context, PersistentKernel, Program, server::ServerPool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// let program = Program::new("square.wgsl", "fn square(x: f32) -> f32 { return x * x; }")?;
/// let adapters = context.adapters();
/// let pool = ServerPool::start(adapters.len(), move |member| {
///     let device = context.device_at(adapters[member].index)?;
///     Ok::<_, tombolo::Error>(PersistentKernel::builder(&device, &program).handler("square").start()?)
/// })?;
/// let square = pool.function::<(f32,), f32>("square")?;
/// assert_eq!(square.call(&(3.0,))?, 9.0);
/// let all = square.call_many(&[(1.0,), (2.0,), (3.0,)]);             // members share the calls
/// let all: Result<Vec<f32>, _> = all.into_iter().collect();
/// assert_eq!(all?, [1.0, 4.0, 9.0]);
/// # Ok(()) }
/// ```
///
/// State kept by handlers on a device, such as device globals, belongs to a single member. Dropping the pool and its
/// handles stops the servers.
pub struct ServerPool {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    start: Box<Start>,
    members: Box<[Member]>,
    /// The next member in turn.
    turn: AtomicUsize,
    is_stopped: AtomicBool,
    restarts: AtomicU64,
}

/// A member of a pool: a replaceable server.
pub(super) struct Member {
    server: Mutex<Arc<PersistentKernel>>,
    /// Calls of the pool on their way.
    load: AtomicUsize,
    /// Since the last answered call.
    failures: AtomicUsize,
    mending: Mutex<Mending>,
}

/// When a lost member may be mended next.
struct Mending {
    is_under_way: bool,
    next: Option<Instant>,
    pause: Duration,
}

impl ServerPool {
    /// Starts `members` servers: `start` is called with the number of each, from 0, and once more for a member
    /// impossible to start again unchanged, for instance because its device is lost.
    ///
    /// # Errors
    /// [`ServerError::EmptyPool`] without members; the errors of `start`.
    pub fn start<E: From<ServerError> + Display>(
        members: usize,
        start: impl Fn(usize) -> Result<PersistentKernel, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        if members == 0 {
            return Err(ServerError::EmptyPool.into());
        }
        let started: Result<Box<[Member]>, E> = (0..members)
            .map(|member| Ok(Member::new(start(member)?)))
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                start: Box::new(move |member| start(member).map_err(|error| error.to_string())),
                members: started?,
                turn: AtomicUsize::new(0),
                is_stopped: AtomicBool::new(false),
                restarts: AtomicU64::new(0),
            }),
        })
    }

    /// The present servers, by the numbers of the members.
    pub fn servers(&self) -> Vec<Arc<PersistentKernel>> {
        (self.shared.members.iter()).map(Member::server).collect()
    }

    /// How often a lost member was started again, or replaced.
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Ordering::Relaxed)
    }

    /// Stops all servers, as [`PersistentKernel::stop`] does; none is started again.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        for member in &self.shared.members {
            member.server().stop();
        }
    }
}

impl Member {
    fn new(server: PersistentKernel) -> Self {
        Self {
            server: Mutex::new(Arc::new(server)),
            load: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            mending: Mutex::new(Mending {
                is_under_way: false,
                next: None,
                pause: ATTEMPTS.0,
            }),
        }
    }

    fn server(&self) -> Arc<PersistentKernel> {
        Arc::clone(&lock(&self.server))
    }

    fn is_lost(&self) -> bool {
        lock(&self.server).core.stage() != Stage::Running
    }

    /// Notes an answered call.
    fn answered(&self) {
        if self.failures.swap(0, Ordering::Relaxed) != 0 {
            lock(&self.mending).pause = ATTEMPTS.0;
        }
    }
}

impl Shared {
    /// The member for the next call: of the serving members, the one with the fewest calls. If none serves, any: its
    /// server says why.
    fn pick(self: &Arc<Self>) -> usize {
        let members = self.members.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut best: Option<(usize, usize)> = None;
        for step in 0..members {
            let index = turn.wrapping_add(step) % members;
            let member = &self.members[index];
            if member.is_lost() {
                self.mend(index);
                continue;
            }
            let load = member.load.load(Ordering::Relaxed);
            if best.is_none_or(|(_, least)| load < least) {
                best = Some((index, load));
            }
        }
        best.map_or(turn % members, |(index, _)| index)
    }

    /// Has a thread start a lost member again, unless a thread does, or did just now.
    fn mend(self: &Arc<Self>, index: usize) {
        let member = &self.members[index];
        {
            let mut mending = lock(&member.mending);
            let now = Instant::now();
            let is_early = mending.next.is_some_and(|next| now < next);
            if self.is_stopped.load(Ordering::SeqCst) || mending.is_under_way || is_early {
                return;
            }
            mending.is_under_way = true;
            mending.next = now.checked_add(mending.pause);
            mending.pause = (mending.pause * 2).min(ATTEMPTS.1);
        }
        // The pool may go meanwhile, together with the servers: the last holder is this thread then.
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name("tombolo pool".to_owned())
            .spawn(move || exit::inside(|| mended(&weak, index)));
        if let Err(error) = thread {
            log::error!("no thread to start member {index} of a pool of servers again: {error}");
            lock(&member.mending).is_under_way = false;
        }
    }
}

/// Starts a member again, or puts another server in its place.
fn mended(shared: &Weak<Shared>, index: usize) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let member = &shared.members[index];
    let failures = member.failures.fetch_add(1, Ordering::Relaxed) as u32 + 1;
    let restarted = match failures < FAILURES {
        true => (member.server().restart()).map_err(|error| error.to_string()),
        false => (shared.start)(index).map(|server| *lock(&member.server) = Arc::new(server)),
    };
    match restarted {
        Ok(()) => {
            shared.restarts.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => log::error!("member {index} of a pool of servers is not started: {error}"),
    }
    if shared.is_stopped.load(Ordering::SeqCst) {
        // Stopped before the server was there to be.
        member.server().stop();
    }
    lock(&member.mending).is_under_way = false;
}

impl std::fmt::Debug for ServerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerPool")
            .field("servers", &self.servers())
            .finish_non_exhaustive()
    }
}
