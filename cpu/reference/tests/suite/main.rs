//! The interpreter, the generator, and this project's own adapter judged by both: one program, since each would be
//! linked with all of wgpu.

#[cfg(feature = "adapters")]
mod embedded;
mod generated;
mod interpret;
#[cfg(feature = "adapters")]
mod sanitizer;
