//! A wgpu adapter running WGSL compute on the CPU, compiled in: no driver, nothing to install.
//!
//! Kernels become machine code for the program's own processor, and run on threads of the process. Buffers are memory of the
//! process: mapping costs nothing, and memory owned by the host can be a buffer ([`Buffer::from_host`]).
//!
//! ```
//! let instance = tombolo_cpu::Instance::default();
//! // SAFETY: the instance is fresh and belongs to wgpu from here on.
//! let instance = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(instance) };
//! let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
//! let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
//! // From here on, it is a device of wgpu like any other.
//! # let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
//! #     label: None,
//! #     source: wgpu::ShaderSource::Wgsl("@compute @workgroup_size(64) fn main() {}".into()),
//! # });
//! # drop((module, queue));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! Compute shaders with subgroups of eight invocations, textures of colours, copies, timestamps, indirect dispatches. The adapter
//! does not draw: there are no render pipelines and no surfaces, and no textures of depths, to be filled only by drawing. A
//! kernel's use of a missing feature is an error when the pipeline is made, with the feature's name.
//!
//! # Promises
//! - **Results** are the same bits at any number of threads, and of invocations run side by side as vectors. Floats follow IEEE
//!   754, with subnormal numbers, rounded after each operation; nothing is fused but `fma`. The functions of WGSL stay within
//!   WGSL's accuracy table.
//! - **Progress**: work-groups waiting for other work-groups of their dispatch by atomic operations do not wait in vain, also on
//!   a single thread: a waiting work-group lets the others run. The promise has a limit: 4,096 work-groups wait on each thread of
//!   [`Options::threads`] at most, and no others begin there until one of them goes on. So the work-groups of a dispatch that
//!   all need each other must be no more than 4,096 for each thread; others wait for ever, or until they are stopped.
//!   Invocations of a work-group run one after the other, each up to a barrier or the end: invocations wait for each other at
//!   barriers only.
//! - **Ends**: a dispatch can be stopped, also by a time limit, and the device lives on ([`Device::stop_behind`]). A queue dropped
//!   while a kernel runs waits for the kernel for some seconds, then tells the kernel to stop. Kernels look whether to stop in
//!   loops whose number of passes is not known when the kernel is compiled, and threads do between two work-groups. A kernel
//!   touching missing memory, where bounds are not checked, loses the device, not the process; [`Device::loss`] says why.
//! - Missing **memory** is an error.
//!
//! # Further features
//! [`Options::sanitizer`] checks running kernels ([`sanitizer`]), [`Options::schedule`] decides the order of work-groups and
//! invocations by a seed, and [`Options::coverage`] counts and times executions of lines. [`Options::perf_map`] lists kernels for
//! `perf`, and the crate's feature `gdb` names kernels in debuggers.
//!
//! [`Device::export_kernels`] and [`Device::import_kernels`] let a process use kernels compiled by another process.
//!
//! # Requirements
//! x86-64 with SSE4.1 on Linux, macOS or Windows, or aarch64 on Linux or macOS. Elsewhere the instance has no adapter.
//!
//! `ARCHITECTURE.md` beside the crate describes the inner workings.

// docs.rs documents with a nightly compiler, which notes at each item the feature without which the item is missing.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

mod compile;
mod exec;
mod hal;
mod jit;
#[doc(hidden)]
pub mod math;
#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;
pub mod sanitizer;
mod schedule;
#[doc(hidden)]
pub mod texel;

pub use compile::store::{KernelCounts, KernelDataError};
pub use exec::loss::Loss;
pub use exec::stop::StopState;
pub use hal::{
    Absent, Adapter, Api, BindGroup, BindGroupLayout, Buffer, CommandBuffer, CommandEncoder,
    ComputePipeline, Device, Fence, Instance, Loan, Options, PipelineCache, PipelineLayout,
    QuerySet, Queue, Sampler, ShaderModule, Stop, Texture, TextureView,
};
