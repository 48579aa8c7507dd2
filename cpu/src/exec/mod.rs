//! Running kernels: threads, the work-groups of a dispatch, and the order of submissions.
//!
//! - [`times`]: how long kernels took, for the choice of threads.
//! - [`timeline`]: submissions of a queue run one after the other, small ones on the submitting thread.
//! - [`grid`]: the work-groups of one dispatch, claimed by threads with time.
//! - [`fiber`]: a stack for work-groups, so that a waiting work-group can be suspended and resumed.
//! - [`pool`]: helper threads.
//! - [`reduction`]: separate counts of the threads of a dispatch.
//! - [`copy`]: copies of many bytes.
//! - [`fault`]: recovery from a kernel's access to forbidden memory.
//! - [`float`]: rounding of floats on the threads of the host.
//! - [`stop`]: the words that stop kernels; [`limit`]: time limits of dispatches.
//! - [`loss`]: why a device was lost.

pub(crate) mod copy;
mod fault;
pub(crate) mod fiber;
mod float;
pub(crate) mod grid;
pub(crate) mod limit;
pub(crate) mod loss;
pub(crate) mod pool;
mod reduction;
mod scratch;
pub(crate) mod stop;
#[cfg(all(test, not(miri)))]
mod tests_loom;
#[cfg(all(test, not(miri)))]
mod tests_loss;
#[cfg(test)]
mod tests_stop;
pub(crate) mod timeline;
pub(crate) mod times;

/// For the files that loom runs: loom has its own.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard, atomic};
}
