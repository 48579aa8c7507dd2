// An ordinary kernel: gives the pixels of a frame their colours.

@group(0) @binding(0) var<storage, read> iterations: array<u32>;
@group(0) @binding(1) var<storage, read_write> colours: array<u32>;
@group(0) @binding(2) var<uniform> limit: u32;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&colours) {
        return;
    }
    let found = (iterations[id.x / 4u] >> (8u * (id.x % 4u))) & 0xffu;
    let t = sqrt(f32(found) / f32(limit));
    let wave = 0.5 + 0.5 * cos(6.2832 * (vec3(1.4, 1.2, 1.0) * t + vec3(0.6, 0.5, 0.3)));
    let colour = select(wave * smoothstep(0.0, 0.15, t), vec3(0.02, 0.02, 0.04), found >= limit);
    colours[id.x] = pack4x8unorm(vec4(colour, 1.0));
}
