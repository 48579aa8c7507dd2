// Batches of calls of one function, each lane answering one. Behind `server.wgsl`, in front of `server_group.wgsl`.
//
// Lane 0 has taken the first call. Each of the others looks at ports of its own, but for the lane that would look at the
// port of that call, and takes the first call of the same function that it finds: so no more calls are taken than fit, and as
// many ports as there are calls in a batch fill it whenever they have calls.

// Where arguments, results and reply of each call lie, and its request.
var<workgroup> tombolo_server_batch: array<vec4<u32>, $most_batch$>;
var<workgroup> tombolo_server_batched: atomic<u32>;
var<workgroup> tombolo_server_calls: u32;
// Where among the group's ports lane 0 has found the first call.
var<workgroup> tombolo_server_first: u32;

// Takes the call at a port, if it is one of the function. Whether it is in the batch.
fn tombolo_server_joins(at: u32, request: u32, wanted: u32, length: u32) -> bool {
    let arguments = $arguments$u + at * $stride$u;
    let results = $results$u + at * $stride$u;
    let taken = $locks$u + at;
    let reply = $replies$u + at * $mailbox_stride$u;
    let posted = atomicLoad(&tombolo_server[arguments]);
    if posted != wanted || atomicLoad(&tombolo_server[arguments + 1u]) != length {
        return false;
    }
    $take$
    $opcode$
    if opcode != wanted {
        // It is withdrawn, and answered at once.
        let status = $busy$u;
        $head$
        tombolo_server_fence();
        tombolo_server_publish(reply, request);
        return false;
    }
    let index = atomicAdd(&tombolo_server_batched, 1u);
    tombolo_server_batch[index] = vec4(arguments, results, reply, request);
    return true;
}

// Gathers calls of the function whose call lane 0 has taken, `most` of them together with that one.
fn tombolo_server_gather(lane: u32, wanted: u32, length: u32, most: u32) {
    if lane >= most || lane == tombolo_server_first % most {
        return;
    }
    var visit = lane;
    loop {
        if visit >= $own_ports$u {
            break;
        }
        let at = $gather_at$;
        let request = atomicLoad(&tombolo_server[$requests$u + at * $mailbox_stride$u]);
        if request != atomicLoad(&tombolo_server[$locks$u + at]) {
            tombolo_server_fence();
            if tombolo_server_joins(at, request, wanted, length) {
                break;
            }
        }
        visit += most;
        tombolo_server_turns += 1u;
    }
}
