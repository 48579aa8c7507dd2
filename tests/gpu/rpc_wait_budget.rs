//! How long kernels wait for functions that take their time. Adapters that ration turns of loops leave a kernel 65,535 of
//! them, which bare looks at a port use up in some milliseconds.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix, run_with};
use tombolo::{HostServices, calls::CallStatus};

cases![
    a_call_outlasts_a_function_that_takes_its_time,
    callers_outlast_those_before_them,
    a_group_outlasts_a_function_that_takes_its_time,
    whoever_finds_no_port_waits_for_one,
    calls_that_nobody_answers_leave_turns_for_the_kernel,
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

/// Whoever asks again and again has no more turns than one who asks once, nor have lanes that wait in branches of their own
/// any more together: the kernel's own loops are whole behind the calls. What no thread has begun is taken back.
fn calls_that_nobody_answers_leave_turns_for_the_kernel(f: &Fixture) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let never = move |_: u32| drop(released.lock().map(|released| released.recv()));
    let mut builder = HostServices::builder().call("fn never(x: u32)", never);
    let is_rationed = f.device.capabilities().needs_loop_guard();
    if !is_rationed {
        builder = builder.wait_budget(1_000);
    }
    let services = builder.threads(1).start().unwrap();
    // Before the services are stopped, whatever happens.
    let release = release;
    for body in [
        "for (var i = 0u; i < 3u; i++) { note(never_try(i).status); }",
        "if id.x % 2u == 0u { note(never_try(1u).status); } else { note(never_try(2u).status); }",
        "switch id.x % 4u {
            case 0u: { note(never_try(1u).status); }
            case 1u: { note(never_try(2u).status); }
            case 2u: { for (var i = 0u; i < 9u; i++) { note(never_try(i).status); } }
            default: { note(never_try(id.x).status); }
        }",
    ] {
        let source = format!(
            "var<private> seen: u32;
            fn note(status: u32) {{ seen |= 1u << status; }}
            {HEAD}
                {body}
                // An eighth of the turns is the kernel's.
                var sum = 0u;
                for (var i = 0u; i < 4000u + (seen & 1u); i++) {{ sum += i ^ id.x; }}
                out[2u * id.x] = sum;
                out[2u * id.x + 1u] = seen;
            }}"
        );
        let kernel = kernel_of(&f.device, &services, &source);
        let (out, result) = run_with(&kernel, &services, 16, |launch| launch.workgroups(1));
        result.unwrap_or_else(|error| panic!("{body}: {error}"));
        let found = out.read().unwrap();
        let bit = |status: CallStatus| 1 << status.code();
        let busy = if is_rationed {
            bit(CallStatus::Busy)
        } else {
            0
        };
        for (lane, words) in (0..8u32).zip(found.chunks(2)) {
            let expected = (0..4000u32).fold(0u32, |sum, i| sum.wrapping_add(i ^ lane));
            assert_eq!(words[0], expected, "{body}");
            let allowed = bit(CallStatus::TimedOut) | busy;
            assert!(words[1] != 0 && words[1] & !allowed == 0, "{words:x?}");
        }
    }
    drop(release);
}
