// The exact median of an N x N window around each pixel, for red, green and blue by themselves.
//
// `N` is a specialization constant that sizes an array in function space: plain WGSL would allow it to
// size arrays in work-group memory only.

override N: u32 = 5;

struct Tile {
    // Size of the whole image.
    image: vec2<u32>,
    // The part of the image that this launch filters.
    corner: vec2<u32>,
    size: vec2<u32>,
    // The part of the image that `src` holds: the tile and its neighbours.
    src_corner: vec2<u32>,
    src_size: vec2<u32>,
}

@group(0) @binding(0) var<storage, read> src: array<u32>;
@group(0) @binding(1) var<storage, read_write> dst: array<u32>;
@group(0) @binding(2) var<uniform> tile: Tile;

fn channels(pixel: u32) -> vec3<u32> {
    return (vec3(pixel) >> vec3(0u, 8u, 16u)) & vec3(255u);
}

// A pixel of the image; outside of it, the nearest one of its border.
fn pixel(at: vec2<i32>) -> u32 {
    let inside = vec2<u32>(clamp(at, vec2(0), vec2<i32>(tile.image) - 1));
    let local = inside - tile.src_corner;
    return src[local.y * tile.src_size.x + local.x];
}

@compute @workgroup_size(16, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= tile.size) {
        return;
    }
    let centre = vec2<i32>(tile.corner + id.xy);

    let radius = i32(N / 2);
    var window: array<u32, N * N>;
    for (var y = 0u; y < N; y++) {
        for (var x = 0u; x < N; x++) {
            let offset = vec2<i32>(vec2(x, y)) - radius;
            window[y * N + x] = pixel(centre + offset);
        }
    }

    // The median is the largest value that no more than half of the window are below. It is found bit
    // by bit, from the top: a bit belongs to it if that stays true with the bit set. This takes
    // 8 * N * N steps whatever the picture, where sorting would take up to N * N * N * N.
    var median = vec3(0u);
    for (var bit = 128u; bit > 0u; bit >>= 1u) {
        let candidate = median | vec3(bit);
        var below = vec3(0u);
        for (var i = 0u; i < N * N; i++) {
            below += select(vec3(0u), vec3(1u), channels(window[i]) < candidate);
        }
        median = select(median, candidate, below <= vec3(N * N / 2));
    }

    let alpha = pixel(centre) & 0xff000000u;
    dst[id.y * tile.size.x + id.x] = alpha | median.x | (median.y << 8u) | (median.z << 16u);
}
