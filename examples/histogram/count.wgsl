// Counts how often each lightness occurs. Each work-group counts in memory of its own first, so that the variable
// of the device sees 256 additions for every 4,096 pixels.

@group(0) @binding(0) var<storage, read> pixels: array<u32>;

// No binding: these are variables of the device. `tone.wgsl` and the host know them by their names.
var<storage, read_write> counts: array<atomic<u32>, 256>;
var<storage, read_write> total: atomic<u32>;

var<workgroup> local_counts: array<atomic<u32>, 256>;

fn lightness(pixel: u32) -> u32 {
    let red = pixel & 0xffu;
    let green = (pixel >> 8u) & 0xffu;
    let blue = (pixel >> 16u) & 0xffu;
    return (77u * red + 150u * green + 29u * blue) >> 8u;
}

@compute @workgroup_size(256)
fn count(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first = group.x * 4096u + lane;
    var mine = 0u;
    for (var i = 0u; i < 16u; i++) {
        let at = first + i * 256u;
        if at < arrayLength(&pixels) {
            atomicAdd(&local_counts[lightness(pixels[at])], 1u);
            mine++;
        }
    }
    workgroupBarrier();
    let seen = atomicLoad(&local_counts[lane]);
    if seen > 0u { atomicAdd(&counts[lane], seen); }
    if mine > 0u { atomicAdd(&total, mine); }
}
