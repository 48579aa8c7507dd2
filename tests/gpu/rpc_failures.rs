//! Calls from running kernels that get no result: of services that are stopped, too slow, absent or panicking, on devices
//! that cannot wait for them, and from kernels that spoil the ports.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::cases;
use crate::harness::{Fixture, kernel_of, mix};
use crate::rpc::{HEAD, MINUTE, kernel, run};
use tombolo::{
    Constants, HostServices, Program,
    calls::{CallStatus, PortsError},
    device::{Aspect, ExecutionError, WaitError},
    launch::LaunchError,
};

cases![
    stopped_services_are_a_status,
    stopping_while_kernels_call_hangs_nobody,
    a_call_that_is_not_answered_times_out,
    a_plain_call_that_fails_fails_the_launch,
    panics_are_statuses_and_ports_go_on,
    launches_without_the_right_services_are_refused,
    ports_that_no_device_binds_are_refused,
    devices_without_live_memory_refuse_to_wait,
    a_kernel_that_writes_garbage_harms_nobody_else,
];

fn stopped_services_are_a_status(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!("{HEAD} let r = mix_try(id.x); out[id.x] = r.status * 16u + r.value; }}");
    let kernel = kernel(f, &services, &source);
    services.stop();
    let (out, result) = run(&kernel, &services, 256);
    result.unwrap();
    assert_eq!(
        out.read().unwrap(),
        vec![CallStatus::Stopped.code() * 16; 256]
    );
}

fn stopping_while_kernels_call_hangs_nobody(f: &Fixture) {
    let (entered, wait_for_entry) = std::sync::mpsc::channel();
    let entered = Mutex::new(entered);
    let served = Arc::new(AtomicU32::new(0));
    let serving = Arc::clone(&served);
    let count = move |x: u32| {
        let number = serving.fetch_add(1, Ordering::Relaxed);
        if number == 100 {
            let _ = entered.lock().unwrap().send(());
        }
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn count(x: u32) -> u32", count)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} let r = count_try(id.x); out[id.x] = select(r.status, r.value, r.status == CALL_DONE); }}"
    );
    let kernel = kernel(f, &services, &source);
    let out = f.device.buffer(&vec![0xDEAD_BEEFu32; 16_384]).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .invocations(16_384);
    let event = launch.submit().unwrap();
    f.device.flush().unwrap();
    wait_for_entry.recv_timeout(MINUTE).unwrap();
    services.stop();
    event.wait_timeout(MINUTE).unwrap();
    let stopped = CallStatus::Stopped.code();
    let (mut right, mut refused) = (0, 0);
    for (id, value) in out.read().unwrap().into_iter().enumerate() {
        match value {
            value if value == stopped => refused += 1,
            value => {
                assert_eq!(value, mix(id as u32));
                right += 1;
            }
        }
    }
    assert!(right <= served.load(Ordering::Relaxed));
    assert_eq!(right + refused, 16_384);
}

fn a_call_that_is_not_answered_times_out(f: &Fixture) {
    // The function waits until the test is done with the kernel: no call is answered before.
    let (leave, told_to_leave) = std::sync::mpsc::channel::<()>();
    let told_to_leave = Mutex::new(told_to_leave);
    let slow = move |x: u32| {
        let _ = told_to_leave.lock().unwrap().recv_timeout(MINUTE);
        mix(x)
    };
    // A few milliseconds: the server may sleep, and has to be awake before the calls are given up that it is to answer.
    let looks = match f.device.capabilities().needs_loop_guard() {
        true => 500,
        false => 100_000,
    };
    let services = HostServices::builder()
        .call("fn slow(x: u32) -> u32", slow)
        .wait_budget(looks)
        .start()
        .unwrap();
    let source = format!("{HEAD} let r = slow_try(id.x); out[id.x] = r.status * 16u + r.value; }}");
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 64);
    result.unwrap();
    // What no thread has begun is taken back where turns are rationed.
    let known = match f.device.capabilities().needs_loop_guard() {
        true => vec![CallStatus::TimedOut, CallStatus::Busy],
        false => vec![CallStatus::TimedOut],
    };
    for found in out.read().unwrap() {
        assert!(
            known.iter().any(|status| found == status.code() * 16),
            "{found:x}"
        );
    }
    drop(leave);
    // What was given up is served all the same, and its ports come back.
    let deadline = std::time::Instant::now() + MINUTE;
    loop {
        let (out, result) = run(&kernel, &services, 64);
        result.unwrap();
        let done = |(id, value): (usize, &u32)| *value == mix(id as u32).wrapping_add(16);
        let results = out.read().unwrap();
        if results.iter().enumerate().all(done) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{results:x?}");
    }
}

