//! How long kernels wait for functions that take their time. Adapters that ration turns of loops leave a kernel 65,535 of
//! them, which bare looks at a port use up in some milliseconds.

use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix, run_with};
use tombolo::HostServices;

cases![
    a_call_outlasts_a_function_that_takes_its_time,
    callers_outlast_those_before_them,
    a_group_outlasts_a_function_that_takes_its_time,
    whoever_finds_no_port_waits_for_one,
];

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";

/// Runs what answers `mix(id.x)` in each of so many invocations, while each call takes `each`.
fn runs(f: &Fixture, ports: usize, each: Duration, invocations: u32, body: &str) {
    let takes_time = move |x: u32| {
        std::thread::sleep(each);
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn slow(x: u32) -> u32", takes_time)
        .ports(ports)
        .threads(1)
        .start()
        .unwrap();
    let kernel = kernel_of(&f.device, &services, &format!("{HEAD} {body} }}"));
    let (out, result) = run_with(&kernel, &services, invocations as usize, |launch| {
        launch.workgroups(invocations.div_ceil(8))
    });
    result.unwrap();
    let expected: Vec<u32> = (0..invocations).map(mix).collect();
    assert_eq!(out.read().unwrap(), expected);
}

fn a_call_outlasts_a_function_that_takes_its_time(f: &Fixture) {
    let body = "if id.x == 0u { out[0] = slow(0u); }";
    runs(f, 64, Duration::from_millis(150), 1, body);
}

fn callers_outlast_those_before_them(f: &Fixture) {
    let body = "out[id.x] = slow(id.x);";
    runs(f, 64, Duration::from_millis(5), 16, body);
}

fn a_group_outlasts_a_function_that_takes_its_time(f: &Fixture) {
    let body = "out[id.x] = slow_group(true, id.x);";
    runs(f, 64, Duration::from_millis(15), 8, body);
}

fn whoever_finds_no_port_waits_for_one(f: &Fixture) {
    let body = "out[id.x] = slow(id.x);";
    runs(f, 1, Duration::from_millis(5), 16, body);
}
