// Compaction: the chosen values move together, in order. First each work-group counts the chosen values of a tile; from those
// counts a scan makes the place where each tile's values begin; then each work-group moves its own. The host puts `Element`,
// `counts_before`, and `is_chosen(at: u32) -> bool` beside this source.

@group(0) @binding(0) var<storage, read> source: array<Element>;
@group(0) @binding(1) var<storage, read_write> tile_counts: array<u32>;
@group(0) @binding(2) var<storage, read> tile_starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> kept: array<Element>;
@group(0) @binding(4) var<storage, read_write> count: array<u32>;

// For each value of the tile 0, or 1 more than its rank among the chosen ones.
var<workgroup> ranks: array<u32, SLOTS>;

// Notes which values of the tile are chosen. Returns how many of an invocation's own, which lie in a row.
fn choose(group: u32, lane: u32) -> u32 {
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        let at = group * TILE + index;
        var chosen = false;
        if at < arrayLength(&source) { chosen = is_chosen(at); }
        ranks[slot(index)] = select(0u, 1u, chosen);
    }
    workgroupBarrier();
    var own = 0u;
    for (var i = 0u; i < ITEMS; i++) { own += ranks[slot(lane * ITEMS + i)]; }
    return own;
}

@compute @workgroup_size(INVOCATIONS)
fn count_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let own = choose(group.x, lane);
    counts_before(lane, own);
    if lane == 0u { tile_counts[group.x] = counts_of_all(); }
}

@compute @workgroup_size(INVOCATIONS)
fn move_tiles(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let own = choose(group.x, lane);
    var next = counts_before(lane, own) + 1u;
    for (var i = 0u; i < ITEMS; i++) {
        let at = slot(lane * ITEMS + i);
        if ranks[at] != 0u {
            ranks[at] = next;
            next++;
        }
    }
    workgroupBarrier();
    // In the order of the input, so that neighbours write to neighbouring places.
    let start = tile_starts[group.x];
    for (var i = 0u; i < ITEMS; i++) {
        let index = i * INVOCATIONS + lane;
        let rank = ranks[slot(index)];
        if rank != 0u {
            let to = start + rank - 1u;
            if to < arrayLength(&kept) { kept[to] = source[group.x * TILE + index]; }
        }
    }
    if group.x == groups.x - 1u && lane == 0u { count[0] = start + counts_of_all(); }
}

// For an input without values.
@compute @workgroup_size(1)
fn count_nothing() {
    count[0] = 0u;
}
