// A call that was begun, by its ticket: (lowest 15 bits of the request) << 17 | port << 1 | 1. The ticket also lies in
// the port; whoever exchanges it there for 0 has the port to itself. What stands in dollar signs is put in by
// `kernel::calls::forms`.
//
// The reply word is loaded before the ticket is taken, for the same reason as in `rpc_call.wgsl`.
fn $name$_collect(ticket: u32) -> $name$_reply {
    var reply: $name$_reply;
    reply.status = 8u;
    let port = (ticket >> 1u) & 0xffffu;
    if (ticket & 1u) == 0u || port >= atomicLoad(&tombolo_calls[0]) {
        return reply;
    }
    let stride = atomicLoad(&tombolo_calls[7]);
    let arguments = atomicLoad(&tombolo_calls[11]) + port * stride;
    let results = atomicLoad(&tombolo_calls[12]) + port * stride;
    let lock = atomicLoad(&tombolo_calls[8]) + port;
    tombolo_call_fence();
    let answered = atomicLoad(&tombolo_calls[atomicLoad(&tombolo_calls[10]) + port]);
    let is_closed = atomicLoad(&tombolo_calls[4]) != 0u;
    if (answered & 0x7fffu) != (ticket >> 17u) && !is_closed {
        // No answer yet, or no such call: a look at the ticket that takes nothing from others, who may leave it.
        if atomicLoad(&tombolo_calls[arguments + 2u]) == ticket && atomicLoad(&tombolo_posts[arguments]) == $opcode$u {
            reply.status = 7u;
        }
        return reply;
    }
    let seen = atomicCompareExchangeWeak(&tombolo_calls[arguments + 2u], ticket, 0u);
    if !seen.exchanged {
        if seen.old_value == ticket {
            // A weak exchange may fail for nothing.
            reply.status = 7u;
        }
        return reply;
    }
    tombolo_call_fence();
    if atomicLoad(&tombolo_posts[arguments]) != $opcode$u {
        // Somebody else's function.
        atomicStore(&tombolo_calls[arguments + 2u], ticket);
        return reply;
    }
    if answered != atomicLoad(&tombolo_posts[atomicLoad(&tombolo_calls[9]) + port]) {
        if is_closed {
            reply.status = 3u;
            atomicStore(&tombolo_calls[lock], 0u);
        } else {
            reply.status = 7u;
            atomicStore(&tombolo_calls[arguments + 2u], ticket);
        }
        return reply;
    }
    reply.status = atomicLoad(&tombolo_calls[results]);
    if reply.status == 1u {
$results$
    }
    tombolo_call_fence();
    atomicStore(&tombolo_calls[lock], 0u);
    return reply;
}

fn $name$_leave(ticket: u32) {
    let port = (ticket >> 1u) & 0xffffu;
    if (ticket & 1u) == 0u || port >= atomicLoad(&tombolo_calls[0]) {
        return;
    }
    let arguments = atomicLoad(&tombolo_calls[11]) + port * atomicLoad(&tombolo_calls[7]);
    loop {
        let seen = atomicCompareExchangeWeak(&tombolo_calls[arguments + 2u], ticket, 0u);
        if seen.exchanged {
            atomicStore(&tombolo_calls[atomicLoad(&tombolo_calls[8]) + port], 0u);
        }
        if seen.exchanged || seen.old_value != ticket {
            break;
        }
    }
}
