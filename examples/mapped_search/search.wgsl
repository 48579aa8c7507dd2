// Searches a text for a pattern. Text and findings are memory of the host: a mapped file, and a vector.

alias Words = array<u32>;

struct Findings {
    count: atomic<u32>,
    room: u32,
    places: array<u32>,
}

struct Task {
    text_bytes: u32,
    pattern_bytes: u32,
}

@group(0) @binding(0) var<uniform> text: usm_ptr;
@group(0) @binding(1) var<uniform> findings: usm_ptr;
@group(0) @binding(2) var<uniform> task: Task;
// A byte in each word.
@group(0) @binding(3) var<storage, read> pattern: array<u32>;

fn byte_of(word: u32, at: u32) -> u32 {
    return (word >> (at % 4u * 8u)) & 0xffu;
}

fn matches(at: u32) -> bool {
    let words = usm_Words(text);
    for (var i = 1u; i < task.pattern_bytes; i++) {
        if byte_of(words[(at + i) / 4u], at + i) != pattern[i] { return false; }
    }
    return true;
}

// Sixteen bytes for each invocation.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let words = usm_Words(text);
    var word = 0u;
    for (var at = id.x * 16u; at < id.x * 16u + 16u && at + task.pattern_bytes <= task.text_bytes; at++) {
        if at % 4u == 0u { word = words[at / 4u]; }
        if byte_of(word, at) == pattern[0] && matches(at) {
            let all = usm_Findings(findings);
            let number = atomicAdd(&all.count, 1u);
            if number < all.room { all.places[number] = at; }
        }
    }
}
