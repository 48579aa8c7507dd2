// What all functions of the host have in common. Appended behind programs that call one.

// The ports; see `rpc::port::layout`.
var<storage, read_write> tombolo_calls: array<atomic<u32>>;
// The same words once more, for what kernels write and the host reads: requests and arguments. Where device and host
// have one memory these are the ports themselves.
var<storage, read_write> tombolo_posts: array<atomic<u32>>;
// Memory without a meaning, which callers visit to let time go by where turns of loops are rationed; bound only there.
var<storage, read_write> tombolo_backoff: array<atomic<u32>>;
// Where the search for a free port begins: the port used last, or else one that no other invocation begins with.
var<private> tombolo_call_port: u32 = 0xffffffffu;
// Turns of loops that this invocation has taken for its calls.
var<private> tombolo_call_looks: u32;
// Where the walk of `tombolo_call_backoff` has come to.
var<private> tombolo_call_walk: u32;
// Not 0 once a call of this invocation has failed that was to fail the launch.
var<private> tombolo_call_failed: u32;
// Written by whatever waits for the host: that a kernel reaches it is how launches know.
var<private> tombolo_call_waits: u32;

// Orders memory between the lines above and below, for one invocation alone. WGSL has no word for that, so the
// body is put in after parsing.
fn tombolo_call_fence() {}

// Writes a word that the host waits for. Where fences are barriers the second function's body replaces this one: an
// exchange is a fence by itself on processors, but graphics processors make it in their own cache, where the host does
// not see it.
fn tombolo_call_publish(at: u32, value: u32) { atomicExchange(&tombolo_posts[at], value); }
fn tombolo_call_publish_behind_fence(at: u32, value: u32) { atomicStore(&tombolo_posts[at], value); }

// Writes a word of a packet; what it adds to the packet's seal. Where ports lie in two memories the second function's
// body replaces the first one's: words may arrive there in any order, and the seal says when all have
// (`rpc::port::seal`).
fn tombolo_call_store(at: u32, word: u32) -> u32 {
    atomicStore(&tombolo_posts[at], word);
    return 0u;
}
fn tombolo_call_store_sealed(at: u32, word: u32) -> u32 {
    atomicStore(&tombolo_posts[at], word);
    let mixed = (word ^ (at * 0x9e3779b1u)) * 0x85ebca6bu;
    return (mixed ^ (mixed >> 15u)) * 0xc2b2ae35u;
}

// Seals a packet whose words come to `sum`, before its request is written at `outbox`.
fn tombolo_call_seal(arguments: u32, sum: u32, outbox: u32, request: u32) {}
fn tombolo_call_seal_sealed(arguments: u32, sum: u32, outbox: u32, request: u32) {
    let mixed = (request ^ (outbox * 0x9e3779b1u)) * 0x85ebca6bu;
    atomicStore(&tombolo_posts[arguments + 3u], sum + (mixed ^ (mixed >> 15u)) * 0xc2b2ae35u);
}

fn tombolo_call_first_port(ports: u32) -> u32 {
    if tombolo_call_port == 0xffffffffu {
        tombolo_call_port = atomicAdd(&tombolo_calls[13], 1u);
    }
    return tombolo_call_port % ports;
}

// Turns of loops that the next call may take.
fn tombolo_call_most() -> u32 {
    let wait_budget = atomicLoad(&tombolo_calls[1]);
    let budget = atomicLoad(&tombolo_calls[2]);
    return select(wait_budget, min(wait_budget, max(budget, tombolo_call_looks) - tombolo_call_looks), budget != 0u);
}

// Counts turns. A caller without a limit may take more than there are numbers.
fn tombolo_call_turn(look: u32, turns: u32) -> u32 {
    return select(look + turns, 0xfffff000u, look > 0xfffffff0u);
}

var<private> tombolo_call_paused: u32;

// Takes a moment, on adapters that ration turns of loops; the body is dropped elsewhere. Divisions are slow everywhere.
fn tombolo_call_pause(seed: u32) {
    var x = (tombolo_call_paused ^ seed) | 1u;
    x = (0xfffffff1u / x) | 1u;
    x = (0xffffffe5u / x) | 3u;
    tombolo_call_paused = 0xffffffa7u / x;
}

// How long the first turn of a call takes that backs off: longer when much of the ration is spent.
fn tombolo_call_first_step() -> u32 { return 6u + min(tombolo_call_looks >> 13u, 8u); }

// Lets time go by, where turns are rationed; the body is dropped elsewhere. What takes time is memory: each load waits for
// the one before, and few caches have the place once the walk is wide. `step` says how wide, from 2^6 to 2^20 lines of 64
// bytes: the first turns take about as long as a call does, later ones ten times that. Lanes that need not wait hardly
// pay, where nothing but the end of a loop is a branch: a processor skips the loads of a lane that is masked out. What
// stands in dollar signs is put in by `kernel::calls::wgsl`.
fn tombolo_call_backoff(step: u32) {
    let shift = 32u - min(step, 20u);
    var walk = tombolo_call_walk;
$walk$
    tombolo_call_walk = walk;
}

// Next to always 0, which nobody can know: the walk has to be made.
fn tombolo_call_walked() -> u32 { return select(0u, 1u, tombolo_call_walk == 0xffffffffu); }
