//! The part of a polling kernel with ports for urgent calls: the first ones of each work-group.
//!
//! A look at all ports begins with them anyway. Behind each other call that is served they are looked at again, and the look at
//! the others goes on where it was. So a lease that is asked to leave serves as many urgent calls behind each other call as
//! have ports, and no more.

use super::text::ServerShape;
use crate::template::Template;

/// No look at the other ports is to be gone on with.
const NONE: &str = "0xffffffffu";

/// Sets the marks of `shaders/server_lane.wgsl` and `shaders/server_group.wgsl`.
pub(super) fn with_urgent(template: Template, shape: &ServerShape) -> Template {
    let urgent = shape.urgent / shape.groups;
    let marks = match (urgent, shape.together) {
        (0, _) => [String::new(), String::new(), String::new()],
        (_, None) => [
            format!("var rest = {NONE};\nvar rest_end = end;"),
            format!("if port >= end && rest != {NONE} {{ port = rest; end = rest_end; rest = {NONE}; }}"),
            format!(
                "if rest == {NONE} && port >= {urgent}u {{
                    rest = port + {lanes}u; rest_end = end; port = lane - {lanes}u; end = {urgent}u;
                }}",
                lanes = shape.lanes,
            ),
        ],
        // Behind a call, when the next one is looked for.
        (_, Some(_)) => [
            format!("var<private> tombolo_server_rest: u32 = {NONE};\nvar<private> tombolo_server_rest_end: u32;"),
            format!(
                "if !found && tombolo_server_port >= tombolo_server_end && tombolo_server_rest != {NONE} {{
                tombolo_server_port = tombolo_server_rest;
                tombolo_server_end = tombolo_server_rest_end;
                tombolo_server_rest = {NONE};
            }}"
            ),
            format!(
                "if tombolo_server_rest == {NONE} && tombolo_server_port > {urgent}u {{
        tombolo_server_rest = tombolo_server_port;
        tombolo_server_rest_end = tombolo_server_end;
        tombolo_server_port = 0u;
        tombolo_server_end = {urgent}u;
    }}"
            ),
        ],
    };
    let [begins, rests, looks] = marks;
    template
        .set("urgent_begins", begins)
        .set("urgent_rests", rests)
        .set("urgent_looks", looks)
}
