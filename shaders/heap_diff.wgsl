// Finds the pages of the heap's mirror that kernels have changed: a work-group compares the sums of one page with what they
// were, brings these up to date, and sets the page's bit if they differed. Bits are only ever set here, so that a page whose
// bytes did not reach the host is found again. Pages that have just come from the host are taken note of in the same way,
// without a bit.
//
// A page has eight sums, modulo 2^32: the j-th is that of its half words h[i], each times key[i + j]. The keys are random, and
// known to nobody else. Let two contents differ, last in half word m, by d: what the j-th sums differ by contains
// d * key[m + j], and the first j sums do not depend on that key. As |d| < 2^16, at most 2^15 of the 2^32 values of the key
// make the two j-th sums equal, whatever the others are: all eight are equal with a probability of 2^-136 at most. Memory
// itself errs far more often; and the sums take a hundredth of the memory that a copy would.

const PAGE_ROWS = 256u;
const LANES = 64u;
// Work-groups in a row of the grid; 65,535 is the least that WebGPU allows.
const ROW = 32768u;
// Modes: all pages are searched; those that are listed are; those that are listed are taken note of.
const ALL = 0u;
const LEARN = 2u;

struct Search {
    mode: u32,
    pages: array<u32>,
}

@group(0) @binding(0) var<storage, read> heap: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> known: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> changed: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> search: Search;

// The first four sums of each lane, and the others behind them.
var<workgroup> of_lanes: array<vec4<u32>, 128>;
var<workgroup> of_groups: array<vec4<u32>, 16>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var page = group.y * ROW + group.x;
    if search.mode != ALL {
        page = search.pages[group.x];
    }
    var first = vec4<u32>();
    var second = vec4<u32>();
    for (var row = lane; row < PAGE_ROWS; row += LANES) {
        let words = heap[page * PAGE_ROWS + row];
        let low = words & vec4<u32>(0xffffu);
        let high = words >> vec4<u32>(16u);
        let a = keys[2u * row];
        let b = keys[2u * row + 1u];
        let c = keys[2u * row + 2u];
        let d = keys[2u * row + 3u];
        first += low.x * a + high.x * vec4<u32>(a.yzw, b.x)
            + low.y * vec4<u32>(a.zw, b.xy) + high.y * vec4<u32>(a.w, b.xyz)
            + low.z * b + high.z * vec4<u32>(b.yzw, c.x)
            + low.w * vec4<u32>(b.zw, c.xy) + high.w * vec4<u32>(b.w, c.xyz);
        second += low.x * b + high.x * vec4<u32>(b.yzw, c.x)
            + low.y * vec4<u32>(b.zw, c.xy) + high.y * vec4<u32>(b.w, c.xyz)
            + low.z * c + high.z * vec4<u32>(c.yzw, d.x)
            + low.w * vec4<u32>(c.zw, d.xy) + high.w * vec4<u32>(c.w, d.xyz);
    }
    of_lanes[lane] = first;
    of_lanes[64u + lane] = second;
    workgroupBarrier();
    if lane < 16u {
        var sum = vec4<u32>();
        for (var k = 0u; k < 8u; k++) {
            sum += of_lanes[lane * 8u + k];
        }
        of_groups[lane] = sum;
    }
    workgroupBarrier();
    if lane < 2u && (page + 1u) * PAGE_ROWS <= arrayLength(&heap) {
        var sum = vec4<u32>();
        for (var k = 0u; k < 8u; k++) {
            sum += of_groups[lane * 8u + k];
        }
        let at = page * 2u + lane;
        if any(sum != known[at]) {
            known[at] = sum;
            if search.mode != LEARN {
                atomicOr(&changed[page / 32u], 1u << (page % 32u));
            }
        }
    }
}
