//! Servers whose lanes look at all their ports all the time, instead of waiting for a bell: on devices with memory of their own, with few
//! ports for each lane.

use std::collections::VecDeque;

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, MIX, Mixer, builder, mix, mixer_of, start};
use crate::server_beside::Work;
use tombolo::{
    Device,
    server::{DeviceFunction, PendingCall},
};

cases![
    each_of_many_calls_at_once_has_its_own_answer,
    ports_of_dropped_calls_come_back,
    leases_leave_for_others,
    long_arguments_and_results_arrive_whole,
];

/// Ports, lanes and work-groups of a server: as many ports as lanes, more, and fewer.
const SHAPES: [[usize; 3]; 5] = [[1, 1, 1], [8, 1, 1], [6, 4, 1], [8, 1, 2], [12, 3, 2]];

/// Threads that call, each with so many calls on their way.
const THREADS: u32 = 3;
const BEGUN: usize = 4;
const CALLS: u32 = 60;

/// Servers of each shape, as far as the device allows.
fn servers(f: &Fixture, test: impl Fn(&Device, &str, &Mixer)) {
    let device = f.open(|options| options.unified_memory = Some(false));
    for shape in SHAPES {
        let [ports, lanes, groups] = shape;
        // Lanes share the turns that a driver rations.
        let lanes = match device.capabilities().loop_budget() {
            Some(_) => 1,
            None => lanes,
        };
        let builder = builder(&device, MIX).ports(ports).lanes(lanes);
        let (server, function) = mixer_of(builder.work_groups(groups));
        test(&device, &format!("{shape:?}"), &function);
        let found = server.statistics();
        let lost = found.killed + found.stuck + found.failed;
        assert_eq!(lost, 0, "{shape:?}: {found:?}");
    }
}

/// Calls of a thread, several at a time.
fn calls(function: &Mixer, seed: u32, shape: &str) {
    let mut begun: VecDeque<(u32, PendingCall<u32>)> = VecDeque::new();
    for i in 0..CALLS {
        if begun.len() == BEGUN
            && let Some((x, call)) = begun.pop_front()
        {
            let result = call.wait_timeout(MINUTE).unwrap();
            assert_eq!(result, mix(x, seed), "{shape}: call {x} of {seed}");
        }
        begun.push_back((i, function.begin(&(i, seed))));
    }
    for (x, call) in begun {
        assert_eq!(call.wait_timeout(MINUTE).unwrap(), mix(x, seed), "{shape}");
    }
}

fn each_of_many_calls_at_once_has_its_own_answer(f: &Fixture) {
    servers(f, |_, shape, function| {
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                scope.spawn(move || calls(function, seed, shape));
            }
        });
    });
}

fn ports_of_dropped_calls_come_back(f: &Fixture) {
    servers(f, |_, shape, function| {
        for round in 0..20 {
            drop(function.begin(&(round, 1)));
            let result = function.call_timeout(&(round, 2), MINUTE).unwrap();
            assert_eq!(result, mix(round, 2), "{shape}");
        }
    });
}

fn leases_leave_for_others(f: &Fixture) {
    servers(f, |device, shape, function| {
        let mut work = Work::new(device);
        for round in 0..10 {
            let result = function.call_timeout(&(round, 3), MINUTE).unwrap();
            assert_eq!(result, mix(round, 3), "{shape}");
            work.launched();
        }
        work.check();
    });
}

fn long_arguments_and_results_arrive_whole(f: &Fixture) {
    let device = f.open(|options| options.unified_memory = Some(false));
    // More than a line of a packet, and just a line.
    let source = "
        fn long(x: array<u32, 40>) -> array<u32, 40> {
            var y = x;
            for (var i = 0u; i < 40u; i++) { y[i] = x[39u - i] * 3u + i; }
            return y;
        }
        fn line(x: array<u32, 12>) -> u32 {
            var sum = 0u;
            for (var i = 0u; i < 12u; i++) { sum = sum * 31u + x[i]; }
            return sum;
        }
        fn none() -> u32 { return 77u; }";
    let server = builder(&device, source).ports(4);
    let server = start(server.handler("long").handler("line").handler("none"));
    let long: DeviceFunction<([u32; 40],), [u32; 40]> = server.function("long").unwrap();
    let line: DeviceFunction<([u32; 12],), u32> = server.function("line").unwrap();
    let none: DeviceFunction<(), u32> = server.function("none").unwrap();
    for round in 0..20u32 {
        let x = std::array::from_fn(|i| round * 1000 + i as u32 * 7);
        let y: [u32; 40] = std::array::from_fn(|i| x[39 - i] * 3 + i as u32);
        assert_eq!(long.call_timeout(&(x,), MINUTE).unwrap(), y);
        let x: [u32; 12] = std::array::from_fn(|i| round * 77 + i as u32);
        let sum = x
            .iter()
            .fold(0u32, |sum, &x| sum.wrapping_mul(31).wrapping_add(x));
        assert_eq!(line.call_timeout(&(x,), MINUTE).unwrap(), sum);
        assert_eq!(none.call_timeout(&(), MINUTE).unwrap(), 77);
    }
}
