// Segmented scan: each work-group scans a tile, beginning with the combination of the segment's values in the tiles before,
// which earlier launches have computed. A head is the first value of a segment. The host puts `Element`, `identity` and `combine`
// beside this source.

// The results: of a value and all before in the segment; without the value itself; or the same, as the start of a tile whose total
// is the value, where a segment that begins within the tile changes nothing.
const INCLUSIVE = 0u;
const EXCLUSIVE = 1u;
const CARRIES = 2u;
override KIND: u32;
// Whether `heads` has a bit for each value, or a word.
override PACKED: bool;

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read> heads: array<u32>;
@group(0) @binding(2) var<storage, read_write> sink: array<Element>;
@group(0) @binding(3) var<storage, read> carries: array<Element>;
@group(0) @binding(4) var<storage, read_write> totals: array<Element>;
@group(0) @binding(5) var<storage, read_write> total_heads: array<u32>;
@group(0) @binding(6) var<storage, read> offsets: array<u32>;
@group(0) @binding(7) var<storage, read_write> marks: array<atomic<u32>>;

var<workgroup> tile: array<Element, SLOTS>;
var<workgroup> sums: array<Element, INVOCATIONS>;
// Whether a segment begins among the values that the sum of the same place covers.
var<workgroup> cuts: array<u32, INVOCATIONS>;
// 1 more than the place of the tile's last head; 0 where there is none.
var<workgroup> last_head: atomic<u32>;

fn is_head(at: u32) -> bool {
    if at >= arrayLength(&source) { return false; }
    if PACKED { return ((heads[at / 32u] >> (at % 32u)) & 1u) != 0u; }
    return heads[at] != 0u;
}

// The combination of the tile's values from the last head on, and whether there is a head.
@compute @workgroup_size(INVOCATIONS)
fn reduce_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = group.x * TILE;
    var last = 0u;
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        if is_head(first + index) { last = index + 1u; }
    }
    if last != 0u { atomicMax(&last_head, last); }
    workgroupBarrier();
    let found = atomicLoad(&last_head);
    var value = identity();
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        let at = first + index;
        if index + 1u >= found && at < arrayLength(&source) { value = combine(value, source[at]); }
    }
    sums[lane] = value;
    for (var level = 1u; level <= LEVELS; level++) {
        workgroupBarrier();
        let half = INVOCATIONS >> level;
        if lane < half { sums[lane] = combine(sums[lane], sums[lane + half]); }
    }
    if lane == 0u {
        totals[group.x] = sums[0];
        total_heads[group.x] = found;
    }
}

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
    // The heads among an invocation's own values.
    var own = vec2<u32>();
    var total = identity();
    for (var i = 0u; i < ITEMS; i++) {
        let index = lane * ITEMS + i;
        if is_head(first + index) {
            own[i / 32u] |= 1u << (i % 32u);
            total = identity();
        }
        total = combine(total, tile[slot(index)]);
    }
    sums[lane] = total;
    cuts[lane] = own.x | own.y;
    // Hillis and Steele: after level k each sum covers the last 2^k invocations, back to the last head.
    for (var level = 0u; level < LEVELS; level++) {
        let reach = 1u << level;
        workgroupBarrier();
        var before = identity();
        var cut = 0u;
        if lane >= reach {
            before = sums[lane - reach];
            cut = cuts[lane - reach];
        }
        workgroupBarrier();
        if cuts[lane] == 0u && lane >= reach {
            sums[lane] = combine(before, sums[lane]);
            cuts[lane] = cut;
        }
    }
    workgroupBarrier();
    var running = carry;
    if lane > 0u {
        running = sums[lane - 1u];
        if cuts[lane - 1u] == 0u { running = combine(carry, running); }
    }
    for (var i = 0u; i < ITEMS; i++) {
        let at = slot(lane * ITEMS + i);
        let starts = ((own[i / 32u] >> (i % 32u)) & 1u) != 0u;
        let before = running;
        if starts { running = identity(); }
        let without = running;
        running = combine(running, tile[at]);
        switch KIND {
            case INCLUSIVE: { tile[at] = running; }
            case EXCLUSIVE: { tile[at] = without; }
            default: { tile[at] = before; }
        }
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

@compute @workgroup_size(INVOCATIONS)
fn clear_marks(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&marks) { atomicStore(&marks[id.x], 0u); }
}

// Sets the bit of each value at an offset; offsets beyond the values mark none.
@compute @workgroup_size(INVOCATIONS)
fn mark_heads(@builtin(global_invocation_id) id: vec3<u32>) {
    let count = arrayLength(&offsets);
    if id.x >= count { return; }
    let at = offsets[id.x];
    // Of empty segments in a row the last marks the value.
    if id.x + 1u < count && offsets[id.x + 1u] == at { return; }
    if at / 32u < arrayLength(&marks) { atomicOr(&marks[at / 32u], 1u << (at % 32u)); }
}
