//! Running kernels: threads, the work-groups of a dispatch, and the order of submissions.
//!
//! - [`timeline`]: submissions of a queue run one after the other, small ones on the thread that submits them.
//! - [`grid`]: the work-groups of one dispatch, claimed by whoever has time.
//! - [`fiber`]: a stack on which work-groups run, so that one that waits for others can be left and taken up again.
//! - [`pool`]: threads that help.
//! - [`fault`]: what becomes of a kernel that touches memory it may not.
//! - [`float`]: how floats are rounded on the threads of the host.
//! - [`loss`]: why a device does not run anything any more.

mod fault;
pub(crate) mod fiber;
mod float;
pub(crate) mod grid;
pub(crate) mod loss;
pub(crate) mod pool;
mod scratch;
pub(crate) mod timeline;
