// The pull of a tree of cells on each body: the walk follows pointers into the shared heap.
struct Cell {
    centre: vec3<f32>, // of mass
    mass: f32,
    reach: f32, // the square of the distance below which the cell is opened
    tag: u32,
    first: usm_ptr,
    next: usm_ptr,
}
@group(0) @binding(0) var<storage, read> root: array<usm_ptr>;
@group(0) @binding(1) var<storage, read> bodies: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let position = bodies[id.x].xyz;
    var pull = vec3(0.0);
    var taken = 0.0;
    var p = root[0];
    while !usm_is_null(p) {
        let cell = usm_Cell(p);
        let away = cell.centre - position;
        let distance = dot(away, away);
        if distance < cell.reach {
            p = cell.first;
            continue;
        }
        let inverse = inverseSqrt(distance + 1e-4);
        pull += (cell.mass * inverse * inverse * inverse) * away;
        taken += 1.0;
        p = cell.next;
    }
    out[id.x] = vec4(pull, taken);
}
