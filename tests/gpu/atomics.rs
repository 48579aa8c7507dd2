//! Atomic operations of several kinds on one word.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::kernel;
use crate::many_threads::on_many_threads;
use tombolo::DeviceBuffer;

cases![
    operations_on_one_word_lose_nothing,
    operations_on_one_word_lose_nothing_on_many_threads,
];

/// What changes nothing beside what counts: a sum is lost where the first is no single step.
const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> signed: array<atomic<i32>>;
@compute @workgroup_size(64) fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var turn = 0u; turn < 200u; turn++) {
        switch group.x & 3u {
            case 0u: { atomicMax(&counts[0], lane & 1u); atomicMin(&counts[1], 0xffffffffu); }
            case 1u: { atomicMax(&signed[0], -1); atomicMin(&signed[1], 0x7fffffff); }
            case 2u: { atomicAdd(&counts[0], 1u); atomicAdd(&counts[1], 1u); }
            default: { atomicAdd(&signed[0], 1); atomicSub(&signed[1], 1); }
        }
    }
}";

fn operations_on_one_word_lose_nothing(f: &Fixture) {
    let kernel = kernel(f, SOURCE);
    let counts: DeviceBuffer<u32> = f.device.buffer(&[1, 7]).unwrap();
    let signed: DeviceBuffer<i32> = f.device.buffer(&[5, -3]).unwrap();
    let launch = kernel
        .launch()
        .buffer("counts", &counts)
        .buffer("signed", &signed);
    launch.workgroups(64).submit().unwrap().wait().unwrap();
    let added = 16 * 64 * 200;
    assert_eq!(counts.read().unwrap(), [1 + added, 7 + added]);
    let added = i32::try_from(added).unwrap();
    assert_eq!(signed.read().unwrap(), [5 + added, -3 - added]);
}

fn operations_on_one_word_lose_nothing_on_many_threads(f: &Fixture) {
    on_many_threads(f, "atomics::operations_on_one_word_lose_nothing");
}
