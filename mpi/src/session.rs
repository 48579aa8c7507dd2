//! The session: MPI from its start to its end, once for each process.
//!
//! # How it works
//! 1. MPI is started for any number of threads, and the communicator of all ranks is duplicated: for messages of the
//!    program, for calls of servers, for operators in WGSL, and for notices of failures. Errors of all communicators are
//!    returned, where MPI's own default is to end everything.
//! 2. Every call of MPI passes a gate ([`Session::enter`]). The end of the session closes the gate: handles and requests may
//!    outlive the session, and find the gate closed.
//! 3. A failing rank reports the failure to all others by a notice, a separate message. A waiting thread looks for notices
//!    from time to time, because many MPI libraries report nothing of a departed rank, whose messages just never come.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::raw::{c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{AsRaw, Communicator};
use mpi::{Threading, ffi};

use crate::error::{MpiError, Operation, check};
use crate::keeper::Keeper;
use crate::ranks::Ranks;
use crate::request::lock;

/// How long the end of a session waits for requests without a waiter.
const MOST_AT_END: Duration = Duration::from_secs(2);

/// The longest text of a notice.
const NOTICE_BYTES: usize = 1024;

/// Settings for all operations of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long a wait without an explicit time takes at most; `None`, the default, is without end. Ranks with unequal calls
    /// wait for each other: with a timeout the calls fail with [`MpiError::Deadline`], which names the call.
    pub timeout: Option<Duration>,
    /// The largest count given to MPI, in elements. Longer memory is described by blocks, and reduced in pieces. The default
    /// is the largest value of MPI's own counts; a smaller count is for tests.
    pub most_count: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: None,
            most_count: c_int::MAX as u64,
        }
    }
}

/// MPI in this process: a single value starts and ends MPI, on one thread. Other threads get [`Mpi::ranks`].
pub struct Mpi {
    session: Arc<Session>,
    /// Ends MPI on drop.
    universe: Option<Universe>,
    /// MPI ends on the thread of the start.
    stays: PhantomData<*const ()>,
}

/// A communicator, freed only by the end of MPI: freeing is an operation of all ranks, and some ranks may have failed.
type Duplicate = ManuallyDrop<SimpleCommunicator>;

/// The state shared by all handles and requests.
pub(crate) struct Session {
    /// Whether MPI may be called; closed by the end of the session.
    gate: RwLock<bool>,
    pub(crate) messages: Duplicate,
    pub(crate) calls: Duplicate,
    pub(crate) operators: Duplicate,
    notices: Duplicate,
    pub(crate) rank: i32,
    pub(crate) size: i32,
    pub(crate) most_tag: i32,
    pub(crate) options: Options,
    pub(crate) keeper: Keeper,
    /// How many calls of other ranks were begun: each call has a tag of its own for the answer.
    pub(crate) call_numbers: AtomicU32,
    /// The first rank with a reported failure, and the words of the report.
    failed: Mutex<Option<(i32, String)>>,
}

impl Mpi {
    /// Starts MPI, as a rank among the ranks started by `mpirun`; as the only rank where the program was started by itself.
    ///
    /// # Errors
    /// [`MpiError::AlreadyInitialized`], [`MpiError::Threads`], [`MpiError::Library`].
    pub fn start() -> Result<Self, MpiError> {
        Self::start_with(Options::default())
    }

    /// As [`Mpi::start`], with options.
    ///
    /// # Errors
    /// As [`Mpi::start`].
    pub fn start_with(options: Options) -> Result<Self, MpiError> {
        let started = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threads) = started.ok_or(MpiError::AlreadyInitialized)?;
        if threads != Threading::Multiple {
            return Err(MpiError::Threads {
                provided: format!("MPI_THREAD_{threads:?}").to_uppercase(),
            });
        }
        let world = universe.world();
        let messages = duplicated(&world)?;
        let session = Session {
            gate: RwLock::new(true),
            calls: duplicated(&world)?,
            operators: duplicated(&world)?,
            notices: duplicated(&world)?,
            rank: messages.rank(),
            size: messages.size(),
            most_tag: most_tag(&messages),
            messages,
            options: Options {
                most_count: options.most_count.clamp(1, c_int::MAX as u64),
                ..options
            },
            keeper: Keeper::default(),
            call_numbers: AtomicU32::new(0),
            failed: Mutex::default(),
        };
        Ok(Self {
            session: Arc::new(session),
            universe: Some(universe),
            stays: PhantomData,
        })
    }

    /// Starts MPI, runs `work`, and ends MPI. An error of `work` is reported to all other ranks, whose waits fail with
    /// [`MpiError::RankFailed`] and the words of the error.
    ///
    /// # Errors
    /// As [`Mpi::start`], and the error of `work`.
    pub fn run<T, E: From<MpiError> + std::fmt::Display>(
        options: Options,
        work: impl FnOnce(&Ranks) -> Result<T, E>,
    ) -> Result<T, E> {
        let mpi = Self::start_with(options)?;
        let ranks = mpi.ranks();
        let done = work(&ranks);
        if let Err(error) = &done {
            ranks.fail(&error.to_string());
        }
        done
    }

    /// All ranks, for messages among ranks.
    pub fn ranks(&self) -> Ranks {
        Ranks::new(Arc::clone(&self.session))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.tell_failure("its program has panicked");
        }
        self.session.keeper.wind_up(MOST_AT_END);
        let mut is_open = (self.session.gate.write()).unwrap_or_else(PoisonError::into_inner);
        *is_open = false;
        drop(is_open);
        self.session.keeper.close();
        // Waits for the other ranks to come to their ends, as MPI demands.
        drop(self.universe.take());
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mpi").field(&self.ranks()).finish()
    }
}

