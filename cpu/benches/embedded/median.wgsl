// The median of 7 x 7 pixels of a picture of 256 x 256, by selection in private memory.
@group(0) @binding(0) var<storage, read> picture: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var window: array<f32, 49>;
    var count = 0u;
    for (var dy = -3; dy <= 3; dy++) {
        for (var dx = -3; dx <= 3; dx++) {
            let x = clamp(i32(id.x) + dx, 0, 255);
            let y = clamp(i32(id.y) + dy, 0, 255);
            window[count] = picture[y * 256 + x];
            count++;
        }
    }
    for (var i = 0u; i <= 24u; i++) {
        for (var j = i + 1u; j < 49u; j++) {
            let a = window[i];
            let b = window[j];
            window[i] = min(a, b);
            window[j] = max(a, b);
        }
    }
    out[id.y * 256u + id.x] = window[24];
}
