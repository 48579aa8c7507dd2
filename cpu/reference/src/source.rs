//! From WGSL text to a module that the interpreter takes.

use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Why a text is no valid module, as naga shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// Parses and validates WGSL, with all of naga's extensions.
///
/// # Errors
/// If naga refuses the text; the error shows the place.
pub fn parse(source: &str) -> Result<naga::Module, Invalid> {
    let mut options = naga::front::wgsl::Options::new();
    options.capabilities = Capabilities::all();
    let mut frontend = naga::front::wgsl::Frontend::new_with_options(options);
    let module = frontend
        .parse(source)
        .map_err(|error| Invalid(error.emit_to_string(source)))?;
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| Invalid(error.emit_to_string(source)))?;
    Ok(module)
}
