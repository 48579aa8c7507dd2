// Three stages that make a drawing of a picture, in whole numbers. A pixel is a word: red in the lowest byte.

struct Size { width: u32, height: u32 }

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read> lines: array<u32>;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
@group(0) @binding(3) var<uniform> size: Size;

// The place of a pixel; outside the picture, of the nearest one inside.
fn place(x: i32, y: i32) -> u32 {
    let inside = clamp(vec2(x, y), vec2(0i), vec2(i32(size.width), i32(size.height)) - 1);
    return u32(inside.y) * size.width + u32(inside.x);
}

fn colour(pixel: u32) -> vec3<u32> {
    return vec3(pixel, pixel >> 8u, pixel >> 16u) & vec3(255u);
}

fn pixel(colour: vec3<u32>) -> u32 {
    return colour.x | colour.y << 8u | colour.z << 16u | 255u << 24u;
}

// The first stage, `source` to `sink`: the grain goes.
@compute @workgroup_size(16, 16)
fn smooth_out(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= size.width || id.y >= size.height { return; }
    const WEIGHTS = array(1u, 4u, 6u, 4u, 1u);
    var weights = WEIGHTS;
    var sum = vec3(0u);
    for (var dy = 0; dy < 5; dy++) {
        for (var dx = 0; dx < 5; dx++) {
            let near = source[place(i32(id.x) + dx - 2, i32(id.y) + dy - 2)];
            sum += weights[dx] * weights[dy] * colour(near);
        }
    }
    sink[id.y * size.width + id.x] = pixel((sum + 128u) / 256u);
}

fn light(x: i32, y: i32) -> i32 {
    return i32(dot(colour(source[place(x, y)]), vec3(77u, 150u, 29u)) / 256u);
}

// The second stage, `source` to `sink`: how steep the picture is, 0 to 255, as Sobel has it.
@compute @workgroup_size(16, 16)
fn trace(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= size.width || id.y >= size.height { return; }
    let x = i32(id.x);
    let y = i32(id.y);
    let across = light(x + 1, y - 1) + 2 * light(x + 1, y) + light(x + 1, y + 1)
        - light(x - 1, y - 1) - 2 * light(x - 1, y) - light(x - 1, y + 1);
    let down = light(x - 1, y + 1) + 2 * light(x, y + 1) + light(x + 1, y + 1)
        - light(x - 1, y - 1) - 2 * light(x, y - 1) - light(x + 1, y - 1);
    sink[id.y * size.width + id.x] = u32(min(abs(across) + abs(down), 255));
}

// The third stage, `source` and `lines` to `sink`: few colours, and dark lines between them.
@compute @workgroup_size(16, 16)
fn draw(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= size.width || id.y >= size.height { return; }
    let here = id.y * size.width + id.x;
    let flat = (colour(source[here]) + 16u) / 32u * 32u;
    let paper = 255u - min(lines[here] * 2u, 255u);
    sink[here] = pixel(min(flat, vec3(255u)) * paper / 255u);
}
