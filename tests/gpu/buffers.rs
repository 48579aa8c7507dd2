//! Buffers: contents, transfers, bounds, and reads that wait for nothing.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Device, DeviceBuffer, Kernel, Program,
    buffers::{MemoryError, ReadError},
};

cases![
    new_buffers_are_zero,
    values_come_back,
    small_elements_come_back,
    writes_are_ordered_with_copies,
    copies_move_ranges,
    copies_inside_one_buffer,
    overlapping_copies_are_refused,
    ranges_beyond_the_end_are_refused,
    fills_of_every_size_and_alignment,
    reads_can_be_polled_and_awaited,
    a_read_back_gives_its_values_once,
    empty_buffers_work,
    too_large_is_told_from_no_room,
    raw_buffers_are_imported_and_exported,
    buffers_of_other_devices_are_copied_to,
    copies_between_devices_keep_the_order,
    copies_between_devices_of_every_alignment,
    large_copies_between_devices_and_small_ones_after,
    copies_between_devices_inherit_failures,
    copies_from_a_lost_device_say_so,
];

fn new_buffers_are_zero(f: &Fixture) {
    let buffer: DeviceBuffer<u32> = f.device.zeroed(1000).unwrap();
    assert_eq!(buffer.read().unwrap(), vec![0; 1000]);
}

fn values_come_back(f: &Fixture) {
    let values: Vec<f64> = (0..777).map(|i| f64::from(i) * 0.37).collect();
    let buffer = f.device.buffer(&values).unwrap();
    assert_eq!(buffer.len(), 777);
    assert_eq!(buffer.read().unwrap(), values);
    assert_eq!(buffer.read_range(10..20).unwrap(), values[10..20]);
    assert_eq!(buffer.read_range(..=3).unwrap(), values[..=3]);
}

fn small_elements_come_back(f: &Fixture) {
    for len in 0..9usize {
        let bytes: Vec<u8> = (0..len as u8).map(|b| b.wrapping_mul(37) + 1).collect();
        let buffer = f.device.buffer(&bytes).unwrap();
        assert_eq!(buffer.read().unwrap(), bytes);
        for start in 0..len {
            let part = buffer.read_range(start as u64..).unwrap();
            assert_eq!(part, bytes[start..], "{len} from {start}");
        }
    }
    let words: Vec<u16> = (0..333).map(|i| i * 11).collect();
    assert_eq!(f.device.buffer(&words).unwrap().read().unwrap(), words);
}

fn writes_are_ordered_with_copies(f: &Fixture) {
    let a = f.device.buffer(&[1u32; 64]).unwrap();
    let b: DeviceBuffer<u32> = f.device.zeroed(64).unwrap();
    // The second write must not overtake the copy of the first one's values.
    a.copy_to(0, &b, 0, 64).unwrap();
    a.write(0, &[2u32; 64]).unwrap();
    a.copy_to(0, &b, 32, 32).unwrap();
    a.write(0, &[3u32; 64]).unwrap();
    let expected: Vec<u32> = (0..64).map(|i| if i < 32 { 1 } else { 2 }).collect();
    assert_eq!(b.read().unwrap(), expected);
    assert_eq!(a.read().unwrap(), vec![3; 64]);
}

fn copies_move_ranges(f: &Fixture) {
    let source: Vec<u32> = (0..100).collect();
    let a = f.device.buffer(&source).unwrap();
    let b = f.device.buffer(&[0xdead_beefu32; 100]).unwrap();
    a.copy_to(20, &b, 5, 30).unwrap().wait().unwrap();
    let mut expected = vec![0xdead_beef; 100];
    expected[5..35].copy_from_slice(&source[20..50]);
    assert_eq!(b.read().unwrap(), expected);
}

fn copies_inside_one_buffer(f: &Fixture) {
    let source: Vec<u32> = (0..100).collect();
    let a = f.device.buffer(&source).unwrap();
    a.copy_to(0, &a, 50, 50).unwrap().wait().unwrap();
    let expected: Vec<u32> = (0..50).chain(0..50).collect();
    assert_eq!(a.read().unwrap(), expected);
}

