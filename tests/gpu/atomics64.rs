//! Atomics of 64 bits in buffers, in work-group memory and on the host, against computations by Rust. Adapters without
//! them say so.

use std::sync::atomic::Ordering;

use crate::cases;
use crate::harness::Fixture;
use crate::pointer_atomics64::{kernel, numbers};
use tombolo::heap::HeapError;

cases![
    arguments_beside_pointers,
    in_buffers,
    in_work_groups,
    views_of_the_host,
];

fn arguments_beside_pointers(f: &Fixture) {
    let text = "
        alias Sum = atomic<u64>;
        @group(0) @binding(0) var<uniform> total: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> sums: array<atomic<u64>>;
        fn add(to: ptr<storage, array<atomic<u64>>, read_write>, i: u32, n: u64) { atomicAdd(&to[i], n); }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let n = u64(id.x) << 30u;
            add(&sums, id.x % 3u, n);
            if id.x == 0u { atomicStore(&sums[3], u64(arrayLength(&sums))); }
            atomicMax(usm_Sum(total), n);
        }";
    let Some(kernel) = kernel(&f.device, text, "atomicAdd") else {
        return;
    };
    let heap = f.context.heap().unwrap();
    let total = heap.alloc(1u64).unwrap();
    let sums = heap.alloc_slice(&[7u64; 8]).unwrap();
    let expected = |len: u64| {
        let of = |bin: u64| 7 + (0..256u64).filter(|n| n % 3 == bin).sum::<u64>() * (1 << 30);
        [of(0), of(1), of(2), len]
    };
    // In the heap, where the second word is at a multiple of 8 and not of 16.
    let mut launch = kernel.launch();
    launch = launch
        .value("total", &total)
        .pointer("sums", sums.add(1), 5);
    launch.invocations(256).submit().unwrap();
    let found = heap.read(sums, 8).unwrap();
    assert_eq!((found[0], &found[1..5]), (7, &expected(5)[..]));
    assert_eq!(found[5..], [7; 3]);
    assert_eq!(heap.read(total, 1).unwrap(), [255 << 30]);
    // In a buffer of the device.
    let buffer = f.device.buffer(&[7u64; 4]).unwrap();
    let launch = kernel.launch().value("total", &total);
    let mut launch = launch.buffer("sums", &buffer).invocations(256);
    launch.submit().unwrap();
    assert_eq!(buffer.read().unwrap(), expected(4));
    heap.free(total).unwrap();
    heap.free(sums).unwrap();
}

fn in_buffers(f: &Fixture) {
    const N: usize = 4096;
    let text = "
        @group(0) @binding(0) var<storage, read_write> bins: array<atomic<u64>>;
        @group(0) @binding(1) var<storage, read> numbers: array<u64>;
        @group(0) @binding(2) var<storage, read_write> least: atomic<i64>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let number = numbers[id.x];
            atomicAdd(&bins[u32(number & 15lu)], number);
            atomicMin(&least, -i64(number));
        }";
    let Some(kernel) = kernel(&f.device, text, "atomicAdd") else {
        return;
    };
    let numbers = numbers(N);
    let mut expected = vec![5u64; 17];
    for number in &numbers {
        expected[(number & 15) as usize] += number;
    }
    let bins = f.device.buffer(&[5u64; 17]).unwrap();
    let least = f.device.buffer(&[i64::MAX]).unwrap();
    let given = f.device.buffer(&numbers).unwrap();
    kernel
        .launch()
        .buffer("bins", &bins)
        .buffer("numbers", &given)
        .buffer("least", &least)
        .invocations(N as u32)
        .submit()
        .unwrap();
    assert_eq!(bins.read().unwrap(), expected);
    let most = numbers.iter().max().copied().unwrap_or(0);
    assert_eq!(least.read().unwrap(), [-(most as i64)]);
}

fn in_work_groups(f: &Fixture) {
    let text = "
        var<workgroup> sum: atomic<u64>;
        var<workgroup> most: atomic<i64>;
        @group(0) @binding(0) var<storage, read_write> sums: array<u64>;
        @group(0) @binding(1) var<storage, read_write> mosts: array<i64>;
        @compute @workgroup_size(64) fn main(
            @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) i: u32,
            @builtin(workgroup_id) group: vec3<u32>,
        ) {
            if i == 0u { atomicStore(&most, -0x7000000000000000li); }
            workgroupBarrier();
            atomicAdd(&sum, u64(id.x) << 32u);
            atomicMax(&most, -(i64(id.x) << 33u));
            workgroupBarrier();
            if i == 0u {
                sums[group.x] = atomicLoad(&sum);
                mosts[group.x] = atomicLoad(&most);
            }
        }";
    let Some(kernel) = kernel(&f.device, text, "atomicStore") else {
        return;
    };
    let sums = f.device.buffer(&[u64::MAX; 4]).unwrap();
    let mosts = f.device.buffer(&[i64::MAX; 4]).unwrap();
    let launch = kernel.launch().buffer("sums", &sums);
    let mut launch = launch.buffer("mosts", &mosts).workgroups(4);
    launch.submit().unwrap();
    let groups = [0u64, 1, 2, 3];
    let sum = |group: u64| (group * 64..(group + 1) * 64).sum::<u64>() << 32;
    assert_eq!(sums.read().unwrap(), groups.map(sum));
    let most = |group: u64| -((group as i64 * 64) << 33);
    assert_eq!(mosts.read().unwrap(), groups.map(most));
}

fn views_of_the_host(f: &Fixture) {
    let text = "
        alias Sum = atomic<u64>;
        @group(0) @binding(0) var<uniform> sum: usm_ptr;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            atomicAdd(usm_Sum(sum), u64(id.x) << 30u);
        }";
    let heap = f.context.heap().unwrap();
    let sum = heap.alloc(u64::from(u32::MAX)).unwrap();
    let Some(kernel) = kernel(&f.device, text, "atomicAdd") else {
        // The host's side has them on every device.
        let view = heap.atomic_u64(sum).unwrap();
        assert_eq!(view.fetch_add(1, Ordering::Relaxed), u64::from(u32::MAX));
        drop(view);
        heap.free(sum).unwrap();
        return;
    };
    let view = heap.atomic_u64(sum).unwrap();
    assert!(matches!(
        heap.atomic_u32(sum.cast::<u32>()),
        Err(HeapError::AtomicView { .. })
    ));
    view.fetch_add(1 << 40, Ordering::Relaxed);
    let mut launch = kernel.launch().value("sum", &sum).invocations(128);
    let found = launch.submit();
    let all = u64::from(u32::MAX) + (1 << 40) + ((0..128u64).sum::<u64>() << 30);
    match found {
        Ok(event) => {
            event.wait().unwrap();
            assert_eq!(view.load(Ordering::Acquire), all);
        }
        // A device that works on a copy is not launched beside a view.
        Err(error) => assert!(!f.device.capabilities().unified_memory, "{error}"),
    }
    drop(view);
    heap.free(sum).unwrap();
}
