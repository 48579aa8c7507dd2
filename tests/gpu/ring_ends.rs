//! The ends of rings: full, empty, closed, in place, and of a device that is gone.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::MINUTE;
use crate::rings::{between, devices, launch, relay, rings, run};
use tombolo::device::{LiveError, Tier};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::launch::LaunchError;
use tombolo::ring::RingError;
use tombolo::system::{SystemError, SystemMemory, SystemTier};
use tombolo::{Constants, Program};

cases![
    a_full_ring_takes_no_more,
    an_empty_ring_gives_nothing,
    closed_ends_are_told,
    slots_are_written_and_read_in_place,
    impossible_counts_are_errors,
    rings_of_another_kind_are_refused,
    sizes_that_no_ring_has,
    launches_that_are_repeated_use_no_rings,
    a_device_that_is_gone_has_no_rings,
];

fn a_full_ring_takes_no_more(f: &Fixture) {
    let program = relay::<u32>("item = item + 1u;");
    for device in devices(f) {
        // Rounded up.
        let (mut sender, mut receiver, mut launch) = rings::<u32>(&device, &program, [5, 4]);
        assert_eq!((sender.slots(), receiver.slots()), (8, 4));
        let items: Vec<u32> = (0..12).collect();
        assert_eq!(sender.try_push(&items).unwrap(), 8);
        assert_eq!(sender.try_push(&items[8..]).unwrap(), 0);
        assert_eq!(sender.room().unwrap(), 0);
        let late = sender.push(&items[8..], Duration::from_millis(2));
        assert!(matches!(late, Err(RingError::Deadline { moved: 0, .. })));
        let mut came: Vec<u32> = Vec::new();
        // The other ring is full after four; what does not fit waits in the first one.
        for room in [4, 8, 8] {
            run(&mut launch);
            assert_eq!(sender.room().unwrap(), room);
            let mut four = [u32::MAX; 9];
            let found = receiver.try_pop(&mut four).unwrap();
            came.extend(&four[..found]);
        }
        assert!(came.into_iter().eq(1..=8));
        assert_eq!(sender.try_push(&items[8..]).unwrap(), 4);
    }
}

fn an_empty_ring_gives_nothing(f: &Fixture) {
    let program = relay::<u32>("item = item + 1u;");
    for device in devices(f) {
        let (mut sender, mut receiver, mut launch) = rings::<u32>(&device, &program, [4, 4]);
        run(&mut launch);
        let mut items = [u32::MAX; 2];
        assert_eq!(receiver.try_pop(&mut items).unwrap(), 0);
        assert!(receiver.items(2).unwrap().is_empty());
        let late = receiver.pop(&mut items, Duration::from_millis(2));
        assert!(matches!(late, Err(RingError::Deadline { moved: 0, .. })));
        sender.push(&[41], MINUTE).unwrap();
        run(&mut launch);
        let late = receiver.pop(&mut items, Duration::from_millis(2));
        assert!(matches!(late, Err(RingError::Deadline { moved: 1, .. })));
        assert_eq!(items, [42, u32::MAX]);
    }
}

const ENDS: &str = "
    @group(0) @binding(0) var<storage, read_write> log: array<u32, 4>;
    @compute @workgroup_size(1) fn main() {
        log[0] = u32(ring_input_finished());
        log[1] = u32(ring_output_closed());
        let taken = ring_input_take();
        log[2] = select(99u, taken.item, taken.found);
        if log[3] == 1u {
            let fits = ring_output_put(5u);
            ring_output_close();
            ring_input_close();
        }
    }";

