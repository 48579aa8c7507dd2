//! Calls on the embedded adapter, whose threads serve calls of quick functions themselves: never two at once, only where it
//! keeps nobody, and with the same outcomes as on threads of the services. What the tests claim of outcomes holds on every
//! adapter.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::{Fixture, mix};
use crate::panics::ON_PURPOSE;
use crate::rpc::{HEAD, MINUTE, kernel};
use tombolo::{Constants, HostServices, Program, calls::CallStatus, device::ExecutionError};

cases![
    quick_functions_run_where_kernels_wait_and_one_at_a_time,
    functions_that_take_long_stay_with_the_services,
    panics_reach_their_callers_alone,
    nothing_runs_after_the_services_have_stopped,
    functions_that_wait_for_their_caller_are_refused,
    functions_may_run_kernels_of_other_devices,
    services_may_stop_others_from_where_they_run,
    services_may_come_to_their_device_in_a_function,
    devices_that_are_dropped_leave_the_services_to_others,
];

const INVOCATIONS: u32 = 1024;
const CALLS: u32 = 4;

/// Whether this is no thread of the services.
fn is_elsewhere() -> bool {
    let thread = std::thread::current();
    !thread
        .name()
        .is_some_and(|name| name.starts_with("tombolo calls"))
}

/// Calls `f` with the numbers below `INVOCATIONS * CALLS`, again until `done` says so where functions run on kernels'
/// threads, and checks each result.
fn call_until(
    f: &Fixture,
    services: &HostServices,
    expected: impl Fn(u32) -> u32,
    done: impl Fn() -> bool,
) {
    let source = format!(
        "{HEAD}
            for (var i = 0u; i < {CALLS}u; i++) {{
                let x = id.x * {CALLS}u + i;
                if out[x] == 0xffffffffu {{
                    let r = f_try(x);
                    // What an adapter that rations turns has left to the next launch.
                    if r.status == CALL_BUSY {{ return; }}
                    out[x] = select(r.status, r.value, r.status == CALL_DONE);
                }}
            }}
        }}"
    );
    let kernel = kernel(f, services, &source);
    let poison = vec![u32::MAX; (INVOCATIONS * CALLS) as usize];
    let out = f.device.buffer(&poison).unwrap();
    let mut launch = kernel
        .launch()
        .services(services)
        .buffer("out", &out)
        .invocations(INVOCATIONS);
    let begun = Instant::now();
    loop {
        out.write(0, &poison).unwrap();
        loop {
            launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
            let results = out.read().unwrap();
            if !results.contains(&u32::MAX) {
                for (x, result) in (0..).zip(results) {
                    assert_eq!(result, expected(x), "of {x}");
                }
                break;
            }
            assert!(begun.elapsed() < MINUTE, "calls are left over and over");
        }
        if !f.is_embedded() || done() {
            return;
        }
        assert!(begun.elapsed() < MINUTE, "no kernel's thread has served");
    }
}

fn quick_functions_run_where_kernels_wait_and_one_at_a_time(f: &Fixture) {
    let [inside, overlaps, elsewhere] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
    let services = {
        let [inside, overlaps, elsewhere] = [&inside, &overlaps, &elsewhere].map(Arc::clone);
        let count = move |x: u32| {
            overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::Relaxed);
            elsewhere.fetch_add(u32::from(is_elsewhere()), Ordering::Relaxed);
            inside.fetch_sub(1, Ordering::SeqCst);
            mix(x)
        };
        let builder = HostServices::builder().call("fn f(x: u32) -> u32", count);
        builder.start().unwrap()
    };
    call_until(f, &services, mix, || elsewhere.load(Ordering::Relaxed) > 0);
    assert_eq!(overlaps.load(Ordering::Relaxed), 0);
    assert!(f.is_embedded() || elsewhere.load(Ordering::Relaxed) == 0);
    let statistics = services.statistics();
    assert_eq!(
        statistics.functions[0].calls % u64::from(INVOCATIONS * CALLS),
        0
    );
}

