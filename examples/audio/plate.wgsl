// A struck plate: the sound of each of its modes is a resonator, and an invocation computes one. The plate's other
// half, with the same numbers, is plate.rs.
struct Mode { near: f32, far: f32, gain: f32 }

const block = 128u;
const piece = 16u;

@group(0) @binding(0) var<storage, read> modes: array<Mode, 64>;
// The last two samples of each mode.
@group(0) @binding(1) var<storage, read_write> states: array<vec2<f32>, 64>;

var<workgroup> blocks: u32;
var<workgroup> struck: array<f32, 16>;
var<workgroup> parts: array<array<f32, 64>, 16>;

// Renders up to so many blocks, as many as have come and fit. Samples stay in the rings: invocations read them where
// the host has written them, and write where the host reads.
fn render(lane: u32, wanted: u32) -> u32 {
    if lane == 0u { blocks = min(wanted, min(ring_input_ready(), ring_output_room()) / block); }
    let found = workgroupUniformLoad(&blocks);
    let mode = modes[lane];
    var last = states[lane];
    for (var first = 0u; first < found * block; first += piece) {
        if lane < piece { struck[lane] = ring_input_at(first + lane); }
        workgroupBarrier();
        for (var i = 0u; i < piece; i++) {
            let next = mode.near * last.x + mode.far * last.y + mode.gain * struck[i];
            last = vec2(next, last.x);
            parts[i][lane] = next;
        }
        workgroupBarrier();
        if lane < piece {
            var sum = 0.0;
            for (var i = 0u; i < 64u; i++) { sum += parts[lane][i]; }
            ring_output_set(first + lane, sum);
        }
    }
    states[lane] = last;
    // All samples are read and written before one invocation moves the counts.
    storageBarrier();
    workgroupBarrier();
    if lane == 0u {
        ring_input_release(found * block);
        ring_output_commit(found * block);
    }
    return found;
}
