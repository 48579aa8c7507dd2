//! Calls that a whole work-group makes at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix, run_with};
use crate::many_threads::on_many_threads;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Device, DeviceBuffer, HostServices, Kernel, Program,
    calls::{CallStatus, HostServicesBuilder},
    device::{ExecutionError, WaitError},
    launch::LaunchError,
};

cases![
    each_invocation_gets_its_own_result,
    every_record_is_served_once,
    those_who_take_no_part_do_not_call,
    functions_without_arguments_or_results_are_called,
    structures_travel_in_records,
    packets_are_as_large_as_ports_allow,
    a_panic_is_the_status_of_its_own_record,
    services_that_are_stopped_answer_all,
    few_ports_serve_many_groups,
    ports_are_not_lost_to_many_threads,
    devices_without_live_memory_refuse_groups,
];

const MINUTE: Duration = Duration::from_secs(60);

fn mixer() -> HostServicesBuilder {
    HostServices::builder().call("fn mix(x: u32) -> u32", mix)
}

fn kernel(device: &Device, services: &HostServices, size: u32, body: &str) -> Kernel {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size({size}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {body} }}"
    );
    kernel_of(device, services, &source)
}

/// Runs `groups` work-groups with `out` bound, poisoned before.
fn run(
    kernel: &Kernel,
    services: &HostServices,
    groups: u32,
    len: usize,
) -> (DeviceBuffer<u32>, Result<(), WaitError>) {
    run_with(kernel, services, len, |launch| launch.workgroups(groups))
}

fn each_invocation_gets_its_own_result(f: &Fixture) {
    // Sizes that fill groups of lanes and that do not, one packet and several, the last one full and not.
    for size in [1, 5, 8, 14, 28, 64, 100] {
        let services = mixer().start().unwrap();
        let kernel = kernel(
            &f.device,
            &services,
            size,
            "out[id.x] = mix_group(true, id.x);",
        );
        let len = 7 * size;
        let (out, result) = run(&kernel, &services, 7, len as usize);
        result.unwrap();
        let expected: Vec<u32> = (0..len).map(mix).collect();
        assert_eq!(out.read().unwrap(), expected, "{size}");
        let statistics = services.statistics();
        assert_eq!(statistics.functions[0].calls, u64::from(len));
    }
}

/// Many calls through few ports, each of which has to arrive once, with its own arguments, and to bring its own
/// result, also where ports lie in two memories.
fn every_record_is_served_once(f: &Fixture) {
    const GROUPS: usize = 64;
    const CALLS: usize = 8;
    let all = GROUPS * 64 * CALLS;
    for device in [
        f.device.clone(),
        f.open(|options| options.unified_memory = Some(false)),
    ] {
        // Over a bus one word in millions came late.
        let rounds = if device.capabilities().software {
            1
        } else {
            20
        };
        for form in ["count_group(true, call)", "count(call)"] {
            let counts: Arc<Vec<AtomicU32>> =
                Arc::new((0..all).map(|_| AtomicU32::new(0)).collect());
            let counting = Arc::clone(&counts);
            let count = move |x: u32| {
                counting[x as usize].fetch_add(1, Ordering::Relaxed);
                mix(x)
            };
            let services = HostServices::builder()
                .call("fn count(x: u32) -> u32", count)
                .payload(512)
                .ports(256)
                .start()
                .unwrap();
            let body = format!(
                "for (var i = 0u; i < {CALLS}u; i++) {{
                    let call = id.x * {CALLS}u + i;
                    out[call] = {form};
                }}"
            );
            let kernel = kernel(&device, &services, 64, &body);
            let expected: Vec<u32> = (0..all as u32).map(mix).collect();
            for round in 1..=rounds {
                let (out, result) = run(&kernel, &services, GROUPS as u32, all);
                result.unwrap();
                let mut counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
                assert!(counts.all(|count| count == round), "{form} {round}");
                assert!(out.read().unwrap() == expected, "{form} {round}");
            }
        }
    }
}

