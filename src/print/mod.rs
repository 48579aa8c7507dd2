//! The print room: the meaning of a kernel's `print`, `assert` and `panic` on the host. Format strings are read here
//! (`format`), the words left behind by a kernel are turned back into values (`value`, `record`), and the values into
//! text for the program's target (`sink`). Nothing here knows of devices.
//!
//! # The record buffer
//!
//! Each launch of a printing kernel owns a buffer of 32-bit words:
//!
//! | words | meaning |
//! | --- | --- |
//! | 0 | head: words handed out so far, and more once the buffer is full |
//! | 1, 2 | records that did not fit (low word, high word) |
//! | 3 | not 0 once an invocation has claimed words 4, 5 and 8 to 71 |
//! | 4, 5 | the assertion that failed first: its code, its invocation |
//! | 8 to 71 | the values of its message |
//! | 72 and on | records |
//!
//! A record is the code of the site, the number of the invocation, the words of the values, and a check of all the
//! former. The check lets the host read while the kernel still runs: no fence of WGSL orders two stores of a diverged
//! invocation, so a record counts as arrived when its words fit together. The host zeroes the buffer before the next
//! use, so nothing old can pass for new.
//!
//! The layout on the kernel's side is `shaders/print.wgsl`.
//!
//! # Why records are so
//!
//! - A buffer for each launch: a loss is the loss of one launch, counted exactly, and lines need not name their launch.
//! - One `atomicAdd` reserves header and values of a record. Before the `atomicAdd` stands a load, so that the head is
//!   raised only while there is room and never wraps around.
//! - Records are plain stores with a check. A commit word with an atomic would be as many stores, and would prove
//!   nothing about the others.
//! - The head is asked for only when the kernel has ended, because graphics processors count in their caches.
//! - The host trusts nothing in the buffer: lengths come from the program by the site's code, codes and places are
//!   compared with the program's, and words not fitting together end the reading; the end is then reported.

pub(crate) mod format;
pub(crate) mod record;
pub(crate) mod sink;
pub(crate) mod value;

pub use record::PrintRecord;
pub use sink::{PrintLoss, PrintOptions, PrintSink, PrintTarget};
