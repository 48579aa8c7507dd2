struct Particle {
    position: vec3<f32>,
    mass: f32,
}

// How far one launch goes; the host sets it when the kernel is compiled.
override STEPS: u32 = 1;

@group(0) @binding(0) var<storage, read_write> particles: array<Particle>;
@group(0) @binding(1) var<uniform> velocity: vec3<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // Work-groups are whole: the last one may be larger than what is left.
    if id.x >= arrayLength(&particles) {
        return;
    }
    for (var i = 0u; i < STEPS; i++) {
        particles[id.x].position += velocity;
    }
}
