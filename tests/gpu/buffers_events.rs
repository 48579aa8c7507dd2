//! The events of commands on buffers of a context, and read-backs: any number of them on their way, each with the values
//! of its own moment.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::buffers::failing;
use crate::buffers_moving::{Kernels, Random, added, pairs};
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Event,
    buffers::{BufferError, Placement, ReadBack, ReadError},
    device::EventStatus,
};

cases![
    commands_give_events,
    events_of_the_host_are_complete,
    events_of_the_host_go_with_those_of_devices,
    read_backs_have_the_values_of_their_moment,
    read_backs_are_awaited_polled_and_taken_once,
    read_backs_may_be_dropped,
    small_read_backs_after_large_ones,
    buffers_in_the_heap_are_read_back,
    read_backs_of_common_memory_keep_the_order,
    read_backs_tell_failures,
    read_backs_of_a_lost_device_say_so,
    what_cannot_be_read_back_is_refused,
    read_backs_in_any_order_are_right,
];

const DEADLINE: Duration = Duration::from_secs(60);

fn noise(len: usize, seed: u32) -> Vec<u32> {
    let mix = |i: u32| (i ^ seed).wrapping_mul(0x9e37_79b1) ^ (i >> 7);
    (0..len as u32).map(mix).collect()
}

fn commands_give_events(f: &Fixture) {
    for (one, other) in pairs(f) {
        let buffer = f.context.buffer_from_vec(noise(500, 1)).unwrap();
        let target = f.context.buffer_from_vec(vec![9u32; 500]).unwrap();
        let mut model = noise(500, 1);
        for (round, kernels) in (0..4).zip([&one, &other].into_iter().cycle()) {
            kernels.add(&buffer, round).unwrap();
            added(&mut model, round);
            let part = buffer.slice(7..61).unwrap();
            let fill = part.fill(round + 5, 1..40).unwrap();
            model[8..47].fill(round + 5);
            let copy = buffer.copy_to(&target).unwrap();
            // The device has the commands in its queue, and another one is told to come behind.
            other.device.after(&[&fill, &copy]).unwrap();
            Event::wait_all(&[&copy, &fill]).unwrap();
            for event in [&fill, &copy] {
                assert_eq!(event.status(), EventStatus::Complete);
                assert!(event.submitted_at().is_some(), "made by a device");
            }
            assert_eq!(target.read().unwrap(), model);
        }
    }
}

fn events_of_the_host_are_complete(f: &Fixture) {
    for placement in [Placement::Auto, Placement::Shared] {
        let buffer = f.context.buffer_with::<u32>(100, placement).unwrap();
        let target = f.context.buffer_with::<u32>(50, placement).unwrap();
        let events = [
            buffer.write(3, &[5; 20]).unwrap(),
            buffer.fill(6, 10..90).unwrap(),
            buffer.slice(40..90).unwrap().copy_to(&target).unwrap(),
            buffer.write(0, &[]).unwrap(),
            buffer.fill(1, 4..4).unwrap(),
        ];
        for event in &events {
            assert_eq!(event.status(), EventStatus::Complete);
            event.wait().unwrap();
            event.wait_timeout(Duration::ZERO).unwrap();
            assert!(event.error().is_none() && event.submitted_at().is_none());
            assert!(event.explanation().is_none());
        }
        assert_eq!(target.read().unwrap(), vec![6; 50]);
        // A callback runs, on another thread.
        let (sender, receiver) = channel();
        events[0].on_completion(move |result| {
            sender
                .send((result.is_ok(), thread::current().id()))
                .unwrap();
        });
        let (is_ok, id) = receiver.recv_timeout(DEADLINE).unwrap();
        assert!(is_ok && id != thread::current().id());
        for event in events {
            pollster::block_on(event.into_future()).unwrap();
        }
    }
}

fn events_of_the_host_go_with_those_of_devices(f: &Fixture) {
    let kernels = Kernels::new(&f.device);
    let buffer = f.context.buffer_from_vec(vec![1u32; 100]).unwrap();
    let written = buffer.write(0, &[2; 50]).unwrap();
    let launched = kernels.add(&buffer, 1).unwrap();
    assert_eq!(Event::wait_any(&[&launched, &written]), Some(1));
    Event::wait_all(&[&written, &launched]).unwrap();
    f.device.after(&[&written, &launched]).unwrap();
    assert_eq!(Event::wait_any(&[&written]), Some(0));
    let mut model = [[2; 50], [1; 50]].concat();
    added(&mut model, 1);
    assert_eq!(buffer.read().unwrap(), model);
}

