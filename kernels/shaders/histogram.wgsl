// Histogram: how many values fall into each bin. The host puts `Element` and `bin_of(value: Element) -> u32` beside this source;
// values whose bin does not exist are not counted.

override BINS: u32;
// Bins of each invocation, where all invocations of a work-group share the bins.
override SHARE: u32 = (BINS + INVOCATIONS - 1u) / INVOCATIONS;

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>>;

var<workgroup> own_counts: array<atomic<u32>, BINS>;

@compute @workgroup_size(INVOCATIONS)
fn clear_counts(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&counts) { atomicStore(&counts[id.x], 0u); }
}

// Each work-group counts in memory of its own first, so that the device's memory sees a few additions for each bin and tile.
@compute @workgroup_size(INVOCATIONS)
fn count_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = 0u; i < ITEMS; i++) {
        let at = group.x * TILE + i * INVOCATIONS + lane;
        if at < arrayLength(&source) {
            let bin = bin_of(source[at]);
            if bin < BINS { atomicAdd(&own_counts[bin], 1u); }
        }
    }
    workgroupBarrier();
    for (var i = 0u; i < SHARE; i++) {
        let bin = i * INVOCATIONS + lane;
        if bin < BINS {
            let seen = atomicLoad(&own_counts[bin]);
            if seen > 0u { atomicAdd(&counts[bin], seen); }
        }
    }
}

// For more bins than fit the memory of a work-group: additions meet each other rarely.
@compute @workgroup_size(INVOCATIONS)
fn count_directly(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = 0u; i < ITEMS; i++) {
        let at = group.x * TILE + i * INVOCATIONS + lane;
        if at < arrayLength(&source) {
            let bin = bin_of(source[at]);
            if bin < BINS { atomicAdd(&counts[bin], 1u); }
        }
    }
}
