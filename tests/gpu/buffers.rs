//! Buffers: contents, transfers, bounds, and reads that wait for nothing.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    DeviceBuffer,
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
    buffers_of_other_devices_are_refused,
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

fn buffers_of_other_devices_are_refused(f: &Fixture) {
    let other = f.open(|_| {});
    let a = f.device.buffer(&[1u32; 4]).unwrap();
    let b = other.buffer(&[2u32; 4]).unwrap();
    assert!(matches!(
        a.copy_to(0, &b, 0, 4).unwrap_err(),
        MemoryError::OtherDevice { .. }
    ));
}
