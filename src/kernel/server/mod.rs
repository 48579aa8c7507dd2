//! Servers living on a device: from the handlers in a program to the polling kernel around them.
//!
//! A handler is an ordinary function of the program. The head is read from the text, the types are laid out by naga,
//! and [`text`] writes the kernel taking calls out of ports (`shaders/server.wgsl`) and handing the calls to the
//! handlers ([`branches`]); [`slice`] the kernels serving calls between launches (`shaders/server_slice.wgsl` and
//! `server_ports.wgsl`), with [`packing`] for calls of a single function; [`remote_clients`] the part of the polling
//! kernel for kernels of other devices, [`groups`] for several work-groups, [`batches`] for handlers serving many calls
//! at once, [`urgent`] for calls with precedence, and [`withdrawal`] for calls taken back.

mod batches;
mod branches;
mod groups;
mod head;
pub(crate) mod packing;
mod remote_clients;
mod slice;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_turns;
mod text;
mod urgent;
mod withdrawal;

pub(crate) use head::{HandlerDeclaration, HandlerFault, HandlerForm, declarations, declared_as};
pub(crate) use remote_clients::RemoteClientPlaces;
pub(crate) use slice::{
    SLICE_ENTRY, SLICE_HEADER, SLICE_PREFIX, SliceShape, write_packed, write_ports, write_slice,
};
pub(crate) use text::{Places, ServerShape, write};

/// The entry point of the written kernel.
pub(crate) const ENTRY: &str = "tombolo_server_main";

/// The function for a handler's question whether its call is withdrawn. Programs mentioning the function without a
/// declaration have the function: elsewhere than in the polling kernel the answer is always false.
pub(crate) const CANCELLED: &str = "call_cancelled";

/// Statuses of servers on devices, beside those of `CallStatus`.
pub(crate) const FAILED: u32 = CallStatus::Failed.code();
/// See [`FAILED`].
pub(crate) const TOO_LONG: u32 = CallStatus::TooManyTurns.code();

use naga::Module;

use crate::device::{CallStatus, fence};

const FENCE: &str = "tombolo_server_fence";
/// The fence of `shaders/work.wgsl`.
const WORK_FENCE: &str = "tombolo_server_work_fence";
/// The beginning of names of rings' variables.
pub(crate) const RING_VARIABLE: &str = "tombolo_ring_";
/// The fences of `shaders/ring.wgsl`, without the names of the rings.
const RING_FENCE: &str = "tombolo_ring_fence_";
const PUBLISH: &str = "tombolo_server_publish";
const PUBLISH_BEHIND_FENCE: &str = "tombolo_server_publish_behind_fence";

/// Whether a function is the runtime's: such a function is never returned from early.
pub(crate) fn is_own(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with("tombolo_server_"))
}

/// Completes the functions of the polling kernel, as `calls::bind::complete` does those of callers.
pub(crate) fn complete(module: &mut Module, barrier: bool) {
    if barrier {
        fence::fill(module, FENCE);
        fence::fill(module, WORK_FENCE);
        fence::replace_body(module, PUBLISH, PUBLISH_BEHIND_FENCE);
        complete_rings(module);
    }
}

/// The same for the functions of rings (`shaders/ring.wgsl`), named with the names of their rings at the end.
fn complete_rings(module: &mut Module) {
    let functions = module.functions.iter();
    let rings: Vec<String> = functions
        .filter_map(|(_, function)| function.name.as_ref()?.strip_prefix(RING_FENCE))
        .map(ToOwned::to_owned)
        .collect();
    for ring in rings {
        fence::fill(module, &format!("{RING_FENCE}{ring}"));
        for word in ["look", "publish"] {
            let plain = format!("tombolo_ring_{word}_{ring}");
            let fenced = format!("tombolo_ring_fenced_{word}_{ring}");
            fence::replace_body(module, &plain, &fenced);
        }
    }
}
