//! Running the program's code, and catching its panics: none ends a thread of the runtime, or reaches a caller who has
//! nothing to do with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `run`, or `None` for a panic, also for a panic payload that panics when dropped.
pub(crate) fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(payload) => {
            forget(payload);
            None
        }
    }
}

/// Drops what a panic has thrown, whose drop may panic, too.
pub(crate) fn forget(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Its destructor could panic in turn, and so on for ever.
        std::mem::forget(another);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when dropped, with another of its kind.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }

    #[test]
    fn payloads_may_panic_when_they_are_dropped() {
        assert_eq!(guarded(|| 7), Some(7));
        assert_eq!(
            guarded(|| std::panic::resume_unwind(Box::new(Bomb))),
            None::<()>
        );
    }
}
