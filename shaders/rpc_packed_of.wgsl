// One function of the host, called by those invocations of a subgroup that are here together, in one packet: a count, then
// the arguments of so many calls; back come as many times a status and a result. What stands in dollar signs is put in by
// `kernel::calls::forms`. Used where turns of loops are not rationed, and packets are sealed: the seal says when the words
// of all have arrived, so that nobody orders them.
//
// Who is here is asked anew in each turn, and no invocation waits for another: the word that all wait for is the host's,
// and the lock counts those who have not read their results. So invocations that part from one turn to the next, or while
// they wait, do no harm. All that decides what they do together in a turn is the first one's word, told to all, without a
// branch in between that would have them part. Where a driver parts them all the same, the packet's seal never fits, and its
// calls are told as malformed.
$head$ {
    var reply: $reply$;
    // Nothing is posted yet.
    reply.status = tombolo_status_busy;
    tombolo_call_waits = 1u;
$places$
    let most = tombolo_call_most();
    // Calls that fit in one packet, both ways. A port has room for at least one.
    let records = max(min((max(room, 1u) - 1u) / max($words$u, 1u), room / $result_words$u), 1u);
    // Whoever comes first in a turn has one that there is.
    var port = tombolo_call_port % ports;
    if tombolo_subgroup_rank() == 0u {
        port = tombolo_call_first_port(ports);
    }
    var look = 0u;
    var over = false;
    loop {
        let rank = tombolo_subgroup_rank();
        let count = min(tombolo_subgroup_count(), records);
        port = tombolo_subgroup_first(port);
        tombolo_call_fence();
        let spent = tombolo_subgroup_first(select(0u, 1u, look >= most));
        let answered = tombolo_subgroup_first(atomicLoad(&tombolo_calls[replies + port]));
        // Those who come behind change nothing. A port that is not looked for is not taken either.
        let locked = tombolo_call_lock(locks + port, rank == 0u && spent == 0u);
        let taken = tombolo_subgroup_first(select(0u, 1u, locked)) != 0u;
        tombolo_call_fence();
        let posted = tombolo_subgroup_first(tombolo_call_posted(requests + port));
        let held = taken && posted == answered;
        if held {
            let request = answered + 1u;
            let packet = first + port * stride;
            let is_mine = rank < records;
            var sum = 0u;
            if is_mine {
                let arguments = packet + 1u + rank * $words$u;
$arguments$
            }
            sum = tombolo_subgroup_sum(sum);
            if rank == 0u {
                let arguments = packet;
                sum += tombolo_call_store(arguments, $opcode$u);
                sum += tombolo_call_store(arguments + 1u, 1u + count * $words$u);
                sum += tombolo_call_store(arguments + tombolo_packet_payload, count);
                atomicStore(&tombolo_calls[locks + port], count);
                tombolo_call_seal(arguments, sum, requests + port, request);
                // The fence between two looks sends it, and the seal orders it.
                tombolo_call_note(requests + port, request);
                tombolo_call_publish(requests + port, request);
            }
            if is_mine {
                reply.status = tombolo_status_timed_out;
                loop {
                    // What this processor holds of the word is older than what the host has written.
                    tombolo_call_fence();
                    if atomicLoad(&tombolo_calls[replies + port]) == request {
                        reply.status = tombolo_status_done;
                        break;
                    }
                    look = tombolo_call_turn(look, 1u);
                    if look >= most {
                        break;
                    }
                    if (look & 63u) == 0u && atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u {
                        reply.status = tombolo_status_stopped;
                        break;
                    }
                }
                if reply.status == tombolo_status_done {
                    tombolo_call_fence();
                    let answers = first_result + port * stride;
                    let results = answers + 1u + rank * $result_words$u;
                    // Of the packet, and of this call. The second is loaded without the first.
                    let status = atomicLoad(&tombolo_calls[answers]);
                    let own = atomicLoad(&tombolo_calls[results + tombolo_packet_payload - 1u]);
                    reply.status = select(status, own, status == tombolo_status_done);
                    if reply.status == tombolo_status_done {
$results$
                    }
                    tombolo_call_fence();
                }
                // The last one of them gives the port back.
                atomicSub(&tombolo_calls[locks + port], 1u);
                over = true;
            }
        } else if spent != 0u {
            over = true;
        } else {
            if taken && rank == 0u {
                atomicStore(&tombolo_calls[locks + port], 0u);
            }
            port = (port + 1u) % ports;
            if tombolo_subgroup_first(atomicLoad(&tombolo_calls[tombolo_header_closed])) != 0u {
                reply.status = tombolo_status_stopped;
                over = true;
            }
        }
        look = tombolo_call_turn(look, 1u);
        continuing { break if over; }
    }
    tombolo_call_looks += look;
    tombolo_call_port = port;
    return reply;
}
