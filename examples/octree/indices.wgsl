// The walk of `octree.wgsl` over indices into buffers, as it is written without pointers.

struct Body {
    position: vec3<f32>,
    mass: f32,
    velocity: vec3<f32>,
    potential: f32,
    acceleration: vec3<f32>,
    seen: u32,
    leaf: u32,
}

struct Node {
    centre: vec3<f32>,
    mass: f32,
    reach: f32,
    bodies: u32,
    first: u32,
    next: u32,
    body: u32,
}

struct Params {
    root: u32,
    count: u32,
    kick: f32,
    softening: f32,
}

const NONE: u32 = 0xffffffffu;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read> nodes: array<Node>;
@group(0) @binding(3) var<storage, read_write> bodies: array<Body>;

@compute @workgroup_size(64)
fn pull(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= params.count {
        return;
    }
    let me = order[id.x];
    let position = bodies[me].position;

    var acceleration = vec3(0.0);
    var potential = 0.0;
    var seen = 0u;
    var leaf = NONE;
    var i = params.root;
    while i != NONE {
        let away = nodes[i].centre - position;
        let distance = dot(away, away);
        if distance < nodes[i].reach {
            i = nodes[i].first;
            continue;
        }
        seen += nodes[i].bodies;
        if nodes[i].body == me {
            leaf = i;
        } else {
            let inverse = inverseSqrt(distance + params.softening);
            let share = nodes[i].mass * inverse;
            acceleration += (share * inverse * inverse) * away;
            potential -= share;
        }
        i = nodes[i].next;
    }

    bodies[me].acceleration = acceleration;
    bodies[me].velocity += params.kick * acceleration;
    bodies[me].potential = potential;
    bodies[me].seen = seen;
    bodies[me].leaf = leaf;
}
