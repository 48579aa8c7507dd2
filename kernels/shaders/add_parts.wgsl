// Sums of counters over parts of an input: part p has its counters at p * PITCH.

override PARTS: u32;
override PITCH: u32;

@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;

@compute @workgroup_size(64)
fn add_parts(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&counts) { return; }
    var sum = 0u;
    for (var part = 0u; part < PARTS; part++) { sum += parts[part * PITCH + id.x]; }
    counts[id.x] = sum;
}