fn closed_ends_are_told(f: &Fixture) {
    let program = between::<u32>(ENDS);
    for device in devices(f) {
        let log = device.buffer(&[u32::MAX, u32::MAX, u32::MAX, 0]).unwrap();
        let with_log = || {
            let (sender, receiver, launch) = rings::<u32>(&device, &program, [2, 2]);
            (sender, receiver, launch.buffer("log", &log))
        };
        let (mut sender, receiver, mut launch) = with_log();
        let mut look = || {
            run(&mut launch);
            log.read().unwrap()
        };
        assert_eq!(look(), [0, 0, 99, 0]);
        sender.push(&[7], MINUTE).unwrap();
        // What is left comes before the end.
        drop(sender);
        assert_eq!(look(), [0, 0, 7, 0]);
        assert_eq!(look(), [1, 0, 99, 0]);
        drop(receiver);
        assert_eq!(look(), [1, 1, 99, 0]);

        // By the kernel.
        let (mut sender, mut receiver, mut launch) = with_log();
        log.write(3, &[1]).unwrap();
        assert!(!sender.is_closed_by_kernel().unwrap());
        run(&mut launch);
        assert!(sender.is_closed_by_kernel().unwrap());
        let pushed = sender.push(&[1, 2, 3], MINUTE);
        assert!(matches!(pushed, Err(RingError::Closed { moved: 2 })));
        let mut items = [0; 2];
        let popped = receiver.pop(&mut items, MINUTE);
        assert!(matches!(popped, Err(RingError::Closed { moved: 1 })));
        assert_eq!(items, [5, 0]);
        // By the host.
        let (mut sender, mut receiver, _launch) = with_log();
        sender.close().unwrap();
        receiver.close().unwrap();
        assert!(matches!(
            sender.try_push(&[1]),
            Err(RingError::Closed { moved: 0 })
        ));
        assert!(matches!(
            receiver.try_pop(&mut items),
            Err(RingError::Closed { moved: 0 })
        ));
    }
}

fn slots_are_written_and_read_in_place(f: &Fixture) {
    let program = relay::<[u32; 2]>("item.y = item.x + item.y;");
    for device in devices(f) {
        let (mut sender, mut receiver, mut launch) = rings::<[u32; 2]>(&device, &program, [4, 4]);
        for round in 0..5u32 {
            // Left without a commit: nothing is put.
            let mut slots = sender.slots_mut(2).unwrap();
            slots.set(0, &[9, 9]).unwrap();
            let mut slots = sender.slots_mut(9).unwrap();
            assert_eq!((slots.len(), slots.set(4, &[0, 0])), (4, None));
            // In any order.
            for index in [2, 0, 1] {
                slots.set(index, &[round, index as u32 * 10]).unwrap();
            }
            slots.commit(3).unwrap();
            assert_eq!(sender.room().unwrap(), 1);
            run(&mut launch);
            let items = receiver.items(2).unwrap();
            assert_eq!((items.len(), items.get(2)), (2, None));
            assert_eq!(items.get(1), Some([round, round + 10]));
            // Left without a release: they are still there.
            let items = receiver.items(9).unwrap();
            assert_eq!(items.len(), 3);
            assert_eq!(items.get(0), Some([round, round]));
            items.release(1).unwrap();
            let items = receiver.items(9).unwrap();
            assert_eq!(items.get(1), Some([round, round + 20]));
            items.release(9).unwrap();
            assert_eq!(receiver.ready().unwrap(), 0);
        }
    }
}

fn impossible_counts_are_errors(f: &Fixture) {
    let text = "
        @compute @workgroup_size(1) fn main() {
            ring_input_release(2u);
            ring_output_commit(9u);
        }";
    let program = between::<u32>(text);
    for device in devices(f) {
        let (mut sender, mut receiver, mut launch) = rings::<u32>(&device, &program, [4, 8]);
        sender.push(&[1], MINUTE).unwrap();
        run(&mut launch);
        assert!(matches!(sender.room(), Err(RingError::Garbled)));
        assert!(matches!(receiver.ready(), Err(RingError::Garbled)));
        assert!(matches!(
            receiver.try_pop(&mut [0]),
            Err(RingError::Garbled)
        ));
    }
}

