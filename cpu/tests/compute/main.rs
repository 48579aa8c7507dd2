//! The adapter through wgpu, as anybody uses it.

mod barriers;
mod basics;
mod ends;
mod expressions;
mod flow;
mod harness;
mod helping;
#[path = "../support/kernel.rs"]
mod kernel;
mod kernels;
mod lanes;
mod limits;
mod memory;
mod queue;
mod reductions;
mod sanitizer;
mod schedules;
mod stops;
mod stretches;
mod subgroups;
mod textures;
mod tools;
