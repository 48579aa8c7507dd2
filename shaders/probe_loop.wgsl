// How many turns of a loop does the driver grant?
//
// The loop ends by its count, or if a xorshift generator reaches zero, which it never does; no
// compiler knows that, so none can compute the count without taking the turns.

struct Loop {
    limit: u32,
    seed: u32,
    counted: u32,
    state: u32,
}

@group(0) @binding(0) var<storage, read_write> io: Loop;

// Eight invocations, for the reason given in probe_live.wgsl.
@compute @workgroup_size(8)
fn probe_loop(@builtin(local_invocation_index) lane: u32) {
    let limit = io.limit;
    var state = io.seed;
    var counted = 0u;
    loop {
        if counted >= limit || state == 0u {
            break;
        }
        state ^= state << 13u;
        state ^= state >> 17u;
        state ^= state << 5u;
        counted += 1u;
    }
    if lane == 0u {
        io.state = state;
        io.counted = counted;
    }
}

// For the time that a launch takes.
@compute @workgroup_size(1)
fn probe_empty() {}