fn functions_that_take_long_stay_with_the_services(f: &Fixture) {
    let [quick, slow] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let services = {
        let [quick, slow] = [&quick, &slow].map(Arc::clone);
        let first = move |x: u32| {
            quick.fetch_add(u32::from(is_elsewhere()), Ordering::Relaxed);
            mix(x)
        };
        let second = move |x: u32| {
            slow.fetch_add(u32::from(is_elsewhere()), Ordering::Relaxed);
            // Longer than a call that keeps no kernel's thread.
            std::thread::sleep(Duration::from_micros(20));
            x ^ 1
        };
        HostServices::builder()
            .call("fn f(x: u32) -> u32", first)
            .call("fn slow(x: u32) -> u32", second)
            .start()
            .unwrap()
    };
    call_until(f, &services, mix, || quick.load(Ordering::Relaxed) > 0);
    let source = format!(
        "{HEAD}
            let r = slow_try(id.x);
            out[id.x] = r.status;
            if r.status == CALL_DONE {{
                let q = f_try(r.value);
                out[id.x] = select(q.status, q.value, q.status == CALL_DONE);
            }}
        }}"
    );
    let kernel = kernel(f, &services, &source);
    let (out, result) = crate::rpc::run(&kernel, &services, 256);
    result.unwrap();
    for (x, got) in (0..).zip(out.read().unwrap()) {
        // Some adapters ration turns.
        let is_left = got == CallStatus::Busy.code() || got == CallStatus::TimedOut.code();
        assert!(
            got == mix(x ^ 1) || is_left && !f.is_embedded(),
            "of {x}: {got}"
        );
    }
    assert_eq!(slow.load(Ordering::Relaxed), 0);
}

fn panics_reach_their_callers_alone(f: &Fixture) {
    let elsewhere = Arc::new(AtomicU32::new(0));
    let fails = |x: u32| x % 64 == 7;
    let services = {
        let elsewhere = Arc::clone(&elsewhere);
        let fail = move |x: u32| {
            if fails(x) {
                elsewhere.fetch_add(u32::from(is_elsewhere()), Ordering::Relaxed);
                panic!("{ON_PURPOSE}");
            }
            mix(x)
        };
        let builder = HostServices::builder().call("fn f(x: u32) -> u32", fail);
        builder.start().unwrap()
    };
    let expected = |x| match fails(x) {
        true => CallStatus::Panicked.code(),
        false => mix(x),
    };
    call_until(f, &services, expected, || {
        elsewhere.load(Ordering::Relaxed) > 0
    });
}

