//! The part of a polling kernel of several work-groups.

use super::text::{Places, ServerShape};
use crate::template::Template;

impl ServerShape {
    /// Whether all lanes of a work-group know the group's number among several: lanes looking at ports.
    fn is_drawn_by_all(&self) -> bool {
        match self.together {
            Some(_) => self.batches,
            None => self.lanes > 1,
        }
    }
}

/// How work-groups come and go, and the ports of each.
pub(super) fn with_groups(template: Template, places: &Places, shape: &ServerShape) -> Template {
    let (groups, lanes) = (shape.groups, shape.lanes);
    let hint = if shape.together.is_some() {
        "bell & 0xffffu"
    } else {
        "seen & 0xffffu"
    };
    let (visits, hint, leaves) = match groups {
        1 => (format!("{}u", places.ports), hint.to_owned(), ""),
        _ => (
            "tombolo_server_visits()".to_owned(),
            format!("tombolo_server_visit({hint})"),
            "atomicStore(&tombolo_server[$left$u], lease);",
        ),
    };
    let template = template.set("visits", visits).set("leaves", leaves);
    let template = match shape.polls {
        true => template,
        false => template.set("hint", hint),
    };
    let template = match groups {
        1 => template,
        _ => with_arrival(template, places, shape),
    };
    let is_drawn_by_all = groups > 1 && shape.is_drawn_by_all();
    let draw = format!(
        "min(atomicAdd(&tombolo_server[{}u], 1u), {}u)",
        places.arrived,
        groups - 1
    );
    let arrives = match (groups, is_drawn_by_all, shape.together) {
        (1, ..) => String::new(),
        (_, true, _) => "tombolo_server_group = drawn;".to_owned(),
        (_, _, None) => format!("tombolo_server_group = {draw};"),
        (_, _, Some(_)) => format!("if lane == 0u {{ tombolo_server_group = {draw}; }}"),
    };
    let arrives = match groups {
        1 => arrives,
        _ => format!(
            "{arrives}\n    tombolo_server_lease = atomicLoad(&tombolo_server[{}u]);",
            places.lease
        ),
    };
    let template = template.set("arrives", arrives);
    let draws = match is_drawn_by_all {
        true => format!(
            "if lane == 0u {{ tombolo_server_drawn = {draw}; }}
    let drawn = workgroupUniformLoad(&tombolo_server_drawn);"
        ),
        false => String::new(),
    };
    if shape.together.is_some() {
        let lane = if groups > 1 {
            " + tombolo_server_group"
        } else {
            ""
        };
        return template.set("group_lane", lane).set("draws", draws);
    }
    let (server_lane, done_lane) = match groups {
        1 => ("lane".to_owned(), "lane"),
        _ => (
            format!("tombolo_server_group * {lanes}u + lane"),
            "tombolo_server_lane",
        ),
    };
    (template.set("server_lane", server_lane))
        .set("done_lane", done_lane)
        .set("draws", draws)
}

/// The marks of `shaders/server_groups.wgsl`.
fn with_arrival(template: Template, places: &Places, shape: &ServerShape) -> Template {
    let drawn = match shape.is_drawn_by_all() {
        true => "var<workgroup> tombolo_server_drawn: u32;",
        false => "",
    };
    // A kernel of another device counts its own requests, and is not believed to count by 1; the first work-group alone
    // looks at those kernels.
    let is_not_next = match &shape.remote_clients {
        Some(remote) => format!(
            "(request == known || (request - known != 1u && taken < {}u))",
            remote.taken
        ),
        None => "request - known != 1u".to_owned(),
    };
    template
        .set("drawn", drawn)
        .set("groups", shape.groups)
        .set("own", places.ports / shape.groups)
        .set("own_urgent", shape.urgent / shape.groups)
        .set("arrived", places.arrived)
        .set("is_not_next", is_not_next)
}
