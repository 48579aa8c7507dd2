//! The second queue of a card: a server there, and launches of the first queue that do not wait for it. Other adapters tell
//! that they have none.

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{CALL, POISON, caller, run};
use crate::persistent::{MINUTE, MIX, builder, endless, mix, mixer_of};
use crate::server_beside::Work;
use tombolo::{Constants, Device, Program, device::DeviceError};

cases![
    launches_do_not_wait_for_a_server_on_the_second_queue,
    buffers_and_the_heap_reach_the_second_queue,
    a_second_queue_outlives_the_first,
];

/// The device of the second queue; `None` behind the check of the error where there is none.
fn second(device: &Device) -> Option<Device> {
    let opened = device.second_queue();
    assert_eq!(opened.is_ok(), device.has_second_queue());
    match opened {
        Ok(second) => Some(second),
        Err(error) => {
            let DeviceError::SecondQueue { device: name, why } = &error else {
                panic!("{error}");
            };
            assert_eq!(name, device.name());
            assert!(!why.is_empty() && error.to_string().contains("leases"));
            assert!(why.contains("family") || why.contains("backend"), "{why}");
            None
        }
    }
}

fn launches_do_not_wait_for_a_server_on_the_second_queue(f: &Fixture) {
    const COUNT: u32 = 64;
    let Some(second) = second(&f.device) else {
        return;
    };
    let (server, function) = mixer_of(builder(&second, MIX).leases(endless(&second)));
    assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
    let mut work = Work::new(&f.device);
    for round in 0..50u32 {
        for _ in 0..10 {
            work.launched();
        }
        work.check();
        let result = function.call_timeout(&(round, 7), MINUTE).unwrap();
        assert_eq!(result, mix(round, 7));
    }
    // A kernel of the first queue waits for the server.
    let kernel = caller(&f.device, &server, CALL);
    let results = f.device.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch
        .value("seed", &9u32)
        .server(&server)
        .invocations(COUNT);
    let expected: Vec<u32> = (0..COUNT)
        .map(|i| mix(i + 9, i).wrapping_add(mix(i, i + 9)))
        .collect();
    assert_eq!(run(&mut launch, &results, 2).1, expected);
    // All of it beside one lease, which has not ended.
    let told = server.statistics();
    let ended = [told.time, told.others, told.idle, told.turns, told.killed];
    assert_eq!((told.leases, ended), (1, [0; 5]));
    server.stop();
}

fn buffers_and_the_heap_reach_the_second_queue(f: &Fixture) {
    const COUNT: u32 = 1000;
    let Some(second) = second(&f.device) else {
        return;
    };
    // The same device, however often it is asked for, and no third queue behind it.
    assert!(second.second_queue().is_err() && !second.has_second_queue());
    let again = f.device.second_queue().unwrap();
    let theirs = second.buffer(&[POISON; 64]).unwrap();
    let add = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 3u + id.x; }
        }";
    let program = Program::new("add.wgsl", add).unwrap();
    let kernel = |device: &Device| device.kernel(&program, "main", &Constants::new()).unwrap();
    let launch = kernel(&again)
        .launch()
        .buffer("data", &theirs)
        .invocations(64);
    { launch }.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let expected: Vec<u32> = (0..64)
        .map(|i| POISON.wrapping_mul(3).wrapping_add(i))
        .collect();
    assert_eq!(theirs.read().unwrap(), expected);
    // A buffer of the context goes to and fro.
    let start: Vec<u32> = (0..COUNT).map(|i| i ^ 0x55).collect();
    let buffer = f.context.buffer_from(&start).unwrap();
    let launch = |device| {
        kernel(device)
            .launch()
            .buffer("data", &buffer)
            .invocations(COUNT)
    };
    let mut launches = [launch(&f.device), launch(&second)];
    let mut expected = start;
    for _ in 0..10 {
        for launch in &mut launches {
            launch.submit().unwrap();
            for (i, value) in (0u32..).zip(&mut expected) {
                *value = value.wrapping_mul(3).wrapping_add(i);
            }
        }
    }
    assert_eq!(buffer.read().unwrap(), expected);
}

fn a_second_queue_outlives_the_first(f: &Fixture) {
    for _ in 0..3 {
        let first = f.open(|_| {});
        let Some(second) = second(&first) else {
            return;
        };
        let mut work = Work::new(&second);
        work.launched();
        drop(first);
        for _ in 0..10 {
            work.launched();
        }
        work.check();
        drop((work, second));
    }
}
