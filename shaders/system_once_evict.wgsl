// Loads by translations that are kept: behind shaders/system_evict.wgsl and shaders/system_once.wgsl.
//
// The frame of a page that has been written stays until the launch ends. Any other may have been taken away since, so the
// place is looked at again behind each load, however long ago it was read: places are numbered, and say something else once
// the page has gone, also where it has come back.

// As tombolo_system_load, with the words in tombolo_system_loaded: what is kept now.
fn tombolo_system_load_once(base: u32, base_high: u32, offset: u32, words: u32, code: u32,
    within: u32, bytes: u32, align: u32, kept: vec3<u32>) -> vec3<u32> {
    if tombolo_system_serves(kept.x, within, words, code, bytes) {
        tombolo_system_fetch((kept.x & 0x7fffffffu) + (within >> 2u), words);
        if (kept.x >> 31u) != 0u || tombolo_system_again(kept.y) == kept.z { return kept; }
    }
    tombolo_system_loaded = vec4<u32>();
    let at = tombolo_system_find(base, base_high, offset, words, code);
    if at == 0u { tombolo_system_loaded = vec4<u32>(); }
    let now = tombolo_system_kept(at, base + offset, within, code, bytes, align, 0u);
    return vec3<u32>(now, tombolo_system_seen);
}