fn those_who_take_no_part_do_not_call(f: &Fixture) {
    let services = mixer().start().unwrap();
    // In one group nobody takes part, in another one only the last.
    let body = "let takes_part = (id.x % 3u == 1u && id.x / 64u != 2u && id.x / 64u != 3u) || id.x == 255u;
        for (var turn = 0u; turn < 3u; turn++) {
            let r = mix_group_try(takes_part, id.x + turn);
            out[id.x * 3u + turn] = r.value ^ r.status;
        }";
    let kernel = kernel(&f.device, &services, 64, body);
    let (out, result) = run(&kernel, &services, 6, 6 * 64 * 3);
    result.unwrap();
    let takes_part = |id: u32| (id % 3 == 1 && id / 64 != 2 && id / 64 != 3) || id == 255;
    let done = CallStatus::Done.code();
    let expected: Vec<u32> = (0..6 * 64 * 3)
        .map(|at| (at / 3, at % 3))
        .map(|(id, turn)| {
            if takes_part(id) {
                mix(id + turn) ^ done
            } else {
                done
            }
        })
        .collect();
    assert_eq!(out.read().unwrap(), expected);
    let calls = (0..6 * 64).filter(|&id| takes_part(id)).count() * 3;
    assert_eq!(services.statistics().functions[0].calls, calls as u64);
}

