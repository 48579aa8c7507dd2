//! Large moves of a context's buffers between devices and the host, which the embedded adapter makes without staging memory:
//! the same bytes in the same places, whoever has the latest. What others stage has the same results.

use crate::buffers_moving::{Kernels, added};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{Buffer, Device, buffers::BufferError};

cases![
    large_moves_make_no_staging_memory,
    parts_arrive_where_they_belong,
    bytes_of_several_places_are_put_together,
    values_are_taken_at_once,
    reads_come_behind_launches_that_nobody_has_submitted,
    buffers_of_lost_devices_are_lost,
    reads_that_are_awaited_bring_the_same,
];

/// More than a megabyte, and no multiple of anything.
const LEN: usize = (1 << 20) + 3;
const BYTES: u64 = LEN as u64 * 4;
const POISON: u32 = 0xdead_beef;

fn noise(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32)
        .map(|at| (at ^ seed).wrapping_mul(0x9e37_79b1) ^ at >> 9)
        .collect()
}

/// What so many bytes count as.
fn direct(f: &Fixture, bytes: u64) -> u64 {
    match f.is_embedded() {
        true => bytes,
        false => 0,
    }
}

fn borrowed(device: &Device) -> u64 {
    device.transfer_statistics().borrowed_bytes
}

fn places(buffer: &Buffer<u32>) -> Vec<(std::ops::Range<u64>, usize)> {
    let all = buffer.whereabouts().into_iter();
    all.map(|(range, places)| (range, places.len())).collect()
}

fn large_moves_make_no_staging_memory(f: &Fixture) {
    let kernels = Kernels::new(&f.open(|_| {}));
    let device = &kernels.device;
    // What launches need besides.
    let small = f.context.buffer_from_vec(vec![1u32; 4]).unwrap();
    kernels.add(&small, 1).unwrap().wait().unwrap();
    device.finish().unwrap();
    let mut model = noise(LEN, 1);
    let buffer = f.context.buffer_from(&model).unwrap();
    let made = |device: &Device| {
        let statistics = device.transfer_statistics();
        (statistics.staging_made, statistics.staging_reused)
    };
    let before = made(device);
    buffer.prefetch(device).unwrap().wait().unwrap();
    assert_eq!(borrowed(device), direct(f, BYTES));
    // The host and the device have it.
    assert_eq!(places(&buffer), [(0..BYTES, 2)]);
    assert_eq!(buffer.statistics().moves.moved, BYTES);
    if f.is_embedded() {
        assert_eq!(made(device), before);
    }
    kernels.add(&buffer, 5).unwrap().wait().unwrap();
    added(&mut model, 5);
    assert_eq!(places(&buffer), [(0..BYTES, 1)]);
    let between = made(device);
    let mut into = vec![POISON; LEN];
    buffer.read_into(0, &mut into).unwrap();
    assert!(into == model);
    assert_eq!(borrowed(device), direct(f, 2 * BYTES));
    assert!(buffer.read().unwrap() == model);
    assert_eq!(borrowed(device), direct(f, 3 * BYTES));
    assert!(*buffer.map(..).unwrap() == model[..]);
    assert_eq!(borrowed(device), direct(f, 4 * BYTES));
    // Reads make no copy of the host's own.
    assert_eq!(places(&buffer), [(0..BYTES, 1)]);
    assert_eq!(buffer.statistics().moves.moved, 4 * BYTES);
    buffer.evict(device).unwrap();
    assert_eq!(borrowed(device), direct(f, 5 * BYTES));
    assert_eq!(buffer.statistics().moves.moved, 5 * BYTES);
    assert_eq!(buffer.whereabouts(), [(0..BYTES, vec!["the host".into()])]);
    if f.is_embedded() {
        assert_eq!(made(device), between);
    }
    into.fill(POISON);
    buffer.read_into(0, &mut into).unwrap();
    assert!(into == model);
    kernels.add(&buffer, 6).unwrap();
    added(&mut model, 6);
    assert!(buffer.read().unwrap() == model);
}

