// Each invocation follows its list of nodes by pointers into the shared heap.
struct Node { value: u32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<storage, read> starts: array<usm_ptr>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var p = starts[id.x];
    var sum = 0u;
    for (var i = 0u; i < 2000u; i++) {
        let node = usm_Node(p);
        sum += node.value;
        p = node.next;
    }
    out[id.x] = sum;
}
