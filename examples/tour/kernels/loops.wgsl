// A million turns: more than some drivers grant a kernel, and they end the loop without a word.

@group(0) @binding(0) var<uniform> turns: vec2<u32>;
@group(0) @binding(1) var<storage, read_write> total: array<u32>;

@compute @workgroup_size(1)
fn main() {
    var sum = 0u;
    for (var y = 0u; y < turns.y; y++) {
        for (var x = 0u; x < turns.x; x++) {
            sum += 1u;
        }
    }
    total[0] = sum;
}
