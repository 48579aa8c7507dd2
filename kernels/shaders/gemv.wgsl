// Products of a matrix, whose rows lie one behind the other, with a vector: sink[rows] = matrix[rows][columns] * vector[columns].
// 64 invocations take a row, so that neighbours read neighbouring values; a work-group has four rows. The host puts `Element`
// beside this source.

// Invocations of a row, and its logarithm.
const WIDTH = 64u;
const LEVELS = 6u;
const ROWS = 4u;
// What a launch takes at most: a known bound spares adapters with a loop budget the loop guard, and fits the budget.
override MOST_TURNS: u32;

struct Sizes {
    rows: u32,
    columns: u32,
    // The columns that the launch takes.
    start: u32,
    end: u32,
    // Whether to add to what is there.
    adds: u32,
}

@group(0) @binding(0) var<storage, read> matrix: array<Element>;
@group(0) @binding(1) var<storage, read> vector: array<Element>;
@group(0) @binding(2) var<storage, read_write> sink: array<Element>;
@group(0) @binding(3) var<uniform> sizes: Sizes;

var<workgroup> sums: array<Element, WIDTH * ROWS>;

@compute @workgroup_size(256)
fn multiply(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.x * ROWS + lane / WIDTH;
    var sum = Element(0);
    if row < sizes.rows {
        for (var turn = 0u; turn < MOST_TURNS; turn++) {
            let column = sizes.start + turn * WIDTH + lane % WIDTH;
            if column >= sizes.end { break; }
            sum += matrix[row * sizes.columns + column] * vector[column];
        }
    }
    sums[lane] = sum;
    for (var level = 1u; level <= LEVELS; level++) {
        workgroupBarrier();
        let half = WIDTH >> level;
        if lane % WIDTH < half { sums[lane] += sums[lane + half]; }
    }
    if lane % WIDTH == 0u && row < sizes.rows {
        var value = sums[lane];
        if sizes.adds != 0u { value += sink[row]; }
        sink[row] = value;
    }
}

// The product of a matrix without columns.
@compute @workgroup_size(256)
fn clear(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&sink) { sink[id.x] = Element(0); }
}
