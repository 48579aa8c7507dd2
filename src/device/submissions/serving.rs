//! Threads that serve calls of running kernels, and refused waits on such threads.
//!
//! The queue of a device is in order. So no later submission ends before a running kernel, and a kernel in wait for an
//! answer ends after the host's function behind the call: a function in wait for the caller's device would wait for
//! itself. The wait is refused ([`ExecutionError::InHandler`]) at once.
//!
//! The calling kernel among several on a device is not known, nor whether the kernel waits. When nothing runs on the
//! device any more the caller is over, and the function may wait like any other thread.
//!
//! Where threads may not wait at all, in a browser and by [`WaitPolicy::Never`](crate::device::WaitPolicy::Never), waits are
//! refused at the same places ([`ExecutionError::WouldBlock`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use super::super::outcome::ExecutionError;
use super::{Batch, Submissions};

thread_local! {
    /// The device of the calls served by this thread now; 0 for none.
    static DEVICE: Cell<u64> = const { Cell::new(0) };
    static DEVICE_NAME: RefCell<Arc<str>> = RefCell::new(Arc::from(""));
    /// The running function, in `NAMES`.
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
    /// The call's kernel has ended.
    static IS_CALLER_OVER: Cell<bool> = const { Cell::new(false) };
    static NAMES: RefCell<Arc<[String]>> = RefCell::new(Arc::new([]));
}

/// Marks this thread as a server of these functions.
pub(crate) fn serve(names: &Arc<[String]>) {
    NAMES.with_borrow_mut(|own| {
        if !Arc::ptr_eq(own, names) {
            own.clone_from(names);
        }
    });
}

/// A device with calls served while kernels run.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    id: u64,
    name: Arc<str>,
}

/// Notes the device of the ports looked at next; `None` for ports of ended clients, or of clients on the host.
pub(crate) fn serve_device(device: Option<&Served>) {
    let id = device.map_or(0, |device| device.id);
    if DEVICE.replace(id) != id
        && let Some(device) = device
    {
        DEVICE_NAME.replace(Arc::clone(&device.name));
    }
}

/// Notes the function about to run, by index.
pub(crate) fn serve_call(function: usize) {
    FUNCTION.set(function);
    IS_CALLER_OVER.set(false);
}

impl Submissions {
    /// The device, for [`serve_device`].
    pub(crate) fn served(&self) -> Served {
        Served {
            id: self.id,
            name: self.raw.adapter_info().name.into(),
        }
    }

    /// Whether this thread runs a function for a kernel of the device not known to have ended.
    pub(crate) fn is_served_here(&self) -> bool {
        DEVICE.get() == self.id && !IS_CALLER_OVER.get()
    }

    /// Refuses a submission, or the poll of a future, on a thread that serves a call from the device, for which either is a
    /// wait. May run callbacks of the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`].
    pub(crate) fn may_submit(&self, what: &'static str) -> Result<(), ExecutionError> {
        if !self.is_served_here() {
            return Ok(());
        }
        self.collect();
        if self.ledger.is_idle() {
            IS_CALLER_OVER.set(true);
            return Ok(());
        }
        Err(in_handler(what))
    }

    /// As [`Self::may_submit`], for something behind a batch: what has ended keeps nobody.
    pub(crate) fn may_submit_behind(
        &self,
        batch: &Batch,
        what: &'static str,
    ) -> Result<(), ExecutionError> {
        let is_soon = || batch.submission().is_some() && self.has_reached(batch);
        match !self.is_served_here() || is_soon() {
            true => Ok(()),
            false => self.may_submit(what),
        }
    }

    /// Refuses a wait behind commands of the device: on a thread that serves a call from there, and on devices whose threads
    /// may not wait at all. `instead` is what does not block. May run callbacks of the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`]; [`ExecutionError::WouldBlock`].
    pub(crate) fn may_wait(
        &self,
        what: &'static str,
        instead: &'static str,
    ) -> Result<(), ExecutionError> {
        self.may_submit(what)?;
        match self.never_blocks {
            true => Err(ExecutionError::WouldBlock { what, instead }),
            false => Ok(()),
        }
    }

    /// As [`Self::may_wait`], for a wait of `timeout` for the end of a batch: an ended batch needs no wait, and a zero
    /// `timeout` is only a look.
    pub(crate) fn may_wait_for(
        &self,
        batch: &Batch,
        timeout: Option<Duration>,
        what: &'static str,
        instead: &'static str,
    ) -> Result<(), ExecutionError> {
        if timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.may_submit_behind(batch, what)?;
        if !self.never_blocks {
            return Ok(());
        }
        self.collect();
        match self.standing(batch).is_over() {
            true => Ok(()),
            false => Err(ExecutionError::WouldBlock { what, instead }),
        }
    }

    /// The error for a wait that [`Progress::Refused`](super::Progress::Refused) has ended.
    pub(crate) fn refused(&self, what: &'static str, instead: &'static str) -> ExecutionError {
        match self.never_blocks && !self.is_served_here() {
            true => ExecutionError::WouldBlock { what, instead },
            false => in_handler(what),
        }
    }

    /// Whether no thread may wait for the device ([`WaitPolicy::Never`](crate::device::WaitPolicy::Never)).
    pub(crate) fn never_blocks(&self) -> bool {
        self.never_blocks
    }
}

/// The error for a function of this thread that would wait for its own caller.
pub(crate) fn in_handler(what: &'static str) -> ExecutionError {
    let name = NAMES.with_borrow(|names| names.get(FUNCTION.get()).cloned());
    ExecutionError::InHandler {
        what,
        handler: name.unwrap_or_default(),
        device: DEVICE_NAME.with_borrow(|name| name.to_string()),
    }
}
