// Frames that the host fills while the kernel runs: behind shaders/system.wgsl, with one of shaders/system_free.wgsl and
// shaders/system_rationed.wgsl, and one of shaders/system_stay.wgsl and shaders/system_evict.wgsl. The host's side is
// src/memory/system/live.rs.
//
// The table has all that is lent, and says for each page where its place is; the place tells the frame. An invocation that
// finds none posts the page in a list, and looks at the place until the host has written it. One invocation at a time posts
// pages with the same hash: the others look on, and find the page, or the lock open again. The list is a ring: there are
// fewer locks than slots, so that the host has read a slot before the next post needs it.
//
// Row 3 of the table: first word of the locks and of the list, the bits of a place that are the frame, turns that an
// invocation may wait.

// Word 0 is not 0 once nobody answers any more. The place of a page: 0, or the number of its frame with a number above it
// that differs each time, or 1 where the host has found no memory.
@group(0) @binding(3) var<storage, read_write> tombolo_system_places: array<atomic<u32>>;

// Orders memory between the lines above and below, for one invocation alone; the body is put in after parsing.
fn tombolo_system_fence() {}

// The first word of a page's frame, 0 where the invocation gets none, for an access at `word` of it: the last bit of `access`
// says that it writes, the others how many words it takes.
fn tombolo_system_place(index: u32, page: u32, page_high: u32, word: u32, access: u32) -> u32 {
    let limits = tombolo_system_table[3];
    let lock = limits.x + (((page ^ (page_high * $upper$)) * $both$) >> $shift$);
    var found = 0u;
    var frame = 0u;
    var mine = false;
    var over = false;
    let first = tombolo_system_first_turn();
    var look = first;
    loop {
        found = atomicLoad(&tombolo_system_places[index]);
        frame = found & limits.z;
        if found > 1u { over = tombolo_system_takes(index, found, frame, word, access); }
        if !over {
            // An invocation that has failed waits for nothing more.
            if found == 1u || tombolo_system_failed != 0u || look >= limits.w
                || atomicLoad(&tombolo_system_places[0]) != 0u { frame = 0u; over = true; }
        }
        if !over && !mine {
            if atomicLoad(&tombolo_system_faults[lock]) == 0u {
                mine = atomicExchange(&tombolo_system_faults[lock], 1u) == 0u;
            }
            if mine {
                // The host sees each word by itself: neither is 0 once it is there.
                let at = limits.y + 2u * (atomicAdd(&tombolo_system_faults[0], 1u) & $last_post$);
                atomicStore(&tombolo_system_faults[at], page | 0x80000000u);
                atomicStore(&tombolo_system_faults[at + 1u], 0x80000000u | (page_high << 1u) | (page >> 31u));
                tombolo_system_fence();
            }
        }
        // Not behind the loop, which the last of a group of lanes leaves first: that one may wait for the lock.
        if over && mine { atomicStore(&tombolo_system_faults[lock], 0u); }
        if !over {
            // What this processor holds of the word is older than what the host has written.
            tombolo_system_fence();
            look = tombolo_system_turn(look, look - first);
        }
        continuing { break if over; }
    }
    // Where there is no memory there is no frame, and nobody has waited in vain.
    if frame == 0u && found != 1u && tombolo_system_failed == 0u {
        tombolo_system_failed = 1u;
        atomicMax(&tombolo_system_faults[1], 1u);
    }
    return frame << 10u;
}
