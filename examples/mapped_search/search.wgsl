// Searches a part of a text for a pattern. Text and findings are memory of the host: a mapped file, and a vector.

alias Words = array<u32>;

struct Findings {
    count: atomic<u32>,
    room: u32,
    places: array<u32>,
}

struct Part {
    // Bytes of the part, each of which may begin a match, and bytes up to the end of the text.
    starts: u32,
    rest: u32,
    pattern_bytes: u32,
}

@group(0) @binding(0) var<uniform> text: usm_ptr;
@group(0) @binding(1) var<uniform> findings: usm_ptr;
@group(0) @binding(2) var<uniform> part: Part;
// A byte in each word.
@group(0) @binding(3) var<storage, read> pattern: array<u32>;

fn byte_of(word: u32, at: u32) -> u32 {
    return (word >> (at % 4u * 8u)) & 0xffu;
}

fn matches(at: u32) -> bool {
    let words = usm_Words(text);
    for (var i = 1u; i < part.pattern_bytes; i++) {
        if byte_of(words[(at + i) / 4u], at + i) != pattern[i] { return false; }
    }
    return true;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = id.x * 4u;
    if first >= part.starts { return; }
    let words = usm_Words(text);
    let word = words[id.x];
    for (var at = first; at < min(first + 4u, part.starts); at++) {
        if at + part.pattern_bytes > part.rest || byte_of(word, at) != pattern[0] { continue; }
        if matches(at) {
            let all = usm_Findings(findings);
            let number = atomicAdd(&all.count, 1u);
            if number < all.room { all.places[number] = at; }
        }
    }
}
