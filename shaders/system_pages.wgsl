// Pages of a pointee, looked up where the pointer is made: behind shaders/system.wgsl, where a kernel keeps translations on a
// device that executes both sides of branches. Frames are filled before the launch (shaders/system_there.wgsl), and none is the
// host's own page.
//
// What is known of a pointee of 128 bytes at most: the word of the pool where it begins; where it would begin if the page
// behind, which its end may lie in, were in front of the frame of that page; a bit for each word that is there and may be read;
// and a bit for each that may be written. The look marks no frame and reports nothing: the pointer need never be followed.
//
// An access has no branch but for marks of frames, and no way of its own to report a fault, which takes a dozen atomic
// operations: the first fault of the invocation is noted here, and written when the invocation ends.

// The fault: low word and high word of the address, and the code. There is one if tombolo_system_failed is 2.
var<private> tombolo_system_noted: vec3<u32>;

// The first word of a page's frame, and the page's rights; zeros for a page that is not lent or has no frame.
fn tombolo_system_row(page: u32, page_high: u32) -> vec2<u32> {
    let head = tombolo_system_table[0];
    let more = tombolo_system_table[1];
    let solid = tombolo_system_table[2];
    let one = tombolo_system_table[more.z + (((page + page_high * 0x9e3779b9u) * more.x) >> head.w)];
    let two = tombolo_system_table[more.z + (((page ^ (page_high * 0x85ebca6bu)) * more.y) >> head.w)];
    let ahead = page - head.x;
    var row = select(vec2<u32>(), two.zw, ((two.x ^ page) | (two.y ^ page_high)) == 0u);
    row = select(row, one.zw, ((one.x ^ page) | (one.y ^ page_high)) == 0u);
    row = select(row, vec2<u32>(solid.y + (ahead << (solid.w & 31u)), solid.z), page_high == head.y && ahead < head.z);
    return select(vec2<u32>(), row, row.x != 0u);
}

// Bits for the 32 words from `word` of a page on, into the page behind: those that may be written if `writes` is 1, or else read.
fn tombolo_system_bits(first: u32, behind: u32, word: u32, writes: u32) -> u32 {
    let at = word >> 5u;
    let next = (at + 1u) & 31u;
    let other = select(first, behind, next == 0u);
    var near = tombolo_system_table[(first >> 3u) + 8u * writes + (at >> 2u)][at & 3u];
    var far = tombolo_system_table[(other >> 3u) + 8u * writes + (next >> 2u)][next & 3u];
    near = select(select(near, 0xffffffffu, ((first >> writes) & 1u) != 0u), 0u, first == 0u);
    far = select(select(far, 0xffffffffu, ((other >> writes) & 1u) != 0u), 0u, other == 0u);
    let shift = word & 31u;
    return (near >> shift) | select(0u, far << ((32u - shift) & 31u), shift != 0u);
}

// The rows of the page of an address and of the page behind.
fn tombolo_system_rows(low: u32, high: u32) -> vec4<u32> {
    let page = (low >> 12u) | (high << 20u);
    let page_high = high >> 12u;
    let behind = page + 1u;
    return vec4<u32>(tombolo_system_row(page, page_high), tombolo_system_row(behind, page_high + select(0u, 1u, behind == 0u)));
}

// What is known of a pointee that is read alone, `offset` bytes behind an address.
fn tombolo_system_pages(base: u32, base_high: u32, offset: u32) -> vec4<u32> {
    let low = base + offset;
    let rows = tombolo_system_rows(low, base_high + select(0u, 1u, low < base));
    let word = (low >> 2u) & 1023u;
    return vec4<u32>(rows.x + word, rows.z + word - 1024u, tombolo_system_bits(rows.y, rows.w, word, 0u), 0u);
}

// What is known of a pointee that is written, too.
fn tombolo_system_pages_written(base: u32, base_high: u32, offset: u32) -> vec4<u32> {
    let low = base + offset;
    let rows = tombolo_system_rows(low, base_high + select(0u, 1u, low < base));
    let word = (low >> 2u) & 1023u;
    return vec4<u32>(rows.x + word, rows.z + word - 1024u, tombolo_system_bits(rows.y, rows.w, word, 0u),
        tombolo_system_bits(rows.y, rows.w, word, 1u));
}

// As tombolo_system_find, for words that begin `within` bytes into a pointee whose pages are known, and end inside.
fn tombolo_system_part(base: u32, base_high: u32, offset: u32, words: u32, code: u32,
    within: u32, known: vec4<u32>) -> u32 {
    let low = base + offset;
    let writes = code >> 31u;
    let word = within >> 2u;
    let at = select(known.y, known.x, (((low - within) >> 2u) & 1023u) + word < 1024u) + word;
    let wanted = (1u << words) - 1u;
    let reads = known.z >> word;
    let given = select(reads, known.w >> word, writes != 0u);
    let odd = low & select(4u * words - 1u, 15u, words > 2u);
    let fits = odd == 0u && (given & wanted) == wanted;
    // As tombolo_system_find tells faults apart.
    let told = select(code & 0x7fffffffu, code, (reads & 1u) != 0u && writes != 0u);
    let high = base_high + select(0u, 1u, low < base);
    let noted = vec3<u32>(low, high, select((code & 0x7fffffffu) | 0x40000000u, told, odd == 0u));
    let is_first = !fits && tombolo_system_failed == 0u;
    tombolo_system_noted = select(tombolo_system_noted, noted, is_first);
    tombolo_system_failed = select(tombolo_system_failed, 2u, is_first);
    let marks = writes | (tombolo_system_table[2].w >> 8u);
    if fits && marks != 0u {
        let flags = 4u + (at >> 10u);
        if (atomicLoad(&tombolo_system_faults[flags]) & marks) != marks {
            atomicOr(&tombolo_system_faults[flags], marks);
        }
    }
    return select(4u * writes, at, fits);
}

// Writes what the invocation has noted.
fn tombolo_system_write_note() {
    if tombolo_system_failed == 2u {
        tombolo_system_failed = 0u;
        tombolo_system_fault(tombolo_system_noted.x, tombolo_system_noted.y, tombolo_system_noted.z, tombolo_system_table[1].w);
    }
}
