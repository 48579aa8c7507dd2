// Turns of waiting invocations where adapters ration turns of loops: behind shaders/system_live.wgsl.
//
// A group of lanes shares a ration, and so the group counts, as in calls (shaders/rpc.wgsl). Each turn takes the time of some
// loads that miss caches, since a turn costs the same whatever time it takes; lanes that do not wait skip them.

// Memory without a meaning (src/rpc/backoff.rs).
@group(0) @binding(4) var<storage, read_write> tombolo_system_backoff: array<atomic<u32>>;
// Words of the work-group, one for each group of lanes; length and group are set by `kernel::calls::group_turns`.
var<workgroup> tombolo_system_group_turns: array<atomic<u32>, 1>;
var<private> tombolo_system_group: u32;
// Where the walk has come to.
var<private> tombolo_system_walk: u32;

fn tombolo_system_first_turn() -> u32 {
    return atomicLoad(&tombolo_system_group_turns[tombolo_system_group]);
}

// Counts a turn of an invocation that has taken `waited` for this page. The walk grows from 2^6 to 2^20 lines of 64 bytes: first
// turns are short, so that an answer is not seen late. Its places are those of a linear congruential generator.
fn tombolo_system_turn(look: u32, waited: u32) -> u32 {
    let shift = 32u - min(6u + waited, 20u);
    var walk = tombolo_system_walk;
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    walk = walk * 1664525u + 1013904223u + atomicLoad(&tombolo_system_backoff[(walk >> shift) << 4u]);
    tombolo_system_walk = walk;
    let known = atomicLoad(&tombolo_system_group_turns[tombolo_system_group]);
    // Next to never more than one, which nobody can know: the walk has to be made.
    let now = max(known, look) + select(1u, 2u, walk == 0xffffffffu);
    atomicStore(&tombolo_system_group_turns[tombolo_system_group], now);
    return now;
}
