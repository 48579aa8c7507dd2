//! What can go wrong with buffers of a context, and what then still holds: failed launches, devices that are lost, memory
//! that is full, rivals, and anything in any order.

use std::future::IntoFuture;

use crate::buffers_moving::{Kernels, Random, added, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Program, buffers::BufferError, device::WaitError, launch::LaunchError,
};

cases![
    failures_travel_with_what_was_written,
    a_lost_device_takes_only_what_was_there_alone,
    memory_moves_to_the_host_under_pressure,
    copies_that_no_device_has_room_for_are_made_by_the_host,
    rivals_on_two_devices_are_told,
    who_enqueues_does_not_wait_for_other_devices,
    anything_in_any_order_is_right,
];

fn failures_travel_with_what_was_written(f: &Fixture) {
    for (one, other) in pairs(f) {
        let program = Program::new(
            "fail.wgsl",
            "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
             @compute @workgroup_size(1) fn fail() { data[0] = 1u; assert(data[1] > 100u, \"too small\"); }",
        )
        .unwrap();
        let kernel = one
            .device
            .kernel(&program, "fail", &Constants::new())
            .unwrap();
        let buffer = f.context.buffer_from_vec(vec![50u32; 100]).unwrap();
        let part = buffer.slice(10..20).unwrap();
        let event = kernel
            .launch()
            .buffer("data", &part)
            .workgroups(1)
            .submit()
            .unwrap();
        // Nobody has looked yet: the failure goes along.
        let next = other.add(&buffer, 1).unwrap();
        let assertion = |error: &tombolo::device::ExecutionError| matches!(error, tombolo::device::ExecutionError::Assertion { kernel, .. } if kernel == "fail");
        match next.wait().unwrap_err() {
            WaitError::Failed(error) => match &*error {
                tombolo::device::ExecutionError::Inherited { kernel, cause } => {
                    assert_eq!(kernel, "add");
                    assert!(assertion(cause), "{cause}");
                }
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
        assert!(event.wait().is_err());
        match buffer.read().unwrap_err() {
            BufferError::Execution(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("`fail`") && text.contains("too small"),
                    "{text}"
                );
            }
            other => panic!("{other}"),
        }
        // What is overwritten is good again, and nothing else.
        buffer.write(0, &[1; 60]).unwrap();
        assert_eq!(buffer.slice(..60).unwrap().read().unwrap(), vec![1; 60]);
        assert!(buffer.read().is_err());
        // It comes to the host with an eviction, too.
        buffer.evict(&other.device).unwrap();
        assert!(buffer.read().is_err());
        assert!(one.add(&buffer, 1).unwrap().wait().is_err());
        buffer.clear_error();
        assert!(buffer.read().is_ok());
    }
}

fn a_lost_device_takes_only_what_was_there_alone(f: &Fixture) {
    for (_, one) in pairs(f) {
        // Nobody else has this device.
        let gone = f.open(|_| {});
        let other = Kernels::new(&gone);
        let buffer = f.context.buffer_from_vec(vec![1u32; 1000]).unwrap();
        let part = |range: std::ops::Range<u64>| buffer.slice(range).unwrap();
        one.add(&part(0..300), 1).unwrap();
        other.add(&part(300..600), 2).unwrap();
        other.add(&part(700..800), 3).unwrap();
        // These are there, and elsewhere.
        assert_eq!(other.sum(&part(0..300)), 16 * 4);
        assert_eq!(other.sum(&part(600..700)), 16);
        other.device.finish().unwrap();
        gone.raw().destroy();
        match buffer.read().unwrap_err() {
            BufferError::Lost { device, ranges } => {
                assert!(device.contains(gone.name()), "{device}");
                assert_eq!(ranges, [1200..2400, 2800..3200]);
            }
            other => panic!("{other}"),
        }
        match one.add(&part(250..350), 1).unwrap_err() {
            LaunchError::Buffer { source, .. } => match *source {
                BufferError::Lost { ranges, .. } => {
                    assert_eq!((ranges.len(), &ranges[0]), (1, &(1200..1400)))
                }
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
        assert!(other.add(&part(0..10), 1).is_err());
        // The rest goes on, and what is overwritten is there again.
        assert_eq!(part(0..300).read().unwrap(), vec![4; 300]);
        assert_eq!(part(600..700).read().unwrap(), vec![1; 100]);
        one.add(&part(600..700), 5).unwrap();
        buffer.write(300, &[7; 300]).unwrap();
        part(700..800).discard().unwrap();
        let found = buffer.read().unwrap();
        assert_eq!(found[..300], [4; 300]);
        assert_eq!(found[300..600], [7; 300]);
        assert_eq!(found[600..700], [8; 100]);
        assert_eq!(found[800..], [1; 200]);
        one.add(&part(300..600), 0).unwrap();
        assert_eq!(part(300..600).read().unwrap(), vec![21; 300]);
    }
}

fn memory_moves_to_the_host_under_pressure(f: &Fixture) {
    let small = f.open(|options| options.buffer_bytes = Some(10_000));
    let small = Kernels::new(&small);
    let buffers: Vec<Buffer<u32>> = (0..5)
        .map(|i| f.context.buffer_from_vec(vec![i; 1000]).unwrap())
        .collect();
    for round in 0..3 {
        for buffer in &buffers {
            small.add(buffer, round).unwrap();
        }
    }
    let memory = small.device.buffer_memory();
    assert_eq!(
        (memory.used, memory.buffers, memory.cap),
        (8000, 2, Some(10_000))
    );
    assert_eq!(memory.peak, 8000);
    for (i, buffer) in buffers.iter().enumerate() {
        let mut expected = vec![i as u32; 1000];
        (0..3).for_each(|round| added(&mut expected, round));
        assert_eq!(buffer.read().unwrap(), expected);
    }
    // Two that must be there together and one that may go: fits. Three: does not, and nothing is lost.
    small.copy(&buffers[0], &buffers[4]).unwrap();
    let large: Buffer<u32> = f.context.buffer_from_vec(vec![3; 2000]).unwrap();
    match small.copy(&large, &buffers[4]).unwrap_err() {
        LaunchError::Buffer {
            argument, source, ..
        } => match *source {
            BufferError::NoRoom {
                bytes, cap, device, ..
            } => {
                assert_eq!(cap, Some(10_000));
                assert_eq!(device, small.device.name());
                assert!([4000, 8000].contains(&bytes));
                assert!(["source", "data"].contains(&argument.as_str()));
            }
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
    let mut expected = vec![0u32; 1000];
    (0..3).for_each(|round| added(&mut expected, round));
    assert_eq!(buffers[4].read().unwrap(), expected);
    assert_eq!(large.read().unwrap(), vec![3; 2000]);
    small.add(&large, 1).unwrap();
    assert_eq!(large.read().unwrap(), vec![10; 2000]);
    let used = small.device.buffer_memory().used;
    assert_eq!(small.device.trim_buffers().unwrap(), used);
    assert_eq!(small.device.buffer_memory().used, 0);
    assert_eq!(large.read().unwrap(), vec![10; 2000]);
    let evicted: u64 = buffers
        .iter()
        .map(|buffer| buffer.statistics().evictions)
        .sum();
    assert!(evicted >= 11, "{evicted}");
}

/// The device with the latest bytes of the source holds one of the two.
fn copies_that_no_device_has_room_for_are_made_by_the_host(f: &Fixture) {
    let small = Kernels::new(&f.open(|options| options.buffer_bytes = Some(10_000)));
    let from = f.context.buffer_from_vec(vec![1u32; 2000]).unwrap();
    let to = f.context.buffer_from_vec(vec![9u32; 2001]).unwrap();
    small.add(&from, 5).unwrap();
    let mut expected = vec![1u32; 2000];
    added(&mut expected, 5);
    from.copy_to(&to.slice(1..).unwrap()).unwrap();
    assert_eq!(from.read().unwrap(), expected);
    expected.insert(0, 9);
    assert_eq!(to.read().unwrap(), expected);
}

fn rivals_on_two_devices_are_told(f: &Fixture) {
    let (one, other) = pairs(f).swap_remove(0);
    let buffer = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
    let other_thread = |part: &Buffer<u32>| {
        std::thread::scope(|scope| scope.spawn(|| other.add(part, 1).unwrap()).join().unwrap())
    };
    // Recorded, and nobody has waited.
    one.add(&buffer.slice(..60).unwrap(), 1).unwrap();
    let event = other_thread(&buffer.slice(40..).unwrap());
    let told = event.explanation().unwrap();
    let conflicts = &told.buffers[0].conflicts;
    assert_eq!((conflicts.len(), &conflicts[0]), (1, &(160..240)));
    assert!(
        event
            .explanation()
            .unwrap()
            .to_string()
            .contains("160..240")
    );
    assert_eq!(buffer.statistics().conflicts, 1);
    // Parts that are apart, the same thread, and whoever waits are no rivals.
    event.wait().unwrap();
    one.add(&buffer.slice(..50).unwrap(), 1).unwrap();
    other_thread(&buffer.slice(50..).unwrap());
    one.add(&buffer.slice(..50).unwrap(), 1).unwrap();
    other
        .add(&buffer.slice(..50).unwrap(), 1)
        .unwrap()
        .wait()
        .unwrap();
    other_thread(&buffer);
    assert_eq!(buffer.statistics().conflicts, 1);
    let mut expected = vec![1u32; 100];
    for range in [0..60, 40..100, 0..50, 50..100, 0..50, 0..50, 0..100] {
        added(&mut expected[range], 1);
    }
    assert_eq!(buffer.read().unwrap(), expected);
}

fn who_enqueues_does_not_wait_for_other_devices(f: &Fixture) {
    // lavapipe rations turns of loops, and keeps whoever submits while a kernel runs.
    if !f.is_swiftshader() {
        return;
    }
    let program = Program::new(
        "listen.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> words: array<atomic<u32>>;
         @compute @workgroup_size(1) fn main() {
            for (var i = 0u; i < 40000000u; i++) {
                storageBarrier();
                if atomicLoad(&words[0]) == 7u { data[0] = 77u; break; }
            }
         }",
    )
    .unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    for (_, other) in pairs(f) {
        // SwiftShader may give a kernel to a thread that is busy with the one that listens.
        if other.device.name() == f.device.name() {
            continue;
        }
        let words = f.device.live(1).unwrap();
        let buffer = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
        let apart = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
        let launch = kernel
            .launch()
            .buffer("data", &buffer)
            .buffer("words", &words);
        launch.workgroups(1).submit().unwrap();
        let free = other.add(&apart, 4).unwrap();
        let event = other.add(&buffer, 1).unwrap();
        // The other device has submitted what does not wait.
        free.wait().unwrap();
        assert_eq!(apart.read().unwrap(), vec![7; 100]);
        assert_eq!(event.status(), tombolo::device::EventStatus::Recorded);
        assert!(matches!(
            event
                .wait_timeout(std::time::Duration::from_millis(1))
                .unwrap_err(),
            WaitError::Deadline
        ));
        words.store(0, 7).unwrap();
        let waited = pollster::block_on(event.clone().into_future());
        waited.unwrap();
        let found = buffer.read().unwrap();
        assert_eq!((found[0], found[1]), (77 * 3 + 1, 4));
    }
}

fn anything_in_any_order_is_right(f: &Fixture) {
    for (seed, (one, other)) in pairs(f).into_iter().enumerate() {
        let capped = Kernels::new(&f.open(|options| options.buffer_bytes = Some(9000)));
        let devices = [&one, &other, &capped];
        let mut random = Random(seed as u64 + 1);
        let mut models: Vec<Vec<u32>> = (0..3u32).map(|i| vec![i; 1000]).collect();
        let buffers: Vec<Buffer<u32>> = (models.iter())
            .map(|model| f.context.buffer_from(model).unwrap())
            .collect();
        for step in 0..150 {
            let which = random.below(3) as usize;
            let (buffer, model) = (&buffers[which], &mut models[which]);
            let start = random.below(999);
            let end = start + 1 + random.below(1000 - start);
            let part = buffer.slice(start..end).unwrap();
            let at = start as usize..end as usize;
            let kernels = devices[random.below(3) as usize];
            match random.below(12) {
                0..=4 => {
                    kernels.add(&part, step).unwrap();
                    added(&mut model[at], step);
                }
                5 => {
                    let values: Vec<u32> = (0..end - start).map(|i| i as u32 * 31 + step).collect();
                    part.write(0, &values).unwrap();
                    model[at].copy_from_slice(&values);
                }
                6 => {
                    part.fill(step, ..).unwrap();
                    model[at].fill(step);
                }
                7 => {
                    let mut mapped = part.map_mut(..).unwrap();
                    let last = mapped.len() - 1;
                    mapped[last] = step;
                    mapped[0] += 1;
                    mapped.unmap().unwrap();
                    model[end as usize - 1] = step;
                    model[start as usize] = model[start as usize].wrapping_add(1);
                }
                8 => {
                    part.prefetch(&kernels.device).unwrap();
                }
                9 => {
                    buffer.migrate(&kernels.device).unwrap();
                }
                10 => {
                    let from = &buffers[(which + 1) % 3];
                    let source = from.slice(start..end).unwrap();
                    kernels.copy(&source, &part).unwrap();
                    let copied = models[(which + 1) % 3][at.clone()].to_vec();
                    models[which][at].copy_from_slice(&copied);
                }
                _ => assert_eq!(part.read().unwrap(), model[at], "step {step}"),
            }
        }
        for (buffer, model) in buffers.iter().zip(&models) {
            assert_eq!(&buffer.read().unwrap(), model);
            let moves = buffer.statistics().moves;
            assert!(moves.moved <= moves.whole_buffer + 4000, "{moves:?}");
        }
    }
}