fn functions_without_arguments_or_results_are_called(f: &Fixture) {
    let (rung, sum) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (bell, adder) = (Arc::clone(&rung), Arc::clone(&sum));
    let services = HostServices::builder()
        .call("fn ring()", move || {
            bell.fetch_add(1, Ordering::Relaxed);
        })
        .call("fn add(x: u32)", move |x: u32| {
            adder.fetch_add(x, Ordering::Relaxed);
        })
        .call("fn seven() -> u32", || 7u32)
        .start()
        .unwrap();
    let body = "ring_group(id.x % 2u == 0u); add_group(true, id.x); out[id.x] = seven_group(true) + seven();";
    let kernel = kernel(&f.device, &services, 32, body);
    let (out, result) = run(&kernel, &services, 4, 128);
    result.unwrap();
    assert_eq!(out.read().unwrap(), [14; 128]);
    assert_eq!(rung.load(Ordering::Relaxed), 64);
    assert_eq!(sum.load(Ordering::Relaxed), (0..128).sum::<u32>());
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Ray {
    start: [f32; 3],
    steps: u32,
    to: [f32; 2],
    _pad: [u32; 2],
}

fn structures_travel_in_records(f: &Fixture) {
    let march = |ray: Ray, scale: f32| Ray {
        start: ray.start.map(|x| x * scale),
        steps: ray.steps + 1,
        to: [ray.to[1], ray.to[0]],
        _pad: [0; 2],
    };
    let services = HostServices::builder()
        .call("fn march(ray: Ray, scale: f32) -> Ray", march)
        .payload(100)
        .start()
        .unwrap();
    let source = "struct Ray { start: vec3<f32>, steps: u32, to: vec2<f32> }
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(20) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let x = f32(id.x);
            let ray = march_group(true, Ray(vec3(x, x + 1.0, x + 2.0), id.x, vec2(-x, x)), 0.5);
            let words = array(ray.start.x, ray.start.y, ray.start.z, f32(ray.steps), ray.to.x, ray.to.y);
            for (var i = 0u; i < 6u; i++) { out[id.x * 6u + i] = words[i]; }
        }";
    let program = Program::builder()
        .source("groups.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let out = f.device.buffer(&[f32::NAN; 240]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.workgroups(2).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let expected: Vec<f32> = (0..40u16)
        .map(f32::from)
        .flat_map(|x| [x / 2.0, (x + 1.0) / 2.0, (x + 2.0) / 2.0, x + 1.0, x, -x])
        .collect();
    assert_eq!(out.read().unwrap(), expected);
}

fn packets_are_as_large_as_ports_allow(f: &Fixture) {
    // Words of a port, and the packets that 64 calls of one word each way then take.
    for (words, packets) in [(28, 5), (128, 1), (129, 1), (64, 2)] {
        // With several threads no port has room for more than it is told to.
        let services = mixer().payload(words * 4).threads(2).start().unwrap();
        let kernel = kernel(
            &f.device,
            &services,
            64,
            "out[id.x] = mix_group(true, id.x);",
        );
        let (out, result) = run(&kernel, &services, 1, 64);
        result.unwrap();
        assert_eq!(out.read().unwrap(), (0..64).map(mix).collect::<Vec<_>>());
        let statistics = services.statistics();
        let mix = &statistics.functions[0];
        assert_eq!((mix.calls, mix.packets), (64, packets), "{words} words");
        assert_eq!((mix.bytes_in, mix.bytes_out), (4 * 64, 4 * 64));
    }
}

fn a_panic_is_the_status_of_its_own_record(f: &Fixture) {
    let touchy = |x: u32| {
        assert!(x % 8 != 3, "on purpose");
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn touchy(x: u32) -> u32", touchy)
        .start()
        .unwrap();
    let asks = "let r = touchy_group_try(true, id.x); out[id.x] = select(r.status, r.value, r.status == CALL_DONE);";
    let (out, result) = run(&kernel(&f.device, &services, 64, asks), &services, 4, 256);
    result.unwrap();
    let panicked = CallStatus::Panicked.code();
    let expected: Vec<u32> = (0..256)
        .map(|x| if x % 8 == 3 { panicked } else { mix(x) })
        .collect();
    assert_eq!(out.read().unwrap(), expected);
    assert_eq!(services.statistics().functions[0].panics, 32);
    let plain = kernel(
        &f.device,
        &services,
        64,
        "out[id.x] = touchy_group(true, id.x);",
    );
    let (_, result) = run(&plain, &services, 1, 64);
    let error = result.unwrap_err();
    let failed = matches!(&error, WaitError::Failed(e) if matches!(&**e,
        ExecutionError::CallFailed { function, status: CallStatus::Panicked, .. } if function == "touchy"));
    assert!(failed, "{error}");
}

fn services_that_are_stopped_answer_all(f: &Fixture) {
    let services = mixer().start().unwrap();
    let body = "let r = mix_group_try(true, id.x); out[id.x] = r.status * 16u + r.value;";
    let kernel = kernel(&f.device, &services, 64, body);
    services.stop();
    let (out, result) = run(&kernel, &services, 4, 256);
    result.unwrap();
    let stopped = CallStatus::Stopped.code() * 16;
    assert_eq!(out.read().unwrap(), [stopped; 256]);
}

fn few_ports_serve_many_groups(f: &Fixture) {
    let seen = Arc::new(Mutex::new(vec![0u32; 16 * 64]));
    let counting = Arc::clone(&seen);
    let count = move |x: u32| {
        counting.lock().unwrap()[x as usize] += 1;
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn count(x: u32) -> u32", count)
        .ports(1)
        .start()
        .unwrap();
    let kernel = kernel(
        &f.device,
        &services,
        64,
        "out[id.x] = count_group(true, id.x);",
    );
    let (out, result) = run(&kernel, &services, 16, 16 * 64);
    result.unwrap();
    let expected: Vec<u32> = (0..16 * 64).map(mix).collect();
    assert_eq!(out.read().unwrap(), expected);
    assert_eq!(*seen.lock().unwrap(), [1; 16 * 64]);
}

/// SwiftShader's `atomicMax` loses what another operation writes meanwhile: a port that was taken so was lost for good on
/// machines with many processors.
fn ports_are_not_lost_to_many_threads(f: &Fixture) {
    on_many_threads(f, "rpc_groups::few_ports_serve_many_groups");
}

fn devices_without_live_memory_refuse_groups(f: &Fixture) {
    let services = mixer().start().unwrap();
    let device = f.open(|options| options.live_memory = false);
    let kernel = kernel(&device, &services, 64, "out[id.x] = mix_group(true, id.x);");
    let out = device.buffer(&[7u32; 64]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let error = launch.invocations(64).submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::NeedsLiveMemory { .. }),
        "{error}"
    );
    assert_eq!(out.read().unwrap(), [7; 64]);
}
