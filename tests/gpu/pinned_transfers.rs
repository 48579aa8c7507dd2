//! Transfers that own their pinned vector, and give it back with the end.

use std::thread;
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, Error, Kernel, Program,
    buffers::{MemoryError, PinnedTransfer, PinnedVec, ReadError},
    device::EventStatus,
};

cases![
    vectors_come_back_with_their_values,
    transfers_keep_the_order_of_commands,
    several_are_on_their_way,
    they_are_awaited_polled_and_taken_once,
    dropped_transfers_are_made_all_the_same,
    small_ones_after_large_ones,
    bytes_that_are_no_words_go_as_well,
    devices_without_import_stage_them,
    refusals_give_the_vector_back,
    failures_give_the_vector_back,
    a_lost_device_keeps_nobody_waiting,
    threads_and_devices_share_nothing,
];

const LEN: usize = (4 << 20) / 4 + 1031;
const POISON: u32 = 0xdead_beef;
const DEADLINE: Duration = Duration::from_secs(60);

fn noise(len: usize, seed: u32) -> Vec<u32> {
    let mix = |i: u32| (i ^ seed).wrapping_mul(0x9e37_79b1) ^ (i >> 7);
    (0..len as u32).map(mix).collect()
}

fn pinned(f: &Fixture, values: &[u32]) -> PinnedVec<u32> {
    let mut vector = f.context.pinned_vec::<u32>(values.len()).unwrap();
    vector.copy_from_slice(values);
    vector
}

/// `x * 3 + 1` for every element.
fn kernel(device: &Device) -> Kernel {
    let program = Program::new(
        "add.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>,
            @builtin(num_workgroups) groups: vec3<u32>) {
            for (var i = id.x; i < arrayLength(&data); i += groups.x * 64u) { data[i] = data[i] * 3u + 1u; }
         }",
    );
    device
        .kernel(&program.unwrap(), "add", &Constants::new())
        .unwrap()
}

fn add(kernel: &Kernel, data: &DeviceBuffer<u32>) {
    let launch = kernel.launch().buffer("data", data);
    launch.workgroups(256).submit().unwrap();
}

fn added(model: &mut [u32]) {
    for value in model {
        *value = value.wrapping_mul(3).wrapping_add(1);
    }
}

fn vectors_come_back_with_their_values(f: &Fixture) {
    let device = f.open(|_| {});
    let values = noise(LEN, 1);
    let mut vector = pinned(f, &values);
    let imports = vector.import(&device).is_ok();
    let buffer = device.buffer(&vec![POISON; LEN + 2]).unwrap();
    device.finish().unwrap();
    let before = device.transfer_statistics().pinned_bytes;
    vector = buffer.write_pinned(1, vector, ..).unwrap().wait().unwrap();
    assert!(*vector == values);
    let all = buffer.read().unwrap();
    assert!(all[1..=LEN] == values);
    assert_eq!((all[0], all[LEN + 1]), (POISON, POISON));
    // Of any part, to any place.
    for (at, from, len) in [
        (0, 1, LEN),
        (5, 1, 1),
        (LEN - 3, 2, 3),
        (7, LEN - 90, 92),
        (3, 5, 0),
    ] {
        vector.fill(POISON);
        let range = at as u64..(at + len) as u64;
        let read = buffer
            .read_pinned(from as u64, vector, range.clone())
            .unwrap();
        vector = read.wait().unwrap();
        let mut model = vec![POISON; LEN];
        model[at..at + len].copy_from_slice(&all[from..from + len]);
        assert!(*vector == model, "{at} {from} {len}");
        vector[at..at + len].reverse();
        let written = buffer.write_pinned(from as u64, vector, range).unwrap();
        vector = written.wait().unwrap();
        let mut model = all.clone();
        model[from..from + len].reverse();
        assert!(buffer.read().unwrap() == model, "{at} {from} {len}");
        buffer.write(0, &all).unwrap();
    }
    let moved = device.transfer_statistics().pinned_bytes - before;
    let least = (LEN + 2 * (LEN + 1 + 3 + 92)) as u64 * 4;
    assert_eq!(moved >= least, imports, "{moved} of {least}");
    let none = f.context.pinned_vec::<u32>(0).unwrap();
    let none = buffer.write_pinned(3, none, ..).unwrap().wait().unwrap();
    let none = buffer.read_pinned(3, none, ..).unwrap().wait().unwrap();
    assert!(none.is_empty());
}

