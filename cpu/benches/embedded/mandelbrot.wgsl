@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = vec2<f32>(f32(id.x) / 512.0 * 3.0 - 2.0, f32(id.y) / 512.0 * 2.0 - 1.0);
    var z = vec2<f32>(0.0);
    var k = 0u;
    while (k < 256u && dot(z, z) <= 4.0) {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        k++;
    }
    out[id.y * 512u + id.x] = k;
}
