// Repeats a byte pattern over a byte range of a buffer. One invocation writes one word, so that no
// two invocations touch the same word; bytes of a word that lie outside the range keep their value.

struct Fill {
    first: u32,         // first byte of the range
    end: u32,           // one past its last byte
    pattern_bytes: u32, // length of the pattern
    words_per_row: u32, // words that one row of work-groups covers
}

@group(0) @binding(0) var<storage, read_write> target_words: array<u32>;
@group(0) @binding(1) var<storage, read> pattern: array<u32>;
@group(0) @binding(2) var<uniform> fill: Fill;

fn pattern_byte(index: u32) -> u32 {
    let at = index % fill.pattern_bytes;
    return (pattern[at / 4u] >> ((at % 4u) * 8u)) & 0xffu;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = fill.first / 4u + id.y * fill.words_per_row + id.x;
    let start = word * 4u;
    if start >= fill.end {
        return;
    }
    if start >= fill.first && start + 4u <= fill.end
        && fill.first % 4u == 0u && fill.pattern_bytes % 4u == 0u {
        target_words[word] = pattern[((start - fill.first) / 4u) % (fill.pattern_bytes / 4u)];
        return;
    }
    var value = target_words[word];
    for (var k = 0u; k < 4u; k++) {
        let byte = start + k;
        if byte >= fill.first && byte < fill.end {
            let shift = k * 8u;
            value = (value & ~(0xffu << shift)) | (pattern_byte(byte - fill.first) << shift);
        }
    }
    target_words[word] = value;
}
