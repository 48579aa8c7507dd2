// Finds the pages of the heap's mirror that kernels have changed: a work-group compares the sums of four pages with what they
// were, brings these up to date, and sets the bits of pages where they differed. Bits are only ever set here, so that a page whose
// bytes did not reach the host is found again. Pages that have just come from the host are taken note of in the same way,
// without a bit.
//
// A page has four sums, modulo 2^32: the j-th is that of its half words h[i], each times key[i + j]. The keys are random, and
// known to nobody else. Let two contents differ, last in half word m, by d: what the j-th sums differ by contains
// d * key[m + j], and the first j sums do not depend on that key. As |d| < 2^16, at most 2^15 of the 2^32 values of the key
// make the two j-th sums equal, whatever the others are: all four are equal with a probability of 2^-68 at most. Memory
// itself errs far more often; and the sums take a 256th of the memory that a copy would.
//
// Work-group atomics add up the lanes, and nothing here is an array of vectors or a function: a driver that compiles for
// processors needs twenty times as long for those, and runs them at a quarter of the speed.

// The numbers between dollar signs are those of `addresses::page_search`.
const PAGE_ROWS = $page_rows$u;
const LANES = 64u;
// Pages of a work-group, which share the keys that a lane has loaded.
const TOGETHER = $together$u;
// Work-groups in a row of the grid.
const ROW = $row$u;
// Modes: all pages are searched; those that are listed are; those that are listed are taken note of.
const ALL = $all$u;
const LEARN = $learn$u;

struct Search {
    mode: u32,
    // For whole work-groups: behind the last page comes a number that no page has.
    pages: array<u32>,
}

@group(0) @binding(0) var<storage, read> heap: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> known: array<u32>;
@group(0) @binding(2) var<storage, read_write> changed: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> search: Search;

// Of each page its four sums.
var<workgroup> sums: array<atomic<u32>, 16>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = (group.y * ROW + group.x) * TOGETHER;
    let heap_pages = arrayLength(&heap) / PAGE_ROWS;
    let is_listed = search.mode != ALL;
    var pages = vec4<u32>(begin, begin + 1u, begin + 2u, begin + 3u);
    if is_listed {
        pages = vec4<u32>(
            search.pages[begin], search.pages[begin + 1u],
            search.pages[begin + 2u], search.pages[begin + 3u],
        );
    }
    let starts = select(vec4<u32>(), pages, pages < vec4<u32>(heap_pages)) * PAGE_ROWS;
    var s0 = vec4<u32>();
    var s1 = vec4<u32>();
    var s2 = vec4<u32>();
    var s3 = vec4<u32>();
    for (var row = lane; row < PAGE_ROWS; row += LANES) {
        let k0 = keys[2u * row];
        let k4 = keys[2u * row + 1u];
        let k8 = keys[2u * row + 2u];
        let k1 = vec4<u32>(k0.yzw, k4.x);
        let k2 = vec4<u32>(k0.zw, k4.xy);
        let k3 = vec4<u32>(k0.w, k4.xyz);
        let k5 = vec4<u32>(k4.yzw, k8.x);
        let k6 = vec4<u32>(k4.zw, k8.xy);
        let k7 = vec4<u32>(k4.w, k8.xyz);
        let w0 = heap[starts.x + row];
        let w1 = heap[starts.y + row];
        let w2 = heap[starts.z + row];
        let w3 = heap[starts.w + row];
        let l0 = w0 & vec4<u32>(0xffffu);
        let l1 = w1 & vec4<u32>(0xffffu);
        let l2 = w2 & vec4<u32>(0xffffu);
        let l3 = w3 & vec4<u32>(0xffffu);
        let h0 = w0 >> vec4<u32>(16u);
        let h1 = w1 >> vec4<u32>(16u);
        let h2 = w2 >> vec4<u32>(16u);
        let h3 = w3 >> vec4<u32>(16u);
        s0 += l0.x * k0 + h0.x * k1 + l0.y * k2 + h0.y * k3 + l0.z * k4 + h0.z * k5 + l0.w * k6 + h0.w * k7;
        s1 += l1.x * k0 + h1.x * k1 + l1.y * k2 + h1.y * k3 + l1.z * k4 + h1.z * k5 + l1.w * k6 + h1.w * k7;
        s2 += l2.x * k0 + h2.x * k1 + l2.y * k2 + h2.y * k3 + l2.z * k4 + h2.z * k5 + l2.w * k6 + h2.w * k7;
        s3 += l3.x * k0 + h3.x * k1 + l3.y * k2 + h3.y * k3 + l3.z * k4 + h3.z * k5 + l3.w * k6 + h3.w * k7;
    }
    atomicAdd(&sums[0], s0.x);
    atomicAdd(&sums[1], s0.y);
    atomicAdd(&sums[2], s0.z);
    atomicAdd(&sums[3], s0.w);
    atomicAdd(&sums[4], s1.x);
    atomicAdd(&sums[5], s1.y);
    atomicAdd(&sums[6], s1.z);
    atomicAdd(&sums[7], s1.w);
    atomicAdd(&sums[8], s2.x);
    atomicAdd(&sums[9], s2.y);
    atomicAdd(&sums[10], s2.z);
    atomicAdd(&sums[11], s2.w);
    atomicAdd(&sums[12], s3.x);
    atomicAdd(&sums[13], s3.y);
    atomicAdd(&sums[14], s3.z);
    atomicAdd(&sums[15], s3.w);
    workgroupBarrier();
    if lane < 4u * TOGETHER {
        var page = begin + lane / 4u;
        if is_listed {
            page = search.pages[page];
        }
        let at = page * 4u + lane % 4u;
        let sum = atomicLoad(&sums[lane]);
        if page < heap_pages && sum != known[at] {
            known[at] = sum;
            if search.mode != LEARN {
                atomicOr(&changed[page / 32u], 1u << (page % 32u));
            }
        }
    }
}
