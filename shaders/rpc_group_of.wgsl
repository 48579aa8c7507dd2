// One function of the host, called by a whole work-group in as few packets as its records fit in: a count, then the
// arguments of so many calls; back come as many times a status and a result. The invocation that comes first takes the
// port, posts and waits; the others wait at a barrier, so that only one invocation's turns are spent. What stands in
// dollar signs is put in by `kernel::calls::forms`.
//
// What decides whether a barrier is reached has to be uniform: so the first invocation tells the others by a word.
$head$ {
    var reply: $reply$;
    reply.status = tombolo_status_done;
    tombolo_call_waits = 1u;
    atomicStore(&tombolo_group_count, 0u);
    workgroupBarrier();
    var slot = 0xffffffffu;
    if takes_part {
        slot = atomicAdd(&tombolo_group_count, 1u);
    }
    let count = workgroupUniformLoad(&tombolo_group_count);
    if count != 0u {
$places$
        let most = tombolo_call_most();
        let backoff_after = atomicLoad(&tombolo_calls[tombolo_header_backoff_after]);
        let scarce = tombolo_call_scarce(most);
        // Records that fit in one packet, both ways.
        let records = min((max(room, 1u) - 1u) / max($words$u, 1u), room / $result_words$u);
        var port = 0u;
        var request = 0u;
        var step = tombolo_call_first_step();
        var look = 0u;
        var base = 0u;
        if slot == 0u {
            port = tombolo_call_first_port(ports);
        }
        loop {
            var held = false;
            if slot == 0u {
                // A status, or the port and 0x100.
                var taken = tombolo_status_busy;
                if records == 0u {
                    taken = tombolo_status_malformed;
                    look = most;
                }
                loop {
                    if held || look >= scarce {
                        break;
                    }
                    if atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u {
                        taken = tombolo_status_stopped;
                        break;
                    }
                    tombolo_call_fence();
                    let answered = atomicLoad(&tombolo_calls[replies + port]);
                    if tombolo_call_lock(locks + port, true) {
                        tombolo_call_fence();
                        if tombolo_call_posted(requests + port) == answered {
                            request = answered + 1u;
                            held = true;
                        } else {
                            atomicStore(&tombolo_calls[locks + port], 0u);
                        }
                    }
                    if !held {
                        port = (port + 1u) % ports;
                        if look >= backoff_after {
                            // All ports are taken until the server comes round, and turns may be rationed.
                            tombolo_call_backoff(step);
                            step += 1u;
                            look += tombolo_call_walked();
                        }
                    }
                    look = tombolo_call_turn(look, 1u);
                }
                tombolo_group_word = select(taken, 0x100u + port, held);
            }
            let found = workgroupUniformLoad(&tombolo_group_word);
            var status = found;
            if found >= 0x100u {
                let packet = first + (found - 0x100u) * stride;
                let answers = first_result + (found - 0x100u) * stride;
                let record = slot - base;
                let is_mine = slot != 0xffffffffu && slot >= base && record < records;
                if is_mine {
                    let arguments = packet + 1u + record * $words$u;
                    var sum = 0u;
$arguments$
                    tombolo_group_add(sum);
                }
                // For the first invocation, which posts for all.
                tombolo_call_fence();
                workgroupBarrier();
                if slot == 0u {
                    let arguments = packet;
                    let now = min(count - base, records);
                    var sum = tombolo_group_take();
                    sum += tombolo_call_store(arguments, $opcode$u);
                    sum += tombolo_call_store(arguments + 1u, 1u + now * $words$u);
                    sum += tombolo_call_store(arguments + tombolo_packet_payload, now);
                    tombolo_call_seal(arguments, sum, requests + port, request);
                    tombolo_call_fence();
                    tombolo_call_note(requests + port, request);
                    tombolo_call_publish(requests + port, request);
                    var reply: tombolo_group_outcome;
                    reply.status = tombolo_status_timed_out;
                    var done = false;
                    var asked = false;
$posted$
                    if done {
                        tombolo_call_fence();
                        reply.status = atomicLoad(&tombolo_calls[answers]);
                    }
                    tombolo_group_word = reply.status;
                }
                status = workgroupUniformLoad(&tombolo_group_word);
                if is_mine && status == tombolo_status_done {
                    tombolo_call_fence();
                    let results = answers + 1u + record * $result_words$u;
                    reply.status = atomicLoad(&tombolo_calls[results + tombolo_packet_payload - 1u]);
                    if reply.status == tombolo_status_done {
$results$
                    }
                }
            }
            if slot != 0xffffffffu && slot >= base && status != tombolo_status_done {
                // Whoever comes later is not called either, and nothing of that call is posted.
                reply.status = select(status, tombolo_status_busy, status == tombolo_status_timed_out && slot - base >= records);
            }
            base += records;
            if slot == 0u {
                tombolo_group_word = select(0u, 1u, status == tombolo_status_done && base < count);
            }
            // Everybody has what the port holds.
            let more = workgroupUniformLoad(&tombolo_group_word);
            if held {
                tombolo_call_fence();
                atomicStore(&tombolo_calls[locks + port], 0u);
            }
            // This turn, and the last ones of the three loops inside, which only end them.
            look = tombolo_call_turn(look, 4u);
            if more == 0u {
                break;
            }
        }
        if slot == 0u {
            tombolo_call_looks += look;
            tombolo_call_port = port;
        }
    }
    return reply;
}