fn read_backs_have_the_values_of_their_moment(f: &Fixture) {
    for (one, other) in pairs(f) {
        let mut model = noise(999, 2);
        let buffer = f.context.buffer_from(&model).unwrap();
        let mut coming: Vec<(ReadBack<u32>, Vec<u32>)> = Vec::new();
        for round in 0..6u32 {
            // Each device has a part, and the host the rest.
            for (kernels, range) in [(&one, 1..400), (&other, 350..801)] {
                let part = buffer.slice(range.start as u64..range.end as u64);
                kernels.add(&part.unwrap(), round).unwrap();
                added(&mut model[range], round);
            }
            for range in [0..999usize, 399..402, 250..900, 998..999, 5..5] {
                let read = buffer.read_back(range.start as u64..range.end as u64);
                coming.push((read.unwrap(), model[range].to_vec()));
            }
            let part = buffer.slice(300..901).unwrap();
            coming.push((
                part.read_back(100..=300).unwrap(),
                model[400..=600].to_vec(),
            ));
            // None of this is among the values.
            part.fill(round, 3..50).unwrap();
            model[303..350].fill(round);
            buffer.write(600, &[round + 7; 100]).unwrap();
            model[600..700].fill(round + 7);
        }
        // The last ones first.
        while let Some((read, expected)) = coming.pop() {
            assert_eq!(read.wait().unwrap(), expected);
        }
        assert_eq!(buffer.read().unwrap(), model);
    }
}

fn read_backs_are_awaited_polled_and_taken_once(f: &Fixture) {
    for (one, other) in pairs(f) {
        let mut model = noise(3000, 3);
        let buffer = f.context.buffer_from(&model).unwrap();
        one.add(&buffer.slice(..1700).unwrap(), 1).unwrap();
        other.add(&buffer.slice(1700..2500).unwrap(), 1).unwrap();
        added(&mut model[..2500], 1);
        let many: Vec<_> = (0..20u64)
            .map(|i| buffer.read_back(i * 149..i * 149 + 160).unwrap())
            .collect();
        let all = pollster::block_on(futures::future::join_all(many));
        for (i, part) in all.into_iter().enumerate() {
            assert_eq!(part.unwrap(), model[i * 149..i * 149 + 160]);
        }
        let read = buffer.read_back(..).unwrap();
        let begun = Instant::now();
        let values = loop {
            if let Some(values) = read.try_take().unwrap() {
                break values;
            }
            assert!(begun.elapsed() < DEADLINE, "the read never ended");
            thread::yield_now();
        };
        assert_eq!(values, model);
        assert!(matches!(read.wait_timeout(DEADLINE), Err(ReadError::Taken)));
        let words = buffer.cast::<[u8; 3]>().unwrap();
        let read = words.read_back(1000..1001).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(&model);
        assert_eq!(read.wait().unwrap().concat(), bytes[3000..3003]);
    }
}

fn read_backs_may_be_dropped(f: &Fixture) {
    for (one, other) in pairs(f) {
        let mut model = noise(70_000, 4);
        let buffer = f.context.buffer_from(&model).unwrap();
        for round in 0..10 {
            let kernels = [&one, &other][round as usize % 2];
            kernels.add(&buffer, round).unwrap();
            added(&mut model, round);
            drop(buffer.read_back(..).unwrap());
            let kept = buffer.read_back(round as u64 * 7..).unwrap();
            drop(buffer.read_back(..=round as u64));
            assert!(kept.wait().unwrap() == model[round as usize * 7..]);
        }
        // The buffer goes first, and its memory with it.
        let kept = buffer.read_back(..).unwrap();
        drop(buffer);
        assert!(kept.wait().unwrap() == model);
    }
}

