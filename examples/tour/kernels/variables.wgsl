// Variables of the device: no binding, a name.
struct Record { steps: u32, newest: usm_ptr }

var<storage, read_write> visits: array<atomic<u32>, 4>;
var<storage, read_write> record: Record;
var<storage, read> step: u32;

@compute @workgroup_size(64) fn visit(@builtin(global_invocation_id) id: vec3<u32>) {
    atomicAdd(&visits[id.x % 4u], step);
}

@compute @workgroup_size(1) fn note() {
    record.steps += step;
    record.newest = usm_address(&visits[2]);
}

@compute @workgroup_size(1) fn follow() {
    let newest = usm_u32(record.newest);
    *newest += 1000u;
}
