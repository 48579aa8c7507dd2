//! Kernels that call functions of a server on their own device, which serves them behind each launch.

use tombolo::{
    Constants, HostServices, PersistentKernel, Program, calls::CallStatus, launch::LaunchError,
};

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{CALL, KINDS, MINUTE, POISON, builder, caller, mix, start};

cases![
    kernels_of_one_device_hand_calls_over_between_launches,
    handlers_that_fail_between_launches_say_so,
    kernels_that_would_wait_for_themselves_are_refused,
    services_and_a_server_on_one_launch_are_refused,
];

pub const BEGIN: &str = "
    @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        tickets[id.x] = mix_begin(id.x, 3u * id.x);
    }";
pub const COLLECT: &str = "
    @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
    @group(0) @binding(1) var<storage, read_write> results: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let reply = mix_collect(tickets[id.x]);
        results[id.x] = select(reply.status, reply.value, reply.status == CALL_DONE);
    }";

fn kernels_of_one_device_hand_calls_over_between_launches(f: &Fixture) {
    const COUNT: u32 = 256;
    for (live, kind) in [true, false]
        .map(|live| KINDS.map(|kind| (live, kind)))
        .into_iter()
        .flatten()
    {
        let device = f.open(|options| options.live_memory = live);
        let server = start(kind(&device));
        let begin = caller(&device, &server, BEGIN);
        let collect = caller(&device, &server, COLLECT);
        let tickets = device.buffer(&vec![POISON; COUNT as usize]).unwrap();
        let results = device.buffer(&vec![POISON; COUNT as usize]).unwrap();
        let mut begin = begin
            .launch()
            .buffer("tickets", &tickets)
            .server(&server)
            .invocations(COUNT);
        let mut collect = collect
            .launch()
            .buffer("tickets", &tickets)
            .buffer("results", &results)
            .server(&server)
            .invocations(COUNT);
        let expected: Vec<u32> = (0..COUNT).map(|i| mix(i, 3 * i)).collect();
        let function = server.function::<(u32, u32), u32>("mix").unwrap();
        for round in 0..4 {
            results.write(0, &vec![POISON; COUNT as usize]).unwrap();
            let before = device.cache_statistics().submissions;
            begin.submit().unwrap();
            let event = collect.submit().unwrap();
            if round == 1 && !live {
                // Nothing of it was submitted yet: the host has no part in it.
                assert_eq!(device.cache_statistics().submissions, before);
            }
            event.wait_timeout(MINUTE).unwrap();
            assert_eq!(
                results.read().unwrap(),
                expected,
                "live: {live}, round {round}"
            );
            // Threads of the host call the same server meanwhile.
            assert_eq!(
                function.call_timeout(&(round, 1), MINUTE).unwrap(),
                mix(round, 1)
            );
        }
        // Every ticket was good for one answer.
        collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let none = vec![CallStatus::NoTicket.code(); COUNT as usize];
        assert_eq!(results.read().unwrap(), none);
    }
}

fn handlers_that_fail_between_launches_say_so(f: &Fixture) {
    for kind in KINDS {
        fails_between_launches(f, &start(kind(&f.device)));
    }
}

fn fails_between_launches(f: &Fixture, server: &PersistentKernel) {
    let begin = "
        @group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            tickets[id.x] = mix_begin(id.x, select(id.x, 1000000u, id.x == 5u));
        }";
    let tickets = f.device.buffer(&[POISON; 8]).unwrap();
    let results = f.device.buffer(&[POISON; 8]).unwrap();
    let begin = caller(&f.device, server, begin);
    let collect = caller(&f.device, server, &COLLECT.replace("64", "8"));
    let launch = begin.launch().buffer("tickets", &tickets);
    let mut begin = launch.server(server).invocations(8);
    let launch = collect.launch().buffer("tickets", &tickets);
    let launch = launch.buffer("results", &results);
    let mut collect = launch.server(server).invocations(8);
    for _ in 0..2 {
        begin.submit().unwrap();
        collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let expected: Vec<u32> = (0..8)
            .map(|i| match i {
                5 => CallStatus::Failed.code(),
                i => mix(i, i),
            })
            .collect();
        assert_eq!(results.read().unwrap(), expected);
    }
}

fn kernels_that_would_wait_for_themselves_are_refused(f: &Fixture) {
    let server = start(builder(&f.device).callers(0));
    let kernel = caller(&f.device, &server, CALL);
    let results = f.device.buffer(&[POISON; 8]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.value("seed", &0u32).server(&server).invocations(8);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::WaitsForItself { .. }),
        "{error}"
    );
    assert_eq!(results.read().unwrap(), [POISON; 8]);
    // Functions that the server does not have.
    let other = Program::new("other.wgsl", "fn other(x: u32) -> u32 { return x; }").unwrap();
    let other = PersistentKernel::builder(&f.device, &other).handler("other");
    let other = start(other);
    let kernel = caller(&f.device, &server, BEGIN);
    let launch = kernel.launch().buffer("tickets", &results);
    let error = launch.server(&other).invocations(8).submit().unwrap_err();
    assert!(
        matches!(error, LaunchError::OtherServices { .. }),
        "{error}"
    );
}

fn services_and_a_server_on_one_launch_are_refused(f: &Fixture) {
    let server = start(builder(&f.device));
    let services = HostServices::builder()
        .call("fn mix(x: u32, y: u32) -> u32", mix)
        .start()
        .unwrap();
    let results = f.device.buffer(&[POISON; 64]).unwrap();
    let of_server = caller(&f.device, &server, BEGIN);
    let plain = Program::builder()
        .source("caller.wgsl", BEGIN)
        .services(&services)
        .build()
        .unwrap();
    let of_services = f.device.kernel(&plain, "main", &Constants::new()).unwrap();
    for kernel in [&of_server, &of_services] {
        let launch = || kernel.launch().buffer("tickets", &results).invocations(64);
        for mut launch in [
            launch().services(&services).server(&server),
            launch().server(&server).services(&services),
        ] {
            for error in [launch.check().unwrap_err(), launch.submit().unwrap_err()] {
                assert!(
                    matches!(&error, LaunchError::TwoCallees { kernel } if kernel == "main"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(results.read().unwrap(), [POISON; 64]);
}
