//! Pinned memory: transfers that need no staging memory, beside those that do.

use std::thread;

use crate::cases;
use crate::harness::Fixture;
use tombolo::Device;
use tombolo::buffers::PinnedVec;
use tombolo::device::ImportError;

cases![
    transfers_of_pinned_memory_are_direct,
    bytes_that_are_no_words_are_staged,
    a_read_waits_for_what_was_recorded,
    devices_use_one_vector_in_turn,
    vectors_and_devices_go_in_any_order,
    threads_transfer_at_the_same_time,
];

/// More than is written in one piece.
const LEN: usize = (4 << 20) / 4 + 1031;
const POISON: u32 = 0xdead_beef;

fn noise(len: usize, seed: u32) -> Vec<u32> {
    let mix = |i: u32| (i ^ seed).wrapping_mul(0x9e37_79b1) ^ (i >> 7);
    (0..len as u32).map(mix).collect()
}

fn pinned(f: &Fixture, values: &[u32]) -> PinnedVec<u32> {
    let mut vector = f.context.pinned_vec::<u32>(values.len()).unwrap();
    vector.copy_from_slice(values);
    vector
}

/// What so many bytes count as: nothing where the device does not import the vector.
fn direct(device: &Device, vector: &PinnedVec<u32>, bytes: usize) -> u64 {
    match vector.import(device) {
        Ok(()) => bytes as u64,
        Err(
            ImportError::Backend { .. }
            | ImportError::Extension { .. }
            | ImportError::Refused { .. },
        ) => 0,
        Err(error) => panic!("{error}"),
    }
}

fn transfers_of_pinned_memory_are_direct(f: &Fixture) {
    let device = f.open(|_| {});
    let values = noise(LEN, 1);
    let mut vector = pinned(f, &values);
    let buffer = device.buffer(&vec![POISON; LEN + 2]).unwrap();
    device.finish().unwrap();
    let before = device.transfer_statistics();
    buffer.write(1, &vector).unwrap();
    let expected = direct(&device, &vector, LEN * 4);
    let made = device.transfer_statistics();
    assert_eq!(made.pinned_bytes - before.pinned_bytes, expected);
    if expected > 0 {
        assert_eq!(made.staging_made, before.staging_made);
    }
    let all = buffer.read().unwrap();
    assert!(all[1..=LEN] == values);
    assert_eq!((all[0], all[LEN + 1]), (POISON, POISON));
    // Of any size, to any place in the vector.
    let before = device.transfer_statistics().pinned_bytes;
    for (at, from, len) in [
        (0, 1, LEN),
        (5, 1, 1),
        (LEN - 3, 2, 3),
        (7, LEN as u64 - 90, 92),
    ] {
        vector.fill(POISON);
        buffer.read_into(from, &mut vector[at..at + len]).unwrap();
        let mut model = vec![POISON; LEN];
        model[at..at + len].copy_from_slice(&all[from as usize..from as usize + len]);
        assert!(*vector == model, "{at} {from} {len}");
    }
    buffer.read_into(LEN as u64, &mut vector[..0]).unwrap();
    buffer.read_into(LEN as u64, &mut vector[..3]).unwrap_err();
    let after = device.transfer_statistics().pinned_bytes;
    assert_eq!(
        after - before,
        direct(&device, &vector, (LEN + 1 + 3 + 92) * 4)
    );
}