fn small_read_backs_after_large_ones(f: &Fixture) {
    // More than one piece of a transfer.
    const LEN: usize = (9 << 20) / 4 + 13;
    let kernels = Kernels::new(&f.device);
    let mut model = noise(LEN, 5);
    let buffer = f.context.buffer_from(&model).unwrap();
    for round in 0..2 {
        kernels.add(&buffer, round).unwrap();
        added(&mut model, round);
        let large = buffer.read_back(1..).unwrap();
        let small = buffer.read_back(LEN as u64 - 3..LEN as u64 - 1).unwrap();
        buffer.fill(round, 4..9).unwrap();
        let again = buffer.read_back(..10).unwrap();
        assert_eq!(small.wait().unwrap(), model[LEN - 3..LEN - 1]);
        assert!(large.wait().unwrap() == model[1..], "{round}");
        model[4..9].fill(round);
        assert_eq!(again.wait().unwrap(), model[..10]);
    }
}

fn buffers_in_the_heap_are_read_back(f: &Fixture) {
    for (one, other) in pairs(f) {
        let mut model = noise(1001, 6);
        let buffer = f
            .context
            .buffer_from_vec_with(model.clone(), Placement::Shared)
            .unwrap();
        assert_eq!(buffer.read_back(..).unwrap().wait().unwrap(), model);
        let mut coming = Vec::new();
        for round in 0..6 {
            let kernels = [&one, &other][round as usize % 2];
            let range = round as usize * 11..900;
            let part = buffer.slice(range.start as u64..900).unwrap();
            kernels.add(&part, round).unwrap();
            added(&mut model[range.clone()], round);
            let read = buffer.read_back(range.start as u64..1001).unwrap();
            coming.push((read, model[range.start..].to_vec()));
        }
        for (read, expected) in coming {
            assert_eq!(read.wait().unwrap(), expected);
        }
        let bytes = buffer.cast::<u8>().unwrap();
        let read = bytes.read_back(1..4).unwrap();
        let all: &[u8] = bytemuck::cast_slice(&model);
        assert_eq!(read.wait().unwrap(), all[1..4]);
        buffer.write(0, &[3; 1001]).unwrap();
        assert_eq!(buffer.read_back(..).unwrap().wait().unwrap(), [3; 1001]);
    }
}

fn read_backs_of_common_memory_keep_the_order(f: &Fixture) {
    for (one, other) in pairs(f) {
        let mut model = noise(2000, 7);
        let buffer = f.context.buffer_from(&model).unwrap();
        let mut coming = Vec::new();
        // Handed to and fro until both devices may have the memory in common, and beyond.
        for turn in 0..24u32 {
            [&one, &other][turn as usize % 2]
                .add(&buffer, turn)
                .unwrap();
            added(&mut model, turn);
            coming.push((buffer.read_back(..).unwrap(), model.clone()));
        }
        for (turn, (read, expected)) in coming.into_iter().enumerate() {
            assert!(read.wait().unwrap() == expected, "{turn}");
        }
    }
}

fn read_backs_tell_failures(f: &Fixture) {
    let kernel = failing(&f.device);
    for placement in [Placement::Auto, Placement::Shared] {
        let buffer = f
            .context
            .buffer_from_vec_with(vec![4u32; 100], placement)
            .unwrap();
        let before = buffer.read_back(..).unwrap();
        let part = buffer.slice(10..20).unwrap();
        let launch = kernel.launch().buffer("data", &part);
        launch.workgroups(1).submit().unwrap();
        let read = buffer.read_back(..).unwrap();
        assert_eq!(before.wait().unwrap(), [4; 100]);
        match read.wait().unwrap_err() {
            ReadError::Execution(error) => {
                assert!(error.to_string().contains("no seven"), "{error}");
            }
            other => panic!("{other}"),
        }
        if placement == Placement::Auto {
            let beside = buffer.read_back(20..).unwrap();
            assert_eq!(beside.wait().unwrap(), [4; 80]);
        }
        let read = pollster::block_on(buffer.read_back(15..16).unwrap());
        assert!(matches!(read, Err(ReadError::Execution(_))));
        buffer.clear_error();
        // The heap tells its next access of the failure; that is over then.
        drop(f.context.heap().unwrap().host());
        assert_eq!(buffer.read_back(11..12).unwrap().wait().unwrap(), [4]);
    }
}

