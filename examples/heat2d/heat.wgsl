// Heat that spreads over a plate, in fixed point: integers only, so that every adapter, and the host, find the same bits.

struct Strip {
    // Cells of a row of the plate, and its rows.
    width: u32,
    height: u32,
    // The rows that are worked on.
    first: u32,
    rows: u32,
    // The row in which `now` and `matter` begin.
    held: u32,
}

@group(0) @binding(0) var<storage, read> now: array<i32>;
@group(0) @binding(1) var<storage, read> matter: array<i32>;
@group(0) @binding(2) var<storage, read_write> next: array<i32>;
@group(0) @binding(3) var<uniform> strip: Strip;

// What a cell gets from its neighbour in a step. Division truncates, so that the neighbour loses exactly that.
fn flow(here: u32, there: u32) -> i32 {
    return min(matter[here], matter[there]) * (now[there] - now[here]) / 256;
}

@compute @workgroup_size(16, 16)
fn advance(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= strip.width || id.y >= strip.rows { return; }
    let row = strip.first + id.y;
    let here = (row - strip.held) * strip.width + id.x;
    var heat = now[here];
    if id.x > 0u { heat += flow(here, here - 1u); }
    if id.x + 1u < strip.width { heat += flow(here, here + 1u); }
    if row > 0u { heat += flow(here, here - strip.width); }
    if row + 1u < strip.height { heat += flow(here, here + strip.width); }
    next[id.y * strip.width + id.x] = heat;
}
