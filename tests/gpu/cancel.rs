//! Launches that are cancelled, by the program or by a deadline: they stop or never begin, and their device lives on. Adapters
//! that cannot stop a kernel say so.

use std::time::Duration;

use tombolo::{
    Constants, Device, DeviceBuffer, DeviceOptions, Event, HostServices, Kernel, Launch, Program,
    Ptr,
    device::{
        Aspect, CancelError, Cancellation, EmbeddedOptions, EventStatus, ExecutionError,
        SanitizerChecks, WaitError,
    },
    launch::LaunchError,
};

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix};
use crate::system;

cases![
    a_running_launch_is_cancelled_and_its_device_lives_on,
    a_launch_in_line_never_begins,
    a_launch_that_has_ended_cannot_be_cancelled,
    a_deadline_stops_its_launch_and_no_other,
    what_depends_on_a_cancelled_launch_fails_until_it_is_overwritten,
    sanitized_and_counted_launches_are_cancelled_too,
    other_commands_and_other_adapters_say_so,
    kernels_that_call_or_lend_are_refused,
];

const MINUTE: Duration = Duration::from_secs(60);
const POISON: u32 = 0xDEAD_BEEF;

/// Kernels without an end on the embedded adapter, which note that they have begun.
const ENDLESS: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<atomic<u32>>;
@compute @workgroup_size(1) fn works() {
    atomicStore(&data[0], 1u);
    loop { if atomicAdd(&data[1], 2u) % 2u == 1u { break; } }
}
@compute @workgroup_size(8) fn waits() {
    atomicStore(&data[0], 1u);
    while atomicLoad(&data[2]) != 5u {}
}";

/// Writes what a host can compute.
const SHORT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] = id.x * 3u + 1u; }
}";

const COPY: &str = "
@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read_write> copy: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&copy) { copy[id.x] = data[id.x]; }
}";

fn kernel(device: &Device, source: &str, entry: &str) -> Kernel {
    let program = Program::new("cancel.wgsl", source).unwrap();
    device.kernel(&program, entry, &Constants::new()).unwrap()
}

fn short(device: &Device) -> (Launch, DeviceBuffer<u32>) {
    let data = device.buffer(&[POISON; 100]).unwrap();
    let launch = kernel(device, SHORT, "main").launch().buffer("data", &data);
    (launch.invocations(100), data)
}

fn assert_written(data: &DeviceBuffer<u32>) {
    let expected: Vec<u32> = (0..100).map(|i| i * 3 + 1).collect();
    assert_eq!(data.read().unwrap(), expected);
}

/// Later launches on the device work.
fn assert_alive(device: &Device) {
    let (mut launch, data) = short(device);
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    assert_written(&data);
}

/// A launch without an end; `None` where it could not be stopped.
fn endless(f: &Fixture, device: &Device, entry: &str) -> Option<(Launch, DeviceBuffer<u32>)> {
    let stops = device.capabilities().has(Aspect::Cancellation);
    assert_eq!(stops, f.is_embedded());
    if !stops {
        return None;
    }
    let data = device.buffer(&[0u32, 0, 0]).unwrap();
    let launch = kernel(device, ENDLESS, entry)
        .launch()
        .buffer("data", &data);
    Some((launch.workgroups(3), data))
}

