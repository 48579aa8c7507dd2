// Turns counts into a table that spreads the lightnesses evenly: that of a pixel becomes the share of pixels that are
// no lighter. `counts` is the variable in which `count.wgsl` counted; atomics are plain numbers here.

var<storage, read> counts: array<u32, 256>;
var<storage, read> total: u32;
var<storage, read_write> tone: array<u32, 256>;

var<workgroup> sums: array<u32, 256>;

@compute @workgroup_size(256)
fn scan(@builtin(local_invocation_index) lane: u32) {
    sums[lane] = counts[lane];
    workgroupBarrier();
    for (var reach = 1u; reach < 256u; reach *= 2u) {
        var below = 0u;
        if lane >= reach { below = sums[lane - reach]; }
        workgroupBarrier();
        sums[lane] += below;
        workgroupBarrier();
    }
    // The darkest lightness that occurs becomes black.
    var first = 0u;
    for (var i = 0u; i < 256u; i++) {
        if sums[i] > 0u { first = sums[i]; break; }
    }
    let range = max(total - first, 1u);
    let above = sums[lane] - min(first, sums[lane]);
    // Both are shifted alike, so that 255 times as many pixels still fit a number.
    let shift = u32(max(0, i32(firstLeadingBit(range)) - 22));
    tone[lane] = min(255u, (255u * (above >> shift) + (range >> (shift + 1u))) / max(range >> shift, 1u));
}
