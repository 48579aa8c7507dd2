// A binary tree whose nodes are linked by addresses that Rust knows, too.
struct Node {
    key: u32,
    visits: atomic<u32>,
    left: usm_ptr,
    right: usm_ptr,
}

@group(0) @binding(0) var<uniform> root: usm_ptr;
@group(0) @binding(1) var<storage, read_write> depths: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;

// Each invocation looks for its own number and leaves a mark on every node that it passes.
@compute @workgroup_size(64)
fn search(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&depths) {
        return;
    }
    var p = root;
    var depth = 0u;
    for (var i = 0u; i < 32u; i++) {
        if usm_is_null(p) {
            break;
        }
        let node = usm_Node(p);
        depth += 1u;
        atomicAdd(&node.visits, 1u);
        if node.key == id.x {
            break;
        }
        if id.x < node.key {
            p = node.left;
        } else {
            p = node.right;
        }
    }
    depths[id.x] = depth;
}

// Links the nodes of an arena into a list with the squares as keys.
@compute @workgroup_size(4)
fn link(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let node = usm_Node(usm_add(root, id.x * 24u));
    node.key = id.x * id.x;
    if id.x + 1u < groups.x * 4u {
        node.right = usm_add(root, (id.x + 1u) * 24u);
    } else {
        node.right = usm_null();
    }
}

@compute @workgroup_size(1)
fn total() {
    var p = root;
    var sum = 0u;
    for (var i = 0u; i < 1000u; i++) {
        if usm_is_null(p) {
            break;
        }
        let node = usm_Node(p);
        sum += node.key;
        p = node.right;
    }
    result[0] = sum;
}
