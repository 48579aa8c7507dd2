// Finds the pages of the heap's mirror that kernels have changed: a work-group compares the sums of four pages with what they
// were, brings these up to date, and sets the bits of pages where they differed. Bits are only ever set here, so that a page whose
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
// Pages of a work-group, which share the keys that a lane has loaded.
const TOGETHER = 4u;
// Work-groups in a row of the grid; 65,535 is the least that WebGPU allows.
const ROW = 32768u;
// Modes: all pages are searched; those that are listed are; those that are listed are taken note of.
const ALL = 0u;
const LEARN = 2u;

struct Search {
    mode: u32,
    // For whole work-groups: behind the last page comes a number that no page has.
    pages: array<u32>,
}

@group(0) @binding(0) var<storage, read> heap: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> known: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> changed: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> search: Search;

// For each page the first four sums of each lane, and the others behind them; and then of eight lanes together.
var<workgroup> of_lanes: array<vec4<u32>, 512>;
var<workgroup> of_groups: array<vec4<u32>, 64>;

// Four sums of eight half words.
fn weighed(
    words: vec4<u32>,
    a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>,
    e: vec4<u32>, f: vec4<u32>, g: vec4<u32>, h: vec4<u32>,
) -> vec4<u32> {
    let low = words & vec4<u32>(0xffffu);
    let high = words >> vec4<u32>(16u);
    return low.x * a + high.x * b + low.y * c + high.y * d
        + low.z * e + high.z * f + low.w * g + high.w * h;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = (group.y * ROW + group.x) * TOGETHER;
    var pages = vec4<u32>(begin, begin + 1u, begin + 2u, begin + 3u);
    if search.mode != ALL {
        pages = vec4<u32>(
            search.pages[begin], search.pages[begin + 1u],
            search.pages[begin + 2u], search.pages[begin + 3u],
        );
    }
    let is_there = pages < vec4<u32>(arrayLength(&heap) / PAGE_ROWS);
    let starts = select(vec4<u32>(), pages, is_there) * PAGE_ROWS;
    var first: array<vec4<u32>, 4>;
    var second: array<vec4<u32>, 4>;
    for (var row = lane; row < PAGE_ROWS; row += LANES) {
        let k0 = keys[2u * row];
        let k4 = keys[2u * row + 1u];
        let k8 = keys[2u * row + 2u];
        let last = keys[2u * row + 3u];
        let k1 = vec4<u32>(k0.yzw, k4.x);
        let k2 = vec4<u32>(k0.zw, k4.xy);
        let k3 = vec4<u32>(k0.w, k4.xyz);
        let k5 = vec4<u32>(k4.yzw, k8.x);
        let k6 = vec4<u32>(k4.zw, k8.xy);
        let k7 = vec4<u32>(k4.w, k8.xyz);
        let k9 = vec4<u32>(k8.yzw, last.x);
        let k10 = vec4<u32>(k8.zw, last.xy);
        let k11 = vec4<u32>(k8.w, last.xyz);
        let w0 = heap[starts.x + row];
        let w1 = heap[starts.y + row];
        let w2 = heap[starts.z + row];
        let w3 = heap[starts.w + row];
        first[0] += weighed(w0, k0, k1, k2, k3, k4, k5, k6, k7);
        first[1] += weighed(w1, k0, k1, k2, k3, k4, k5, k6, k7);
        first[2] += weighed(w2, k0, k1, k2, k3, k4, k5, k6, k7);
        first[3] += weighed(w3, k0, k1, k2, k3, k4, k5, k6, k7);
        second[0] += weighed(w0, k4, k5, k6, k7, k8, k9, k10, k11);
        second[1] += weighed(w1, k4, k5, k6, k7, k8, k9, k10, k11);
        second[2] += weighed(w2, k4, k5, k6, k7, k8, k9, k10, k11);
        second[3] += weighed(w3, k4, k5, k6, k7, k8, k9, k10, k11);
    }
    of_lanes[lane] = first[0];
    of_lanes[64u + lane] = second[0];
    of_lanes[128u + lane] = first[1];
    of_lanes[192u + lane] = second[1];
    of_lanes[256u + lane] = first[2];
    of_lanes[320u + lane] = second[2];
    of_lanes[384u + lane] = first[3];
    of_lanes[448u + lane] = second[3];
    workgroupBarrier();
    var sum = vec4<u32>();
    for (var k = 0u; k < 8u; k++) {
        sum += of_lanes[lane * 8u + k];
    }
    of_groups[lane] = sum;
    workgroupBarrier();
    if lane < 2u * TOGETHER && is_there[lane / 2u] {
        var total = vec4<u32>();
        for (var k = 0u; k < 8u; k++) {
            total += of_groups[lane * 8u + k];
        }
        let page = pages[lane / 2u];
        let at = page * 2u + lane % 2u;
        if any(total != known[at]) {
            known[at] = total;
            if search.mode != LEARN {
                atomicOr(&changed[page / 32u], 1u << (page % 32u));
            }
        }
    }
}