fn overlapping_copies_are_refused(f: &Fixture) {
    let a: DeviceBuffer<u32> = f.device.zeroed(100).unwrap();
    let error = a.copy_to(0, &a, 49, 50).unwrap_err();
    assert!(matches!(error, MemoryError::Overlap { .. }), "{error}");
}

fn ranges_beyond_the_end_are_refused(f: &Fixture) {
    let a: DeviceBuffer<u32> = f.device.zeroed(10).unwrap();
    let out = |error: MemoryError| {
        assert!(
            matches!(error, MemoryError::OutOfRange { len: 10, .. }),
            "{error}"
        );
    };
    out(a.write(8, &[1, 2, 3]).unwrap_err());
    out(a.fill(1, 10..11).unwrap_err());
    out(a.fill(1, u64::MAX - 1..u64::MAX).unwrap_err());
    out(a.copy_to(5, &a.clone(), 0, 6).unwrap_err());
    out(a.read_back(3..11).unwrap_err());
    assert_eq!(a.read().unwrap(), vec![0; 10]);
}

fn fills_of_every_size_and_alignment(f: &Fixture) {
    fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(f: &Fixture, old: T, new: T) {
        for (start, count) in [(0, 50), (1, 1), (3, 7), (2, 0), (5, 45), (49, 1)] {
            let mut expected = vec![old; 50];
            let buffer = f.device.buffer(&expected).unwrap();
            buffer
                .fill(new, start..start + count)
                .unwrap()
                .wait()
                .unwrap();
            expected[start as usize..(start + count) as usize].fill(new);
            assert_eq!(buffer.read().unwrap(), expected, "{start} {count}");
        }
    }
    check(f, 0x11u8, 0xa5);
    check(f, 0x11u8, 0);
    check(f, 0x1111u16, 0xa5b6);
    check(f, [1u8, 2, 3], [0xaa, 0xbb, 0xcc]);
    check(f, 1u32, 0xdead_beef);
    check(f, 1u32, 0);
    check(f, 1.5f64, -2.25);
    check(f, [1u32; 3], [7, 8, 9]);
    check(f, [1u8; 37], std::array::from_fn(|i| i as u8 + 100));
}

fn reads_can_be_polled_and_awaited(f: &Fixture) {
    let values: Vec<u32> = (0..5000).collect();
    let buffer = f.device.buffer(&values).unwrap();
    assert_eq!(
        pollster::block_on(buffer.read_back(..).unwrap()).unwrap(),
        values
    );
    let pending = buffer.read_back(100..200).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let part = loop {
        if let Some(part) = pending.try_take().unwrap() {
            break part;
        }
        assert!(std::time::Instant::now() < deadline, "the read never ended");
        std::thread::yield_now();
    };
    assert_eq!(part, values[100..200]);
    // Several at once, from an executor of another kind.
    let many: Vec<_> = (0..20u64)
        .map(|i| buffer.read_back(i..i + 10).unwrap())
        .collect();
    let all = pollster::block_on(futures::future::join_all(many));
    for (i, part) in all.into_iter().enumerate() {
        assert_eq!(part.unwrap(), values[i..i + 10]);
    }
}

fn a_read_back_gives_its_values_once(f: &Fixture) {
    let buffer = f.device.buffer(&[1u32, 2, 3]).unwrap();
    let pending = buffer.read_back(..).unwrap();
    let timeout = std::time::Duration::from_secs(10);
    assert_eq!(pending.wait_timeout(timeout).unwrap(), [1, 2, 3]);
    assert!(matches!(
        pending.wait_timeout(timeout),
        Err(ReadError::Taken)
    ));
}

fn empty_buffers_work(f: &Fixture) {
    let buffer: DeviceBuffer<u32> = f.device.zeroed(0).unwrap();
    assert!(buffer.is_empty());
    assert_eq!(buffer.read().unwrap(), Vec::<u32>::new());
    buffer.write(0, &[]).unwrap().wait().unwrap();
    buffer.fill(7, ..0).unwrap().wait().unwrap();
    assert!(matches!(
        f.device.zeroed::<()>(3).unwrap_err(),
        MemoryError::ZeroSized { .. }
    ));
}