fn nothing_runs_after_the_services_have_stopped(f: &Fixture) {
    if f.device.capabilities().needs_loop_guard() {
        // The kernel calls for as long as there is an answer.
        return;
    }
    let (elsewhere, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let services = {
        let (elsewhere, calls) = (Arc::clone(&elsewhere), Arc::clone(&calls));
        let count = move |x: u32| {
            if is_elsewhere() {
                elsewhere.store(true, Ordering::Relaxed);
            }
            calls.fetch_add(1, Ordering::Relaxed);
            mix(x)
        };
        let builder = HostServices::builder().call("fn f(x: u32) -> u32", count);
        builder.start().unwrap()
    };
    let source = format!(
        "{HEAD} loop {{ let r = f_try(id.x); if r.status != CALL_DONE {{ out[id.x] = r.status; break; }} }} }}"
    );
    let kernel = kernel(f, &services, &source);
    let out = f.device.buffer(&vec![0xDEAD_BEEFu32; 512]).unwrap();
    let mut launch = kernel
        .launch()
        .services(&services)
        .buffer("out", &out)
        .invocations(512);
    let event = launch.submit().unwrap();
    f.device.flush().unwrap();
    let begun = Instant::now();
    let is_on_its_way = || match f.is_embedded() {
        true => elsewhere.load(Ordering::Relaxed),
        false => calls.load(Ordering::Relaxed) > 100,
    };
    while !is_on_its_way() {
        assert!(begun.elapsed() < MINUTE, "no kernel's thread has served");
        std::thread::yield_now();
    }
    services.stop();
    let after = calls.load(Ordering::Relaxed);
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(out.read().unwrap(), vec![CallStatus::Stopped.code(); 512]);
    assert_eq!(calls.load(Ordering::Relaxed), after);
}

/// What is done once.
struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    fn try_with(&self, act: impl FnOnce() -> T) {
        let mut done = self.0.lock().unwrap();
        if done.is_none() {
            *done = Some(act());
        }
    }

    fn is_done(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

/// Has `act` done by a function that serves a call of the fixture's device, on a kernel's thread where those serve, and
/// returns what it returned.
fn in_a_function<T: Send + 'static>(f: &Fixture, act: impl Fn() -> T + Send + Sync + 'static) -> T {
    let once = Arc::new(Once(Mutex::new(None)));
    let services = {
        let (once, embedded) = (Arc::clone(&once), f.is_embedded());
        let call = move |x: u32| {
            if !embedded || is_elsewhere() {
                once.try_with(&act);
            }
            mix(x)
        };
        let builder = HostServices::builder().call("fn f(x: u32) -> u32", call);
        builder.start().unwrap()
    };
    call_until(f, &services, mix, || once.is_done());
    let done = once.0.lock().unwrap().take();
    done.expect("the function was called")
}

fn functions_that_wait_for_their_caller_are_refused(f: &Fixture) {
    let device = f.device.clone();
    let refused = in_a_function(f, move || device.finish());
    let error = refused.unwrap_err();
    assert!(
        matches!(*error, ExecutionError::InHandler { ref handler, .. } if handler == "f"),
        "{error}"
    );
    f.device.finish().unwrap();
}

fn functions_may_run_kernels_of_other_devices(f: &Fixture) {
    if !f.is_embedded() {
        // Where all devices of a driver share its threads, the calling kernel keeps these.
        return;
    }
    let other = f.open(|_| ());
    let program = Program::new("other.wgsl", format!("{HEAD} out[id.x] = id.x * 3u; }}")).unwrap();
    let kernel = other.kernel(&program, "main", &Constants::new()).unwrap();
    let got = in_a_function(f, move || {
        let out = other.buffer(&[7u32; 4096]).unwrap();
        let mut launch = kernel.launch().buffer("out", &out).invocations(4096);
        launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
        out.read().unwrap()
    });
    assert!((0..4096).map(|x| x * 3).eq(got));
}

fn services_may_stop_others_from_where_they_run(f: &Fixture) {
    let others = HostServices::builder()
        .call("fn f(x: u32) -> u32", |x: u32| mix(x) ^ 5)
        .start()
        .unwrap();
    call_until(f, &others, |x| mix(x) ^ 5, || true);
    let others = Mutex::new(Some(others));
    in_a_function(f, move || drop(others.lock().unwrap().take()));
}

fn services_may_come_to_their_device_in_a_function(f: &Fixture) {
    let device = f.device.clone();
    let event = in_a_function(f, move || {
        let services = HostServices::builder()
            .call("fn f(x: u32) -> u32", mix)
            .start()
            .unwrap();
        let source = format!("{HEAD} let r = f_try(id.x); out[id.x] = r.status; }}");
        let kernel = crate::harness::kernel_of(&device, &services, &source);
        let out = device.buffer(&[7u32; 64]).unwrap();
        let mut launch = kernel.launch().services(&services).buffer("out", &out);
        launch = launch.invocations(64);
        launch.submit()
    });
    // Refused, or run once the services are stopped.
    if let Ok(event) = event {
        event.wait_timeout(MINUTE).unwrap();
    }
}

fn devices_that_are_dropped_leave_the_services_to_others(f: &Fixture) {
    let elsewhere = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&elsewhere);
    let count = move |x: u32| {
        counted.fetch_add(u32::from(is_elsewhere()), Ordering::Relaxed);
        mix(x)
    };
    let services = HostServices::builder()
        .call("fn f(x: u32) -> u32", count)
        .start()
        .unwrap();
    for _ in 0..3 {
        let device = f.open(|_| ());
        let source = format!("{HEAD} out[id.x] = f(id.x); }}");
        let kernel = crate::harness::kernel_of(&device, &services, &source);
        let (out, result) = crate::rpc::run(&kernel, &services, 256);
        result.unwrap();
        assert!((0..256).map(mix).eq(out.read().unwrap()));
    }
    // The only device of the services again, sooner or later.
    call_until(f, &services, mix, || elsewhere.load(Ordering::Relaxed) > 0);
}