/// A communicator of the same ranks, with separate messages, whose errors are returned.
fn duplicated(world: &SimpleCommunicator) -> Result<Duplicate, MpiError> {
    let operation = Operation::new("start", None, None);
    let copy = world.duplicate();
    for communicator in [world, &copy] {
        // SAFETY: the communicators are live, and the handler is one of MPI's own.
        let code = unsafe {
            ffi::MPI_Comm_set_errhandler(communicator.as_raw(), ffi::RSMPI_ERRORS_RETURN)
        };
        check(operation, code, 0)?;
    }
    Ok(ManuallyDrop::new(copy))
}

/// The largest tag that MPI promises at least (MPI 3.1, section 8.1.2).
const PROMISED_TAG: i32 = 32_767;

fn most_tag(communicator: &SimpleCommunicator) -> i32 {
    let (mut value, mut is_set) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: MPI writes the address of the attribute, and whether the attribute is set.
    unsafe {
        ffi::MPI_Comm_get_attr(
            communicator.as_raw(),
            ffi::MPI_TAG_UB as c_int,
            (&raw mut value).cast(),
            &raw mut is_set,
        );
    }
    match is_set == 0 || value.is_null() {
        true => PROMISED_TAG,
        // SAFETY: the attribute is the address of a permanent number of MPI's own.
        false => unsafe { *value.cast::<c_int>() },
    }
}

impl Session {
    /// Passes the gate: MPI is there as long as the guard.
    ///
    /// # Errors
    /// [`MpiError::Finalized`].
    pub(crate) fn enter(
        &self,
        operation: Operation,
    ) -> Result<RwLockReadGuard<'_, bool>, MpiError> {
        let is_open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        match *is_open {
            true => Ok(is_open),
            false => Err(MpiError::Finalized { operation }),
        }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// Looks for notices of failed ranks.
    ///
    /// # Errors
    /// [`MpiError::RankFailed`], [`MpiError::Finalized`].
    pub(crate) fn check_others(&self, operation: Operation) -> Result<(), MpiError> {
        let mut failed = lock(&self.failed);
        if failed.is_none() {
            *failed = self.notice(operation)?;
        }
        match &*failed {
            None => Ok(()),
            Some((rank, reason)) => Err(MpiError::RankFailed {
                operation,
                rank: Some(*rank),
                reason: reason.clone(),
            }),
        }
    }

    /// The next notice, if any has come.
    fn notice(&self, operation: Operation) -> Result<Option<(i32, String)>, MpiError> {
        let _open = self.enter(operation)?;
        let notices = self.notices.as_raw();
        let mut is_there = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: MPI writes whether there is a message, and the message's status.
        let code = unsafe {
            ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                notices,
                &raw mut is_there,
                status.as_mut_ptr(),
            )
        };
        check(operation, code, 0)?;
        if is_there == 0 {
            return Ok(None);
        }
        // SAFETY: plain data, zeroed, and written by MPI.
        let source = unsafe { status.assume_init() }.MPI_SOURCE;
        let mut text = [0u8; NOTICE_BYTES];
        let mut bytes = 0;
        // SAFETY: the message is there, is no longer than the array, and only one thread at a time comes here.
        let code = unsafe {
            let code = ffi::MPI_Recv(
                text.as_mut_ptr().cast(),
                NOTICE_BYTES as c_int,
                ffi::RSMPI_UINT8_T,
                source,
                ffi::RSMPI_ANY_TAG,
                notices,
                status.as_mut_ptr(),
            );
            ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes);
            code
        };
        check(operation, code, NOTICE_BYTES as u64)?;
        let end = usize::try_from(bytes).unwrap_or_default().min(NOTICE_BYTES);
        let reason = String::from_utf8_lossy(&text[..end]).into_owned();
        Ok(Some((source, reason)))
    }

    /// Reports the failure of this rank to all other ranks. Short messages, which no receiver has to wait for. Reports
    /// nothing where another rank has failed before: all ranks have the earlier report, and the earlier failure is the cause
    /// of the failure here.
    pub(crate) fn tell_failure(&self, reason: &str) {
        let operation = Operation::new("a notice of failure", None, None);
        if self.check_others(operation).is_err() {
            return;
        }
        let Ok(_open) = self.enter(operation) else {
            return;
        };
        let end = reason.floor_char_boundary(NOTICE_BYTES);
        // Never freed: the messages may be on their way until the end of the process.
        let text: &'static [u8] = reason.as_bytes()[..end].to_vec().leak();
        for other in (0..self.size).filter(|other| *other != self.rank) {
            // SAFETY: the text stays for ever, and MPI completes the request by itself.
            unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let code = ffi::MPI_Isend(
                    text.as_ptr().cast(),
                    text.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    other,
                    0,
                    self.notices.as_raw(),
                    &raw mut request,
                );
                if code == ffi::MPI_SUCCESS as c_int {
                    ffi::MPI_Request_free(&raw mut request);
                }
            }
        }
    }
}

// SAFETY: the communicators are handles of MPI, valid in all threads of the process (`MPI_THREAD_MULTIPLE`); everything else is
// made for threads.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}
