//! The sleep of an idle relay, and its waking by the poster of a call.
//!
//! The fence on either side of the last look makes sure that a posting caller and a relay going to sleep do not miss
//! each other: either the caller or the relay sees the other.

use std::time::Duration;

use super::bell::Bell;
use super::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether the relay sleeps: a post during activity costs a single load.
#[derive(Debug, Default)]
pub(super) struct Parker {
    asleep: AtomicBool,
    pub bell: Bell,
}

impl Parker {
    /// Wakes a sleeping relay. Behind a post.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Sleeps as long as `look` says unless the bell is rung, or not at all, and returns `false`, if the look has found
    /// something to do.
    pub fn sleep(&self, look: impl FnOnce() -> Option<Duration>) -> bool {
        let known = self.bell.count();
        self.asleep.store(true, Ordering::Relaxed);
        // Either the caller sees the flag, or this look sees the call.
        fence(Ordering::SeqCst);
        let time = look();
        if let Some(time) = time {
            self.bell.sleep(known, time);
        }
        self.asleep.store(false, Ordering::Relaxed);
        time.is_some()
    }
}