fn transfers_keep_the_order_of_commands(f: &Fixture) {
    let device = f.open(|_| {});
    let kernel = kernel(&device);
    let buffer = device.zeroed::<u32>(LEN).unwrap();
    let mut vector = pinned(f, &noise(LEN, 2));
    let mut out = f.context.pinned_vec::<u32>(LEN).unwrap();
    for round in 0..4u32 {
        let mut model = vector.to_vec();
        buffer.fill(POISON, ..LEN as u64).unwrap();
        let written = buffer.write_pinned(0, vector, ..).unwrap();
        add(&kernel, &buffer);
        added(&mut model);
        out.fill(POISON);
        let read = buffer.read_pinned(0, out, ..).unwrap();
        // Behind the read.
        buffer.fill(round, 2..500).unwrap();
        add(&kernel, &buffer);
        device.after(&[written.event(), read.event()]).unwrap();
        out = read.wait().unwrap();
        assert!(*out == model, "{round}");
        vector = written.wait().unwrap();
        model[2..500].fill(round);
        added(&mut model);
        assert!(buffer.read().unwrap() == model, "{round}");
        vector[round as usize] = 7;
    }
}

fn several_are_on_their_way(f: &Fixture) {
    let device = f.open(|_| {});
    let kernel = kernel(&device);
    let buffers: Vec<_> = (0..6)
        .map(|_| device.buffer(&vec![POISON; 5000]).unwrap())
        .collect();
    let models: Vec<_> = (0..6).map(|i| noise(5000, 30 + i)).collect();
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    for (buffer, model) in buffers.iter().zip(&models) {
        writes.push(buffer.write_pinned(0, pinned(f, model), ..).unwrap());
        add(&kernel, buffer);
        let out = pinned(f, &vec![POISON; 5000]);
        reads.push(buffer.read_pinned(0, out, ..).unwrap());
    }
    // The last ones first.
    for (read, model) in reads.into_iter().zip(&models).rev() {
        let mut model = model.clone();
        added(&mut model);
        assert!(*read.wait().unwrap() == model);
    }
    for (write, model) in writes.into_iter().zip(&models) {
        assert!(*write.wait().unwrap() == *model);
    }
}

fn they_are_awaited_polled_and_taken_once(f: &Fixture) {
    let device = f.open(|_| {});
    let values = noise(LEN, 3);
    let buffer = device.buffer(&vec![POISON; LEN]).unwrap();
    let written = buffer.write_pinned(0, pinned(f, &values), ..).unwrap();
    let mut vector = pollster::block_on(written).unwrap();
    vector.fill(POISON);
    let mut read = buffer.read_pinned(0, vector, ..).unwrap();
    let begun = Instant::now();
    let vector = loop {
        if let Some(vector) = read.try_take().unwrap() {
            break vector;
        }
        assert!(begun.elapsed() < DEADLINE, "the read never ended");
        thread::yield_now();
    };
    assert!(*vector == values);
    assert_eq!(read.event().status(), EventStatus::Complete);
    let taken = read.wait_timeout(DEADLINE).unwrap_err();
    assert!(matches!(taken.error, ReadError::Taken) && taken.values.is_none());
    assert!(matches!(
        read.try_take().unwrap_err().error,
        ReadError::Taken
    ));
    let mut read = buffer.read_pinned(0, vector, 3..7).unwrap();
    let vector = read.wait_timeout(DEADLINE).unwrap();
    let reads: Vec<_> = (0..4)
        .map(|i| buffer.read_pinned(i, pinned(f, &[POISON; 50]), ..).unwrap())
        .collect();
    let all = pollster::block_on(futures::future::join_all(reads));
    for (i, part) in all.into_iter().enumerate() {
        assert_eq!(part.unwrap()[..], values[i..i + 50]);
    }
    assert_eq!(vector[3..7], values[..4]);
}

fn dropped_transfers_are_made_all_the_same(f: &Fixture) {
    let device = f.open(|_| {});
    let kernel = kernel(&device);
    for round in 0..4u32 {
        let values = noise(LEN, 40 + round);
        let buffer = device.buffer(&vec![POISON; LEN]).unwrap();
        add(&kernel, &buffer);
        // Recorded behind the launch, and its vector gone before anything is submitted for sure.
        drop(buffer.write_pinned(0, pinned(f, &values), ..).unwrap());
        // New vectors may get the addresses of those before.
        let other = pinned(f, &vec![round; LEN]);
        drop(buffer.read_pinned(0, pinned(f, &[1; 100]), 50..).unwrap());
        let read = buffer.read_pinned(0, other, ..).unwrap();
        assert!(*read.wait().unwrap() == values, "{round}");
        // The buffer and the vector go while the device reads them.
        drop(buffer.read_pinned(0, pinned(f, &values), ..).unwrap());
    }
    // The device goes as well.
    let buffer = device.buffer(&vec![POISON; LEN]).unwrap();
    let write = buffer
        .write_pinned(0, pinned(f, &noise(LEN, 5)), ..)
        .unwrap();
    drop((buffer, kernel, device));
    assert!(*write.wait().unwrap() == noise(LEN, 5));
}

