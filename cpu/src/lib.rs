//! A wgpu adapter that runs WGSL compute on the CPU.

mod math;
mod texel;
