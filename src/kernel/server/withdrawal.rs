//! The part of a polling kernel for calls taken back by their callers.

use std::sync::Arc;

use super::batches::batches;
use super::text::ServerShape;
use super::{CANCELLED, HandlerDeclaration};
use crate::device::CallStatus;

/// How a possibly withdrawn call is begun, and the status of a withdrawn call.
///
/// The note that the call is taken, or begun, and the look for the withdrawal are exchanges with a fence between, as
/// the caller's are (`Client::withdraw`, and `tombolo_call_withdraw` in `shaders/rpc.wgsl`): at most one side misses
/// the other's note. Across a bus the fence would cost every call the way of a word to memory and back; there the look
/// may miss a just written withdrawal, and callers do not conclude that their call is not begun
/// (`Frame::may_be_begun`).
pub(super) fn withdrawal(handlers: &[Arc<HandlerDeclaration>], shape: &ServerShape) -> [String; 3] {
    let is_free = |code: &u32| handlers.iter().all(|handler| handler.opcode() != *code);
    let none = (0..=u32::MAX).find(is_free).unwrap_or(0);
    // Kernels of other devices look at a note of their own.
    let begun = match &shape.remote_clients {
        Some(_) => "atomicExchange(&tombolo_server[results + 2u], request);",
        None => "",
    };
    let [take, fence, look] = match shape.split {
        true => [
            "atomicStore",
            "",
            "atomicLoad(&tombolo_server[arguments + 3u])",
        ],
        false => [
            "atomicExchange",
            "tombolo_server_fence();",
            "atomicOr(&tombolo_server[arguments + 3u], 0u)",
        ],
    };
    let begun = format!("{begun} {fence}\n    let opcode = select({none}u, posted, {look} != 1u);");
    let busy = CallStatus::Busy.code();
    let take = match (shape.groups, shape.together) {
        (1, _) => format!("{take}(&tombolo_server[taken], request);"),
        (_, None) => "if !tombolo_server_takes(taken, request) { return; }".to_owned(),
        (_, Some(_)) => "if !tombolo_server_takes(taken, request) { return false; }".to_owned(),
    };
    [
        take,
        begun,
        format!("if opcode == {none}u {{ status = {busy}u; }}"),
    ]
}

/// The parts for a handler's question whether the call is withdrawn, where the program asks: the variable with the
/// place of the withdrawal, the setting statement, and the function.
pub(super) fn cancellation(
    handlers: &[Arc<HandlerDeclaration>],
    shape: &ServerShape,
) -> [String; 3] {
    if !shape.asks {
        return [String::new(), String::new(), String::new()];
    }
    // Lane 0 of a work-group serving calls together takes the calls, and barriers follow before a handler begins.
    let is_batching = batches(handlers).next().is_some();
    let space = match shape.together.is_some() && !is_batching {
        true => "workgroup",
        false => "private",
    };
    [
        format!("var<{space}> tombolo_server_withdrawal: u32;"),
        match is_batching {
            // Each lane knows when the batch is gathered.
            true => String::new(),
            false => "tombolo_server_withdrawal = arguments + 3u;".to_owned(),
        },
        // An exchange without a change is a look kept in the loop by every compiler.
        format!(
            "fn {CANCELLED}() -> bool {{ return atomicOr(&tombolo_server[tombolo_server_withdrawal], 0u) == 1u; }}"
        ),
    ]
}