fn read_backs_of_a_lost_device_say_so(f: &Fixture) {
    let gone = Kernels::new(&f.open(|_| {}));
    let buffer = f.context.buffer_from_vec(vec![1u32; 100_000]).unwrap();
    gone.add(&buffer, 1).unwrap();
    let read = buffer.read_back(..).unwrap();
    gone.device.raw().destroy();
    match read.wait() {
        // The copy was made before the end.
        Ok(values) => assert_eq!(values, [4; 100_000]),
        Err(ReadError::Execution(_) | ReadError::Memory(_)) => {}
        Err(other) => panic!("{other}"),
    }
    match buffer.read_back(..).map(ReadBack::wait) {
        Err(BufferError::Lost { .. }) => {}
        other => panic!("{other:?}"),
    }
    // Where another device has the bytes, too, they come from there.
    buffer.write(0, &[2; 100_000]).unwrap();
    let gone = Kernels::new(&f.open(|_| {}));
    buffer.migrate(&gone.device).unwrap();
    buffer.prefetch(&f.device).unwrap().wait().unwrap();
    gone.device.raw().destroy();
    // Nobody may have noticed the loss; with the first failure everybody has.
    let values = match buffer.read_back(..).unwrap().wait() {
        Err(ReadError::Execution(_)) => buffer.read_back(..).unwrap().wait(),
        values => values,
    };
    assert_eq!(values.unwrap(), [2; 100_000]);
}

fn what_cannot_be_read_back_is_refused(f: &Fixture) {
    let kernels = Kernels::new(&f.device);
    let buffer = f.context.buffer_from_vec(vec![1u32; 10]).unwrap();
    kernels.add(&buffer, 1).unwrap();
    let out = buffer.read_back(3..11).unwrap_err();
    assert!(
        matches!(out, BufferError::OutOfRange { len: 10, .. }),
        "{out}"
    );
    let out = buffer.read_back(u64::MAX - 1..u64::MAX).unwrap_err();
    assert!(matches!(out, BufferError::OutOfRange { .. }), "{out}");
    let mut mapped = buffer.map_mut(2..4).unwrap();
    mapped[0] = 9;
    let refused = buffer.read_back(..).unwrap_err();
    assert!(matches!(refused, BufferError::Mapped { .. }), "{refused}");
    assert_eq!(buffer.read_back(4..).unwrap().wait().unwrap(), [4; 6]);
    mapped.unmap().unwrap();
    let read = buffer.read_back(..).unwrap();
    // A mapping that begins later changes nothing.
    let mut mapped = buffer.map_mut(..).unwrap();
    mapped[..].fill(0);
    assert_eq!(read.wait().unwrap()[..4], [4, 4, 9, 4]);
}

fn read_backs_in_any_order_are_right(f: &Fixture) {
    for (seed, (one, other)) in pairs(f).into_iter().enumerate() {
        let mut random = Random(seed as u64 + 71);
        let placements = [Placement::Auto, Placement::Device, Placement::Shared];
        let mut models: Vec<Vec<u32>> = (0..3).map(|i| noise(1000, i)).collect();
        let buffers: Vec<Buffer<u32>> = (models.iter().zip(placements))
            .map(|(model, at)| f.context.buffer_from_vec_with(model.clone(), at).unwrap())
            .collect();
        let mut coming: Vec<(ReadBack<u32>, Vec<u32>)> = Vec::new();
        for step in 0..250u32 {
            let which = random.below(3) as usize;
            let (buffer, model) = (&buffers[which], &mut models[which]);
            let start = random.below(999);
            let end = start + 1 + random.below(1000 - start);
            let part = buffer.slice(start..end).unwrap();
            let at = start as usize..end as usize;
            let kernels = [&one, &other][random.below(2) as usize];
            match random.below(14) {
                0..=3 => {
                    kernels.add(&part, step).unwrap();
                    added(&mut model[at], step);
                }
                4 => {
                    part.write(0, &vec![step; at.len()]).unwrap();
                    model[at].fill(step);
                }
                5 => {
                    part.fill(step, ..).unwrap();
                    model[at].fill(step);
                }
                6 => drop(part.prefetch(&kernels.device).unwrap()),
                7 => buffer.evict(&kernels.device).unwrap(),
                8 if !coming.is_empty() => {
                    drop(coming.swap_remove(random.below(coming.len() as u64) as usize));
                }
                9..=11 => coming.push((part.read_back(..).unwrap(), model[at].to_vec())),
                _ if !coming.is_empty() => {
                    let taken = coming.swap_remove(random.below(coming.len() as u64) as usize);
                    assert_eq!(taken.0.wait().unwrap(), taken.1, "step {step}");
                }
                _ => {}
            }
        }
        for (read, expected) in coming {
            assert_eq!(read.wait().unwrap(), expected);
        }
    }
}
