// One function of the host. What stands in dollar signs is put in by `kernel::calls::forms`.
//
// Everything happens in one loop, and each turn of it does one step of each lane: taking a port, posting, or looking
// for the answer. Lanes of one group run in step, so a lane that waited in a loop of its own for a port would keep
// the lane that has it from giving it back.
//
// The reply word is loaded at one place, before the lock is taken: drivers reuse what an earlier load of the same
// word gave. That the word may be old by then does no harm, because mailboxes count (`rpc::port::protocol`).
$head$ {
    var reply: $reply$;
    reply.status = 2u;
    $waits$
    let ports = max(atomicLoad(&tombolo_calls[0]), 1u);
    let patience = atomicLoad(&tombolo_calls[1]);
    let search = $search$;
    let budget = atomicLoad(&tombolo_calls[2]);
    let calm = atomicLoad(&tombolo_calls[3]);
    let stride = atomicLoad(&tombolo_calls[7]);
    let locks = atomicLoad(&tombolo_calls[8]);
    let requests = atomicLoad(&tombolo_calls[9]);
    let replies = atomicLoad(&tombolo_calls[10]);
    let first = atomicLoad(&tombolo_calls[11]);
    let first_result = atomicLoad(&tombolo_calls[12]);
    var port = tombolo_call_first_port(ports);
    var request = 0u;
    var held = false;
    var look = 0u;
    loop {
        if look >= patience || (!held && look >= search) || (budget != 0u && tombolo_call_looks >= budget) {
            break;
        }
        if (look & 63u) == 0u && atomicLoad(&tombolo_calls[4]) != 0u {
            reply.status = 3u;
            break;
        }
        let answered = atomicLoad(&tombolo_calls[replies + port]);
        if held {
            if answered == request {
                tombolo_call_fence();
                let results = first_result + port * stride;
                reply.status = atomicLoad(&tombolo_calls[results]);
                if reply.status == 1u {
$results$
                }
                tombolo_call_fence();
                $release$
                held = false;
                break;
            }
        } else if atomicExchange(&tombolo_calls[locks + port], 1u) == 0u {
            tombolo_call_fence();
            let last = atomicLoad(&tombolo_calls[requests + port]);
            if last == answered {
                request = last + 1u;
                let arguments = first + port * stride;
                atomicStore(&tombolo_calls[arguments], $opcode$u);
                atomicStore(&tombolo_calls[arguments + 1u], $words$u);
                atomicStore(&tombolo_calls[arguments + 2u], request);
                atomicStore(&tombolo_calls[arguments + 3u], 0u);
$arguments$
                tombolo_call_fence();
                atomicExchange(&tombolo_calls[requests + port], request);
$posted$
            } else {
                atomicStore(&tombolo_calls[locks + port], 0u);
                port = (port + 1u) % ports;
            }
        } else {
            port = (port + 1u) % ports;
        }
        look += 1u;
        if budget != 0u {
            tombolo_call_looks += 1u;
        }
        look += tombolo_call_rest(look, calm);
    }
    if held {
        // Whoever gives up leaves the call to the server: the port is free once it has answered.
        tombolo_call_fence();
        atomicStore(&tombolo_calls[locks + port], 0u);
    }
    tombolo_call_port = port;
    return reply;
}
