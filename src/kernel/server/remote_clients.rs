//! The part of a polling kernel that serves kernels of other devices.

use super::text::ServerShape;
use crate::template::Template;

const KERNELS: &str = include_str!("../../../shaders/server_kernels.wgsl");
const GROUP_KERNELS: &str = include_str!("../../../shaders/server_group_kernels.wgsl");

/// The place of kernels' ports in the words of a server: areas, each laid out like the ports of a device, and in front
/// of them the notes of taken calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteClientPlaces {
    /// Areas: devices that may call.
    pub areas: usize,
    /// The first word of the first area.
    pub first: usize,
    /// Words from one area to the next.
    pub area: usize,
    /// Ports of each area.
    pub ports: usize,
    pub stride: usize,
    /// Within an area.
    pub requests: usize,
    /// Within an area.
    pub arguments: usize,
    /// Within an area.
    pub replies: usize,
    /// Within an area.
    pub results: usize,
    /// A word for each port of each area.
    pub taken: usize,
}

/// The parts of a polling kernel for remote clients; empty without kernels as callers.
#[derive(Default)]
pub(super) struct Parts {
    pub first: String,
    pub look: String,
    pub only: &'static str,
    pub scan: String,
    pub or: &'static str,
    pub known: String,
}

/// The parts; `or_over` is what ends a scan early.
pub(super) fn remote_clients(shape: &ServerShape, or_over: &str) -> Parts {
    let Some(places) = &shape.remote_clients else {
        return Parts::default();
    };
    // Unrolled, so a look is one turn. See `text::look` for the exchange that changes nothing.
    let sum = |load: &dyn Fn(usize) -> String| {
        let all = (0..places.areas).flat_map(|area| {
            let first = places.first + area * places.area + places.requests;
            first..first + places.ports
        });
        all.map(load).collect::<Vec<_>>().join(" + ")
    };
    let load = |at: usize| format!("atomicLoad(&tombolo_server[{at}u])");
    let exchange = |at: usize| format!("atomicOr(&tombolo_server[{at}u], 0u)");
    let first = sum(&load);
    let look = match shape.has_loop_budget {
        true => sum(&exchange),
        false => first.clone(),
    };
    let scan = match shape.together {
        Some(_) => Template::new(GROUP_KERNELS),
        None => Template::new(KERNELS)
            .set("lanes", shape.lanes)
            .set("first_remote", shape.first_remote(places, "lane")),
    };
    let scan = scan
        .set("or_over", or_over)
        .set("remote_clients", places.areas * places.ports)
        .set("each", places.ports)
        .set("first", places.first)
        .set("area", places.area)
        .set("requests", places.requests)
        .set("arguments", places.arguments)
        .set("replies", places.replies)
        .set("results", places.results)
        .set("stride", places.stride)
        .set("taken", places.taken)
        .fill();
    if shape.together.is_some() {
        return Parts {
            first: format!(
                "tombolo_server_known_posts = {first};\ntombolo_server_remote = {};",
                shape.first_remote(places, "0u")
            ),
            look: format!("posts = {look};"),
            only: "",
            scan,
            or: "|| posts != tombolo_server_known_posts",
            // The host's ports are looked at after a ring of its bell, those of kernels at every turn.
            known: format!(
                "if !tombolo_server_leaving && bell == seen {{ tombolo_server_end = 0u; }}\n\
                 tombolo_server_remote = {};\ntombolo_server_known_posts = posts;",
                shape.first_remote(places, "0u")
            ),
        };
    }
    Parts {
        first: format!("var known_posts = {first};\nvar posts = known_posts;\nvar hosts = true;"),
        look: format!("posts = {look};"),
        only: "if !hosts { end = 0u; }",
        scan,
        or: "|| posts != known_posts",
        known: "hosts = leaving || bell != seen;\nknown_posts = posts;".to_owned(),
    }
}
