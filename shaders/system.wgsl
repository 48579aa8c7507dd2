// Pages of the host's memory in frames of a pool: the translation of addresses in kernels of mode System. The host's
// side, and the layout of the table, is src/memory/system/table.rs. What the third word of a row stands for is the
// function tombolo_system_place's to say: shaders/system_there.wgsl or shaders/system_live.wgsl.
//
// A row of the table for a page: number of the page (low word, high word), the first word of its frame, rights. The
// first bit of the rights says that the whole page may be read, the second that it may be written, the third that the
// frame is the host's own page, where writes need not be noted; above these the row where eight rows with a bit for each
// word to read begin, and eight for each word to write.

@group(0) @binding(0) var<storage, read> tombolo_system_table: array<vec4<u32>>;
// Number of faults, and three unused words; a word for each frame: 1 once it has been written, 2 once it has been touched; 2,048 words
// with a bit for each of as many pages as have noted a fault, by a hash; four words for each fault.
@group(0) @binding(1) var<storage, read_write> tombolo_system_faults: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> tombolo_system_status: array<atomic<u32>, 16>;
// The invocation has met with a fault: whatever follows may be wrong.
var<private> tombolo_system_failed: u32;
var<private> tombolo_system_invocation: u32;

// Notes the first fault of the invocation, since later ones may follow from it: in the list, from which the host fetches
// pages, or, where there is no room for any, in the status record of the launch, which has failed then.
fn tombolo_system_fault(low: u32, high: u32, code: u32, capacity: u32) {
    if tombolo_system_failed == 0u {
        tombolo_system_failed = 1u;
        if capacity == 0u {
            if atomicExchange(&tombolo_system_status[9], 1u) == 0u {
                atomicStore(&tombolo_system_status[5], code);
                atomicStore(&tombolo_system_status[6], low);
                atomicStore(&tombolo_system_status[7], high);
                atomicStore(&tombolo_system_status[8], tombolo_system_invocation);
            }
            return;
        }
        // Once for each page, or thousands of invocations would note the same one. Pages with the same hash wait for the
        // next launch.
        let list = tombolo_system_table[2].x;
        let hash = (((low >> 12u) | (high << 20u)) * 0x9e3779b9u) >> 16u;
        let bit = 1u << (hash & 31u);
        let noted = list - 2048u + (hash >> 5u);
        if (atomicLoad(&tombolo_system_faults[noted]) & bit) != 0u { return; }
        if (atomicOr(&tombolo_system_faults[noted], bit) & bit) != 0u { return; }
        let slot = atomicAdd(&tombolo_system_faults[0], 1u);
        if slot < capacity {
            let at = list + 4u * slot;
            atomicStore(&tombolo_system_faults[at], code);
            atomicStore(&tombolo_system_faults[at + 1u], low);
            atomicStore(&tombolo_system_faults[at + 2u], high);
            atomicStore(&tombolo_system_faults[at + 3u], tombolo_system_invocation);
        }
    }
}

// The word of the pool for `words` words (1 to 4) at `offset` bytes behind an address. The last bit of `code` tells that
// they are written. Where they may not be touched, or are not there, words of the first frame take their place: zeros
// for reading, and words that nobody reads for writing.
fn tombolo_system_find(base: u32, base_high: u32, offset: u32, words: u32, code: u32) -> u32 {
    let low = base + offset;
    var high = base_high;
    if low < base { high += 1u; }
    let page = (low >> 12u) | (high << 20u);
    let page_high = high >> 12u;
    let head = tombolo_system_table[0];
    let more = tombolo_system_table[1];
    let solid = tombolo_system_table[2];
    // No step for the solid span, one or two for other pages.
    var entry: vec4<u32>;
    let ahead = page - head.x;
    if page_high == head.y && ahead < head.z {
        entry = vec4<u32>(page, page_high, solid.y + (ahead << (solid.w & 31u)), solid.z);
    } else {
        entry = tombolo_system_table[more.z + (((page + page_high * 0x9e3779b9u) * more.x) >> head.w)];
        if ((entry.x ^ page) | (entry.y ^ page_high)) != 0u {
            entry = tombolo_system_table[more.z + (((page ^ (page_high * 0x85ebca6bu)) * more.y) >> head.w)];
        }
    }
    let writes = code >> 31u;
    let word = (low >> 2u) & 1023u;
    var align = 4u * words - 1u;
    if words > 2u { align = 15u; }
    let strange = (entry.x ^ page) | (entry.y ^ page_high) | (low & align);
    var fits = strange == 0u;
    if fits {
        if ((entry.w >> writes) & 1u) == 0u {
            let masks = tombolo_system_table[(entry.w >> 3u) + 8u * writes + (word >> 7u)];
            let wanted = (1u << words) - 1u;
            fits = ((masks[(word >> 5u) & 3u] >> (word & 31u)) & wanted) == wanted;
        }
    }
    var frame = 0u;
    if fits { frame = tombolo_system_place(entry.z, page, page_high, word, (words << 1u) | writes); }
    if frame == 0u {
        // A write to what may be read is told apart from a write elsewhere, and an address that no access of its size has.
        var told = code & 0x7fffffffu;
        if (low & align) != 0u { told |= 0x40000000u; }
        if !fits && (strange | (writes ^ 1u)) == 0u {
            let masks = tombolo_system_table[(entry.w >> 3u) + (word >> 7u)];
            if ((entry.w | (masks[(word >> 5u) & 3u] >> (word & 31u))) & 1u) != 0u { told = code; }
        }
        tombolo_system_fault(low, high, told, more.w);
        return 4u * writes;
    }
    // Whether it is written, and, where the host asks for that, that it is touched.
    let marks = writes | (solid.w >> 8u);
    if marks != 0u && (entry.w & 4u) == 0u {
        let flags = 4u + (frame >> 10u);
        if (atomicLoad(&tombolo_system_faults[flags]) & marks) != marks {
            atomicOr(&tombolo_system_faults[flags], marks);
        }
    }
    $found$
    return frame + word;
}

// The address `index * stride` bytes further on.
fn tombolo_system_step(low: u32, high: u32, index: u32, stride: u32) -> vec2<u32> {
    let a = index & 0xffffu;
    let b = index >> 16u;
    let c = stride & 0xffffu;
    let d = stride >> 16u;
    let middle = ((a * c) >> 16u) + ((b * c) & 0xffffu) + ((a * d) & 0xffffu);
    let bytes = index * stride;
    var bytes_high = b * d + ((b * c) >> 16u) + ((a * d) >> 16u) + (middle >> 16u);
    let sum = low + bytes;
    if sum < low { bytes_high += 1u; }
    return vec2<u32>(sum, high + bytes_high);
}
