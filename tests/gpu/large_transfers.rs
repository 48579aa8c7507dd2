//! Transfers that go by pieces: any bytes, between poisoned ones; one command all the same, whoever else records; and with
//! the staging memory of a few pieces.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use bytemuck::Pod;
use tombolo::{Device, DeviceBuffer};

cases![
    bytes_at_the_borders_of_pieces,
    elements_of_odd_sizes,
    large_writes_behind_work_that_was_recorded,
    a_large_read_is_one_command,
    a_large_write_is_one_command,
    callbacks_may_use_the_device_inside_large_transfers,
    large_reads_need_the_staging_memory_of_a_few_pieces,
    large_writes_keep_within_the_budget,
];

const MIB: usize = 1 << 20;
/// Bytes of a piece.
const PIECE: usize = 4 * MIB;

/// Bytes that differ from word to word, and from piece to piece: no whole number of periods is a piece.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let period: Vec<u8> = (0..PERIOD)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()
        })
        .collect();
    let mut bytes = period.repeat(len.div_ceil(period.len()));
    bytes.truncate(len);
    bytes
}

fn bytes_at_the_borders_of_pieces(f: &Fixture) {
    let device = f.open(|_| {});
    let len = 2 * PIECE + 3 * MIB + 3;
    let mut model = noise(len, 1);
    let buffer = device.buffer(&model).unwrap();
    let ranges = [
        0..len,
        0..PIECE,
        0..PIECE + 1,
        1..PIECE + 1,
        3..PIECE + 4,
        PIECE - 1..2 * PIECE + 1,
        PIECE + 2..len,
        len - PIECE - 5..len - 1,
    ];
    for (seed, range) in (2..).zip(ranges) {
        let values = noise(range.len(), seed);
        device.finish().unwrap();
        buffer.write(range.start as u64, &values).unwrap();
        model[range.clone()].copy_from_slice(&values);
        let wanted = range.start as u64..range.end as u64;
        assert!(buffer.read_range(wanted).unwrap() == values, "{range:?}");
        let mut into = vec![0xee; range.len() + 2];
        let end = into.len() - 1;
        buffer
            .read_into(range.start as u64, &mut into[1..end])
            .unwrap();
        assert!(into[1..end] == values, "{range:?}");
        assert_eq!((into[0], into[end]), (0xee, 0xee));
        assert!(buffer.read().unwrap() == model, "{range:?}");
    }
    let mut none = [];
    buffer.read_into(len as u64, &mut none).unwrap();
    buffer.read_into(len as u64 - 1, &mut [0; 2]).unwrap_err();
}

fn elements_of_odd_sizes(f: &Fixture) {
    fn check<T: Pod + PartialEq>(device: &Device) {
        let len = (PIECE + 5) / size_of::<T>() + 2;
        let bytes = noise(len * size_of::<T>(), 5);
        let values: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
        let buffer: DeviceBuffer<T> = device.zeroed(len + 2).unwrap();
        buffer.write(1, &values).unwrap();
        let all = buffer.read().unwrap();
        assert!(all[1..=len] == values);
        assert!(all[0] == T::zeroed() && all[len + 1] == T::zeroed());
        let mut into = vec![T::zeroed(); len];
        buffer.read_into(1, &mut into).unwrap();
        assert!(into == values);
        let back = buffer.read_back(1..1 + len as u64).unwrap();
        assert!(back.wait().unwrap() == values);
    }
    let device = f.open(|_| {});
    check::<u8>(&device);
    check::<[u8; 7]>(&device);
    check::<u16>(&device);
    check::<[u32; 3]>(&device);
    check::<u64>(&device);
}

fn large_writes_behind_work_that_was_recorded(f: &Fixture) {
    let device = f.open(|_| {});
    let len = PIECE + 4096;
    let (a, b) = (noise(len, 8), noise(len, 9));
    let buffer: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    let copy: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    for round in 0..3 {
        // The first may find the device idle; those behind it do not.
        buffer.write(0, &a).unwrap();
        buffer.copy_to(0, &copy, 0, len as u64).unwrap();
        buffer.write(0, &b).unwrap();
        buffer.fill(round, 7..9).unwrap();
        assert!(copy.read().unwrap() == a);
        let seen = buffer.read().unwrap();
        assert!(seen[..7] == b[..7] && seen[7..9] == [round; 2] && seen[9..] == b[9..]);
    }
}

