//! Memory that transfers go through: small ones make none, whatever came before, and large ones keep within a budget.

use crate::cases;
use crate::harness::Fixture;
use crate::pointers::kernel;
use tombolo::{
    Buffer, Device, DeviceBuffer, DeviceGlobal,
    buffers::Placement,
    device::{Aspect, LoopGuardPolicy},
};

cases![
    small_transfers_make_no_memory_whatever_came_before,
    small_transfers_of_context_buffers_make_none_either,
    odd_bytes_make_no_memory,
    several_reads_in_flight_have_memory_of_their_own,
    a_change_of_sizes_does_not_fill_the_budget_for_good,
    staging_memory_is_given_back,
    large_buffers_go_both_ways,
    statuses_and_timestamps_use_their_memory_again,
];

const MIB: usize = 1 << 20;
/// What is kept at most.
const BUDGET: u64 = 64 << 20;

fn made(device: &Device) -> u64 {
    device.transfer_statistics().staging_made
}

/// What a program does with 4 KiB all the time.
fn small_round(device: &Device, buffer: &DeviceBuffer<u32>, round: u32) {
    buffer.write(0, &[round; 1000]).unwrap();
    buffer.write(1001, &[round + 1; 3]).unwrap();
    let seen = buffer.read().unwrap();
    assert_eq!((seen[0], seen[999], seen[1001]), (round, round, round + 1));
    assert_eq!(buffer.read_range(1..3).unwrap(), [round; 2]);
    let back = buffer.read_back(..).unwrap();
    device.finish().unwrap();
    assert_eq!(back.wait().unwrap().len(), 1024);
}

fn small_transfers_make_no_memory_whatever_came_before(f: &Fixture) {
    let device = f.open(|_| {});
    let small: DeviceBuffer<u32> = device.zeroed(1024).unwrap();
    // The first round makes what all others use.
    for round in 0..3 {
        small_round(&device, &small, round);
    }
    for megabytes in [1, 8, 63, 65, 130] {
        let large: DeviceBuffer<u8> = device.zeroed(megabytes * MIB).unwrap();
        large.write(0, &vec![7u8; megabytes * MIB]).unwrap();
        assert!(large.read().unwrap() == vec![7; megabytes * MIB]);
        let before = made(&device);
        for round in 0..20 {
            small_round(&device, &small, round);
        }
        assert_eq!(made(&device), before, "after {megabytes} MiB");
    }
    assert!(device.transfer_statistics().staging_kept <= 2 * (BUDGET + (16 << 20)) + (16 << 20));
}

fn small_transfers_of_context_buffers_make_none_either(f: &Fixture) {
    static VALUE: DeviceGlobal<[u32; 64]> = DeviceGlobal::new("staging_memory_value");
    let device = f.open(|_| {});
    let small: Buffer<u32> = f.context.buffer_with(1000, Placement::Device).unwrap();
    let round = |i: u32| {
        small.write(3, &[i; 500]).unwrap();
        small.prefetch(&device).unwrap().wait().unwrap();
        small.fill(i + 1, 0..2).unwrap();
        let seen = small.read().unwrap();
        assert_eq!((seen[0], seen[3], seen[502]), (i + 1, i, i));
        let on = VALUE.on(&device);
        on.write(&[i; 64]).unwrap().wait().unwrap();
        assert_eq!(on.read().unwrap(), [i; 64]);
    };
    for i in 0..3 {
        round(i);
    }
    for megabytes in [9, 70, 100] {
        let large = f
            .context
            .buffer_from_vec(vec![5u8; megabytes * MIB])
            .unwrap();
        large.prefetch(&device).unwrap().wait().unwrap();
        large.fill(6, ..).unwrap();
        assert!(large.read().unwrap() == vec![6; megabytes * MIB]);
        drop(large);
        let before = made(&device);
        for i in 0..20 {
            round(i);
        }
        assert_eq!(made(&device), before, "after {megabytes} MiB");
    }
}

fn odd_bytes_make_no_memory(f: &Fixture) {
    let device = f.open(|_| {});
    let (a, b) = (
        device.buffer(&[1u8; 1000]).unwrap(),
        device.buffer(&[2u8; 1000]).unwrap(),
    );
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc_slice(&[3u8; 1000]).unwrap();
    let round = || {
        a.write(1, &[4; 33]).unwrap();
        a.fill(5, 101..106).unwrap();
        a.copy_to(3, &b, 500, 101).unwrap();
        b.copy_to(1, &b, 700, 9).unwrap();
        a.copy_to_heap(7, ptr.byte_add(2), 31).unwrap();
        device.heap_copy(ptr, ptr.byte_add(501), 30).unwrap();
        a.copy_from_heap(201, ptr.byte_add(1), 7).unwrap();
        device.finish().unwrap();
    };
    for _ in 0..3 {
        round();
    }
    let before = made(&device);
    for _ in 0..50 {
        round();
    }
    assert_eq!(made(&device), before);
    let mut wanted = vec![1u8; 1000];
    wanted[1..34].fill(4);
    wanted[101..106].fill(5);
    wanted[201] = 3;
    wanted[202..208].fill(4);
    assert_eq!(a.read().unwrap(), wanted);
    heap.free(ptr).unwrap();
}