fn failure(event: &Event) -> std::sync::Arc<ExecutionError> {
    match event.wait_timeout(MINUTE) {
        Err(WaitError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn assert_cancelled(event: &Event, name: &str) {
    let error = failure(event);
    assert!(
        matches!(&*error, ExecutionError::Cancelled { kernel } if kernel == name),
        "{error}"
    );
    assert_eq!(event.status(), EventStatus::Failed);
}

fn a_running_launch_is_cancelled_and_its_device_lives_on(f: &Fixture) {
    for entry in ["works", "waits"] {
        let Some((launch, data)) = endless(f, &f.device, entry) else {
            return;
        };
        let mut launch = launch.cancellable();
        // The kernel has begun at the latest when it is waited for longer.
        let has_begun = (1..20).any(|round| {
            let event = launch.submit().unwrap();
            let waited = event.wait_timeout(Duration::from_millis(10 * round * round));
            assert!(matches!(waited, Err(WaitError::Deadline)));
            assert_eq!(event.status(), EventStatus::Submitted);
            assert_eq!(event.cancel().unwrap(), Cancellation::Cancelled);
            assert_eq!(event.cancel().unwrap(), Cancellation::Cancelled);
            assert_cancelled(&event, entry);
            assert_eq!(event.cancel().unwrap(), Cancellation::Cancelled);
            assert!(data.read().is_err());
            // What was written stays, for those who want it.
            data.clear_error();
            data.read().unwrap()[0] == 1
        });
        assert!(has_begun, "{entry} has never begun");
        assert_alive(&f.device);
    }
}

fn a_launch_in_line_never_begins(f: &Fixture) {
    // Submitted by itself, behind the running launch, and not submitted yet.
    for is_flushed in [true, false] {
        let Some((launch, _data)) = endless(f, &f.device, "works") else {
            return;
        };
        let running = launch.cancellable().submit().unwrap();
        let waited = running.wait_timeout(Duration::from_millis(20));
        assert!(matches!(waited, Err(WaitError::Deadline)));
        let (queued, untouched) = short(&f.device);
        let queued = queued.cancellable().submit().unwrap();
        let (mut free, written) = short(&f.device);
        let free = free.submit().unwrap();
        if is_flushed {
            f.device.flush().unwrap();
        }
        assert_eq!(queued.cancel().unwrap(), Cancellation::Cancelled);
        assert_eq!(running.cancel().unwrap(), Cancellation::Cancelled);
        assert_cancelled(&running, "works");
        assert_cancelled(&queued, "main");
        free.wait_timeout(MINUTE).unwrap();
        assert_written(&written);
        untouched.clear_error();
        assert_eq!(untouched.read().unwrap(), [POISON; 100]);
        assert_alive(&f.device);
    }
}

fn a_launch_that_has_ended_cannot_be_cancelled(f: &Fixture) {
    let (launch, data) = short(&f.device);
    let event = launch.cancellable().submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    match f.is_embedded() {
        true => assert_eq!(event.cancel().unwrap(), Cancellation::Over),
        false => assert!(matches!(
            event.cancel(),
            Err(CancelError::Unsupported { .. })
        )),
    }
    event.wait().unwrap();
    assert_written(&data);
    // Nothing to do is done at once, everywhere.
    let (launch, _data) = short(&f.device);
    let empty = launch.cancellable().invocations(0).submit();
    if let Ok(empty) = empty {
        assert_eq!(empty.cancel().unwrap(), Cancellation::Over);
    }
}

fn a_deadline_stops_its_launch_and_no_other(f: &Fixture) {
    for entry in ["works", "waits"] {
        let (in_time, data) = short(&f.device);
        let mut in_time = in_time.deadline(MINUTE);
        let Some((late, _data)) = endless(f, &f.device, entry) else {
            let refused = in_time.submit().unwrap_err();
            assert!(
                matches!(&refused, LaunchError::NoDeadline { kernel, .. } if kernel == "main"),
                "{refused}"
            );
            assert_eq!(data.read().unwrap(), [POISON; 100]);
            return;
        };
        let deadline = Duration::from_millis(3);
        let late = late.deadline(deadline).submit().unwrap();
        // The time does not count while another launch runs.
        let in_time = in_time.submit().unwrap();
        let error = failure(&late);
        assert!(
            matches!(&*error, ExecutionError::DeadlinePassed { kernel, deadline: d } if kernel == entry && *d == deadline),
            "{error}"
        );
        in_time.wait_timeout(MINUTE).unwrap();
        assert_written(&data);
        assert_eq!(in_time.cancel().unwrap(), Cancellation::Over);
        assert_alive(&f.device);
    }
    // A launch with a deadline can be cancelled before.
    let Some((launch, _data)) = endless(f, &f.device, "works") else {
        return;
    };
    let event = launch.deadline(MINUTE).submit().unwrap();
    assert_eq!(event.cancel().unwrap(), Cancellation::Cancelled);
    assert_cancelled(&event, "works");
}

fn what_depends_on_a_cancelled_launch_fails_until_it_is_overwritten(f: &Fixture) {
    let Some((launch, _data)) = endless(f, &f.device, "works") else {
        return;
    };
    let running = launch.cancellable().submit().unwrap();
    let (launch, data) = short(&f.device);
    let mut launch = launch.cancellable();
    let cancelled = launch.submit().unwrap();
    let copy = f.device.buffer(&[POISON; 100]).unwrap();
    let reader = kernel(&f.device, COPY, "main");
    let mut reader = (reader.launch().buffer("data", &data).buffer("copy", &copy)).invocations(100);
    let depends = reader.submit().unwrap();
    assert_eq!(cancelled.cancel().unwrap(), Cancellation::Cancelled);
    assert_eq!(running.cancel().unwrap(), Cancellation::Cancelled);
    let error = failure(&depends);
    match &*error {
        ExecutionError::Inherited { cause, .. } => {
            assert!(
                matches!(**cause, ExecutionError::Cancelled { .. }),
                "{error}"
            );
        }
        _ => panic!("{error}"),
    }
    assert!(data.read().is_err() && copy.read().is_err());
    // The same launch once more, not cancelled, over contents that are good again.
    data.write(0, &[POISON; 100]).unwrap();
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    assert_written(&data);
    copy.write(0, &[POISON; 100]).unwrap();
    reader.submit().unwrap().wait_timeout(MINUTE).unwrap();
    assert_written(&copy);
}

fn sanitized_and_counted_launches_are_cancelled_too(f: &Fixture) {
    if !f.is_embedded() {
        return;
    }
    let all = [
        EmbeddedOptions::sanitized(SanitizerChecks::default()),
        EmbeddedOptions::covered(),
        EmbeddedOptions::scheduled(3),
    ];
    for embedded in all {
        let device = f.open(|options: &mut DeviceOptions| options.embedded = embedded);
        let Some((launch, _data)) = endless(f, &device, "works") else {
            return;
        };
        let event = launch.cancellable().submit().unwrap();
        let waited = event.wait_timeout(Duration::from_millis(20));
        assert!(matches!(waited, Err(WaitError::Deadline)), "{waited:?}");
        assert_eq!(event.cancel().unwrap(), Cancellation::Cancelled);
        assert_cancelled(&event, "works");
        assert_alive(&device);
    }
}

fn other_commands_and_other_adapters_say_so(f: &Fixture) {
    let (mut plain, data) = short(&f.device);
    let event = plain.submit().unwrap();
    let refused = event.cancel().unwrap_err();
    assert!(
        matches!(refused, CancelError::NotCancellable { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("Launch::cancellable"));
    let (launch, other) = short(&f.device);
    let event_of_launch = launch.cancellable().submit().unwrap();
    if !f.is_embedded() {
        match event_of_launch.cancel().unwrap_err() {
            error @ CancelError::Unsupported { .. } => {
                let text = error.to_string();
                assert!(
                    text.contains("`main`") && text.contains(f.device.name()),
                    "{text}"
                );
            }
            other => panic!("{other}"),
        }
        assert!(
            !f.device
                .capabilities()
                .explain(Aspect::Cancellation)
                .is_empty()
        );
    }
    // Whoever was not cancelled goes on.
    event.wait_timeout(MINUTE).unwrap();
    event_of_launch.wait_timeout(MINUTE).unwrap();
    assert_written(&data);
    assert_written(&other);
}

fn kernels_that_call_or_lend_are_refused(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { mix_post(out[0]); }";
    let out = f.device.buffer(&[POISON]).unwrap();
    let kernel = kernel_of(&f.device, &services, source);
    let launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .workgroups(1);
    let refused = launch.cancellable().submit().unwrap_err();
    assert!(
        matches!(&refused, LaunchError::NotCancellable { what, .. } if what.contains("calls functions")),
        "{refused}"
    );
    assert_eq!(out.read().unwrap(), [POISON]);
    let source = "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = usm_Words(first)[0]; }";
    let kernel = system::kernel(&f.device, source);
    let launch = kernel
        .launch()
        .value("first", &Ptr::<u32>::null())
        .buffer("out", &out);
    let mut launch = launch.workgroups(1).cancellable();
    let refused = launch.submit().unwrap_err();
    assert!(
        matches!(&refused, LaunchError::NotCancellable { what, .. } if what.contains("lent memory")),
        "{refused}"
    );
}