fn a_plain_call_that_fails_fails_the_launch(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn other(x: u32) -> u32", |x: u32| x)
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} out[id.x] = other_try(id.x).value; if id.x == 5u {{ out[id.x] = mix(id.x); }} }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 64);
    result.unwrap();
    assert_eq!(out.read().unwrap()[5], mix(5));
    services.stop();
    let (out, result) = run(&kernel, &services, 64);
    let Err(WaitError::Failed(error)) = result else {
        panic!("{result:?}");
    };
    match &*error {
        ExecutionError::CallFailed {
            kernel,
            function,
            status,
        } => assert_eq!(
            (kernel.as_str(), function.as_str(), *status),
            ("main", "mix", CallStatus::Stopped)
        ),
        other => panic!("{other}"),
    }
    assert!(
        out.read().is_err(),
        "what a failed launch wrote is no result"
    );
}

fn panics_are_statuses_and_ports_go_on(f: &Fixture) {
    let touchy = |x: u32| {
        assert!(x % 8 != 3, "on purpose");
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn touchy(x: u32) -> u32", touchy)
        .ports(8)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD} let r = touchy_try(id.x); out[id.x] = select(r.status, r.value, r.status == CALL_DONE); }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = run(&kernel, &services, 256);
    result.unwrap();
    let panicked = CallStatus::Panicked.code();
    let expected: Vec<u32> = (0..256)
        .map(|x| if x % 8 == 3 { panicked } else { mix(x) })
        .collect();
    assert_eq!(out.read().unwrap(), expected);
    assert_eq!(services.statistics().functions[0].panics, 32);
}

fn launches_without_the_right_services_are_refused(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let kernel = kernel(f, &services, &format!("{HEAD} out[id.x] = mix(id.x); }}"));
    let out = f.device.buffer(&[7u32; 64]).unwrap();
    let launch = || kernel.launch().buffer("out", &out).invocations(64);
    let error = launch().submit().unwrap_err();
    assert!(matches!(&error, LaunchError::NoServices { .. }), "{error}");
    assert!(error.to_string().contains("fn mix(x: u32) -> u32"));
    let others = HostServices::builder()
        .call("fn mix(x: f32) -> f32", |x: f32| x)
        .start()
        .unwrap();
    let error = launch().services(&others).submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::OtherServices { .. }),
        "{error}"
    );
    let none = HostServices::builder().start().unwrap();
    let error = launch().services(&none).submit().unwrap_err();
    assert!(
        error.to_string().contains("nothing of that name"),
        "{error}"
    );
    // Others with the same function will do.
    let more = HostServices::builder()
        .call("fn zero() -> u32", || 0u32)
        .call("fn mix(x: u32) -> u32", |x: u32| x + 1)
        .start()
        .unwrap();
    launch()
        .services(&more)
        .submit()
        .unwrap()
        .wait_timeout(MINUTE)
        .unwrap();
    assert_eq!(out.read().unwrap(), (1..65).collect::<Vec<u32>>());
}