fn parts_arrive_where_they_belong(f: &Fixture) {
    let kernels = Kernels::new(&f.open(|_| {}));
    // Bytes, so that parts begin and end anywhere.
    let len = LEN * 4;
    let mut model: Vec<u8> = bytemuck::pod_collect_to_vec(&noise(LEN, 2));
    let words = f.context.buffer_from_vec(noise(LEN, 2)).unwrap();
    let buffer = words.cast::<u8>().unwrap();
    for (seed, range) in (3..).zip([
        0..len,
        1..len,
        3..len - 1,
        2 << 20..len - 2,
        5..(256 << 10) + 5,
        6..(256 << 10) + 5,
        len - (300 << 10) - 3..len,
        70_001..70_009,
    ]) {
        // On the device alone.
        kernels.add(&words, seed).unwrap();
        let all: &mut [u32] = bytemuck::cast_slice_mut(&mut model);
        added(all, seed);
        let before = borrowed(&kernels.device);
        let mut into = vec![0xeeu8; range.len() + 9];
        let place = 5..5 + range.len();
        let start = range.start as u64;
        buffer.read_into(start, &mut into[place.clone()]).unwrap();
        assert!(into[place.clone()] == model[range.clone()], "{range:?}");
        let around = into[..place.start].iter().chain(&into[place.end..]);
        assert!(around.copied().all(|byte| byte == 0xee), "{range:?}");
        let is_large = range.len() >= 256 << 10;
        let expected = if is_large { range.len() as u64 } else { 0 };
        assert_eq!(borrowed(&kernels.device) - before, direct(f, expected));
        // The host's part goes to the device, between bytes that stay.
        let values: Vec<u8> = bytemuck::pod_collect_to_vec(&noise(range.len().div_ceil(4), seed));
        buffer.write(start, &values[..range.len()]).unwrap();
        model[range.clone()].copy_from_slice(&values[..range.len()]);
        kernels.device.finish().unwrap();
        kernels.add(&words, 1).unwrap();
        added(bytemuck::cast_slice_mut(&mut model), 1);
        assert!(buffer.read().unwrap() == model, "{range:?}");
    }
    buffer.read_range(1..len as u64 + 1).unwrap_err();
}

fn bytes_of_several_places_are_put_together(f: &Fixture) {
    let devices = [f.open(|_| {}), f.open(|_| {})].map(|device| Kernels::new(&device));
    let mut model = noise(LEN, 20);
    let buffer = f.context.buffer_from(&model).unwrap();
    let (a, b) = (300_001, 700_003);
    for round in 0..3u32 {
        let part = |range: std::ops::Range<usize>| {
            buffer.slice(range.start as u64..range.end as u64).unwrap()
        };
        devices[0].add(&part(0..a), round).unwrap();
        added(&mut model[..a], round);
        devices[1].add(&part(b..LEN - 7), round + 1).unwrap();
        added(&mut model[b..LEN - 7], round + 1);
        let values = noise(b - a - 100, round);
        buffer.write(a as u64 + 50, &values).unwrap();
        model[a + 50..b - 50].copy_from_slice(&values);
        let mut into = vec![POISON; LEN];
        buffer.read_into(0, &mut into).unwrap();
        assert!(into == model, "{round}");
        if round == 1 {
            buffer.evict(&devices[1].device).unwrap();
            assert!(buffer.read().unwrap() == model);
        }
        devices[1].add(&buffer, 9).unwrap();
        added(&mut model, 9);
    }
    assert!(buffer.read().unwrap() == model);
    // Never written: zeros around what a device has.
    let empty: Buffer<u32> = f.context.buffer(LEN).unwrap();
    let part = empty.slice(10..LEN as u64 - 10).unwrap();
    part.fill(7, ..).unwrap();
    devices[0].add(&part, 1).unwrap();
    let mut expected = vec![0; LEN];
    expected[10..LEN - 10].fill(22);
    let mut into = vec![POISON; LEN];
    empty.read_into(0, &mut into).unwrap();
    assert!(into == expected);
}

