// A step of the simulation: bodies move, and feel the pull of the tree that Rust has built in between.
//
// `Body` and `Node` are Rust's own structures, and every `usm_ptr` in them is an address that Rust
// stored there.

struct Body {
    position: vec3<f32>,
    mass: f32,
    velocity: vec3<f32>,
    potential: f32,
    acceleration: vec3<f32>,
    seen: u32,
    leaf: usm_ptr,
}

struct Node {
    // Centre of mass.
    centre: vec3<f32>,
    mass: f32,
    // The square of the distance below which the cell has to be opened; 0 for leaves.
    reach: f32,
    bodies: u32,
    first: usm_ptr,
    next: usm_ptr,
    body: usm_ptr,
}

alias Bodies = array<usm_ptr>;

struct Params {
    root: usm_ptr,
    // Pointers to the bodies in the order of the tree: neighbouring invocations take neighbouring
    // bodies, and so mostly the same way through the tree.
    order: usm_ptr,
    count: u32,
    // By how much time velocities and positions move on.
    kick: f32,
    drift: f32,
    // The square of the length over which bodies are smeared out.
    softening: f32,
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn move_bodies(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.count {
        return;
    }
    let body = usm_Body(usm_Bodies(params.order)[id.x]);
    let velocity = body.velocity + params.kick * body.acceleration;
    body.velocity = velocity;
    body.position += params.drift * velocity;
}

@compute @workgroup_size(64)
fn pull(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.count {
        return;
    }
    let me = usm_Bodies(params.order)[id.x];
    let body = usm_Body(me);
    let position = body.position;

    var acceleration = vec3(0.0);
    var potential = 0.0;
    var seen = 0u;
    var leaf = vec2(0u);
    // No stack: a node knows its first child and what follows when it is done with.
    var p = params.root;
    while !usm_is_null(p) {
        let node = usm_Node(p);
        let away = node.centre - position;
        let distance = dot(away, away);
        if distance < node.reach {
            p = node.first;
            continue;
        }
        seen += node.bodies;
        if all(node.body == me) {
            leaf = p;
        } else {
            let inverse = inverseSqrt(distance + params.softening);
            let share = node.mass * inverse;
            acceleration += (share * inverse * inverse) * away;
            potential -= share;
        }
        p = node.next;
    }

    body.acceleration = acceleration;
    body.velocity += params.kick * acceleration;
    body.potential = potential;
    body.seen = seen;
    body.leaf = leaf;
}