/// In live memory, and in memory that is copied around launches.
fn ports_that_no_device_binds_are_refused(f: &Fixture) {
    for live in [true, false] {
        let device = f.open(|options| options.live_memory = live);
        let services = |ports: usize| {
            HostServices::builder()
                .call("fn mix(x: u32) -> u32", mix)
                .ports(ports)
                .payload(1 << 16)
                .start()
                .unwrap()
        };
        // 8 GiB of them, 4 MiB more than most devices bind, and few.
        let limits = device.raw().limits();
        let limit = (limits.max_storage_buffer_binding_size).min(limits.max_buffer_size);
        let above = (limit >> 17) as usize + 32;
        let (all, many, few) = (services(1 << 16), services(above), services(4));
        let call = ["mix_post(id.x)", "mix(id.x)"][usize::from(live)];
        let kernel = kernel_of(&device, &few, &format!("{HEAD} out[id.x] = {call}; }}"));
        let out = device.buffer(&[7u32; 64]).unwrap();
        let submit = |services: &HostServices| {
            let launch = kernel.launch().services(services).buffer("out", &out);
            launch.invocations(64).submit()
        };
        for (services, ports) in [(&all, 1 << 16), (&many, above)] {
            match submit(services).unwrap_err() {
                LaunchError::Ports(PortsError::TooLarge {
                    bytes,
                    limit: told,
                    device: name,
                }) => {
                    assert_eq!((bytes, told), (services.port_bytes(ports), limit));
                    assert_eq!(name, device.name());
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(out.read().unwrap(), [7; 64]);
        submit(&few).unwrap().wait_timeout(MINUTE).unwrap();
        if live {
            assert_eq!(out.read().unwrap(), (0..64).map(mix).collect::<Vec<_>>());
        }
    }
}

fn devices_without_live_memory_refuse_to_wait(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::builder()
        .source("rpc.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    for device in [
        f.open(|options| options.live_memory = false),
        f.open(|options| options.probe = Some(false)),
    ] {
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let out = device.buffer(&[7u32; 64]).unwrap();
        let mut launch = kernel
            .launch()
            .services(&services)
            .buffer("out", &out)
            .invocations(64);
        let error = launch.submit().unwrap_err();
        assert!(
            matches!(&error, LaunchError::NeedsLiveMemory { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("in the next launch"), "{error}");
        assert_eq!(out.read().unwrap(), [7; 64]);
    }
    assert!(f.device.has(Aspect::LiveMemory));
}

fn a_kernel_that_writes_garbage_harms_nobody_else(f: &Fixture) {
    // Every invocation writes anything into requests and arguments of the first half of the ports, by the runtime's
    // own name for them.
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .ports(64)
        .start()
        .unwrap();
    let source = format!(
        "{HEAD}
            // Never; but a program that calls nothing has no ports to spoil.
            if out[0] == 0u {{ out[0] = mix_try(0u).status; }}
            // Behind the header and the locks of 64 ports, and behind their requests; each begins on a line of 16 words.
            let requests = 16u + 64u;
            let first = requests + 64u;
            let stride = (4u + (atomicLoad(&tombolo_calls[0]) >> 16u) + 15u) & ~15u;
            var x = id.x * 2654435761u + 12345u;
            for (var i = 0u; i < 64u; i++) {{
                x = x * 1664525u + 1013904223u;
                let port = (x >> 8u) % 32u;
                let word = (x >> 16u) % (2u * stride);
                let place = select(first + port * stride + word % 6u, requests + port, (x & 3u) == 0u);
                atomicStore(&tombolo_posts[place], x ^ (x << 13u));
            }}
            out[id.x] = x;
        }}"
    );
    let hostile = kernel(f, &services, &source);
    let (_, result) = run(&hostile, &services, 4096);
    result.unwrap();
    // A server thread is alive, another device's ports are whole, and so is a loopback.
    let device = f.open(|_| {});
    let source = format!("{HEAD} out[id.x] = mix(id.x); }}");
    let program = Program::builder()
        .source("rpc.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let honest = device.kernel(&program, "main", &Constants::new()).unwrap();
    let (out, result) = run(&honest, &services, 1024);
    result.unwrap();
    assert_eq!(out.read().unwrap(), (0..1024).map(mix).collect::<Vec<_>>());
    let got = services.loopback().unwrap().call("mix", &[77], MINUTE);
    assert_eq!(got, Ok(vec![mix(77)]));
    // On the spoilt device too: garbage in a request is answered like a call, after which the port is quiet.
    let honest = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let (out, result) = run(&honest, &services, 1024);
    result.unwrap();
    assert_eq!(out.read().unwrap(), (0..1024).map(mix).collect::<Vec<_>>());
    let statistics = services.statistics();
    // Where calls are sealed garbage is none.
    assert!(statistics.unknown + statistics.oversize + statistics.late > 0);
}
