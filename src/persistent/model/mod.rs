//! How leases hand over, explored.
//!
//! - [`leases`]: every interleaving of a few callers, the relay, requests for the queue, and a polling kernel ending or
//!   dying anywhere, access by access, with writes reaching the other side late and across a bus in any order: by the
//!   means of `rpc::port::model`. The code that posts and takes calls, looks for calls and gives calls up is the
//!   production code ([`steps`]); [`kernel`] follows `shaders/server_lane.wgsl`, with a bell or without, and each other step names its
//!   counterpart.
//! - [`walks`]: the same with more of everybody, in random order, through the frame itself.
//!
//! Every step left out, or done in another order, must be noticed: each has its mutants.
//!
//! # What is explored
//!
//! A bounded server: one or two ports, callers and work-groups, up to three calls each. Writes reach the other side
//! late, in the order of fences, or across a bus in any order; a launch brings all earlier writes, an event the
//! launch's writes. Nothing is helped on by the time: sleeps last until the bell is rung, and in most setups leases
//! until asked. So from the state of a lost wake-up the end cannot be reached.
//!
//! Checked in every state: no call is served twice or after the caller was told; no answer of another call, and none
//! incomplete; failures are told only where a lease died or the server ended; a lease leaves within two looks at its
//! ports when told to, and only then; the word to a lease is the last count once everybody has told; no second lease
//! beside a lease; a call reported to the caller as withdrawn is never served, and none is reported so without the
//! caller's request. From every state the end is reached. Forty setups have 1.4 million states together (each
//! asserts a lower bound), and twenty-nine flaws must each be noticed, such as a bell read behind the first look, a
//! note not taken, a relay that looks before it says that it sleeps, or a first work-group that leaves the ports of the
//! groups to come alone.
//!
//! Two work-groups with a port each run beside each other, or one behind the other, as on a device with room for one.
//!
//! Not modelled: several lanes (a port of a group belongs to one), calls of kernels, handlers that fail by themselves, and
//! reorderings of the kernel's own loads, which its fences forbid.

mod kernel;
mod leases;
mod steps;
mod walks;
