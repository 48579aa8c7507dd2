// What a polling kernel of several work-groups has beside `server.wgsl`. Behind it.
//
// Each work-group has ports of its own: those whose number leaves its own when divided by the number of groups. Which group
// is which is decided by the order in which they begin, so that the first one is always there when any is. It looks after
// the ports of those that have not begun, too: a call never waits for a work-group that does not run. Since such a group may
// begin just then, whoever takes a call exchanges the note of the call before for that of the call itself, and the other
// one finds the note changed.

var<private> tombolo_server_group: u32;
// Work-groups that have begun, as this one has seen when it last began to look at its ports.
var<private> tombolo_server_here: u32;
var<private> tombolo_server_lease: u32;
$drawn$

// How many ports there are to look at. All but the first group look at their own alone.
fn tombolo_server_visits() -> u32 {
    tombolo_server_here = $groups$u;
    if tombolo_server_group == 0u {
        tombolo_server_here = clamp(atomicLoad(&tombolo_server[$arrived$u]), 1u, $groups$u);
    }
    return $own$u * ($groups$u - tombolo_server_here + 1u);
}

// The port that a visit is paid to: first those of the group, from the offset on, then those of the groups that are missing.
fn tombolo_server_place(visit: u32, offset: u32) -> u32 {
    let round = visit / $own$u;
    var at = visit % $own$u;
    // The first ones stay the first.
    if at >= $own_urgent$u {
        at += offset;
        at -= select(0u, $own$u - $own_urgent$u, at >= $own$u);
    }
    let group = select(tombolo_server_here + round - 1u, tombolo_server_group, round == 0u);
    return at * $groups$u + group;
}

// The visit that is paid to a port without an offset; beyond all visits for ports of others.
fn tombolo_server_visit(port: u32) -> u32 {
    let group = port % $groups$u;
    let at = port / $groups$u;
    if port < $ports$u && group == tombolo_server_group {
        return at;
    }
    if port < $ports$u && group >= tombolo_server_here {
        return at + $own$u * (group - tombolo_server_here + 1u);
    }
    return 0xfffffffeu;
}

// Takes a call, unless another work-group was faster. Each call is the one behind the call that was taken before it, so that
// a request that is no longer the last one is taken by nobody.
fn tombolo_server_takes(taken: u32, request: u32) -> bool {
    var is_mine = false;
    // The last turn, which only ends the loop. There is one for each call: leases full of calls took a fifth more turns than
    // they counted, and were cut short.
    tombolo_server_turns += 1u;
    loop {
        let known = atomicLoad(&tombolo_server[taken]);
        if is_mine || $is_not_next$ {
            break;
        }
        is_mine = atomicCompareExchangeWeak(&tombolo_server[taken], known, request).exchanged;
        tombolo_server_turns += 1u;
    }
    return is_mine;
}