/// Has `race` run on a thread of its own until `work` is done.
fn beside(race: impl Fn() + Sync, work: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let stop = Stop(&stopped);
        let (stopped, race) = (&stopped, &race);
        scope.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                race();
                let _ = begun.send(());
            }
        });
        begins.recv_timeout(Duration::from_secs(60)).unwrap();
        work();
        drop(stop);
    });
}

fn a_large_read_is_one_command(f: &Fixture) {
    let device = f.open(|_| {});
    let len = 3 * PIECE as u64 / 4 + 5;
    let buffer: DeviceBuffer<u32> = device.zeroed(len as usize).unwrap();
    let round = AtomicU32::new(0);
    let race = || {
        let value = round.fetch_add(1, Ordering::Relaxed) + 1;
        buffer.fill(value, ..len).unwrap().wait().unwrap();
    };
    beside(race, || {
        for _ in 0..3 {
            let seen = buffer.read().unwrap();
            assert!(seen == vec![seen[0]; len as usize]);
        }
    });
}

fn a_large_write_is_one_command(f: &Fixture) {
    let device = f.open(|_| {});
    let len = 2 * PIECE / 4 + 5;
    let buffer: DeviceBuffer<u32> = device.zeroed(len).unwrap();
    let copy: DeviceBuffer<u32> = device.zeroed(len).unwrap();
    let race = || {
        buffer.copy_to(0, &copy, 0, len as u64).unwrap();
        let seen = copy.read().unwrap();
        assert!(seen == vec![seen[0]; len]);
    };
    beside(race, || {
        for round in 1..4 {
            let written = buffer.write(0, &vec![round; len]).unwrap();
            written.wait().unwrap();
        }
    });
    assert!(buffer.read().unwrap() == vec![3; len]);
}

fn callbacks_may_use_the_device_inside_large_transfers(f: &Fixture) {
    let device = f.open(|_| {});
    let len = 3 * PIECE;
    let buffer: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    let small = device.buffer(&[0u32; 16]).unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    for round in 1..4 {
        let values = noise(len, round);
        device.finish().unwrap();
        let callback = || {
            let (small, device, ran) = (small.clone(), device.clone(), Arc::clone(&ran));
            device.clone().raw_queue().on_submitted_work_done(move || {
                small.write(0, &[round; 16]).unwrap();
                device.flush().unwrap();
                ran.fetch_add(1, Ordering::Relaxed);
            });
        };
        callback();
        buffer.write(0, &values).unwrap();
        callback();
        assert!(buffer.read().unwrap() == values);
        device.finish().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2 * round);
        assert_eq!(small.read().unwrap(), [round; 16]);
    }
}

fn large_reads_need_the_staging_memory_of_a_few_pieces(f: &Fixture) {
    let device = f.open(|_| {});
    // More than is ever kept.
    let len = 72 * MIB;
    let buffer: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    let mut into = vec![1u8; len];
    let made = || device.transfer_statistics().staging_made;
    buffer.read_into(0, &mut into).unwrap();
    let before = made();
    assert!(before <= 12, "{before}");
    buffer.read_into(0, &mut into).unwrap();
    assert_eq!(made(), before);
    assert!(into == vec![0; len]);
}

fn large_writes_keep_within_the_budget(f: &Fixture) {
    let device = f.open(|_| {});
    let len = 6 * PIECE;
    let buffer: DeviceBuffer<u8> = device.zeroed(len).unwrap();
    for round in 0..4 {
        let written = buffer.write(0, &vec![round; len]).unwrap();
        written.wait().unwrap();
        assert!(device.transfer_statistics().staging_kept <= 64 << 20);
    }
    assert!(buffer.read().unwrap() == vec![3; len]);
}
