// A call that was begun, by its ticket: (lowest 15 bits of the request) << 17 | port << 1 | 1. The ticket also lies in
// the port; whoever exchanges it there for 0 has the port to itself. What stands in dollar signs is put in by
// `kernel::calls::forms`.
//
// The reply word is loaded before the ticket is taken, for the same reason as in `rpc_call.wgsl`.
fn $name$_collect(ticket: u32) -> $name$_reply {
    var reply: $name$_reply;
    reply.status = tombolo_status_no_ticket;
    let port = (ticket >> 1u) & 0xffffu;
$places$
    if (ticket & 1u) == 0u || port >= ports {
        return reply;
    }
    let arguments = first + port * stride;
    let results = first_result + port * stride;
    let lock = locks + port;
    tombolo_call_fence();
    let answered = atomicLoad(&tombolo_calls[replies + port]);
    let is_closed = atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u;
    if (answered & 0x7fffu) != (ticket >> 17u) && !is_closed {
        // No answer yet, or no such call: a look at the ticket that takes nothing from others, who may leave it.
        if atomicLoad(&tombolo_calls[arguments + 2u]) == ticket && atomicLoad(&tombolo_posts[arguments]) == $opcode$u {
            reply.status = tombolo_status_pending;
        }
        return reply;
    }
    let seen = atomicCompareExchangeWeak(&tombolo_calls[arguments + 2u], ticket, 0u);
    if !seen.exchanged {
        if seen.old_value == ticket {
            // A weak exchange may fail for nothing.
            reply.status = tombolo_status_pending;
        }
        return reply;
    }
    tombolo_call_fence();
    if atomicLoad(&tombolo_posts[arguments]) != $opcode$u {
        // Somebody else's function.
        atomicStore(&tombolo_calls[arguments + 2u], ticket);
        return reply;
    }
    if answered != atomicLoad(&tombolo_posts[requests + port]) {
        if is_closed {
            reply.status = tombolo_status_stopped;
            atomicStore(&tombolo_calls[lock], 0u);
        } else {
            reply.status = tombolo_status_pending;
            atomicStore(&tombolo_calls[arguments + 2u], ticket);
        }
        return reply;
    }
    reply.status = atomicLoad(&tombolo_calls[results]);
    if reply.status == tombolo_status_done {
$results$
    }
    tombolo_call_fence();
    atomicStore(&tombolo_calls[lock], 0u);
    return reply;
}

fn $name$_leave(ticket: u32) {
    let port = (ticket >> 1u) & 0xffffu;
$places$
    if (ticket & 1u) == 0u || port >= ports {
        return;
    }
    let arguments = first + port * stride;
    loop {
        let seen = atomicCompareExchangeWeak(&tombolo_calls[arguments + 2u], ticket, 0u);
        if seen.exchanged {
            atomicStore(&tombolo_calls[locks + port], 0u);
        }
        if seen.exchanged || seen.old_value != ticket {
            break;
        }
    }
}
