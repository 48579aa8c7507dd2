//! The part of a polling kernel whose handlers serve batches of calls.

use std::sync::Arc;

use super::text::{Places, ServerShape};
use super::{HandlerDeclaration, HandlerForm};
use crate::device::CallStatus;
use crate::template::Template;

pub(super) const BATCH: &str = include_str!("../../../shaders/server_group_batch.wgsl");
const ANSWER: &str = include_str!("../../../shaders/server_group_answer.wgsl");
const ANSWERS: &str = include_str!("../../../shaders/server_group_answers.wgsl");

/// The handlers that serve batches, by their opcodes, and how many calls at most.
pub(super) fn batches(handlers: &[Arc<HandlerDeclaration>]) -> impl Iterator<Item = (u32, u32)> {
    handlers.iter().filter_map(|handler| match handler.form {
        HandlerForm::Batch(most) => Some((handler.opcode(), most)),
        HandlerForm::Alone | HandlerForm::Together => None,
    })
}

/// How a work-group answers, and gathers calls first for handlers that serve batches.
pub(super) fn with_batches(
    template: Template,
    handlers: &[Arc<HandlerDeclaration>],
    places: &Places,
    shape: &ServerShape,
) -> Template {
    if shape.together.is_none() {
        return template;
    }
    let Some(most) = batches(handlers).map(|(_, most)| most).max() else {
        return template
            .set("batches", "")
            .set("found_first", "")
            .set("gathers", "let results = call[1];")
            .set("answers", ANSWER.trim_end());
    };
    let most_calls = batches(handlers).fold("0u".to_owned(), |none, (opcode, most)| {
        format!("select({none}, {most}u, call[3] == {opcode}u)")
    });
    let withdrawal = match shape.asks {
        true => "tombolo_server_withdrawal = arguments + 3u;",
        false => "",
    };
    // Lanes without a call of their own have the first one.
    let gathers = format!(
        "let most_calls = {most_calls};
        if most_calls > 0u {{
            tombolo_server_gather(lane, call[3], length, most_calls);
        }}
        workgroupBarrier();
        if lane == 0u {{ tombolo_server_calls = atomicLoad(&tombolo_server_batched); }}
        let calls = workgroupUniformLoad(&tombolo_server_calls);
        let own = tombolo_server_batch[select(0u, lane, lane < calls)];
        let arguments = own.x;
        let results = own.y;
        {withdrawal}"
    );
    let first = match shape.groups {
        1 => "tombolo_server_first = at;".to_owned(),
        groups => format!("tombolo_server_first = at / {groups}u;"),
    };
    let gather_at = match shape.groups {
        1 => "visit".to_owned(),
        groups => format!("visit * {groups}u + tombolo_server_group"),
    };
    template
        .set(
            "batches",
            "tombolo_server_batch[0] = vec4(arguments, results, reply, request);
    atomicStore(&tombolo_server_batched, 1u);",
        )
        .set("found_first", first)
        .set("gathers", gathers)
        .set("answers", ANSWERS.trim_end())
        .set("most_batch", most)
        .set("busy", CallStatus::Busy.code())
        .set("own_ports", places.ports / shape.groups)
        .set("gather_at", gather_at)
}
