// The polling kernel in which each lane serves calls of its own ports, by itself. Behind `server.wgsl`.
$failed_word$

// Answers one call, given where everything of it lies.
fn tombolo_server_answer(arguments: u32, results: u32, taken: u32, reply: u32, request: u32) {
    let posted = atomicLoad(&tombolo_server[arguments]);
    let length = atomicLoad(&tombolo_server[arguments + 1u]);
    // Taken from here on: should the lease end in between, nobody serves it again.
    $take$
    $at_withdrawal$
    $opcode$
    // Drivers make loops of switches.
    tombolo_server_turns += 1u;
    let turns = tombolo_server_turns;
    tombolo_server_limit = turns + $turns$u;
    $begin$
    var status = $unknown$u;
    switch opcode {
$cases$
        default: {}
    }
    $withdrawn$
    if tombolo_server_turns >= tombolo_server_limit {
        status = $too_long$u;
    }
$faults$
    $head$
    $orders$
    tombolo_server_publish(reply, request);
    tombolo_server_beats += 1u;
    atomicStore(&$out$[$beat$u + tombolo_server_lane], tombolo_server_beats);
}

@compute @workgroup_size($lanes$)
fn tombolo_server_main(@builtin(local_invocation_index) lane: u32) {
    $draws$
    if lane >= $lanes$u {
        // Lanes that a driver adds.
        return;
    }
    $arrives$
    tombolo_server_lane = $server_lane$;
    let lease = atomicLoad(&tombolo_server[$lease$u]);
    let granted = atomicLoad(&tombolo_server[$granted$u]);
    let most = atomicLoad(&tombolo_server[$most$u]);
$start$
    // Before the first look at anything else: whatever changes later rings later.
    var seen = atomicLoad(&tombolo_server[$bell$u]);
$first_posts$
    tombolo_server_fence();
    // Who is asked to leave before he has come looks at all ports once.
    var leaving = atomicLoad(&tombolo_server[$yield$u]) != granted;
    var single = false;
    loop {
        var port = lane;
        var end = $visits$;
        if single {
            // One call was posted since the last look, and the bell tells where. (Counts are compared by themselves: the port
            // below would borrow from their difference.)
            let hint = $hint$;
            port = select(end, hint, hint % $lanes$u == lane);
            end = min(end, hint + 1u);
        }
$only_kernels$
        $offset$
        $urgent_begins$
        loop {
            $urgent_rests$
            if port >= end $or_over$ {
                break;
            }
            $at$
            let request = atomicLoad(&tombolo_server[$requests$u + at]);
            if tombolo_server_fault == 0u && request != atomicLoad(&tombolo_server[$locks$u + at]) {
                tombolo_server_fence();
                tombolo_server_answer(
                    $arguments$u + at * $stride$u,
                    $results$u + at * $stride$u,
                    $locks$u + at,
                    $replies$u + at,
                    request,
                );
                $urgent_looks$
            }
            port += $lanes$u;
            tombolo_server_turns += 1u;
        }
$kernels$
        if leaving || tombolo_server_fault != 0u {
            break;
        }
        var bell = seen;
$wait$
        leaving = tombolo_server_turns >= most || atomicLoad(&tombolo_server[$yield$u]) != granted $or_failed$;
        single = $single$ && !leaving && (((bell >> 16u) - (seen >> 16u)) & 0xffffu) == 1u;
$known_posts$
        seen = bell;
        // This turn, and the last ones of the two loops inside, which only end them.
        tombolo_server_turns += 3u;
    }
    tombolo_server_fence();
    $leaves$
    tombolo_server_publish($done$u + $done_lane$, lease);
}
