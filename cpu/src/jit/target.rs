//! The target machine of code: the program's own machine, with all abilities of the processor.

use std::sync::OnceLock;

use cranelift_codegen::{
    isa::OwnedTargetIsa,
    settings::{self, Configurable},
};

use crate::compile::error::{CompileError, Result, internal, unsupported};

/// Cranelift's description of the machine.
///
/// # Errors
/// If Cranelift has no code generator for the machine, or if the processor lacks instructions otherwise replaced by a library:
/// SSE4.1 on x86-64, part of every processor since 2008.
pub(crate) fn isa() -> Result<&'static OwnedTargetIsa> {
    static ISA: OnceLock<Result<OwnedTargetIsa>> = OnceLock::new();
    match ISA.get_or_init(find) {
        Ok(isa) => Ok(isa),
        Err(error) => Err(error.clone()),
    }
}

fn find() -> Result<OwnedTargetIsa> {
    if cfg!(not(all(
        target_pointer_width = "64",
        target_endian = "little"
    ))) {
        return Err(unsupported(
            "a machine that is not little-endian with 64 bits",
        ));
    }
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("sse4.1") {
        return Err(unsupported("a processor without SSE4.1"));
    }
    let mut flags = settings::builder();
    let verifier = if cfg!(debug_assertions) {
        "true"
    } else {
        "false"
    };
    for (name, value) in [
        ("opt_level", "speed"),
        ("enable_verifier", verifier),
        // A large frame must not step over the guard page of the stack.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(settings_error)?;
    }
    cranelift_native::builder()
        .map_err(|reason| CompileError::Unsupported {
            what: format!("this machine ({reason})"),
        })?
        .finish(settings::Flags::new(flags))
        .map_err(|error| internal(error.to_string()))
}

fn settings_error(error: settings::SetError) -> CompileError {
    internal(error.to_string())
}
