        // Those whose call is posted wait, for nobody but the server: first they look again and again; on adapters that
        // ration turns they take more and more time then. Those who have found no port for a while let time go by as well.
        // Where the ration nears its end a call that no server has begun is withdrawn: the rest is for the answer of one
        // that a server has begun.
        var waits = held;
        let seeks = !held && look >= backoff_after;
        let soon = select(most, min(most, look + backoff_after), backoff_after < most);
        loop {
            if !waits {
                break;
            }
            // In front of the look: what stands behind takes its time although the answer is there. Never two turns, which
            // nobody can know: the pause has to be made.
            look = tombolo_call_turn(look, select(1u, 2u, tombolo_call_paused == 0xffffffffu));
            tombolo_call_pause(look);
            // What this processor holds of the word is older than what the host has written.
            tombolo_call_fence();
            if atomicLoad(&tombolo_calls[replies + port]) == request {
                done = true;
                waits = false;
                break;
            }
            if look >= soon {
                break;
            }
            if (look & 63u) == 0u && atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u {
                reply.status = tombolo_status_stopped;
                waits = false;
                break;
            }
        }
        // Who has looked for a port for long looks more seldom: coming round to the next port costs four turns.
        var rests = select(1u, 8u, step >= 20u);
        var limit = scarce;
        loop {
            if !(waits || seeks) {
                break;
            }
            if look >= limit {
                if asked || !waits {
                    break;
                }
                asked = true;
                limit = most;
                if tombolo_call_withdraw(port, arguments, request) {
                    reply.status = tombolo_status_busy;
                    break;
                }
            }
            tombolo_call_backoff(step);
            step += 1u;
            look = tombolo_call_turn(look, 1u + tombolo_call_walked());
            // What this processor holds of the word is older than what the host has written.
            tombolo_call_fence();
            // An answer for those who wait; for the others a port that was answered meanwhile, and may be free.
            if (atomicLoad(&tombolo_calls[replies + port]) == request) == waits {
                done = waits;
                break;
            }
            rests -= 1u;
            if seeks && rests == 0u {
                break;
            }
            if atomicLoad(&tombolo_calls[tombolo_header_closed]) != 0u {
                reply.status = tombolo_status_stopped;
                break;
            }
        }
