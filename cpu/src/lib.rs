//! A wgpu adapter that runs WGSL compute on the CPU, compiled in: no driver, nothing to install.
//!
//! Kernels become machine code for the processor that runs the program, and run on its threads. Buffers are memory of the
//! process: mapping one costs nothing, and memory that the host owns can be a buffer ([`Buffer::from_host`]).
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
//! # What it does
//! Compute shaders with subgroups of eight invocations, textures of colours, copies, timestamps, indirect dispatches. It does not
//! draw: there are no render
//! pipelines and no surfaces, and no textures of depths, which only drawing could fill. What a kernel uses and the adapter does
//! not have is an error when the pipeline is made, with the
//! name of what is missing.
//!
//! # What is promised
//! - **Results** are the same bits at any number of threads, and of invocations that run side by side as vectors. Floats are
//!   those of IEEE 754, with subnormal numbers, rounded after each operation; nothing is fused but `fma`. The functions of
//!   WGSL stay within its accuracy table.
//! - **Progress**: work-groups that wait for other work-groups of their dispatch by atomic operations get what they wait
//!   for, also on one thread: those that wait let the others run. Invocations of one work-group run one after the other,
//!   each up to a barrier or its end: they wait for each other at barriers only.
//! - **Ends**: a queue that is dropped while a kernel runs waits for it for some seconds, then tells it to stop. A kernel
//!   that touches memory that is not there, where bounds are not checked, loses its device, not the process;
//!   [`Device::loss`] says why.
//! - **Memory** that there is not is an error.
//!
//! # What else it can do
//! [`Options::sanitizer`] checks what kernels do ([`sanitizer`]), [`Options::schedule`] decides the order of work-groups and
//! invocations by a seed, and [`Options::coverage`] counts executions of lines and takes their time. [`Options::perf_map`] lists
//! kernels for `perf`, and the feature `gdb` of this crate names them in debuggers.
//!
//! [`Device::export_kernels`] and [`Device::import_kernels`] let a process use what another one has compiled.
//!
//! # What it needs
//! x86-64 with SSE4.1 on Linux, macOS or Windows, or aarch64 on Linux or macOS. Elsewhere the instance has no adapter.
//!
//! `ARCHITECTURE.md` beside this crate says how it works.

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
pub use hal::{
    Absent, Adapter, Api, BindGroup, BindGroupLayout, Buffer, CommandBuffer, CommandEncoder,
    ComputePipeline, Device, Fence, Instance, Loan, Options, PipelineCache, PipelineLayout,
    QuerySet, Queue, Sampler, ShaderModule, Texture, TextureView,
};