fn sizes_that_no_ring_has(f: &Fixture) {
    for slots in [0, (1 << 24) + 1] {
        let made = f.device.ring_to_host::<u32>(slots);
        assert!(matches!(made, Err(RingError::Slots { .. })), "{slots}");
    }
}

/// The host may push and pop between two attempts.
fn launches_that_are_repeated_use_no_rings(f: &Fixture) {
    let text = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let fits = ring_output_put(usm_Words(words)[0]);
        }";
    let builder = Program::builder().source("lent.wgsl", text);
    let program = builder.ring_to_host::<u32>("output").build().unwrap();
    let mut options = KernelOptions::default();
    options.pointers = TranslationMode::System;
    for device in devices(f) {
        let kernel = device.kernel_with(&program, "main", &Constants::new(), options);
        let (output, mut receiver) = device.ring_to_host::<u32>(4).unwrap();
        let values = [77u32; 8];
        let mut memory = SystemMemory::new();
        memory.set_in_place(false);
        memory.set_tier(Some(SystemTier::Sliced));
        memory.set_pool_bytes(2 * 4096);
        let pointer = memory.lend(&values);
        let other = vec![1u32; 64 << 10];
        memory.lend(&other);
        let mut launch = kernel.unwrap().launch().value("words", &pointer);
        launch = launch.ring("output", &output).workgroups(1);
        match launch.run_system(&mut memory) {
            Err(SystemError::NotRepeatable { what, .. }) => assert_eq!(what, "it uses a ring"),
            other => panic!("{other:?}"),
        }
        assert_eq!(receiver.ready().unwrap(), 0);
    }
}

fn rings_of_another_kind_are_refused(f: &Fixture) {
    let program = relay::<[f32; 4]>("item = item;");
    let (_sender, floats) = f.device.ring_from_host::<f32>(4).unwrap();
    let (output, _receiver) = f.device.ring_to_host::<[f32; 4]>(4).unwrap();
    let submitted = launch(&f.device, &program)
        .ring("input", &floats)
        .ring("output", &output)
        .submit();
    match submitted {
        Err(LaunchError::UnknownArgument { argument, .. }) => {
            assert_eq!(argument, "tombolo_ring_from_host_f32_input");
        }
        other => panic!("{other:?}"),
    }
    let submitted = launch(&f.device, &program).ring("output", &output).submit();
    match submitted {
        Err(LaunchError::MissingArguments { missing, .. }) => {
            assert!(
                missing.contains("tombolo_ring_from_host_f32x4_input"),
                "{missing}"
            );
        }
        other => panic!("{other:?}"),
    }
}

fn a_device_that_is_gone_has_no_rings(f: &Fixture) {
    for live_memory in [true, false] {
        let device = f.open(|options| options.live_memory = live_memory);
        let (kernel, mut receiver) = device.ring_to_host::<u32>(4).unwrap();
        assert_eq!(receiver.ready().unwrap(), 0);
        device.raw().destroy();
        // The runtime learns of it.
        device.finish().unwrap_err();
        let refused = device.ring_from_host::<u32>(4).err().unwrap();
        match kernel.tier() {
            Tier::Live => {
                let is_lost = matches!(refused, RingError::Live(LiveError::DeviceLost { .. }));
                assert!(is_lost, "{refused}");
                // The memory outlives its device, and nobody waits for what will not come.
                assert_eq!(receiver.ready().unwrap(), 0);
                let unread = receiver.pop(&mut [0], 60 * MINUTE).unwrap_err();
                let is_lost = matches!(unread, RingError::Live(LiveError::DeviceLost { .. }));
                assert!(is_lost, "{unread}");
            }
            _ => {
                assert!(matches!(refused, RingError::Memory(_)), "{refused}");
                let unread = receiver.ready().err().unwrap();
                assert!(matches!(unread, RingError::Read(_)), "{unread}");
            }
        }
    }
}
