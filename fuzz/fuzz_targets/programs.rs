//! Reads any text as a program, and asks for the interface of each of its entry points: it is a kernel or an error, on
//! whatever stack, and never a panic. Texts that somebody wrote are a good beginning:
//!
//!     cargo +nightly fuzz run programs fuzz/corpus/programs shaders -- -timeout=10

#![no_main]

use tombolo::{Constants, Program, kernel::KernelError};

fn accept(error: &KernelError) {
    assert!(!matches!(error, KernelError::Internal { .. }), "{error}");
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Program::new("fuzz.wgsl", text) {
        Err(error) => accept(&error),
        Ok(program) => {
            for entry in program.entry_points() {
                if let Err(error) = program.interface(entry, &Constants::new()) {
                    accept(&error);
                }
            }
        }
    }
});
