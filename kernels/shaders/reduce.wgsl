// Reduction: each work-group combines a tile into one value. Launched on its own results until one
// value is left. The host puts `Element`, `identity` and `combine` beside this source.

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read_write> sink: array<Element>;

var<workgroup> partial: array<Element, INVOCATIONS>;

@compute @workgroup_size(INVOCATIONS)
fn reduce_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbours read neighbouring values in each turn, so that one transaction serves many of them.
    let first = group.x * TILE + lane;
    var value = identity();
    for (var i = 0u; i < ITEMS; i++) {
        let at = first + i * INVOCATIONS;
        if at < arrayLength(&source) { value = combine(value, source[at]); }
    }
    partial[lane] = value;
    // Half of the invocations fold the upper half of the values onto the lower one, then a quarter, and so on.
    for (var level = 1u; level <= LEVELS; level++) {
        workgroupBarrier();
        let half = INVOCATIONS >> level;
        if lane < half { partial[lane] = combine(partial[lane], partial[lane + half]); }
    }
    if lane == 0u { sink[group.x] = partial[0]; }
}

// The result for no values at all.
@compute @workgroup_size(1)
fn reduce_nothing() {
    sink[0] = identity();
}
