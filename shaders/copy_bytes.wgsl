// Copies a byte range to any byte of a buffer. One invocation writes one word of the target: the bytes of two
// neighbouring words of the source, shifted into place.
//
// Words at the edges of the range are changed by one atomic exclusive-or, which leaves their other bytes alone: whoever
// writes those at the same time, as atomics do, loses nothing.

struct Range {
    first: u32, // first byte of the range in the target
    end: u32,   // one past its last byte
    skip: u32,  // bytes of the source before the one that goes to `first`
}

@group(0) @binding(0) var<storage, read_write> target_words: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> source_words: array<u32>;
@group(0) @binding(2) var<uniform> range: Range;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = range.first / 4u + id.x;
    let start = word * 4u;
    if start >= range.end {
        return;
    }
    // One word too far, since the first word of the target may begin up to three bytes before the range.
    let beyond = start + 4u + range.skip - range.first;
    let shift = (beyond % 4u) * 8u;
    // What these limits change lies outside the range, and is masked below.
    let low = source_words[max(beyond / 4u, 1u) - 1u];
    let high = source_words[min(beyond / 4u, arrayLength(&source_words) - 1u)];
    var value = low;
    if shift != 0u {
        value = (low >> shift) | (high << (32u - shift));
    }
    var mask = 0xffffffffu;
    if start < range.first {
        mask <<= (range.first - start) * 8u;
    }
    if start + 4u > range.end {
        mask &= 0xffffffffu >> ((start + 4u - range.end) * 8u);
    }
    if mask == 0xffffffffu {
        atomicStore(&target_words[word], value);
    } else {
        let old = atomicLoad(&target_words[word]);
        atomicXor(&target_words[word], (old ^ value) & mask);
    }
}
