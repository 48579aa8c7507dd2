// Bitonic sort: blocks of 512 keys in memory of work-groups, keys farther apart where they are.
struct Stage { run: u32, distance: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> keys: array<u32>;
@group(0) @binding(2) var<uniform> stage: Stage;
var<workgroup> block: array<u32, 512>;

fn exchange_in_block(i: u32, first: u32, run: u32, distance: u32) {
    let low = 2u * i - (i & (distance - 1u));
    let high = low + distance;
    let a = block[low];
    let b = block[high];
    if (a > b) == (((first + low) & run) == 0u) {
        block[low] = b;
        block[high] = a;
    }
}

// Runs of 512 keys, up and down in turn.
@compute @workgroup_size(256)
fn sort_blocks(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let first = group.x * 512u;
    block[i] = source[first + i];
    block[i + 256u] = source[first + i + 256u];
    for (var run = 2u; run <= 512u; run <<= 1u) {
        for (var distance = run >> 1u; distance > 0u; distance >>= 1u) {
            workgroupBarrier();
            exchange_in_block(i, first, run, distance);
        }
    }
    workgroupBarrier();
    keys[first + i] = block[i];
    keys[first + i + 256u] = block[i + 256u];
}

// The last stages of a run: keys less than 512 apart.
@compute @workgroup_size(256)
fn merge_blocks(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let first = group.x * 512u;
    block[i] = keys[first + i];
    block[i + 256u] = keys[first + i + 256u];
    for (var distance = 256u; distance > 0u; distance >>= 1u) {
        workgroupBarrier();
        exchange_in_block(i, first, stage.run, distance);
    }
    workgroupBarrier();
    keys[first + i] = block[i];
    keys[first + i + 256u] = block[i + 256u];
}

// A stage of keys that are farther apart.
@compute @workgroup_size(256)
fn exchange(@builtin(global_invocation_id) id: vec3<u32>) {
    let low = 2u * id.x - (id.x & (stage.distance - 1u));
    let high = low + stage.distance;
    let a = keys[low];
    let b = keys[high];
    if (a > b) == ((low & stage.run) == 0u) {
        keys[low] = b;
        keys[high] = a;
    }
}
