// 4 KiB for each invocation, filled with numbers that then say where to go on.
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var table: array<u32, 1024>;
    var x = id.x * 747796405u + 1u;
    for (var i = 0u; i < 1024u; i++) {
        x = x * 1664525u + 1013904223u;
        table[i] = x;
    }
    var at = id.x & 1023u;
    var sum = 0u;
    for (var i = 0u; i < 1024u; i++) {
        let value = table[at];
        sum += value;
        at = (value >> 10u) & 1023u;
    }
    out[id.x] = sum;
}
