// What the invocations of a work-group share that call as one; see `rpc_group_of.wgsl`.
var<workgroup> tombolo_group_count: atomic<u32>;
var<workgroup> tombolo_group_word: u32;
struct tombolo_group_outcome { status: u32 }
// What the words of a packet come to that its invocations have written.
var<workgroup> tombolo_group_sum: atomic<u32>;

// Adds one invocation's. Nothing is sealed but where ports lie in two memories; see `tombolo_call_store`.
fn tombolo_group_add(sum: u32) {}
fn tombolo_group_add_sealed(sum: u32) { atomicAdd(&tombolo_group_sum, sum); }
fn tombolo_group_take() -> u32 { return 0u; }
fn tombolo_group_take_sealed() -> u32 { return atomicExchange(&tombolo_group_sum, 0u); }