fn values_are_taken_at_once(f: &Fixture) {
    let kernels = Kernels::new(&f.open(|_| {}));
    let (mut first, mut second) = (noise(LEN, 30), noise(LEN, 31));
    let buffer = f.context.buffer_from(&first).unwrap();
    let kept: Buffer<u32> = f.context.buffer(LEN).unwrap();
    // What the launches see is changed on the host right behind them.
    kernels.copy(&buffer, &kept).unwrap();
    buffer.write(0, &second).unwrap();
    kernels.add(&buffer, 3).unwrap();
    buffer.fill(POISON, 5..LEN as u64).unwrap();
    assert!(kept.read().unwrap() == first);
    added(&mut second, 3);
    second[5..].fill(POISON);
    assert!(buffer.read().unwrap() == second);
    // And what they have read from is gone.
    for turn in 0..4 {
        let buffer = f.context.buffer_from_vec(noise(LEN, turn)).unwrap();
        kernels.copy(&buffer, &kept).unwrap();
        drop(buffer);
        first = noise(LEN, turn);
        if turn % 2 == 0 {
            assert!(kept.read().unwrap() == first, "{turn}");
        }
    }
    let last = f.context.buffer_from_vec(first.clone()).unwrap();
    last.migrate(&kernels.device).unwrap();
    last.write(1, &[POISON; 300_000]).unwrap();
    first[1..300_001].fill(POISON);
    assert!(last.read().unwrap() == first);
}

fn reads_come_behind_launches_that_nobody_has_submitted(f: &Fixture) {
    let kernels = Kernels::new(&f.open(|_| {}));
    let mut model = noise(LEN, 40);
    let buffer = f.context.buffer_from(&model).unwrap();
    for turn in 0..6u32 {
        for amount in 0..turn % 3 + 1 {
            kernels.add(&buffer, amount).unwrap();
            added(&mut model, amount);
        }
        if turn % 2 == 0 {
            kernels.device.flush().unwrap();
        }
        let mut into = vec![POISON; LEN - 1];
        buffer.read_into(1, &mut into).unwrap();
        assert!(into == model[1..], "{turn}");
    }
    kernels.add(&buffer, 4).unwrap();
    added(&mut model, 4);
    buffer.evict(&kernels.device).unwrap();
    assert!(buffer.read().unwrap() == model);
}

fn buffers_of_lost_devices_are_lost(f: &Fixture) {
    let (one, other) = (Kernels::new(&f.open(|_| {})), Kernels::new(&f.open(|_| {})));
    let mut model = noise(LEN, 50);
    let buffer = f.context.buffer_from(&model).unwrap();
    one.add(&buffer, 1).unwrap().wait().unwrap();
    added(&mut model, 1);
    // Two places have the first half, and one the second.
    let half = LEN as u64 / 2;
    let first = buffer.slice(..half).unwrap();
    first.prefetch(&other.device).unwrap().wait().unwrap();
    one.device.raw().destroy();
    let mut into = vec![POISON; half as usize];
    first.read_into(0, &mut into).unwrap();
    assert!(into == model[..half as usize]);
    match buffer.read().unwrap_err() {
        BufferError::Lost { ranges, .. } => {
            assert_eq!((ranges.len(), &ranges[0]), (1, &(half * 4..BYTES)));
        }
        error => panic!("{error}"),
    }
    // Moves to a device that is gone fail, and leave the host's bytes.
    buffer.write(0, &model).unwrap();
    one.add(&buffer, 1).unwrap_err();
    assert!(buffer.read().unwrap() == model);
    other.add(&buffer, 2).unwrap();
    added(&mut model, 2);
    assert!(buffer.read().unwrap() == model);
}

fn reads_that_are_awaited_bring_the_same(f: &Fixture) {
    let kernels = Kernels::new(&f.open(|_| {}));
    let mut model = noise(LEN, 60);
    let buffer = f.context.buffer_from(&model).unwrap();
    kernels.add(&buffer, 1).unwrap();
    added(&mut model, 1);
    let before = borrowed(&kernels.device);
    let read = pollster::block_on(buffer.read_async());
    assert!(read.unwrap() == model);
    // A future may be forgotten.
    assert_eq!(borrowed(&kernels.device), before);
}
