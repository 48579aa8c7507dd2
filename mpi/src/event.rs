//! The ends of requests, without their memory: for waiting without owning.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{MpiError, Operation};
use crate::request::{Look, RequestStatus};

/// A request without the type of its memory.
pub(crate) trait EventCore: Look {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), MpiError>;
    fn status(&self) -> RequestStatus;
    fn operation(&self) -> Operation;
    fn timeout(&self) -> Option<Duration>;
}

/// The end of a [`Request`](crate::Request): wait, or ask for the status. Cheap to clone; the memory stays with the request.
#[derive(Clone)]
pub struct RequestEvent {
    pub(crate) core: Arc<dyn EventCore>,
}

impl RequestEvent {
    /// Waits until the request has ended.
    ///
    /// # Errors
    /// As [`Request::wait`](crate::Request::wait).
    pub fn wait(&self) -> Result<(), MpiError> {
        self.core.wait(self.core.timeout())
    }

    /// Waits at most for `timeout`.
    ///
    /// # Errors
    /// As [`Request::wait_timeout`](crate::Request::wait_timeout).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), MpiError> {
        self.core.wait(Some(timeout))
    }

    /// Where the request stands. Looks once, and never blocks.
    pub fn status(&self) -> RequestStatus {
        self.core.status()
    }

    /// Waits for all of `events`.
    ///
    /// # Errors
    /// The error of the first that has failed; the others have been waited for all the same.
    pub fn wait_all(events: &[&Self]) -> Result<(), MpiError> {
        let ends: Vec<_> = events.iter().map(|event| event.wait()).collect();
        ends.into_iter().collect()
    }
}

impl fmt::Debug for RequestEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestEvent")
            .field("operation", &self.core.operation())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
