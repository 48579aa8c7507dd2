// The polling kernel in which each lane serves calls of its own ports, by itself. Behind `server.wgsl`.
$failed_word$

// Answers one call, given where everything of it lies.
fn tombolo_server_answer(arguments: u32, results: u32, taken: u32, reply: u32, request: u32) {
    let posted = atomicLoad(&tombolo_server[arguments]);
    let length = atomicLoad(&tombolo_server[arguments + 1u]);
    $arguments_ahead$
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
$first_bell$
$first_posts$
    tombolo_server_fence();
    // Who is asked to leave before he has come looks at all ports once.
    var leaving = atomicLoad(&tombolo_server[$yield$u]) != granted;
    loop {
        $asked$
        var port = lane;
        var end = $visits$;
$at_hint$
$only_kernels$
        $offset$
        $urgent_begins$
        loop {
            $urgent_rests$
            if port >= end $or_over$ {
                break;
            }
            $at$
            let request = atomicLoad(&tombolo_server[$requests$u + at * $mailbox_stride$u]);
            if tombolo_server_fault == 0u && request != atomicLoad(&tombolo_server[$locks$u + at]) {
                tombolo_server_fence();
                tombolo_server_answer(
                    $arguments$u + at * $stride$u,
                    $results$u + at * $stride$u,
                    $locks$u + at,
                    $replies$u + at * $mailbox_stride$u,
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
$waits$
        // This turn, and the last ones of the two loops inside, which only end them.
        tombolo_server_turns += 3u;
    }
    tombolo_server_fence();
    $leaves$
    tombolo_server_publish($done$u + $done_lane$, lease);
}