fn small_ones_after_large_ones(f: &Fixture) {
    let device = f.open(|_| {});
    // More than one piece of a staged transfer.
    let len = (17 << 20) / 4 + 5;
    let buffer = device.zeroed::<u32>(len).unwrap();
    let mut model = vec![0; len];
    let mut vector = f.context.pinned_vec::<u32>(len).unwrap();
    for round in 0..2u32 {
        for count in [len, 3, 1000, 1, len - 7] {
            let values = noise(count, round + count as u32);
            vector[..count].copy_from_slice(&values);
            let at = len - count;
            let write = buffer.write_pinned(at as u64, vector, ..count as u64);
            vector = write.unwrap().wait().unwrap();
            model[at..].copy_from_slice(&values);
            vector.fill(POISON);
            let read = buffer.read_pinned(at as u64, vector, ..count as u64);
            vector = read.unwrap().wait().unwrap();
            assert!(vector[..count] == values, "{count}");
            assert!(vector[count..].iter().all(|value| *value == POISON));
        }
    }
    assert!(buffer.read().unwrap() == model);
}

fn bytes_that_are_no_words_go_as_well(f: &Fixture) {
    let device = f.open(|_| {});
    let values: Vec<u8> = bytemuck::cast_slice(&noise(2000, 6)).to_vec();
    for (at, start, len) in [
        (0usize, 1usize, 4000usize),
        (3, 0, 17),
        (2, 2, 4),
        (1, 5, 1),
    ] {
        let mut vector = f.context.pinned_vec::<u8>(8000).unwrap();
        vector.copy_from_slice(&values);
        let buffer = device.buffer(&[0xddu8; 8003]).unwrap();
        let range = at as u64..(at + len) as u64;
        let write = buffer.write_pinned(start as u64, vector, range.clone());
        let mut vector = write.unwrap().wait().unwrap();
        let mut model = vec![0xdd; 8003];
        model[start..start + len].copy_from_slice(&values[at..at + len]);
        assert!(buffer.read().unwrap() == model, "{at} {start} {len}");
        vector.fill(0xee);
        let read = buffer.read_pinned(start as u64, vector, range);
        let vector = read.unwrap().wait().unwrap();
        let mut model = vec![0xee; 8000];
        model[at..at + len].copy_from_slice(&values[at..at + len]);
        assert!(*vector == model, "{at} {start} {len}");
    }
}

fn devices_without_import_stage_them(f: &Fixture) {
    let device = f.open(|options| options.import_host_memory = false);
    let values = noise(LEN, 7);
    let buffer = device.buffer(&vec![POISON; LEN]).unwrap();
    let written = buffer.write_pinned(0, pinned(f, &values), ..).unwrap();
    let mut vector = written.wait().unwrap();
    vector.fill(POISON);
    let read = buffer.read_pinned(2, vector, 1..LEN as u64 - 1).unwrap();
    // Behind the read.
    buffer.fill(1, ..LEN as u64).unwrap();
    let vector = pollster::block_on(read).unwrap();
    assert!(vector[1..LEN - 1] == values[2..]);
    assert_eq!((vector[0], vector[LEN - 1]), (POISON, POISON));
    drop(buffer.read_pinned(0, vector, ..).unwrap());
    assert!(buffer.read().unwrap() == vec![1; LEN]);
}

fn refusals_give_the_vector_back(f: &Fixture) {
    let buffer = f.device.buffer(&[4u32; 10]).unwrap();
    let mut vector = pinned(f, &[5; 8]);
    let address = vector.as_ptr();
    type Start = fn(
        &DeviceBuffer<u32>,
        u64,
        PinnedVec<u32>,
        std::ops::Range<u64>,
    ) -> Result<PinnedTransfer<u32>, tombolo::buffers::PinnedError<u32>>;
    let starts: [Start; 2] = [
        |buffer, at, vector, range| buffer.write_pinned(at, vector, range),
        |buffer, at, vector, range| buffer.read_pinned(at, vector, range),
    ];
    for start in starts {
        for (at, range, len) in [
            (3, 0..8, 10),
            (0, 2..9, 8),
            (u64::MAX, 0..1, 10),
            (0, 5..9, 8),
        ] {
            let refused = start(&buffer, at, vector, range).unwrap_err();
            let wanted = len;
            assert!(
                matches!(
                    refused.error,
                    ReadError::Memory(MemoryError::OutOfRange { len, .. }) if len == wanted
                ),
                "{refused}"
            );
            vector = refused.values.unwrap();
            assert!(vector.as_ptr() == address && *vector == [5; 8]);
        }
    }
    let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 40,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let imported = f.device.import::<u32>(raw).unwrap();
    let refused = imported.read_pinned(0, vector, ..).unwrap_err();
    assert!(matches!(
        refused.error,
        ReadError::Memory(MemoryError::MissingUsage { .. })
    ));
    let vector = refused.values.unwrap();
    let vector = imported
        .write_pinned(0, vector, ..)
        .unwrap()
        .wait()
        .unwrap();
    // The error is one of the crate's.
    let error: Error = buffer.write_pinned(9, vector, ..).unwrap_err().into();
    assert!(matches!(error, Error::Read(_)), "{error}");
    assert_eq!(buffer.read().unwrap(), [4; 10]);
}

