// A step of a strip of rows: each cell goes halfway to the mean of its four neighbours, in whole numbers.
struct Strip {
    width: u32,
    height: u32, // of the whole plate
    first: u32,  // row of the strip
    held: u32,   // row in which `now` begins
}
@group(0) @binding(0) var<storage, read> now: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>; // begins with the strip
@group(0) @binding(2) var<uniform> strip: Strip;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = strip.first + id.y;
    let up = max(row, 1u) - 1u - strip.held;
    let down = min(row + 1u, strip.height - 1u) - strip.held;
    let left = max(id.x, 1u) - 1u;
    let right = min(id.x + 1u, strip.width - 1u);
    let here = (row - strip.held) * strip.width;
    let around = now[up * strip.width + id.x] + now[down * strip.width + id.x] + now[here + left] + now[here + right];
    next[id.y * strip.width + id.x] = (4u * now[here + id.x] + around) / 8u;
}
