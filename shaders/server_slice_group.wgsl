// Calls between launches whose handlers take whole work-groups: each group serves one call. Behind `server_slice.wgsl` or
// `server_ports.wgsl`, in the place of their lanes.

// Whether there is a call, its place, request, opcode and length, and its arguments.
var<workgroup> tombolo_server_call: array<u32, $call_words$>;
// What became of the call in any lane.
var<workgroup> tombolo_server_worst: atomic<u32>;

@compute @workgroup_size($group_lanes$)
fn tombolo_server_slice(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    if lane == 0u {
        tombolo_server_call[0] = 0u;
        let index = group.x;
$fetch$
    }
    let call = workgroupUniformLoad(&tombolo_server_call);
    if call[0] == 0u {
        return;
    }
    let results = $results_at$;
    let length = call[4];
    tombolo_server_limit = $turns$u;
    var status = $unknown$u;
    switch call[3] {
$cases$
        default: {}
    }
    if tombolo_server_turns >= tombolo_server_limit {
        status = $too_long$u;
    }
$faults$
    atomicMax(&tombolo_server_worst, status);
    // What other lanes have written is there when the answer is.
    storageBarrier();
    workgroupBarrier();
    if lane == 0u {
        status = atomicLoad(&tombolo_server_worst);
$answer$
    }
}
