// The lists of chase.wgsl in plain WGSL: nodes are linked by indices.
struct Node { value: u32, next: u32 }
@group(0) @binding(0) var<storage, read> nodes: array<Node>;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var at = starts[id.x];
    var sum = 0u;
    for (var i = 0u; i < 2000u; i++) {
        let node = nodes[at];
        sum += node.value;
        at = node.next;
    }
    out[id.x] = sum;
}
