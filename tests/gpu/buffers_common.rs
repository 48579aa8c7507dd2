//! Buffers that choose for themselves where they live: those that devices hand to and fro go to memory that the devices
//! have in common.

use crate::buffers_moving::{Kernels, Random, added, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Program,
    buffers::{BufferError, Placement},
    device::{ExecutionError, WaitError},
    launch::LaunchError,
};

cases![
    what_is_handed_to_and_fro_moves_no_more,
    others_keep_memory_of_their_own,
    anything_in_any_order_is_right_in_common_memory,
    failures_are_those_of_the_buffer,
    a_device_that_is_lost_leaves_what_is_in_common,
    a_device_that_nobody_holds_leaves_what_is_in_common,
    many_launches_keep_their_order,
    memory_in_common_is_used_again,
    a_third_device_moves_in,
    who_moves_in_finds_what_others_have_made,
];

/// Turns after which a buffer goes to common memory.
const TURNS: u32 = 8;

fn share(a: &Kernels, b: &Kernels) -> bool {
    let may = |kernels: &Kernels| {
        let capabilities = kernels.device.capabilities();
        capabilities.unified_memory && capabilities.host_import()
    };
    may(a) && may(b)
}

/// Whether both run on the host's processors.
fn are_near(a: &Kernels, b: &Kernels) -> bool {
    [a, b]
        .iter()
        .all(|kernels| kernels.device.capabilities().software)
}

/// A buffer that the two have handed to and fro until it moved no more, and what it holds.
fn in_common(f: &Fixture, one: &Kernels, other: &Kernels, len: usize) -> (Buffer<u32>, Vec<u32>) {
    let mut model: Vec<u32> = (0..len as u32).collect();
    let buffer = f.context.buffer_from(&model).unwrap();
    for turn in 0..=TURNS {
        [one, other][turn as usize % 2].add(&buffer, turn).unwrap();
        added(&mut model, turn);
    }
    (buffer, model)
}