fn too_large_is_told_from_no_room(f: &Fixture) {
    let limit = f.device.raw().limits().max_buffer_size;
    let error = f.device.zeroed::<u8>(usize::MAX).unwrap_err();
    match error {
        MemoryError::TooLarge { limit: told, .. } => assert_eq!(told, limit),
        other => panic!("{other}"),
    }
}

fn raw_buffers_are_imported_and_exported(f: &Fixture) {
    let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 40,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    assert!(matches!(
        f.device.import::<[u32; 3]>(raw.clone()).unwrap_err(),
        MemoryError::ElementSize {
            bytes: 40,
            element_bytes: 12,
            ..
        }
    ));
    let imported = f.device.import::<u32>(raw).unwrap();
    assert_eq!(imported.len(), 10);
    imported.write(0, &[9; 10]).unwrap().wait().unwrap();
    // It lacks COPY_SRC, and says so instead of failing inside wgpu.
    assert!(matches!(
        imported.read_back(..).unwrap_err(),
        MemoryError::MissingUsage { .. }
    ));

    let ours = f.device.buffer(&[5u32; 4]).unwrap();
    f.device.flush().unwrap();
    let again = f.device.import::<u32>(ours.raw().clone()).unwrap();
    assert_eq!(again.read().unwrap(), [5; 4]);
}

/// Devices of every adapter, of the same one, and of another context.
fn others(f: &Fixture) -> Vec<Device> {
    let adapters = f.context.adapters().into_iter();
    let mut others: Vec<Device> = adapters
        .map(|adapter| f.context.device_at(adapter.index).unwrap())
        .collect();
    others.push(f.open(|options| options.import_host_memory = false));
    others.push(f.open_alone(|_| {}));
    others
}

fn buffers_of_other_devices_are_copied_to(f: &Fixture) {
    let values: Vec<u32> = (0..100).map(|i| i * 7 + 1).collect();
    for other in others(f) {
        let a = f.device.buffer(&values).unwrap();
        let b = other.buffer(&[0xdead_beefu32; 60]).unwrap();
        let event = a.copy_to(20, &b, 5, 30).unwrap();
        let none = a.copy_to(3, &b, 60, 0).unwrap();
        event.wait().unwrap();
        none.wait().unwrap();
        let mut expected = vec![0xdead_beef; 60];
        expected[5..35].copy_from_slice(&values[20..50]);
        assert_eq!(b.read().unwrap(), expected);
        // And back, awaited.
        let event = b.copy_to(5, &a, 0, 30).unwrap();
        pollster::block_on(event.into_future()).unwrap();
        assert_eq!(
            a.read_range(..31).unwrap(),
            [&values[20..50], &[211]].concat()
        );
        let out = a.copy_to(5, &b, 31, 30).unwrap_err();
        assert!(
            matches!(out, MemoryError::OutOfRange { len: 60, .. }),
            "{out}"
        );
    }
}

fn copies_between_devices_keep_the_order(f: &Fixture) {
    for other in others(f) {
        let a = f.device.buffer(&[1u32; 64]).unwrap();
        let b = other.buffer(&[9u32; 128]).unwrap();
        let mut model = vec![9; 128];
        for round in 0..6u32 {
            // Commands behind the copy change nothing of it, on either side.
            a.fill(round + 10, ..).unwrap();
            b.fill(round + 50, ..64).unwrap();
            a.copy_to(0, &b, u64::from(round) * 3, 32).unwrap();
            a.write(0, &[77; 64]).unwrap();
            b.fill(5, 4..6).unwrap();
            b.copy_to(0, &a, 32, 8).unwrap();
            model[..64].fill(round + 50);
            model[round as usize * 3..][..32].fill(round + 10);
            model[4..6].fill(5);
        }
        assert_eq!(b.read().unwrap(), model);
        assert_eq!(
            a.read().unwrap(),
            [&[77; 32], &model[..8], &[77; 24]].concat()
        );
        // The source and its device's handle go.
        a.fill(3, ..).unwrap();
        a.copy_to(0, &b, 0, 64).unwrap();
        drop(a);
        assert_eq!(b.read_range(..64).unwrap(), [3; 64]);
    }
}

