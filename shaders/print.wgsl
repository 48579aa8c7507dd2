// Appended to programs that use `print`, `assert` or `panic`. The layout is that of src/print/record.rs; the
// runtime binds the buffer, and gives the functions that only announce themselves here their bodies.
struct TomboloPrint {
    head: atomic<u32>,
    dropped: atomic<u32>,
    dropped_high: atomic<u32>,
    claim: atomic<u32>,
    failed_site: u32,
    failed_invocation: u32,
    unused_0: u32,
    unused_1: u32,
    failed_values: array<u32, 64>,
    words: array<u32>,
}
var<storage, read_write> tombolo_print: TomboloPrint;
var<private> tombolo_print_invocation: u32 = 0u;
var<private> tombolo_print_failed: bool = false;

// Hands out `words` words, or counts a record that does not fit and returns 0xffffffff. The head is only raised
// while there is room, so that it never wraps around.
fn tombolo_print_reserve(words: u32) -> u32 {
    let capacity = arrayLength(&tombolo_print.words);
    if atomicLoad(&tombolo_print.head) < capacity {
        let at = atomicAdd(&tombolo_print.head, words);
        if at < capacity && words <= capacity - at {
            return at;
        }
    }
    if atomicAdd(&tombolo_print.dropped, 1u) == 0xffffffffu {
        atomicAdd(&tombolo_print.dropped_high, 1u);
    }
    return 0xffffffffu;
}

fn tombolo_print_mix(hash: u32, word: u32) -> u32 {
    let mixed = (hash ^ word) * 0x9e3779b1u;
    return mixed ^ (mixed >> 15u);
}

// True for the first invocation of the launch that fails.
fn tombolo_print_claim(site: u32) -> bool {
    tombolo_print_failed = true;
    if atomicExchange(&tombolo_print.claim, 1u) != 0u {
        return false;
    }
    tombolo_print.failed_site = site;
    tombolo_print.failed_invocation = tombolo_print_invocation;
    return true;
}
