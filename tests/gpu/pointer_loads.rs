//! What is loaded behind pointers once and used several times, and what others write in between.

use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Program, Ptr};

use crate::cases;
use crate::harness::Fixture;

cases![
    loads_see_what_the_kernel_has_written_in_between,
    loads_behind_a_barrier_see_what_others_have_written,
    kernels_that_only_read_take_turns_with_those_that_write,
];

const CELLS: usize = 64;
const POISON: u32 = 0xdead_beef;

/// `mass` and `reach` share eight bytes, and so do `bodies` and `tag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Cell {
    centre: [u32; 2],
    mass: u32,
    reach: u32,
    next: Ptr<Cell>,
    bodies: u32,
    tag: u32,
}

const CELL: &str = "
struct Cell { centre: vec2u, mass: u32, reach: u32, next: usm_ptr, bodies: u32, tag: u32 }
alias Cells = array<Cell>;
@group(0) @binding(0) var<storage, read> starts: array<usm_ptr>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
";

fn cell(i: usize, all: Ptr<Cell>) -> Cell {
    let n = i as u32;
    Cell {
        centre: [n * 3, n * 5],
        mass: n * 7,
        reach: n * 11 + 1,
        next: all.add(((i * 13 + 1) % CELLS) as u64),
        bodies: n % 5,
        tag: n * 17,
    }
}

/// Runs `main` with a pointer to each cell, and gives the sums and the cells as they are then.
fn run(f: &Fixture, body: &str) -> (Vec<u32>, Vec<Cell>) {
    let heap = f.device.heap().unwrap();
    let cells = heap.alloc_slice(&vec![Cell::zeroed(); CELLS]).unwrap();
    let values: Vec<Cell> = (0..CELLS).map(|i| cell(i, cells)).collect();
    heap.host()
        .unwrap()
        .slice_mut(cells, CELLS)
        .unwrap()
        .copy_from_slice(&values);
    let starts: Vec<Ptr<Cell>> = (0..CELLS as u64).map(|i| cells.add(i)).collect();
    let starts = f.device.buffer(&starts).unwrap();
    let sums = f.device.buffer(&[POISON; CELLS]).unwrap();
    let program = Program::new("loads.wgsl", format!("{CELL}{body}")).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let mut launch = (kernel.launch())
        .buffer("starts", &starts)
        .buffer("sums", &sums)
        .invocations(CELLS as u32);
    launch.submit().unwrap().wait().unwrap();
    let found = heap.host().unwrap().slice(cells, CELLS).unwrap().to_vec();
    let sums = sums.read().unwrap();
    heap.free(cells).unwrap();
    (sums, found)
}

fn loads_see_what_the_kernel_has_written_in_between(f: &Fixture) {
    let body = "
fn later(p: usm_ptr) { let c = usm_Cell(p); c.tag += 1u; }
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = usm_Cell(starts[id.x]);
    var sum = c.centre.x + c.mass + c.bodies;
    if c.bodies > 2u { c.reach = sum; c.tag += 100u; }
    sum = sum * 31u + c.reach + c.tag;
    for (var i = 0u; i < 3u; i++) {
        sum = sum * 31u + c.mass + c.reach;
        c.mass += i + 1u;
    }
    later(starts[id.x]);
    sum = sum * 31u + c.tag + c.bodies;
    switch c.bodies { case 1u: { c.bodies = 9u; } default: { sum += c.tag; } }
    sums[id.x] = sum * 31u + c.bodies + c.tag + c.centre.y;
}";
    let (sums, cells) = run(f, body);
    for i in 0..CELLS {
        let mut c = cell(i, Ptr::null());
        let mut sum = c.centre[0] + c.mass + c.bodies;
        if c.bodies > 2 {
            (c.reach, c.tag) = (sum, c.tag + 100);
        }
        let add = |sum: u32, more: u32| sum.wrapping_mul(31).wrapping_add(more);
        sum = add(sum, c.reach + c.tag);
        for turn in 0..3 {
            sum = add(sum, c.mass + c.reach);
            c.mass += turn + 1;
        }
        c.tag += 1;
        sum = add(sum, c.tag + c.bodies);
        match c.bodies {
            1 => c.bodies = 9,
            _ => sum = sum.wrapping_add(c.tag),
        }
        sum = add(sum, c.bodies + c.tag + c.centre[1]);
        assert_eq!(sums[i], sum, "cell {i}");
        let next = cells[i].next;
        assert_eq!(cells[i], Cell { next, ..c }, "cell {i}");
    }
}

fn loads_behind_a_barrier_see_what_others_have_written(f: &Fixture) {
    let body = "
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
    let mine = usm_Cell(starts[i]);
    let other = usm_Cell(starts[(i + 1u) % 64u]);
    let before = other.mass + other.bodies;
    storageBarrier();
    mine.reach = i * 1000u;
    mine.tag = before;
    storageBarrier();
    sums[i] = other.reach + other.tag + other.mass;
}";
    let (sums, _) = run(f, body);
    let at = |i: usize| cell(i % CELLS, Ptr::null());
    for (i, sum) in sums.iter().enumerate() {
        let (other, others) = (at(i + 1), at(i + 2));
        let written = ((i + 1) % CELLS) as u32 * 1000 + others.mass + others.bodies;
        assert_eq!(*sum, written + other.mass, "{i}");
    }
}

/// A heap that is bound for reading in one launch and for writing in the next, in one batch.
fn kernels_that_only_read_take_turns_with_those_that_write(f: &Fixture) {
    let heap = f.device.heap().unwrap();
    let values = heap.alloc_slice(&[1u32; CELLS]).unwrap();
    let first = f.device.buffer(&[values]).unwrap();
    let sums = f.device.buffer(&[0u32; CELLS]).unwrap();
    let text = "
alias Values = array<u32>;
@group(0) @binding(0) var<storage, read> first: array<usm_ptr>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    sums[id.x] += usm_Values(first[0])[63u - id.x];
}
@compute @workgroup_size(8) fn grow(@builtin(global_invocation_id) id: vec3<u32>) {
    let values = usm_Values(first[0]);
    values[id.x] = values[id.x] * 3u + id.x;
}";
    let program = Program::new("turns.wgsl", text).unwrap();
    let kernel = |entry| (f.device.kernel(&program, entry, &Constants::new())).unwrap();
    let (read, grow) = (kernel("main"), kernel("grow"));
    let mut read = (read.launch().buffer("first", &first))
        .buffer("sums", &sums)
        .invocations(CELLS as u32);
    let mut grow = (grow.launch().buffer("first", &first)).invocations(CELLS as u32);
    let mut expected = ([1u32; CELLS], [0u32; CELLS]);
    for _ in 0..20 {
        for _ in 0..2 {
            read.submit().unwrap();
            for i in 0..CELLS {
                expected.1[i] = expected.1[i].wrapping_add(expected.0[63 - i]);
            }
        }
        grow.submit().unwrap();
        for (i, value) in expected.0.iter_mut().enumerate() {
            *value = value.wrapping_mul(3).wrapping_add(i as u32);
        }
    }
    assert_eq!(sums.read().unwrap(), expected.1);
    let host = heap.host().unwrap();
    assert_eq!(host.slice(values, CELLS).unwrap(), expected.0);
    drop(host);
    heap.free(values).unwrap();
}
