//! What every example does the same way: logging, and turning its result into an exit status.

// Every example includes this module, and none uses all of it.
#![allow(dead_code)]

pub mod devices;
pub mod text;

use std::error::Error;
use std::process::ExitCode;

/// For `after_help`: how an example finds its adapter.
pub const ADAPTERS: &str = "\
The best adapter of the machine is used. WGPU_ADAPTER_NAME chooses another by a part of its name,
WGPU_BACKEND by its backend (vulkan, metal, dx12, gl). RUST_LOG=info shows what the library logs.";

/// Runs an example. Its exit status is 0 only if `work` found that what it checked held.
pub fn run(work: impl FnOnce() -> Result<bool, Box<dyn Error>>) -> ExitCode {
    env_logger::init();
    #[cfg(feature = "trace")]
    let _trace = match tombolo::trace::Trace::from_env() {
        Ok(trace) => trace,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    match work() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error's message and those of its causes, from the outside in.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        // Many errors already quote the cause that they wrap.
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}
