// The server: a work-group computes one tile of 16×16 pixels for each call.
//
// Numbers are fixed-point, 25 bits behind the point, so that every device, and the host, come to the same pixels.

struct Job {
    // The upper left pixel, and the distance between two.
    left: i32,
    top: i32,
    step: i32,
    // Iterations after which a point counts as inside; at most 255.
    limit: u32,
}

// Iterations of each pixel, a byte each, in rows.
struct Tile {
    words: array<u32, 64>,
}

var<storage, read_write> tiles_served: atomic<u32>;
var<workgroup> tile_words: array<u32, 64>;

// The product of two numbers below 8, with 25 bits behind the point.
fn product(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let middle = ah * bl + (low >> 16u);
    let other = al * bh + (middle & 0xffffu);
    let high = ah * bh + (middle >> 16u) + (other >> 16u);
    return (high << 7u) | (((other << 16u) | (low & 0xffffu)) >> 25u);
}

fn times(a: i32, b: i32) -> i32 {
    let value = i32(product(u32(abs(a)), u32(abs(b))));
    return select(value, -value, (a < 0) != (b < 0));
}

const FOUR = 0x08000000;

fn iterations(x: i32, y: i32, limit: u32) -> u32 {
    var a = 0;
    var b = 0;
    for (var i = 0u; i < limit; i++) {
        let aa = times(a, a);
        let bb = times(b, b);
        if aa + bb > FOUR {
            return i;
        }
        b = 2 * times(a, b) + y;
        a = aa - bb + x;
    }
    return limit;
}

fn tile(lane: u32, job: Job) -> Tile {
    var word = 0u;
    let row = i32(lane / 4u);
    for (var i = 0u; i < 4u; i++) {
        let column = i32(4u * (lane % 4u) + i);
        let found = iterations(job.left + column * job.step, job.top + row * job.step, min(job.limit, 255u));
        word |= found << (8u * i);
    }
    tile_words[lane] = word;
    if lane == 0u {
        atomicAdd(&tiles_served, 1u);
    }
    workgroupBarrier();
    var whole: Tile;
    if lane == 0u {
        for (var i = 0u; i < 64u; i++) {
            whole.words[i] = tile_words[i];
        }
    }
    return whole;
}