fn what_is_handed_to_and_fro_moves_no_more(f: &Fixture) {
    for (one, other) in pairs(f) {
        let kernels = [&one, &other];
        let mut model: Vec<u32> = (0..3001).collect();
        let buffer = f.context.buffer_from(&model).unwrap();
        let mut before = 0;
        for turn in 0..30u32 {
            let kernels = kernels[turn as usize % 2];
            let mut launch = kernels.device.kernel(&add(), "add", &Constants::new());
            let mut launch = launch
                .as_mut()
                .unwrap()
                .launch()
                .buffer("data", &buffer)
                .invocations(3001);
            let foreseen = launch.explain().unwrap();
            let event = launch.submit().unwrap();
            let told = event.explanation().unwrap();
            assert_eq!(foreseen, *told, "turn {turn}");
            added(&mut model, 1);
            let moved = buffer.statistics().moves.moved;
            let common = told.buffers[0].common;
            if share(&one, &other) && turn >= TURNS {
                let common = common.unwrap();
                assert_eq!(
                    (common.turns, common.moved, common.begins),
                    (TURNS, 8 * 12_004, turn == TURNS)
                );
                let says = ["is in memory", "goes to memory"][usize::from(turn == TURNS)];
                assert!(told.to_string().contains(says), "{told}");
                assert_eq!(moved > before, turn == TURNS);
            } else {
                assert_eq!(common, None);
                assert!(moved > before);
            }
            before = moved;
        }
        assert_eq!(buffer.read().unwrap(), model);
        // An eviction ends it.
        let used = |kernels: &Kernels| kernels.device.buffer_memory().used;
        let has = (used(&one), used(&other));
        buffer.evict(&one.device).unwrap();
        assert_eq!(used(&one), has.0 - 12_004);
        if share(&one, &other) {
            assert_eq!(used(&other), has.1 - 12_004);
        }
        let event = other.add(&buffer, 1).unwrap();
        assert_eq!(event.explanation().unwrap().buffers[0].common, None);
        added(&mut model, 1);
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn add() -> Program {
    Program::new(
        "add.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 3u + 1u; }
         }",
    )
    .unwrap()
}

fn others_keep_memory_of_their_own(f: &Fixture) {
    for (one, other) in pairs(f) {
        let told = |buffer: &Buffer<u32>, turns: u32| -> bool {
            (0..turns).any(|turn| {
                let event = [&one, &other][turn as usize % 2].add(buffer, turn).unwrap();
                event.explanation().unwrap().buffers[0].common.is_some()
            })
        };
        // Who was told where to live.
        let model = vec![1u32; 100];
        let fixed = f
            .context
            .buffer_from_vec_with(model.clone(), Placement::Device)
            .unwrap();
        assert!(!told(&fixed, 30));
        // Edges of halves that two devices work on, unless both take their time from the same processors.
        let halves = f.context.buffer_from(&model).unwrap();
        let mut found = Vec::new();
        for _ in 0..20 {
            let parts = [halves.slice(..55).unwrap(), halves.slice(45..).unwrap()];
            for (kernels, part) in [&one, &other].into_iter().zip(&parts) {
                let event = kernels.add(part, 1).unwrap();
                found.push(event.explanation().unwrap().buffers[0].common.is_some());
            }
        }
        // The first launch takes nothing from the other device.
        let moves_in = share(&one, &other) && are_near(&one, &other);
        let expected = (0..40).map(|launch| moves_in && launch >= TURNS);
        assert_eq!(found, expected.collect::<Vec<_>>());
        let mut expected = vec![1u32; 100];
        for _ in 0..20 {
            added(&mut expected[..55], 1);
            added(&mut expected[45..], 1);
        }
        assert_eq!(halves.read().unwrap(), expected);
        // Turns that are far apart.
        let seldom = f.context.buffer_from(&model).unwrap();
        for turn in 0..20u32 {
            for _ in 0..11 {
                let event = [&one, &other][turn as usize % 2].add(&seldom, 1).unwrap();
                assert_eq!(event.explanation().unwrap().buffers[0].common, None);
            }
        }
        // What one makes and the other reads, while the next is made.
        let made = f.context.buffer_from(&model).unwrap();
        let seen = f.context.buffer::<u32>(100).unwrap();
        for _ in 0..20 {
            one.add(&made, 1).unwrap();
            let event = other.copy(&made, &seen).unwrap();
            let told = event.explanation().unwrap();
            assert!(told.buffers.iter().all(|buffer| buffer.common.is_none()));
        }
        // What the host hands out anew each time.
        let fed = f.context.buffer_from(&model).unwrap();
        for turn in 0..20u32 {
            fed.write(0, &model).unwrap();
            let event = [&one, &other][turn as usize % 2].add(&fed, 1).unwrap();
            assert_eq!(event.explanation().unwrap().buffers[0].common, None);
        }
    }
}

fn anything_in_any_order_is_right_in_common_memory(f: &Fixture) {
    for (seed, (one, other)) in pairs(f).into_iter().enumerate() {
        let third = Kernels::new(&f.open(|options| options.import_host_memory = false));
        let fourth = Kernels::new(&f.open(|_| {}));
        let devices = [&one, &other, &third, &fourth];
        let mut random = Random(seed as u64 + 41);
        let (mut buffers, mut models): (Vec<_>, Vec<_>) =
            (0..3).map(|_| in_common(f, &one, &other, 1001)).unzip();
        for step in 0..300u32 {
            let which = random.below(3) as usize;
            if random.below(60) == 0 {
                (buffers[which], models[which]) = in_common(f, &one, &other, 1001);
            }
            let (buffer, model) = (&buffers[which], &mut models[which]);
            let start = random.below(1000);
            let end = start + 1 + random.below(1001 - start);
            let part = buffer.slice(start..end).unwrap();
            let at = start as usize..end as usize;
            // Mostly those that share.
            let kernels = devices[[0, 1, 0, 1, 0, 1, 2, 3][random.below(8) as usize]];
            match random.below(24) {
                0..=9 => {
                    kernels.add(&part, step).unwrap();
                    added(&mut model[at], step);
                }
                10 => {
                    let values: Vec<u32> = (0..end - start).map(|i| i as u32 * 31 + step).collect();
                    part.write(0, &values).unwrap();
                    model[at].copy_from_slice(&values);
                }
                11 => {
                    part.fill(step, ..).unwrap();
                    model[at].fill(step);
                }
                12 => {
                    let mut mapped = part.map_mut(..).unwrap();
                    mapped[0] += 1;
                    mapped.unmap().unwrap();
                    model[start as usize] = model[start as usize].wrapping_add(1);
                }
                13 => {
                    part.prefetch(&kernels.device).unwrap();
                }
                14 if random.below(4) == 0 => {
                    buffer.migrate(&kernels.device).unwrap();
                }
                15 if random.below(4) == 0 => buffer.evict(&kernels.device).unwrap(),
                16..=18 => {
                    let source = buffers[(which + 1) % 3].slice(start..end).unwrap();
                    kernels.copy(&source, &part).unwrap();
                    let copied = models[(which + 1) % 3][at.clone()].to_vec();
                    models[which][at].copy_from_slice(&copied);
                }
                19 => {
                    let source = buffers[(which + 1) % 3].slice(start..end).unwrap();
                    source.copy_to(&part).unwrap();
                    let copied = models[(which + 1) % 3][at.clone()].to_vec();
                    models[which][at].copy_from_slice(&copied);
                }
                _ => assert_eq!(part.read().unwrap(), model[at], "step {step}"),
            }
        }
        for (buffer, model) in buffers.iter().zip(&models) {
            assert_eq!(buffer.read().unwrap(), *model);
        }
    }
}

fn failures_are_those_of_the_buffer(f: &Fixture) {
    let program = Program::new(
        "fail.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn fail() { data[0] = 1u; assert(data[1] == 7u, \"no seven\"); }",
    )
    .unwrap();
    for (one, other) in pairs(f) {
        let (buffer, mut model) = in_common(f, &one, &other, 100);
        let (apart, expected) = in_common(f, &one, &other, 50);
        let kernel = one
            .device
            .kernel(&program, "fail", &Constants::new())
            .unwrap();
        let part = buffer.slice(10..20).unwrap();
        let launch = kernel.launch().buffer("data", &part);
        let event = launch.workgroups(1).submit().unwrap();
        // Nobody has looked yet, and the other device does not know of it by itself.
        let next = other.add(&buffer.slice(15..30).unwrap(), 1).unwrap().wait();
        match next.unwrap_err() {
            WaitError::Failed(error) => match &*error {
                ExecutionError::Inherited { kernel, cause } => {
                    assert_eq!(kernel, "add");
                    assert!(cause.to_string().contains("no seven"), "{cause}");
                }
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
        assert!(event.wait().is_err());
        assert!(matches!(buffer.read(), Err(BufferError::Execution(_))));
        assert_eq!(buffer.slice(30..).unwrap().read().unwrap(), model[30..]);
        assert_eq!(apart.read().unwrap(), expected);
        let heap = f.context.heap().unwrap();
        // Nothing of it is the heap's, which may even be in use.
        let host = heap.host().unwrap();
        other.add(&apart, 1).unwrap();
        one.add(&apart, 1).unwrap().wait().unwrap();
        drop(host);
        buffer.write(10, &[4; 20]).unwrap();
        model[10..30].fill(4);
        one.add(&buffer, 2).unwrap();
        added(&mut model, 2);
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn a_device_that_is_lost_leaves_what_is_in_common(f: &Fixture) {
    for (_, one) in pairs(f) {
        let gone = Kernels::new(&f.open(|_| {}));
        let (buffer, mut model) = in_common(f, &gone, &one, 1000);
        gone.add(&buffer, 1).unwrap();
        added(&mut model, 1);
        gone.device.finish().unwrap();
        let is_common = share(&gone, &one);
        gone.device.raw().destroy();
        if is_common {
            // It is the host's memory, and the other device still has it.
            assert_eq!(buffer.read().unwrap(), model);
        } else {
            assert!(matches!(buffer.read(), Err(BufferError::Lost { .. })));
            buffer.write(0, &model).unwrap();
        }
        one.add(&buffer, 2).unwrap();
        added(&mut model, 2);
        assert_eq!(buffer.read().unwrap(), model);
        match gone.add(&buffer, 1).unwrap_err() {
            LaunchError::Buffer { .. } | LaunchError::Execution(_) => {}
            error => panic!("{error}"),
        }
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn a_device_that_nobody_holds_leaves_what_is_in_common(f: &Fixture) {
    for (_, one) in pairs(f) {
        let gone = Kernels::new(&f.open(|_| {}));
        let (buffer, mut model) = in_common(f, &gone, &one, 1000);
        // Nobody waits for this one.
        gone.add(&buffer, 1).unwrap();
        added(&mut model, 1);
        let is_common = share(&gone, &one);
        drop(gone);
        let before = buffer.statistics().moves.moved;
        let next = Kernels::new(&f.open(|_| {}));
        for (turn, kernels) in (2..).zip([&next, &one, &next]) {
            kernels.add(&buffer, turn).unwrap();
            added(&mut model, turn);
        }
        let moved = buffer.statistics().moves.moved;
        assert_eq!(moved == before, is_common, "the next device moves in");
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn many_launches_keep_their_order(f: &Fixture) {
    for (one, other) in pairs(f) {
        let (buffer, mut model) = in_common(f, &one, &other, 500);
        let mut random = Random(3);
        let mut last = None;
        // Nobody waits in between.
        for step in 0..200u32 {
            let kernels = [&one, &other][random.below(2) as usize];
            let start = random.below(400);
            let part = buffer.slice(start..start + 100).unwrap();
            last = Some(kernels.add(&part, step).unwrap());
            added(&mut model[start as usize..][..100], step);
        }
        last.unwrap().wait().unwrap();
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn memory_in_common_is_used_again(f: &Fixture) {
    for (one, other) in pairs(f) {
        for round in 0..6u32 {
            let (buffer, mut model) = in_common(f, &one, &other, 2000);
            one.add(&buffer, round).unwrap();
            added(&mut model, round);
            if round % 2 == 0 {
                // With commands under way that nobody waits for.
                other.add(&buffer, round).unwrap();
                continue;
            }
            assert_eq!(buffer.read().unwrap(), model);
            one.device.trim_buffers().unwrap();
            assert_eq!(buffer.read().unwrap(), model);
        }
    }
}

fn a_third_device_moves_in(f: &Fixture) {
    for (one, other) in pairs(f) {
        let third = Kernels::new(&f.open(|_| {}));
        let mut model: Vec<u32> = (0..1000).collect();
        let buffer = f.context.buffer_from(&model).unwrap();
        let mut moved = Vec::new();
        for turn in 0..60u32 {
            [&one, &other, &third][turn as usize % 3]
                .add(&buffer, turn)
                .unwrap();
            added(&mut model, turn);
            moved.push(buffer.statistics().moves.moved);
        }
        assert_eq!(buffer.read().unwrap(), model);
        if share(&one, &other) {
            assert_eq!(moved[20], moved[59]);
        } else {
            assert!(moved[59] > moved[50]);
        }
    }
}

/// What a device has fetched into memory of its own would be missing in common memory.
fn who_moves_in_finds_what_others_have_made(f: &Fixture) {
    for (one, other) in pairs(f) {
        let apart = Kernels::new(&f.open(|options| options.import_host_memory = false));
        let late = Kernels::new(&f.open(|_| {}));
        let mut model: Vec<u32> = (0..100).collect();
        let buffer = f.context.buffer_from(&model).unwrap();
        let most = buffer.slice(..90).unwrap();
        // It has bytes of its own that no other device has written since, and so stays apart.
        let seen = f.context.buffer::<u32>(10).unwrap();
        late.copy(&buffer.slice(90..).unwrap(), &seen).unwrap();
        for turn in 0..=TURNS {
            [&one, &other][turn as usize % 2].add(&most, turn).unwrap();
            added(&mut model[..90], turn);
        }
        for (step, kernels) in [&apart, &late, &one, &late, &other].into_iter().enumerate() {
            let event = kernels.add(&most, step as u32).unwrap();
            added(&mut model[..90], step as u32);
            let is_common = event.explanation().unwrap().buffers[0].common.is_some();
            let expected = match step {
                0 | 1 => false,
                // The bytes have come from common memory, or lie there.
                _ => share(&one, &other) && (step != 3 || share(&one, &late)),
            };
            assert_eq!(is_common, expected, "step {step}");
        }
        assert_eq!(buffer.read().unwrap(), model);
        assert_eq!(seen.read().unwrap(), model[90..]);
    }
}