fn bytes_that_are_no_words_are_staged(f: &Fixture) {
    let device = f.open(|_| {});
    let values: Vec<u8> = bytemuck::cast_slice(&noise(LEN, 2)).to_vec();
    let mut vector = f.context.pinned_vec::<u8>(values.len() + 3).unwrap();
    for at in 0..4 {
        vector.fill(0xee);
        vector[at..at + values.len() - 1].copy_from_slice(&values[1..]);
        let buffer = device.buffer(&vec![0xddu8; values.len() + 4]).unwrap();
        device.finish().unwrap();
        let count = values.len() - 1;
        buffer.write(3, &vector[at..at + count]).unwrap();
        let all = buffer.read().unwrap();
        assert!(all[3..3 + count] == values[1..], "{at}");
        assert_eq!((all[2], all[3 + count]), (0xdd, 0xdd));
        vector.fill(0xee);
        buffer.read_into(3, &mut vector[at..at + count]).unwrap();
        assert!(vector[at..at + count] == values[1..], "{at}");
        assert!(
            vector[..at]
                .iter()
                .chain(&vector[at + count..])
                .all(|byte| *byte == 0xee)
        );
    }
    assert_eq!(device.transfer_statistics().pinned_bytes, 0);
}

fn a_read_waits_for_what_was_recorded(f: &Fixture) {
    let device = f.open(|_| {});
    let buffer = device.zeroed::<u32>(LEN).unwrap();
    let mut vector = f.context.pinned_vec::<u32>(LEN).unwrap();
    let mut model = vec![0; LEN];
    for round in 1..6u32 {
        buffer.fill(round, ..LEN as u64).unwrap();
        model.fill(round);
        // The device has something to do: the bytes are taken at once.
        buffer.write(1, &vector[..LEN - 1]).unwrap();
        model[1..].copy_from_slice(&vector[..LEN - 1]);
        vector.fill(POISON);
        buffer.fill(round + 100, 2..5).unwrap();
        model[2..5].fill(round + 100);
        buffer.read_into(0, &mut vector).unwrap();
        assert!(*vector == model, "{round}");
    }
}

fn devices_use_one_vector_in_turn(f: &Fixture) {
    let devices = [
        f.open(|_| {}),
        f.open(|_| {}),
        f.open(|o| o.import_host_memory = false),
    ];
    let mut vector = pinned(f, &noise(LEN, 3));
    for round in 0..2 {
        for (number, device) in (0u32..).zip(&devices) {
            let values = noise(LEN, 10 + number + round * 3);
            vector.copy_from_slice(&values);
            let buffer = device.zeroed::<u32>(LEN).unwrap();
            device.finish().unwrap();
            buffer.write(0, &vector).unwrap();
            vector.fill(POISON);
            buffer.read_into(0, &mut vector).unwrap();
            assert!(*vector == values, "{number}");
        }
    }
    if let (Err(error), false) = (vector.import(&devices[2]), f.is_embedded()) {
        assert!(matches!(error, ImportError::Extension { .. }), "{error}");
        assert_eq!(devices[2].transfer_statistics().pinned_bytes, 0);
    }
}

fn vectors_and_devices_go_in_any_order(f: &Fixture) {
    let values = noise(LEN, 4);
    let keeper = f.open(|_| {});
    let kept = keeper.zeroed::<u32>(LEN).unwrap();
    let mut vector = pinned(f, &values);
    {
        let device = f.open(|_| {});
        let buffer = device.buffer(&values).unwrap();
        vector.fill(POISON);
        buffer.read_into(0, &mut vector).unwrap();
    }
    assert!(*vector == values);
    keeper.finish().unwrap();
    kept.write(0, &vector).unwrap();
    drop(vector);
    // The next one may get the same addresses.
    let mut next = pinned(f, &noise(LEN, 5));
    kept.read_into(0, &mut next).unwrap();
    assert!(*next == values);
}

fn threads_transfer_at_the_same_time(f: &Fixture) {
    let device = f.open(|_| {});
    thread::scope(|scope| {
        for number in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                let values = noise(LEN, 20 + number);
                let mut vector = pinned(f, &values);
                let buffer = device.zeroed::<u32>(LEN).unwrap();
                for _ in 0..3 {
                    buffer.fill(POISON, ..LEN as u64).unwrap();
                    buffer.write(0, &vector).unwrap();
                    vector.fill(POISON);
                    buffer.read_into(0, &mut vector).unwrap();
                    assert!(*vector == values, "{number}");
                }
            });
        }
    });
}
