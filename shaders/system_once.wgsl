// Translations kept for several accesses of one pointee: behind shaders/system.wgsl, where a kernel has such accesses.
//
// What is kept of a pointee: the pool's word where the pointee begins, 0 for none, with the last bit set where the frame has
// been marked as written; and, where frames may be taken away, the place of the page and what the place said. Each access
// comes with all that an access without a translation kept needs: whatever lies beyond the pointee, or is not kept, is
// translated by itself.

// The rights of the page that was found last.
var<private> tombolo_system_rights: u32;
// The place of the page that was found last and what the place said, where frames may be taken away.
var<private> tombolo_system_seen: vec2<u32>;

// Whether `count` words (32 at most) from `word` on have their bits in the masks that begin in `row`.
fn tombolo_system_permits(row: u32, word: u32, count: u32) -> bool {
    let last = word + count - 1u;
    let first = tombolo_system_table[row + (word >> 7u)][(word >> 5u) & 3u] >> (word & 31u);
    let next = tombolo_system_table[row + (last >> 7u)][(last >> 5u) & 3u] << ((32u - word) & 31u);
    let bits = first | select(0u, next, (word & 31u) != 0u);
    return (~bits << (32u - count)) == 0u;
}

// What is kept behind an access that has found the word `at` for the address with the low word `low`, `within` bytes into a
// pointee of `bytes` bytes: `before`, unless all of the pointee lies in the page, aligned, and may be touched in the same way.
fn tombolo_system_kept(at: u32, low: u32, within: u32, code: u32, bytes: u32, align: u32, before: u32) -> u32 {
    let start = low - within;
    let word = (start >> 2u) & 1023u;
    let count = bytes >> 2u;
    let strange = (start & (align - 1u)) | select(1u, 0u, at >= 1024u && within < bytes && word + count <= 1024u);
    if strange != 0u { return before; }
    let rights = tombolo_system_rights;
    let writes = code >> 31u;
    if (~rights & (1u | (writes << 1u))) != 0u {
        // Masks are asked for as much as two words of them tell.
        if count > 32u { return before; }
        if (rights & 1u) == 0u && !tombolo_system_permits(rights >> 3u, word, count) { return before; }
        if (writes & ~(rights >> 1u)) != 0u && !tombolo_system_permits((rights >> 3u) + 8u, word, count) { return before; }
    }
    return (at - (within >> 2u)) | (writes << 31u);
}

// Whether what is kept serves an access: a write wants a frame that has been marked.
fn tombolo_system_serves(kept: u32, within: u32, words: u32, code: u32, bytes: u32) -> bool {
    return (kept >> 31u) >= (code >> 31u) && kept != 0u && within + 4u * words <= bytes;
}

// As tombolo_system_find, `within` bytes into a pointee of which `kept` is kept: the word of the pool, and what is kept now.
fn tombolo_system_find_once(base: u32, base_high: u32, offset: u32, words: u32, code: u32,
    within: u32, bytes: u32, align: u32, kept: vec3<u32>) -> vec4<u32> {
    if tombolo_system_serves(kept.x, within, words, code, bytes) {
        return vec4<u32>((kept.x & 0x7fffffffu) + (within >> 2u), kept);
    }
    let at = tombolo_system_find(base, base_high, offset, words, code);
    return vec4<u32>(at, tombolo_system_kept(at, base + offset, within, code, bytes, align, kept.x), kept.y, kept.z);
}
