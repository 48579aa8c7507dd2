// What the invocations of a work-group share that call as one; see `rpc_group_of.wgsl`.
var<workgroup> tombolo_group_count: atomic<u32>;
var<workgroup> tombolo_group_word: u32;
struct tombolo_group_outcome { status: u32 }

// Whether everybody calls for himself after all: the body is replaced where ports lie in two memories. There fences of
// several invocations around a barrier were seen not to be enough for one packet.
fn tombolo_group_alone() -> bool { return false; }
