// Matrix products, of matrices whose rows lie one behind the other: sink[rows][columns] = left[rows][depth] * right[depth][columns].
// Each work-group computes a tile of 64 by 64 values, each invocation 4 by 4 of them, and takes 16 columns of `left` and 16
// rows of `right` into work-group memory at a time: every value there is used 64 times. The host puts `Element` beside this source.

// Rows and columns of a tile, in vectors of 4.
const SIDE = 16u;
// Steps in depth that the work-group takes at once.
const STEPS = 16u;
// One vector more, so that invocations that write to neighbouring rows meet different banks of the memory.
const PITCH = SIDE + 1u;
// What a launch takes at most: a known bound spares adapters with a loop budget the loop guard, and fits the budget.
override MOST_TURNS: u32;

struct Sizes {
    rows: u32,
    columns: u32,
    depth: u32,
    // The part of the depth that the launch takes.
    start: u32,
    end: u32,
    // Whether to add to what is there.
    adds: u32,
}

@group(0) @binding(0) var<storage, read> left: array<Element>;
@group(0) @binding(1) var<storage, read> right: array<Element>;
@group(0) @binding(2) var<storage, read_write> sink: array<Element>;
@group(0) @binding(3) var<uniform> sizes: Sizes;

// Of each step 64 values: a column of `left`, a row of `right`.
var<workgroup> left_tile: array<vec4<Element>, STEPS * PITCH>;
var<workgroup> right_tile: array<vec4<Element>, STEPS * SIDE>;

fn left_value(row: u32, step: u32) -> Element {
    if row >= sizes.rows || step >= sizes.end { return Element(0); }
    return left[row * sizes.depth + step];
}

fn right_value(step: u32, column: u32) -> Element {
    if step >= sizes.end || column >= sizes.columns { return Element(0); }
    return right[step * sizes.columns + column];
}

fn store(row: u32, column: u32, values: vec4<Element>) {
    if row >= sizes.rows { return; }
    for (var i = 0u; i < 4u; i++) {
        if column + i < sizes.columns {
            let at = row * sizes.columns + column + i;
            var value = values[i];
            if sizes.adds != 0u { value += sink[at]; }
            sink[at] = value;
        }
    }
}

@compute @workgroup_size(256)
fn multiply(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let major = lane / SIDE;
    let minor = lane % SIDE;
    let row = (group.y * SIDE + major) * 4u;
    let column = (group.x * SIDE + minor) * 4u;
    var sum0 = vec4<Element>();
    var sum1 = vec4<Element>();
    var sum2 = vec4<Element>();
    var sum3 = vec4<Element>();
    for (var turn = 0u; turn < MOST_TURNS; turn++) {
        let start = sizes.start + turn * STEPS;
        if start >= sizes.end { break; }
        // Each invocation brings a vector of both: four rows of a column, four columns of a row.
        let step = start + minor;
        left_tile[minor * PITCH + major] = vec4(
            left_value(row, step),
            left_value(row + 1u, step),
            left_value(row + 2u, step),
            left_value(row + 3u, step),
        );
        right_tile[major * SIDE + minor] = vec4(
            right_value(start + major, column),
            right_value(start + major, column + 1u),
            right_value(start + major, column + 2u),
            right_value(start + major, column + 3u),
        );
        workgroupBarrier();
        for (var i = 0u; i < STEPS; i++) {
            let a = left_tile[i * PITCH + major];
            let b = right_tile[i * SIDE + minor];
            sum0 += a.x * b;
            sum1 += a.y * b;
            sum2 += a.z * b;
            sum3 += a.w * b;
        }
        workgroupBarrier();
    }
    store(row, column, sum0);
    store(row + 1u, column, sum1);
    store(row + 2u, column, sum2);
    store(row + 3u, column, sum3);
}

// The product of matrices without depth.
@compute @workgroup_size(256)
fn clear(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&sink) { sink[id.x] = Element(0); }
}
