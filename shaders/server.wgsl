// What the polling kernels around a program's handlers have in common. Appended behind the program; what stands in dollar signs is put in by
// `kernel::server`, places in the ports as numbers.
//
// `server_lane.wgsl` or `server_group.wgsl` follows.
//
// The protocol is that of `rpc::port` with the roles exchanged: the host posts requests, and this answers them. A port
// belongs to one lane of the kernel. What that lane has taken lies where the clients' locks would be, which threads of
// the host keep to themselves; so the next lease knows, and nothing is served twice.

// What the host writes, and what was taken.
$binding$ var<storage, read_write> tombolo_server: array<atomic<u32>>;
$posts$
// Turns of loops in this lease, and how many there may be when the call is over that is being served; loops of handlers
// count by a pass.
var<private> tombolo_server_turns: u32;
var<private> tombolo_server_limit: u32;
var<private> tombolo_server_beats: u32;
var<private> tombolo_server_lane: u32;
$withdrawal$
// Not 0 when the lease has to end, because a call has failed in it.
var<private> tombolo_server_fault: u32;

// Orders memory between the lines above and below, for one invocation alone; see `shaders/rpc.wgsl`.
fn tombolo_server_fence() {}
// Writes a word that the host waits for. Where fences are barriers the second function's body replaces this one, as in
// `shaders/rpc.wgsl`. The branch is never taken: of programs with conventions a declaration that nothing mentions is left out.
fn tombolo_server_publish(at: u32, value: u32) {
    if false { tombolo_server_publish_behind_fence(at, value); }
    atomicExchange(&$out$[at], value);
}
fn tombolo_server_publish_behind_fence(at: u32, value: u32) { atomicStore(&$out$[at], value); }
