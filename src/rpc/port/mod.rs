//! Ports: pairs of mailboxes in memory shared by two sides, a calling side and an answering side.
//!
//! - [`protocol`]: whose turn it is, as a pure function. Its page is the specification.
//! - [`layout`]: the places in the shared words, and their cost.
//! - [`words`]: the shared words, in any memory.
//! - [`seal`]: proves that all words of a call have arrived, where words may come in any order.
//! - [`client`]: the calling side, for threads of the host. `shaders/rpc.wgsl` is the same for kernels.
//! - [`server`]: the answering side, without trust in its reads.
//!
//! The room needs nothing of the rest of the crate, so model, fuzzer and loom run it alone.

pub(crate) mod client;
pub(crate) mod layout;
pub(crate) mod protocol;
pub(crate) mod seal;
pub(crate) mod server;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_hostile;
#[cfg(test)]
pub(crate) mod tests_loom;
#[cfg(test)]
mod tests_seal;
