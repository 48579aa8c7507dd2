//! Completion hooks: work of higher modules at the end of a launch.

use std::task::Waker;
use std::time::Duration;

/// A hook that follows a launch to its end.
pub(crate) trait CompletionHook: Send + Sync {
    /// The launch's batch was submitted to this device. Called once, with nothing locked, and before
    /// [`CompletionHook::ended`].
    fn submitted(&self, device: &wgpu::Device);
    /// Whether [`CompletionHook::ended`] may be called, the batch having ended: false while copies for the host are not mapped.
    /// Never waits.
    fn is_readable(&self) -> bool {
        true
    }
    /// The launch has ended, by itself if `done`. Called with the queue in hand.
    fn ended(&self, done: bool);
    /// Waits until everything set off by the launch is over; false if `timeout` came first. After
    /// [`CompletionHook::ended`].
    fn wait(&self, timeout: Option<Duration>) -> bool;
    /// Whether everything the launch has set off is over; wakes `waker` at that point.
    fn poll(&self, waker: &Waker) -> bool;
}
