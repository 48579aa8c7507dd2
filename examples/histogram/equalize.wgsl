// Moves every pixel to the lightness that the table has for it, without changing its hue.

@group(0) @binding(0) var<storage, read_write> pixels: array<u32>;

var<storage, read> tone: array<u32, 256>;

@compute @workgroup_size(256)
fn equalize(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x;
    if at >= arrayLength(&pixels) { return; }
    let pixel = pixels[at];
    let colour = vec3<u32>(pixel & 0xffu, (pixel >> 8u) & 0xffu, (pixel >> 16u) & 0xffu);
    let light = (77u * colour.x + 150u * colour.y + 29u * colour.z) >> 8u;
    let moved = vec3<i32>(colour) + vec3<i32>(i32(tone[light]) - i32(light));
    let out = vec3<u32>(clamp(moved, vec3<i32>(0), vec3<i32>(255)));
    pixels[at] = out.x | (out.y << 8u) | (out.z << 16u) | (pixel & 0xff000000u);
}
