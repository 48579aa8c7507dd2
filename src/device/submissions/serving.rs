//! Threads that serve calls of running kernels, and what they must not wait for.
//!
//! The queue of a device is in order. So nothing that was submitted behind a kernel ends before the kernel does, and a
//! kernel whose call waits for its answer ends after the function of the host that serves it: a function that waits for
//! its caller's device would wait for itself. It is told ([`ExecutionError::InHandler`]), as soon as it asks.
//!
//! Which of the kernels on a device has called is not known, nor whether it waits. When nothing runs there any more the
//! caller is over, and the function may wait like any other thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use super::super::outcome::ExecutionError;
use super::{Batch, Submissions};

thread_local! {
    /// The device whose calls this thread serves at the moment; 0 for none.
    static DEVICE: Cell<u64> = const { Cell::new(0) };
    static DEVICE_NAME: RefCell<Arc<str>> = RefCell::new(Arc::from(""));
    /// The function that it runs, in `NAMES`.
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
    /// The call's kernel has ended.
    static IS_CALLER_OVER: Cell<bool> = const { Cell::new(false) };
    static NAMES: RefCell<Arc<[String]>> = RefCell::new(Arc::new([]));
}

/// This thread serves calls of these functions.
pub(crate) fn serve(names: Arc<[String]>) {
    NAMES.replace(names);
}

/// A device whose kernels run while they are served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    id: u64,
    name: Arc<str>,
}

/// This thread looks at the ports of a device from now on; `None` for ports whose clients have ended, or are no kernels.
pub(crate) fn serve_device(device: Option<&Served>) {
    let id = device.map_or(0, |device| device.id);
    if DEVICE.replace(id) != id
        && let Some(device) = device
    {
        DEVICE_NAME.replace(Arc::clone(&device.name));
    }
}

/// It runs the function with this index.
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

    /// Whether this thread runs a function for a kernel of the device that may not have ended.
    pub(crate) fn is_served_here(&self) -> bool {
        DEVICE.get() == self.id && !IS_CALLER_OVER.get()
    }

    /// Refuses a wait for something behind what runs on the device, on a thread that serves a call from there. May run
    /// callbacks of the program.
    ///
    /// # Errors
    /// [`ExecutionError::InHandler`].
    pub(crate) fn may_wait(&self, what: &'static str) -> Result<(), ExecutionError> {
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

    /// As [`Self::may_wait`], for a wait of that length for the end of a batch: it may have ended, and a look is no wait.
    pub(crate) fn may_wait_for(
        &self,
        batch: &Batch,
        timeout: Option<Duration>,
        what: &'static str,
    ) -> Result<(), ExecutionError> {
        let is_soon = || batch.submission().is_some() && self.has_reached(batch);
        if !self.is_served_here() || timeout == Some(Duration::ZERO) || is_soon() {
            return Ok(());
        }
        self.may_wait(what)
    }
}

/// What the function that this thread runs is told where it would wait for its caller.
pub(crate) fn in_handler(what: &'static str) -> ExecutionError {
    let name = NAMES.with_borrow(|names| names.get(FUNCTION.get()).cloned());
    ExecutionError::InHandler {
        what,
        handler: name.unwrap_or_default(),
        device: DEVICE_NAME.with_borrow(|name| name.to_string()),
    }
}
