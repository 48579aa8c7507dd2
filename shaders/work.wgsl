// A queue of work that all invocations of a launch, and of later ones, put items into and take them from. Appended behind
// programs made with `Program::with_work_queue`; what stands in dollar signs is put in by `work`.
//
// Whoever puts or takes draws a ticket, that is, moves the tail or the head on by one, and only if the slot of that ticket
// is ready for it; each slot has a number that tells. So nobody waits for anybody, wherever the others run and whether or
// not they do: what is not ready now is told, and may be asked for again.
//
// 0: head | 16: tail | 32: items that are not done | 48: slots, a power of two | from 64: slots { number, 0, 0, 0, item }.
$binding$ var<storage, read_write> tombolo_work: array<atomic<u32>>;

struct WorkItem { found: bool, item: vec4<u32> }

// Orders memory between the lines above and below, for one invocation alone; see `shaders/rpc.wgsl`.
fn tombolo_server_work_fence() {}

// Puts an item; false if there is no room now.
fn work_put(item: vec4<u32>) -> bool {
    let slots = atomicLoad(&tombolo_work[48]);
    // Before anybody can take it, so that the work is not found to be done in between.
    atomicAdd(&tombolo_work[32], 1u);
    var ticket = atomicLoad(&tombolo_work[16]);
    var done = false;
    for (var turn = 0u; turn < $turns$u; turn++) {
        let slot = 64u + (ticket & (slots - 1u)) * 8u;
        let number = atomicLoad(&tombolo_work[slot]);
        tombolo_server_work_fence();
        if number == ticket {
            let seen = atomicCompareExchangeWeak(&tombolo_work[16], ticket, ticket + 1u);
            if seen.exchanged {
                atomicStore(&tombolo_work[slot + 4u], item.x);
                atomicStore(&tombolo_work[slot + 5u], item.y);
                atomicStore(&tombolo_work[slot + 6u], item.z);
                atomicStore(&tombolo_work[slot + 7u], item.w);
                tombolo_server_work_fence();
                atomicExchange(&tombolo_work[slot], ticket + 1u);
                done = true;
            }
            ticket = seen.old_value;
        } else {
            let now = atomicLoad(&tombolo_work[16]);
            if now == ticket {
                // The slot still holds what was put a round ago.
                break;
            }
            ticket = now;
        }
        if done {
            break;
        }
    }
    if !done {
        atomicSub(&tombolo_work[32], 1u);
    }
    return done;
}

// Takes an item, if one is ready. Whoever has taken it says `work_done()` when all that comes of it is put.
fn work_take() -> WorkItem {
    var taken: WorkItem;
    let slots = atomicLoad(&tombolo_work[48]);
    var ticket = atomicLoad(&tombolo_work[0]);
    for (var turn = 0u; turn < $turns$u; turn++) {
        let slot = 64u + (ticket & (slots - 1u)) * 8u;
        let number = atomicLoad(&tombolo_work[slot]);
        tombolo_server_work_fence();
        if number == ticket + 1u {
            let seen = atomicCompareExchangeWeak(&tombolo_work[0], ticket, ticket + 1u);
            if seen.exchanged {
                tombolo_server_work_fence();
                taken.item = vec4<u32>(
                    atomicLoad(&tombolo_work[slot + 4u]),
                    atomicLoad(&tombolo_work[slot + 5u]),
                    atomicLoad(&tombolo_work[slot + 6u]),
                    atomicLoad(&tombolo_work[slot + 7u]),
                );
                tombolo_server_work_fence();
                // Free for the ticket of the next round.
                atomicExchange(&tombolo_work[slot], ticket + slots);
                taken.found = true;
            }
            ticket = seen.old_value;
        } else {
            let now = atomicLoad(&tombolo_work[0]);
            if now == ticket {
                break;
            }
            ticket = now;
        }
        if taken.found {
            break;
        }
    }
    return taken;
}

// An item that was taken is done.
fn work_done() {
    // What was written for it is there when the count says so.
    tombolo_server_work_fence();
    atomicSub(&tombolo_work[32], 1u);
}

// Items that are not done: queued, or taken and worked on.
fn work_left() -> u32 {
    return atomicLoad(&tombolo_work[32]);
}
