// What all functions of the host have in common. Appended behind programs that call one. Constants named
// `tombolo_header_*`, `tombolo_layout_*`, `tombolo_packet_*` and `tombolo_status_*`, and what stands in dollar signs, are put in by
// `kernel::calls`.

$constants$

// The ports; see `rpc::port::layout`.
var<storage, read_write> tombolo_calls: array<atomic<u32>>;
// The same words once more, for what kernels write and the host reads: requests and arguments. Where device and host
// have one memory these are the ports themselves.
var<storage, read_write> tombolo_posts: array<atomic<u32>>;
// Memory without a meaning, which callers visit to let time go by where turns of loops are rationed; bound only there.
var<storage, read_write> tombolo_backoff: array<atomic<u32>>;
// Where the search for a free port begins: the port used last, or else one that no other invocation begins with.
var<private> tombolo_call_port: u32 = 0xffffffffu;
// Turns of loops that this invocation has taken for its calls; where turns are rationed, those of its group of lanes.
var<private> tombolo_call_looks: u32;
// Turns that each group of lanes has taken for calls, and the group of this invocation; used where turns are rationed.
// Lanes of a group run in step there and share one ration, also those that wait in branches of their own, one branch
// after the other. All lanes in step load and store the same number, so that a turn of the group counts once. Length and
// group are set by `kernel::calls::group_turns`.
var<workgroup> tombolo_call_group_turns: array<atomic<u32>, 1>;
var<private> tombolo_call_group: u32;
// Where the walk of `tombolo_call_backoff` has come to.
var<private> tombolo_call_walk: u32;
// Not 0 once a call of this invocation has failed that was to fail the launch.
var<private> tombolo_call_failed: u32;
// Written by whatever waits for the host: that a kernel reaches it is how launches know.
var<private> tombolo_call_waits: u32;

// Orders memory between the lines above and below, for one invocation alone. WGSL has no word for that, so the
// body is put in after parsing.
fn tombolo_call_fence() {}

// Takes the lock of a port, without a branch; false if somebody has it, or the caller does not want it. A lock never holds
// the largest number. Not by `atomicMax`, though that would be enough: SwiftShader makes `atomicMin` and `atomicMax` of a
// load and a store, behind a lock that no other operation takes. A store that came between them and freed the port would
// be undone, and the port lost.
fn tombolo_call_lock(at: u32, wanted: bool) -> bool {
    return atomicCompareExchangeWeak(&tombolo_calls[at], select(0xffffffffu, 0u, wanted), 1u).exchanged;
}

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
    $mixed_word$
    return $of_word$;
}

// What was posted last at a port, and the note of what is posted now. Where ports lie in two memories the kernels keep that
// word in theirs as well, which a kernel reads without crossing the bus; the host looks at its own.
fn tombolo_call_posted(at: u32) -> u32 { return atomicLoad(&tombolo_posts[at]); }
fn tombolo_call_posted_sealed(at: u32) -> u32 { return atomicLoad(&tombolo_calls[at]); }
fn tombolo_call_note(at: u32, request: u32) {}
fn tombolo_call_note_sealed(at: u32, request: u32) { atomicStore(&tombolo_calls[at], request); }

// Seals a packet whose words come to `sum`, before its request is written at `outbox`.
fn tombolo_call_seal(arguments: u32, sum: u32, outbox: u32, request: u32) {}
fn tombolo_call_seal_sealed(arguments: u32, sum: u32, outbox: u32, request: u32) {
    $mixed_request$
    atomicStore(&tombolo_posts[arguments + tombolo_packet_seal], sum + $of_request$);
}

// Where turns are rationed the word of the seal says instead whether the caller has withdrawn the call.
fn tombolo_call_seal_rationed(arguments: u32, sum: u32, outbox: u32, request: u32) {
    atomicStore(&tombolo_posts[arguments + tombolo_packet_seal], 0u);
}

// Takes a posted call back; false if a server has begun it, or where turns are not rationed. The server notes the request
// and looks for the withdrawal; the caller notes the withdrawal and looks for the request. Both do so by exchanges, whose
// order is the same for all, so that not both can miss the other's note (`rpc::port::model::calls`).
fn tombolo_call_withdraw(port: u32, arguments: u32, request: u32) -> bool { return false; }
fn tombolo_call_withdraw_rationed(port: u32, arguments: u32, request: u32) -> bool {
    atomicExchange(&tombolo_posts[arguments + tombolo_packet_seal], 1u);
$places$
    let begun = first_result + port * stride + tombolo_packet_begun;
    return atomicOr(&tombolo_calls[begun], 0u) != request;
}

fn tombolo_call_first_port(ports: u32) -> u32 {
    if tombolo_call_port == 0xffffffffu {
        tombolo_call_port = atomicAdd(&tombolo_calls[tombolo_header_ticket], 1u);
    }
    return tombolo_call_port % ports;
}

// Turns of loops that the next call may take.
fn tombolo_call_most() -> u32 {
    let wait_budget = atomicLoad(&tombolo_calls[tombolo_header_wait_budget]);
    let budget = atomicLoad(&tombolo_calls[tombolo_header_budget]);
    return select(wait_budget, min(wait_budget, max(budget, tombolo_call_looks) - tombolo_call_looks), budget != 0u);
}

fn tombolo_call_most_rationed() -> u32 {
    let wait_budget = atomicLoad(&tombolo_calls[tombolo_header_wait_budget]);
    let budget = atomicLoad(&tombolo_calls[tombolo_header_budget]);
    tombolo_call_looks = max(tombolo_call_looks, atomicLoad(&tombolo_call_group_turns[tombolo_call_group]));
    return select(wait_budget, min(wait_budget, max(budget, tombolo_call_looks) - tombolo_call_looks), budget != 0u);
}

// Turns after which no call is posted, and one that no server has begun is withdrawn.
fn tombolo_call_scarce(most: u32) -> u32 { return most; }
fn tombolo_call_scarce_rationed(most: u32) -> u32 {
    // The rest is kept for answers to calls that are begun, however many calls came before.
    let budget = atomicLoad(&tombolo_calls[tombolo_header_budget]);
    let spendable = budget - budget / 8u;
    return select(most, min(most, max(spendable, tombolo_call_looks) - tombolo_call_looks), budget != 0u);
}

// Counts turns. A caller without a limit may take more than there are numbers.
fn tombolo_call_turn(look: u32, turns: u32) -> u32 {
    return select(look + turns, 0xfffff000u, look > 0xfffffff0u);
}
fn tombolo_call_turn_rationed(look: u32, turns: u32) -> u32 {
    let known = atomicLoad(&tombolo_call_group_turns[tombolo_call_group]);
    let now = max(known, tombolo_call_looks + look) + turns;
    atomicStore(&tombolo_call_group_turns[tombolo_call_group], now);
    return now - tombolo_call_looks;
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
