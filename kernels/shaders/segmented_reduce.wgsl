// Segmented reduction, balanced over values and segments alike: the values and the offsets are merged into one list, an offset
// before the value at that place, and each work-group takes a tile of the list (D. Merrill and M. Garland, "Merge-based parallel
// sparse matrix-vector multiplication", 2016). An offset in the list is the end of a segment, but for the first offset, before
// which lie values of no segment. The host puts `Element`, `identity` and `combine` beside this source.

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> sink: array<Element>;
// Of each tile the combination of the values behind the last offset there.
@group(0) @binding(3) var<storage, read_write> totals: array<Element>;
// 1 more than the place of the tile's first offset; 0 where there is none.
@group(0) @binding(4) var<storage, read_write> firsts: array<u32>;
@group(0) @binding(5) var<storage, read> carries: array<Element>;

// The tile's values, as bits, and behind the values the tile's offsets.
var<workgroup> tile: array<u32, SLOTS>;
var<workgroup> sums: array<Element, INVOCATIONS>;
// Whether there is an offset among what the sum of the same place covers.
var<workgroup> cuts: array<u32, INVOCATIONS>;
// How many offsets are before the tile in the list, and before its end.
var<workgroup> bounds: array<u32, 2>;

// How many offsets are among the first `items` of the list. The offset with the number k stands behind k offsets and as many
// values as the offset says.
fn offsets_among(items: u32) -> u32 {
    var low = 0u;
    var high = arrayLength(&offsets);
    // Numbers of offsets have 32 bits.
    for (var step = 0u; step < 32u; step++) {
        if low < high {
            let middle = low + (high - low) / 2u;
            if middle + min(offsets[middle], arrayLength(&source)) < items {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
    }
    return low;
}

// The same within the tile, with `count` offsets in work-group memory behind `values` values, the first of which is the value `first`.
fn offsets_among_own(items: u32, first: u32, values: u32, count: u32) -> u32 {
    var low = 0u;
    var high = count;
    // A tile has at most 2^16 values.
    for (var step = 0u; step < 17u; step++) {
        if low < high {
            let middle = low + (high - low) / 2u;
            if middle + (tile[slot(values + middle)] - first) < items {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
    }
    return low;
}

@compute @workgroup_size(INVOCATIONS)
fn reduce_segments(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let start = group.x * TILE;
    let end = min(start + TILE, arrayLength(&source) + arrayLength(&offsets));
    // By the first and the last invocation, which seldom run in step.
    if lane == 0u { bounds[0] = offsets_among(start); }
    if lane == INVOCATIONS - 1u { bounds[1] = offsets_among(end); }
    workgroupBarrier();
    // What a tile has of the list lies in work-group memory, whatever the offsets are.
    let before = bounds[0];
    let count = clamp(bounds[1], before, before + end - start) - before;
    assert(before + count == bounds[1], "the offsets do not ascend");
    let first = start - before;
    let values = end - start - count;
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        if index < values {
            let at = first + index;
            if at < arrayLength(&source) { tile[slot(index)] = bitcast<u32>(source[at]); }
        } else if index < values + count {
            let k = before + index - values;
            let offset = offsets[k];
            assert(offset <= arrayLength(&source), "offset {} is {}, and there are {} values", k, offset, arrayLength(&source));
            if k > 0u { assert(offset >= offsets[k - 1u], "offset {} is {}, less than the one before", k, offset); }
            tile[slot(index)] = clamp(offset, first, first + values);
        }
    }
    workgroupBarrier();
    // Each invocation takes ITEMS of the list.
    let own_start = min(lane * ITEMS, values + count);
    let own_end = min(own_start + ITEMS, values + count);
    let own_offset = offsets_among_own(own_start, first, values, count);
    var k = own_offset;
    var total = identity();
    for (var i = own_start; i < own_start + ITEMS; i++) {
        if i < own_end {
            if k < count && tile[slot(values + k)] - first <= i - k {
                total = identity();
                k++;
            } else {
                total = combine(total, bitcast<Element>(tile[slot(i - k)]));
            }
        }
    }
    sums[lane] = total;
    cuts[lane] = k - own_offset;
    // Hillis and Steele: after level k each sum covers the last 2^k invocations, back to the last offset.
    for (var level = 0u; level < LEVELS; level++) {
        let reach = 1u << level;
        workgroupBarrier();
        var earlier = identity();
        var cut = 0u;
        if lane >= reach {
            earlier = sums[lane - reach];
            cut = cuts[lane - reach];
        }
        workgroupBarrier();
        if cuts[lane] == 0u && lane >= reach {
            sums[lane] = combine(earlier, sums[lane]);
            cuts[lane] = cut;
        }
    }
    workgroupBarrier();
    var running = identity();
    if lane > 0u { running = sums[lane - 1u]; }
    k = own_offset;
    for (var i = own_start; i < own_start + ITEMS; i++) {
        if i < own_end {
            if k < count && tile[slot(values + k)] - first <= i - k {
                let ended = before + k;
                if ended > 0u && ended <= arrayLength(&sink) { sink[ended - 1u] = running; }
                running = identity();
                k++;
            } else {
                running = combine(running, bitcast<Element>(tile[slot(i - k)]));
            }
        }
    }
    if lane == INVOCATIONS - 1u {
        totals[group.x] = sums[lane];
        firsts[group.x] = select(0u, before + 1u, count > 0u);
    }
}

// Gives the first segment that ends in a tile the values of the tiles before.
@compute @workgroup_size(INVOCATIONS)
fn add_carries(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&firsts) { return; }
    let first = firsts[id.x];
    if first >= 2u && first - 2u < arrayLength(&sink) {
        sink[first - 2u] = combine(carries[id.x], sink[first - 2u]);
    }
}

// The results of segments without values, where there are no values at all.
@compute @workgroup_size(INVOCATIONS)
fn reduce_nothing(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&offsets) { assert(offsets[id.x] == 0u, "offset {} is {}, and there are no values", id.x, offsets[id.x]); }
    if id.x < arrayLength(&sink) { sink[id.x] = identity(); }
}
