// Frames that the host gives to other pages while the kernel runs: behind shaders/system_live.wgsl.
//
// The host takes a place back before it fills the frame anew, and takes none away from a page that has been written
// (src/memory/system/live.rs). So what an invocation has loaded is the page's if the place still says the same afterwards,
// and a frame stays once an invocation has marked it as written and the place still says the same. In both cases the second
// look must not come before the first access. Host and kernel are on the same processors, which keep the order of loads and
// of stores; a read-modify-write, or a barrier where the adapter has one, keeps the driver's compiler from changing it.

@group(0) @binding(5) var<storage, read_write> tombolo_system_pool: array<$element$>;
// The words of the last load.
var<private> tombolo_system_loaded: vec4<u32>;

fn tombolo_system_word(at: u32) -> u32 { return $word$; }

fn tombolo_system_fetch(at: u32, words: u32) {
    tombolo_system_loaded.x = tombolo_system_word(at);
    if words > 1u { tombolo_system_loaded.y = tombolo_system_word(at + 1u); }
    if words > 2u { tombolo_system_loaded.z = tombolo_system_word(at + 2u); }
    if words > 3u { tombolo_system_loaded.w = tombolo_system_word(at + 3u); }
}

fn tombolo_system_again(index: u32) -> u32 {
    tombolo_system_fence();
    return $again$;
}

// Whether the frame was the page's until the access was made, or, for a write, will be until the launch ends.
fn tombolo_system_takes(index: u32, found: u32, frame: u32, word: u32, access: u32) -> bool {
    // Written and touched, or touched alone.
    let mark = 2u | (access & 1u);
    if (atomicLoad(&tombolo_system_faults[4u + frame]) & mark) != mark {
        atomicOr(&tombolo_system_faults[4u + frame], mark);
    }
    if (access & 1u) == 0u {
        tombolo_system_fetch((frame << 10u) + word, access >> 1u);
    }
    $seen$
    return tombolo_system_again(index) == found;
}

// The words at an address, as tombolo_system_find finds them.
fn tombolo_system_load(base: u32, base_high: u32, offset: u32, words: u32, code: u32) -> vec4<u32> {
    tombolo_system_loaded = vec4<u32>();
    let at = tombolo_system_find(base, base_high, offset, words, code);
    return select(vec4<u32>(), tombolo_system_loaded, at != 0u);
}
