// One sum for each work-group, by halves.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
var<workgroup> part: array<f32, 256>;
@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) w: vec3<u32>) {
    part[i] = x[w.x * 256u + i];
    workgroupBarrier();
    for (var half = 128u; half > 0u; half >>= 1u) {
        if (i < half) { part[i] += part[i + half]; }
        workgroupBarrier();
    }
    if (i == 0u) { sums[w.x] = part[0]; }
}
