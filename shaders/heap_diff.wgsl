// Finds the pages of the heap's mirror that kernels have changed: a work-group compares one page with
// a copy of what it was, brings the copy up to date, and sets the page's bit if they differed. Bits are
// only ever set here, so that a page whose bytes did not reach the host is found again.

const PAGE_WORDS = 1024u;
const LANES = 64u;
// Work-groups in a row of the grid; 65,535 is the least that WebGPU allows.
const ROW = 32768u;

@group(0) @binding(0) var<storage, read> heap: array<u32>;
@group(0) @binding(1) var<storage, read_write> known: array<u32>;
@group(0) @binding(2) var<storage, read_write> changed: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let page = group.y * ROW + group.x;
    var differs = false;
    for (var k = 0u; k < PAGE_WORDS; k += LANES) {
        let at = page * PAGE_WORDS + k + lane;
        if at < arrayLength(&heap) {
            let now = heap[at];
            if now != known[at] {
                known[at] = now;
                differs = true;
            }
        }
    }
    if differs {
        atomicOr(&changed[page / 32u], 1u << (page % 32u));
    }
}
