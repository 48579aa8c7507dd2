@group(0) @binding(0) var<storage, read> x: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    print("line {} has {:.3}", id.x, x[id.x]);
}