fn copies_between_devices_of_every_alignment(f: &Fixture) {
    let values: Vec<u8> = (0..91).map(|i| i * 2 + 1).collect();
    for other in [f.open(|_| {}), f.open_alone(|_| {})] {
        let a = f.device.buffer(&values).unwrap();
        for from in 0..4usize {
            for to in 0..4usize {
                for count in [1usize, 3, 4, 30, 87] {
                    let b = other.buffer(&[0xeeu8; 91]).unwrap();
                    a.copy_to(from as u64, &b, to as u64, count as u64).unwrap();
                    let mut model = vec![0xee; 91];
                    model[to..to + count].copy_from_slice(&values[from..from + count]);
                    assert_eq!(b.read().unwrap(), model, "{from} {to} {count}");
                }
            }
        }
    }
}

fn large_copies_between_devices_and_small_ones_after(f: &Fixture) {
    // More than one piece of a transfer.
    const LEN: usize = (17 << 20) / 4 + 3;
    let values: Vec<u32> = (0..LEN as u32)
        .map(|i| i.wrapping_mul(0x9e37_79b1))
        .collect();
    for other in [f.open(|_| {}), others(f).swap_remove(0)] {
        let a = f.device.buffer(&values).unwrap();
        let b = other.zeroed::<u32>(LEN).unwrap();
        a.copy_to(1, &b, 0, LEN as u64 - 1).unwrap();
        a.copy_to(0, &b, 7, 2).unwrap();
        a.copy_to(2, &b, LEN as u64 - 1, 1).unwrap().wait().unwrap();
        let mut model = values[1..].to_vec();
        model.push(values[2]);
        model[7..9].copy_from_slice(&values[..2]);
        assert!(b.read().unwrap() == model);
    }
}

/// Writes the first word, and fails unless the second one is seven.
pub fn failing(device: &Device) -> Kernel {
    let program = Program::new(
        "fail.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn fail() { data[0] = 1u; assert(data[1] == 7u, \"no seven\"); }",
    );
    let kernel = device.kernel(&program.unwrap(), "fail", &Constants::new());
    kernel.unwrap()
}

fn copies_between_devices_inherit_failures(f: &Fixture) {
    let kernel = failing(&f.device);
    for other in others(f) {
        let a = f.device.buffer(&vec![4u32; 1000]).unwrap();
        let b = other.buffer(&[2u32; 100]).unwrap();
        let launch = kernel.launch().buffer("data", a.slice(500..520));
        launch.workgroups(1).submit().unwrap();
        let bad = a.copy_to(505, &b, 0, 10).unwrap();
        let good = a.copy_to(0, &b, 20, 10).unwrap();
        assert_eq!(b.read_range(10..).unwrap()[10..20], [4; 10]);
        good.wait().unwrap();
        for error in [
            bad.wait().unwrap_err().to_string(),
            b.read().unwrap_err().to_string(),
        ] {
            assert!(error.contains("no seven"), "{error}");
        }
        b.write(0, &[6; 10]).unwrap();
        assert_eq!(b.read_range(..11).unwrap()[8..], [6, 6, 2]);
    }
}

fn copies_from_a_lost_device_say_so(f: &Fixture) {
    let gone = f.open(|_| {});
    let a = gone.buffer(&vec![1u32; 100_000]).unwrap();
    let b = f.device.buffer(&vec![2u32; 100_000]).unwrap();
    gone.finish().unwrap();
    gone.raw().destroy();
    // The loss may be noticed at once, or on the way.
    if let Ok(event) = a.copy_to(0, &b, 0, 50_000) {
        event
            .wait_timeout(std::time::Duration::from_secs(60))
            .unwrap_err();
        assert!(matches!(b.read(), Err(ReadError::Execution(_))));
    }
    a.copy_to(0, &b, 0, 50_000).unwrap_err();
    // To a lost device.
    b.fill(3, ..).unwrap();
    assert!(b.copy_to(0, &a, 0, 10).is_err());
    assert_eq!(b.read().unwrap(), vec![3; 100_000]);
}
