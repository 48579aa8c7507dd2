// The walk of walk.wgsl in plain WGSL: cells are linked by indices, and 32 bytes long.
const END = 0xffffffffu;
struct Cell {
    centre: vec3<f32>, // of mass
    mass: f32,
    reach: f32, // the square of the distance below which the cell is opened
    first: u32,
    next: u32,
    padding: u32,
}
@group(0) @binding(0) var<storage, read> cells: array<Cell>;
@group(0) @binding(1) var<storage, read> bodies: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let position = bodies[id.x].xyz;
    var pull = vec3(0.0);
    var taken = 0.0;
    var at = 0u;
    while at != END {
        let cell = cells[at];
        let away = cell.centre - position;
        let distance = dot(away, away);
        if distance < cell.reach {
            at = cell.first;
            continue;
        }
        let inverse = inverseSqrt(distance + 1e-4);
        pull += (cell.mass * inverse * inverse * inverse) * away;
        taken += 1.0;
        at = cell.next;
    }
    out[id.x] = vec4(pull, taken);
}
