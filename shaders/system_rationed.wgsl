// Turns of waiting invocations where adapters ration turns of loops: behind shaders/system_live.wgsl.
//
// A group of lanes shares a ration, and so the group counts, as in calls (shaders/rpc.wgsl). Each turn takes the time of a few
// loads that miss caches, since a turn costs the same whatever time it takes; lanes that do not wait skip them.

// Words of the work-group, one for each group of lanes; length and group are set by `kernel::calls::group_turns`.
var<workgroup> tombolo_system_group_turns: array<atomic<u32>, 1>;
var<private> tombolo_system_group: u32;
// Where the walk has come to.
var<private> tombolo_system_walk: u32;

fn tombolo_system_first_turn() -> u32 {
    return atomicLoad(&tombolo_system_group_turns[tombolo_system_group]);
}

fn tombolo_system_turn(look: u32, start: u32) -> u32 {
    var walk = tombolo_system_walk;
    // 2^17 lines of 64 bytes; the places are those of a linear congruential generator.
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_faults[start + ((walk >> 15u) << 4u)]);
    tombolo_system_walk = walk;
    let known = atomicLoad(&tombolo_system_group_turns[tombolo_system_group]);
    // Next to never more than one, which nobody can know: the walk has to be made.
    let now = max(known, look) + select(1u, 2u, walk == 0xffffffffu);
    atomicStore(&tombolo_system_group_turns[tombolo_system_group], now);
    return now;
}
