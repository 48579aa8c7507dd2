//! Effects of launches that cannot be undone. Other effects are copied by a part of the launch
//! (`src/launch/parts/undo.rs`).

use super::SystemError;
use crate::kernel::reflect::ArgumentKind;
use crate::kernel::server::RING_VARIABLE;
use crate::launch::Launch;

/// Whether the launch can be undone, and so repeated.
///
/// # Errors
/// [`SystemError::NotRepeatable`], with the effect.
pub(super) fn check(launch: &Launch) -> Result<(), SystemError> {
    let compiled = &launch.kernel.shared.compiled;
    let mut globals = compiled.globals.iter().flat_map(|all| &all.instances);
    let mut arguments = compiled.interface.arguments.iter();
    let is_written = |kind: &ArgumentKind| {
        matches!(
            kind,
            ArgumentKind::Texture {
                binding: wgpu::BindingType::StorageTexture { .. },
            }
        )
    };
    let what = if compiled.calls.is_some() {
        "it calls functions of the host"
    } else if compiled.prints.is_some() {
        "it prints"
    } else if globals.any(|(_, writable)| *writable) {
        "it writes device globals"
    } else if arguments.clone().any(|argument| is_written(&argument.kind)) {
        "it writes a texture"
    } else if arguments.any(|argument| argument.name.starts_with(RING_VARIABLE)) {
        // The host goes on with a ring between two attempts.
        "it uses a ring"
    } else if launch.written().any(|(_, view)| view.shared.is_live) {
        "it writes live memory"
    } else {
        return Ok(());
    };
    Err(SystemError::NotRepeatable {
        kernel: launch.name(),
        what,
    })
}
