// One function of the host. What stands in dollar signs is put in by `kernel::calls::forms`.
//
// Processors that run kernels have no branches but the ends of loops: each turn of a loop takes the time of all that
// stands in it. So taking a port, posting and reading the answer stand outside of the loop that waits. Lanes of one
// group run in step, and a lane that waited in a loop of its own for a port would keep the lane that has it from
// giving it back: the inner loop is entered by those alone who wait for nobody but the server, and whoever finds no
// port looks at one more when they are through.
//
// The mailbox of the server is loaded before the lock is taken. That it may be old by then does no harm, because
// mailboxes count (`rpc::port::protocol`).
$head$ {
    var reply: $reply$;
    // Nothing is posted yet.
    reply.status = tombolo_status_busy;
    $waits$
$places$
    let most = tombolo_call_most();
    let backoff_after = atomicLoad(&tombolo_calls[tombolo_header_backoff_after]);
    let scarce = tombolo_call_scarce(most);
    // Ports to look at.
    let search = $search$;
    var tries = 0u;
    var asked = false;
    var port = tombolo_call_first_port(ports);
    var step = tombolo_call_first_step();
    var look = 0u;
    var over = false;
    loop {
        if atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u {
            reply.status = tombolo_status_stopped;
            break;
        }
        let arguments = first + port * stride;
        tombolo_call_fence();
        let answered = atomicLoad(&tombolo_calls[replies + port]);
        var request = answered;
        var held = false;
        if look < scarce && tombolo_call_lock(locks + port, true) {
            tombolo_call_fence();
            if tombolo_call_posted(requests + port) == answered {
                request = answered + 1u;
                var sum = tombolo_call_store(arguments, $opcode$u);
                sum += tombolo_call_store(arguments + 1u, $words$u);
$arguments$
                tombolo_call_seal(arguments, sum, requests + port, request);
                tombolo_call_fence();
                tombolo_call_note(requests + port, request);
                tombolo_call_publish(requests + port, request);
                held = true;
                reply.status = tombolo_status_timed_out;
            } else {
                atomicStore(&tombolo_calls[locks + port], 0u);
            }
        }
        var done = false;
$posted$
        // This turn, and the last ones of the two loops inside, which only end them.
        look = tombolo_call_turn(look, 3u);
        tries += 1u;
        if held {
            if done {
                tombolo_call_fence();
                let results = first_result + port * stride;
                reply.status = atomicLoad(&tombolo_calls[results]);
                if reply.status == tombolo_status_done {
$results$
                }
                tombolo_call_fence();
            }
            $release$
            over = true;
        } else if look >= scarce || tries >= search {
            over = true;
        } else {
            port = (port + 1u) % ports;
        }
        // Not from where the port is given back: what stands on the way out of a loop may be done when the last lane of
        // a group is out, and that one waits for the port.
        continuing { break if over; }
    }
    tombolo_call_looks += look;
    tombolo_call_port = port;
    return reply;
}
