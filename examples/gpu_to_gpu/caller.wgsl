// A kernel of the other device: each invocation asks the server for the primes of one range, and waits for the answer.

const NONE = 0xffffffffu;

struct Range { first: u32, last: u32 }

@group(0) @binding(0) var<storage, read_write> counts: array<u32>;
@group(0) @binding(1) var<uniform> width: u32;

@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // Where drivers ration turns of loops, and so the time that kernels wait, a call may not be answered in it. Then the
    // kernel is launched again for those that are missing.
    if id.x < arrayLength(&counts) && counts[id.x] == NONE {
        let reply = primes_try(Range(id.x * width, id.x * width + width - 1u));
        if reply.status == CALL_DONE {
            counts[id.x] = reply.value;
        }
    }
}
