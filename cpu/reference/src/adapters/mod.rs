//! Kernels on wgpu adapters: those of the system, or one that a caller brings.

mod judge;
mod open;
mod run;

pub use judge::{Judgement, Surprise, Verdict, judge};
pub use open::{
    OpenError, Opened, all_adapters, embedded_adapter, embedded_adapter_with, open, system_adapters,
};
pub use run::{Job, RunError, run};
