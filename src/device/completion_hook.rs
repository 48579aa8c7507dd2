//! Completion hooks: what follows a launch to its end. Each feature of a launch that has something to do or to tell after
//! the launch's submission gives the launch a hook; the queue and the event know nothing else of it.

use std::any::Any;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::outcome::ExecutionError;

/// A hook that follows a launch to its end.
///
/// The launch's event finds a hook by its type ([`Event::hook`](super::Event::hook)).
pub(crate) trait CompletionHook: Any + Send + Sync {
    /// The launch's batch was submitted to this device. Called once, with nothing locked, and before
    /// [`CompletionHook::ended`].
    fn submitted(&self, _device: &wgpu::Device) {}

    /// Whether [`CompletionHook::ended`] may be called, the batch having ended: false while copies for the host are not mapped.
    /// Never waits.
    fn is_readable(&self) -> bool {
        true
    }

    /// The launch has ended, by itself if `done`. Called with the queue in hand. The error is what the hook knows of a
    /// failure of the launch.
    fn ended(&self, _done: bool) -> Result<(), ExecutionError> {
        Ok(())
    }

    /// Delivers what has arrived. May run callbacks of the program.
    fn deliver(&self) {}

    /// Waits until everything set off by the launch is over; false if `timeout` came first. After
    /// [`CompletionHook::ended`].
    fn wait(&self, _timeout: Option<Duration>) -> bool {
        true
    }

    /// Whether everything the launch has set off is over; wakes `waker` at that point.
    fn poll(&self, _waker: &Waker) -> bool {
        true
    }
}

/// The hooks of a launch; most have none.
pub(crate) type CompletionHooks = SmallVec<[Arc<dyn CompletionHook>; 1]>;