fn failures_give_the_vector_back(f: &Fixture) {
    let program = Program::new(
        "fail.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn fail() { data[0] = 1u; assert(data[1] == 7u, \"no seven\"); }",
    )
    .unwrap();
    for imports in [true, false] {
        let device = f.open(|options| options.import_host_memory = imports);
        let kernel = device.kernel(&program, "fail", &Constants::new()).unwrap();
        let buffer = device.buffer(&vec![4u32; 2000]).unwrap();
        let launch = kernel.launch().buffer("data", buffer.slice(10..20));
        launch.workgroups(1).submit().unwrap();
        let read = buffer
            .read_pinned(0, pinned(f, &[POISON; 100]), ..)
            .unwrap();
        let failed = read.wait().unwrap_err();
        assert!(failed.to_string().contains("no seven"), "{failed}");
        assert!(matches!(failed.error, ReadError::Execution(_)));
        let vector = failed.values.unwrap();
        // Beside the failure, and over it.
        let read = buffer.read_pinned(20, vector, ..).unwrap();
        let vector = read.wait().unwrap();
        assert_eq!(*vector, [4; 100]);
        let vector = buffer.write_pinned(0, vector, ..).unwrap().wait().unwrap();
        let read = buffer.read_pinned(0, vector, ..).unwrap();
        assert_eq!(*pollster::block_on(read).unwrap(), [4; 100]);
    }
}

fn a_lost_device_keeps_nobody_waiting(f: &Fixture) {
    let device = f.open(|_| {});
    let kernel = kernel(&device);
    let buffer = device.buffer(&vec![POISON; LEN]).unwrap();
    device.finish().unwrap();
    add(&kernel, &buffer);
    let mut write = buffer
        .write_pinned(0, pinned(f, &noise(LEN, 8)), ..)
        .unwrap();
    let mut read = buffer
        .read_pinned(0, pinned(f, &noise(LEN, 9)), ..)
        .unwrap();
    device.raw().destroy();
    for transfer in [&mut write, &mut read] {
        match transfer.wait_timeout(DEADLINE) {
            Ok(vector) => assert_eq!(vector.len(), LEN),
            Err(error) => {
                assert!(!matches!(
                    error.error,
                    ReadError::Deadline | ReadError::Taken
                ));
                // Where it is back, it can be used.
                if let Some(mut vector) = error.values {
                    vector.fill(1);
                }
            }
        }
    }
    // From here on nothing begins, or ends with an error.
    let begun = buffer.write_pinned(0, pinned(f, &[1; 10]), ..);
    if let Ok(mut transfer) = begun {
        let _ = transfer.wait_timeout(DEADLINE);
    }
    let next = f.open(|_| {});
    let buffer = next.buffer(&[3u32; 10]).unwrap();
    let read = buffer.read_pinned(0, pinned(f, &[POISON; 10]), ..).unwrap();
    assert_eq!(*read.wait().unwrap(), [3; 10]);
}

fn threads_and_devices_share_nothing(f: &Fixture) {
    let devices = [f.open(|_| {}), f.open(|_| {})];
    thread::scope(|scope| {
        for number in 0..4u32 {
            let device = &devices[number as usize % 2];
            let other = &devices[(number as usize + 1) % 2];
            scope.spawn(move || {
                let values = noise(50_000, 20 + number);
                let mut vector = pinned(f, &values);
                let buffer = device.zeroed::<u32>(50_000).unwrap();
                let next = other.zeroed::<u32>(50_000).unwrap();
                for _ in 0..3 {
                    buffer.fill(POISON, ..).unwrap();
                    let written = buffer.write_pinned(0, vector, ..).unwrap();
                    vector = written.wait().unwrap();
                    vector.fill(POISON);
                    vector = buffer.read_pinned(0, vector, ..).unwrap().wait().unwrap();
                    // From one device to the other by way of the vector.
                    vector = next.write_pinned(0, vector, ..).unwrap().wait().unwrap();
                    assert!(next.read().unwrap() == values, "{number}");
                }
            });
        }
    });
}