fn several_reads_in_flight_have_memory_of_their_own(f: &Fixture) {
    let device = f.open(|_| {});
    let buffers: Vec<DeviceBuffer<u32>> = (0..12u32)
        .map(|i| device.buffer(&vec![i; 2000]).unwrap())
        .collect();
    device.finish().unwrap();
    let before = made(&device);
    for _ in 0..5 {
        let backs: Vec<_> = buffers.iter().map(|b| b.read_back(..).unwrap()).collect();
        for (i, back) in backs.into_iter().enumerate().rev() {
            assert_eq!(back.wait().unwrap(), vec![i as u32; 2000]);
        }
    }
    let all = made(&device) - before;
    assert!((1..=12).contains(&all), "{all}");
}

fn a_change_of_sizes_does_not_fill_the_budget_for_good(f: &Fixture) {
    let device = f.open(|_| {});
    let buffer: DeviceBuffer<u8> = device.zeroed(48 * MIB).unwrap();
    let read = |megabytes: usize| {
        let seen = buffer.read_range(..(megabytes * MIB) as u64).unwrap();
        assert_eq!(seen.len(), megabytes * MIB);
    };
    for megabytes in [2, 3, 5, 7, 12, 20] {
        read(megabytes);
    }
    // The budget is full; what is asked for now has its place all the same.
    read(40);
    let before = made(&device);
    for _ in 0..5 {
        read(40);
    }
    assert_eq!(made(&device), before);
    assert!(device.transfer_statistics().staging_kept <= BUDGET + (16 << 20) + BUDGET);
}

fn staging_memory_is_given_back(f: &Fixture) {
    let device = f.open(|_| {});
    let buffer = device.buffer(&vec![9u8; 3 * MIB]).unwrap();
    buffer.read().unwrap();
    device.finish().unwrap();
    assert!(device.transfer_statistics().staging_kept >= 6 << 20);
    device.trim_caches();
    assert_eq!(device.transfer_statistics().staging_kept, 0);
    assert!(buffer.read().unwrap().iter().all(|byte| *byte == 9));
}

fn large_buffers_go_both_ways(f: &Fixture) {
    let words = 40 * MIB / 4 + 3;
    let values: Vec<u32> = (0..words as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let device = f.open(|_| {});
    let one = device.buffer(&values).unwrap();
    assert!(one.read().unwrap() == values);
    let shared = f.context.buffer_from(&values).unwrap();
    shared.migrate(&device).unwrap();
    assert!(shared.read().unwrap() == values);
    // A part that begins inside a piece of a transfer and inside a word.
    let bytes: Buffer<u8> = shared.cast().unwrap();
    let range = 8 * MIB as u64 - 3..17 * MIB as u64 + 1;
    let part = bytes.read_range(range.clone()).unwrap();
    let all: &[u8] = bytemuck::cast_slice(&values);
    assert!(part == all[range.start as usize..range.end as usize]);
}

/// A kernel that can fail has a status record, which a device without live memory copies to the host, and so it does
/// the timestamps of a profiled launch: each batch takes memory for each of both, and the next batch the same memory.
fn statuses_and_timestamps_use_their_memory_again(f: &Fixture) {
    let device = f.open(|options| {
        options.live_memory = false;
        options.loop_guard = LoopGuardPolicy::Budget(1 << 16);
    });
    let add = kernel(
        &device,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(1) fn main() {
            for (var i = 0u; i < data[1]; i += 1u) { data[0] += 1u; }
        }",
    );
    let data = device.buffer(&[0u32, 5]).unwrap();
    let is_timed = device.has(Aspect::TimestampQueries);
    let launch = add.launch().buffer("data", &data).workgroups(1);
    let mut launch = if is_timed { launch.profiled() } else { launch };
    let mut round = || {
        let event = launch.submit().unwrap();
        event.wait().unwrap();
        if is_timed {
            event.gpu_time().unwrap();
        }
    };
    for _ in 0..3 {
        round();
    }
    let before = device.transfer_statistics();
    for _ in 0..10 {
        round();
    }
    let after = device.transfer_statistics();
    assert_eq!(after.staging_made, before.staging_made);
    let copies = 10 * (1 + u64::from(is_timed));
    assert_eq!(after.staging_reused - before.staging_reused, copies);
    assert_eq!(data.read().unwrap(), [13 * 5, 5]);
}
