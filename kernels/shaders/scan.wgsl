// Scan: each work-group scans a tile, beginning with the combination of all tiles before,
// which earlier launches have computed. The host puts `Element`, `identity` and `combine` beside this source.

override INCLUSIVE: bool;

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read_write> sink: array<Element>;
@group(0) @binding(2) var<storage, read> carries: array<Element>;

var<workgroup> tile: array<Element, SLOTS>;
var<workgroup> totals: array<Element, INVOCATIONS>;

fn scan(group: u32, lane: u32, carry: Element) {
    // Neighbours read neighbouring values; each invocation then has ITEMS values in a row.
    let first = group * TILE;
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        var value = identity();
        if first + index < arrayLength(&source) { value = source[first + index]; }
        tile[slot(index)] = value;
    }
    workgroupBarrier();
    var total = identity();
    for (var i = 0u; i < ITEMS; i++) {
        total = combine(total, tile[slot(lane * ITEMS + i)]);
    }
    totals[lane] = total;
    // Hillis and Steele: after level k each total covers the last 2^k invocations.
    for (var level = 0u; level < LEVELS; level++) {
        let reach = 1u << level;
        workgroupBarrier();
        var before = identity();
        if lane >= reach { before = totals[lane - reach]; }
        workgroupBarrier();
        if lane >= reach { totals[lane] = combine(before, totals[lane]); }
    }
    workgroupBarrier();
    var running = carry;
    if lane > 0u { running = combine(carry, totals[lane - 1u]); }
    for (var i = 0u; i < ITEMS; i++) {
        let at = slot(lane * ITEMS + i);
        let next = combine(running, tile[at]);
        tile[at] = select(running, next, INCLUSIVE);
        running = next;
    }
    workgroupBarrier();
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        if first + index < arrayLength(&sink) { sink[first + index] = tile[slot(index)]; }
    }
}

@compute @workgroup_size(INVOCATIONS)
fn scan_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    scan(group.x, lane, carries[group.x]);
}

// For an input of one tile, before which nothing lies.
@compute @workgroup_size(INVOCATIONS)
fn scan_single_tile(@builtin(local_invocation_index) lane: u32) {
    scan(0u, lane, identity());
}
