// The polling kernel whose lanes serve one call after the other together. Behind `server.wgsl`.
//
// Lane 0 waits for calls while the others wait for it; what it has found reaches them through memory of the work-group,
// by a load that is the same for all, so that handlers may use barriers.

// Whether there is a call, where its results are to lie, its request, opcode and length, and its arguments.
var<workgroup> tombolo_server_call: array<u32, $call_words$>;
// What became of the call in any lane, and the turns of loops of the lane that took most.
var<workgroup> tombolo_server_worst: atomic<u32>;
var<workgroup> tombolo_server_turned: atomic<u32>;

var<private> tombolo_server_seen: u32;
var<private> tombolo_server_port: u32;
var<private> tombolo_server_end: u32;
var<private> tombolo_server_leaving: bool;
$urgent_begins$
// Where a look at all ports begins, and the one that is being made.
var<private> tombolo_server_start: u32;
var<private> tombolo_server_offset: u32;
// Where the answer of the call is told; of lane 0, as the next port of a kernel and what was known of them.
var<private> tombolo_server_reply: u32;
var<private> tombolo_server_remote: u32;
var<private> tombolo_server_known_posts: u32;

// Takes one call, given where everything of it lies; whether it was there to be taken. Of lane 0 alone.
fn tombolo_server_take(arguments: u32, results: u32, taken: u32, reply: u32, request: u32) -> bool {
    // Taken from here on: should the lease end in between, nobody serves it again.
    $take$
    $at_withdrawal$
    tombolo_server_reply = reply;
    $batches$
    tombolo_server_call[1] = results;
    tombolo_server_call[2] = request;
    let posted = atomicLoad(&tombolo_server[arguments]);
    $opcode$
    tombolo_server_call[3] = opcode;
    tombolo_server_call[4] = atomicLoad(&tombolo_server[arguments + 1u]);
    for (var word = 0u; word < $most_words$u; word++) {
        tombolo_server_call[5u + word] = atomicLoad(&tombolo_server[arguments + 4u + word]);
    }
    tombolo_server_turns += $most_words$u + 1u;
    return true;
}

// Waits for a call, or for the end of the lease. Of lane 0 alone.
fn tombolo_server_next(granted: u32, most: u32) {
    tombolo_server_call[0] = 0u;
    $urgent_looks$
    loop {
        var found = false;
        loop {
            $urgent_rests$
            if found || tombolo_server_port >= tombolo_server_end || tombolo_server_fault != 0u $or_over$ {
                break;
            }
            let port = tombolo_server_port;
            $at$
            let request = atomicLoad(&tombolo_server[$requests$u + at * $mailbox_stride$u]);
            if request != atomicLoad(&tombolo_server[$locks$u + at]) {
                tombolo_server_fence();
                found = tombolo_server_take(
                    $arguments$u + at * $stride$u,
                    $results$u + at * $stride$u,
                    $locks$u + at,
                    $replies$u + at * $mailbox_stride$u,
                    request,
                );
                $found_first$
            }
            tombolo_server_port += 1u;
            tombolo_server_turns += 1u;
        }
$kernels$
        if found {
            tombolo_server_call[0] = 1u;
            break;
        }
        if tombolo_server_leaving || tombolo_server_fault != 0u {
            break;
        }
        let seen = tombolo_server_seen;
        var bell = seen;
        var posts = tombolo_server_known_posts;
$wait$
        tombolo_server_leaving = tombolo_server_turns >= most || atomicLoad(&tombolo_server[$yield$u]) != granted $or_failed$;
        tombolo_server_port = 0u;
        tombolo_server_end = $visits$;
        tombolo_server_offset = tombolo_server_start;
        if $single$ && !tombolo_server_leaving && (((bell >> 16u) - (seen >> 16u)) & 0xffffu) == 1u {
            tombolo_server_port = min($hint$, tombolo_server_end);
            tombolo_server_end = min(tombolo_server_port + 1u, tombolo_server_end);
            tombolo_server_offset = 0u;
        }
$known_posts$
        tombolo_server_seen = bell;
        // This turn, and the last ones of the two loops inside, which only end them.
        tombolo_server_turns += 3u;
    }
}

@compute @workgroup_size($group_lanes$)
fn tombolo_server_main(@builtin(local_invocation_index) lane: u32) {
    let lease = atomicLoad(&tombolo_server[$lease$u]);
    let granted = atomicLoad(&tombolo_server[$granted$u]);
    let most = atomicLoad(&tombolo_server[$most$u]);
    $draws$
    $arrives$
$start$
    tombolo_server_seen = atomicLoad(&tombolo_server[$bell$u]);
$first_posts$
    tombolo_server_fence();
    tombolo_server_leaving = atomicLoad(&tombolo_server[$yield$u]) != granted;
    tombolo_server_end = $visits$;
    tombolo_server_lane = lane;
    loop {
        if lane == 0u {
            tombolo_server_next(granted, most);
        }
        let call = workgroupUniformLoad(&tombolo_server_call);
        if call[0] == 0u {
            break;
        }
        let length = call[4];
        $gathers$
        // The loops that end with each call; and drivers make loops of switches.
        tombolo_server_turns += 4u;
        let turns = tombolo_server_turns;
        tombolo_server_limit = turns + $turns$u;
        $begin$
        var status = $unknown$u;
        switch call[3] {
$cases$
            default: {}
        }
        let opcode = call[3];
        $withdrawn$
        if tombolo_server_turns >= tombolo_server_limit {
            status = $too_long$u;
        }
$faults$
        atomicMax(&tombolo_server_worst, status);
        atomicMax(&tombolo_server_turned, tombolo_server_turns);
        // What other lanes have written is there when the answer is.
        storageBarrier();
        workgroupBarrier();
$answers$
    }
    if lane == 0u {
        tombolo_server_fence();
        $leaves$
        tombolo_server_publish($done$u$group_lane$, lease);
    }
}
