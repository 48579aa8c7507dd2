// What `precompiled.spv` was compiled from (by naga 30.0.1, as SPIR-V 1.0). It tells the interface.

@group(0) @binding(0) var<storage, read_write> counters: array<u32>;

@compute @workgroup_size(64)
fn square(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&counters) {
        counters[id.x] = id.x * id.x;
    }
}
