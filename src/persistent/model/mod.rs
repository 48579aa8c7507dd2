//! How leases hand over, explored.
//!
//! - [`leases`]: every interleaving of a few callers, the relay, those who ask for the queue, and a polling kernel that ends
//!   or dies anywhere, one access of memory at a time, with writes that reach the other side late and across a bus in any
//!   order: by the means of `rpc::port::model`. What posts and takes calls, looks for them and gives them up is the code
//!   that runs ([`steps`]); [`kernel`] does what `shaders/server_lane.wgsl` does, and each other step names what it stands for.
//! - [`walks`]: the same with more of everybody, in random order, through the frame itself.
//!
//! What is left out in turn, or done in another order, must be noticed: each has its mutants.

mod kernel;
mod leases;
mod steps;
mod walks;
