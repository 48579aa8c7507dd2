// Wrong on purpose: the tour shows where the message points.

@group(0) @binding(0) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(1)
fn main() {
    let half = 0.5;
    out[0] = half * missing;
}
