// What all functions of the host have in common. Appended behind programs that call one.

// The ports; see `rpc::port::layout`.
var<storage, read_write> tombolo_calls: array<atomic<u32>>;
// Where the search for a free port begins: the port used last, or else one that no other invocation begins with.
var<private> tombolo_call_port: u32 = 0xffffffffu;
// Looks at ports that this invocation has taken, where they are rationed.
var<private> tombolo_call_looks: u32;
// Written by whatever waits for the host: that a kernel reaches it is how launches know.
var<private> tombolo_call_waits: u32;

// Orders memory between the lines above and below, for one invocation alone. WGSL has no word for that, so the
// body is put in after parsing.
fn tombolo_call_fence() {}

fn tombolo_call_first_port(ports: u32) -> u32 {
    if tombolo_call_port == 0xffffffffu {
        tombolo_call_port = atomicAdd(&tombolo_calls[5], 1u);
    }
    return tombolo_call_port % ports;
}

// Takes some time without turns of a loop, which adapters that need this ration: 64 roots, one of the other, are the
// most time for the fewest instructions.
fn tombolo_call_calm(seed: f32) -> f32 {
    var x = seed;
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x); x = sqrt(x);
    return x;
}

fn tombolo_call_calm_4(seed: f32) -> f32 {
    return tombolo_call_calm(tombolo_call_calm(tombolo_call_calm(tombolo_call_calm(seed))));
}

// Rests before the next look, longer after many looks: where looks are rationed they have to last until a host that is
// busy comes round. Gives 0, which nobody can know.
fn tombolo_call_rest(look: u32, calm: u32) -> u32 {
    if look <= calm {
        return 0u;
    }
    var x = tombolo_call_calm_4(f32(look) + 0.5);
    if look > 16u * calm {
        x = tombolo_call_calm_4(tombolo_call_calm_4(tombolo_call_calm_4(x + 2.0)));
    }
    return select(0u, 1u, x > 1e9);
}
