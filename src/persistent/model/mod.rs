//! How leases hand over, explored.
//!
//! - [`leases`]: every interleaving of a few callers, the relay, requests for the queue, and a polling kernel that ends
//!   or dies anywhere, access by access, with writes that reach the other side late and across a bus in any order: by
//!   the means of `rpc::port::model`. The code that posts and takes calls, looks for calls and gives calls up is the
//!   production code ([`steps`]); [`kernel`] follows `shaders/server_lane.wgsl`, and each other step names its
//!   counterpart.
//! - [`walks`]: the same with more of everybody, in random order, through the frame itself.
//!
//! Every step left out, or done in another order, must be noticed: each has its mutants.

mod kernel;
mod leases;
mod steps;
mod walks;
