//! What else happens when a launch has ended, for rooms above this one.

use std::task::Waker;
use std::time::Duration;

/// Something that follows a launch to its end.
pub(crate) trait Follower: Send + Sync {
    /// The launch's batch is on its way. Called with the queue in hand.
    fn submitted(&self);
    /// The launch has ended, by itself if `done`. Called with the queue in hand.
    fn ended(&self, done: bool);
    /// Waits until what the launch has set off is over; false if `timeout` came first. After [`Follower::ended`].
    fn wait(&self, timeout: Option<Duration>) -> bool;
    /// Whether what the launch has set off is over; wakes whoever asks when it is.
    fn poll(&self, waker: &Waker) -> bool;
}
