// What the invocations of a work-group share that call as one; see `rpc_group_of.wgsl`.
var<workgroup> tombolo_group_count: atomic<u32>;
var<workgroup> tombolo_group_word: u32;
struct tombolo_group_outcome { status: u32 }
