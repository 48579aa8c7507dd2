//! The clock: the system's, or in a browser the page's, where asking `std` for the time is a panic.

#[cfg(not(web))]
pub(crate) use std::time::{Instant, SystemTime, UNIX_EPOCH};
#[cfg(web)]
pub(crate) use web_time::{Instant, SystemTime, UNIX_EPOCH};
