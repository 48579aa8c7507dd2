// 256 x 256, in tiles of 16 x 16.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
var<workgroup> ta: array<f32, 256>;
var<workgroup> tb: array<f32, 256>;
@compute @workgroup_size(16, 16)
fn main(@builtin(local_invocation_id) l: vec3<u32>, @builtin(workgroup_id) w: vec3<u32>) {
    let row = w.y * 16u + l.y;
    let column = w.x * 16u + l.x;
    var sum = 0.0;
    for (var t = 0u; t < 16u; t++) {
        ta[l.y * 16u + l.x] = a[row * 256u + t * 16u + l.x];
        tb[l.y * 16u + l.x] = b[(t * 16u + l.y) * 256u + column];
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            sum += ta[l.y * 16u + k] * tb[k * 16u + l.x];
        }
        workgroupBarrier();
    }
    c[row * 256u + column] = sum;
}
