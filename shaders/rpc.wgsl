// What all functions of the host have in common. Appended behind programs that call one.

// The ports; see `rpc::port::layout`.
var<storage, read_write> tombolo_calls: array<atomic<u32>>;
// Where the search for a free port begins: the port used last, or else one that no other invocation begins with.
var<private> tombolo_call_port: u32 = 0xffffffffu;
// Looks at ports that this invocation has taken, where they are rationed.
var<private> tombolo_call_looks: u32;

// Orders memory between the lines above and below, for one invocation alone. WGSL has no word for that, so the
// body is put in after parsing.
fn tombolo_call_fence() {}

fn tombolo_call_first_port(ports: u32) -> u32 {
    if tombolo_call_port == 0xffffffffu {
        tombolo_call_port = atomicAdd(&tombolo_calls[5], 1u);
    }
    return tombolo_call_port % ports;
}

// Takes some time without turns of a loop, which adapters that need this ration. Divisions are slow everywhere.
fn tombolo_call_calm(seed: u32) -> u32 {
    var x = seed | 1u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    x = (0xfffffff1u / x) | 1u; x = (0xffffffe5u / x) | 3u; x = (0xffffffd3u / x) | 1u; x = (0xffffffc1u / x) | 5u;
    return x;
}
