//! A count of the work that reading a text takes: tokens looked at, bytes parsed, declarations visited. Tests
//! compare the counts of texts of one, two and four times a length; nothing else counts.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Adds `steps` to this thread's work.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    DONE.with(|done| done.set(done.get() + steps as u64));
    #[cfg(not(test))]
    let _ = steps;
}

/// The work of `task`, on this thread alone.
#[cfg(test)]
pub(crate) fn of<T>(task: impl FnOnce() -> T) -> (u64, T) {
    let before = DONE.get();
    let result = task();
    (DONE.get() - before, result)
}
