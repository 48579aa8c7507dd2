// Small kernels that leave a trace of having run.

override SIZE: u32;

@group(0) @binding(0) var<storage, read_write> counters: array<u32>;

// The size of the work-group is left to the runtime.
@compute @workgroup_size(SIZE)
fn increment(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&counters) {
        counters[id.x] += 1u;
    }
}

// Writes the number of each work-group, so that a missing one shows.
@compute @workgroup_size(1)
fn number(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    counters[group.x] = group.x + groups.x;
}

// Decides on the device how large the next grid is.
@compute @workgroup_size(1)
fn decide() {
    counters[0] = 5u;
    counters[1] = 1u;
    counters[2] = 1u;
}
