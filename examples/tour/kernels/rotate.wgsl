// Turns points about an axis. The structure has the padding that WGSL gives a vec3.

struct Motion {
    axis: vec3<f32>,
    angle: f32,
    shift: vec3<f32>,
}

@group(0) @binding(0) var<storage, read_write> points: array<vec3<f32>>;
@group(0) @binding(1) var<uniform> motion: Motion;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&points) {
        return;
    }
    let p = points[id.x];
    let k = motion.axis;
    let c = cos(motion.angle);
    let s = sin(motion.angle);
    points[id.x] = p * c + cross(k, p) * s + k * dot(k, p) * (1.0 - c) + motion.shift;
}
