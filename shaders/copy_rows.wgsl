// Copies rows of bytes between two buffers, from any byte to any other. One invocation writes one word of one row: the
// bytes of two neighbouring words of the source, shifted into place.
//
// Words at the edges of a row are changed by one atomic exclusive-or, which leaves their other bytes alone: they may belong
// to the next row, which another invocation writes.

struct Rows {
    from_origin: u32, // byte of the source with the first row of the first slice; all sums of bytes are modulo 2^32
    from_row: u32,    // bytes from a row to the next
    from_slice: u32,  // bytes from a slice to the next
    bytes: u32,       // of a row
    to_origin: u32,   // the same of the target
    to_row: u32,
    to_slice: u32,
    words: u32,       // the most words of the target that a row has bytes in
    rows: u32,        // rows of a slice
    first: u32,       // the first row to copy, in its slice
    count: u32,       // rows to copy
}

@group(0) @binding(0) var<storage, read_write> target_words: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> source_words: array<u32>;
@group(0) @binding(2) var<uniform> rows: Rows;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let number = id.x / rows.words;
    if number >= rows.count {
        return;
    }
    let y = (rows.first + number) % rows.rows;
    let z = (rows.first + number) / rows.rows;
    let source = rows.from_origin + y * rows.from_row + z * rows.from_slice;
    let first = rows.to_origin + y * rows.to_row + z * rows.to_slice;
    let end = first + rows.bytes;
    let word = first / 4u + id.x % rows.words;
    let start = word * 4u;
    if start >= end {
        return;
    }
    // One word too far, since the first word of the target may begin up to three bytes before the row.
    let beyond = start + 4u + source - first;
    let shift = (beyond % 4u) * 8u;
    // What these limits change lies outside the row, and is masked below.
    let low = source_words[max(beyond / 4u, 1u) - 1u];
    let high = source_words[min(beyond / 4u, arrayLength(&source_words) - 1u)];
    var value = low;
    if shift != 0u {
        value = (low >> shift) | (high << (32u - shift));
    }
    var mask = 0xffffffffu;
    if start < first {
        mask <<= (first - start) * 8u;
    }
    if start + 4u > end {
        mask &= 0xffffffffu >> ((start + 4u - end) * 8u);
    }
    if mask == 0xffffffffu {
        atomicStore(&target_words[word], value);
    } else {
        let old = atomicLoad(&target_words[word]);
        atomicXor(&target_words[word], (old ^ value) & mask);
    }
}
