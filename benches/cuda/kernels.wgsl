// The kernels beside CUDA's: each invocation does what a thread of the kernel of the same name in peer.cu does.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> steps: array<u32>;

const EDGE = 2048u; // of the matrices
const PIXELS = 4096u; // of a side of the picture
const GROUP = 256u;

@compute @workgroup_size(GROUP)
fn saxpy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = (id.y * groups.x * GROUP) + id.x;
    if i < arrayLength(&out) { out[i] = 1.5 * x[i] + out[i]; }
}

var<workgroup> part: array<f32, GROUP>;

// One sum for each work-group, by halves.
@compute @workgroup_size(GROUP)
fn reduce(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let w = group.y * groups.x + group.x;
    part[i] = x[w * GROUP + i];
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        if i < half { part[i] += part[i + half]; }
        workgroupBarrier();
    }
    if i == 0u { out[w] = part[0]; }
}

var<workgroup> tile_x: array<f32, 256>;
var<workgroup> tile_y: array<f32, 256>;

// In tiles of 16 x 16.
@compute @workgroup_size(16, 16)
fn matmul(@builtin(local_invocation_id) l: vec3<u32>, @builtin(workgroup_id) w: vec3<u32>) {
    let row = w.y * 16u + l.y;
    let column = w.x * 16u + l.x;
    var sum = 0.0;
    for (var t = 0u; t < EDGE / 16u; t++) {
        tile_x[l.y * 16u + l.x] = x[row * EDGE + t * 16u + l.x];
        tile_y[l.y * 16u + l.x] = y[(t * 16u + l.y) * EDGE + column];
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) { sum += tile_x[l.y * 16u + k] * tile_y[k * 16u + l.x]; }
        workgroupBarrier();
    }
    out[row * EDGE + column] = sum;
}

@compute @workgroup_size(16, 16)
fn mandelbrot(@builtin(global_invocation_id) id: vec3<u32>) {
    let side = f32(PIXELS);
    let c = vec2(f32(id.x) / side * 3.0 - 2.0, f32(id.y) / side * 2.0 - 1.0);
    var z = vec2(0.0);
    var k = 0u;
    while k < 256u && dot(z, z) <= 4.0 {
        z = vec2(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        k++;
    }
    steps[id.y * PIXELS + id.x] = k;
}
