//! Functions of the host that wait for the device, or the heap, of the kernel that has called them: they are told, at once
//! and with a typed error, and the kernel goes on.

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::buffers_moving::Kernels;
use crate::cases;
use crate::harness::{Fixture, kernel_of};
use tombolo::{
    Buffer, Constants, Context, Device, DeviceBuffer, DeviceOptions, Event, HostServices,
    PersistentKernel, Program, Ptr, SharedHeap,
    buffers::Placement,
    calls::CallStatus,
    device::{Aspect, EventStatus, ExecutionError, ProfilingError, WaitError},
    heap::{HeapError, HeapPlacement},
    server::CallError,
};

cases![
    waits_for_the_caller_are_refused,
    handlers_may_wait_when_nothing_runs_any_more,
    handlers_may_wait_where_calls_are_served_after_the_launch,
    a_refused_wait_leaves_the_changes_of_a_copy_of_the_heap,
    what_a_handler_records_is_submitted_behind_its_call,
    a_function_may_stop_the_server_that_calls_it,
];

const MINUTE: Duration = Duration::from_secs(60);
const LEN: usize = 16;

/// What a function of the host finds when it is called.
struct Scene {
    device: Device,
    /// Another device of the same adapter.
    other: Kernels,
    event: Mutex<Option<Event>>,
    heap: SharedHeap,
    at: Ptr<u32>,
    out: DeviceBuffer<u32>,
    own: Buffer<u32>,
    shared: Buffer<u32>,
}

type Answer = Result<(), Box<dyn Error + Send + Sync>>;
type Wait = fn(&Scene, &Event) -> Answer;
/// What a wait for the device gave.
type Waited = Result<(), Arc<ExecutionError>>;

const WAITS: [(&str, Wait); 21] = [
    ("Event::wait", |_, event| Ok(event.wait()?)),
    ("Event::wait_timeout", |_, event| {
        Ok(event.wait_timeout(MINUTE)?)
    }),
    ("Event::wait_all", |_, event| Ok(Event::wait_all(&[event])?)),
    ("Event::wait_any", |_, event| {
        // The refusal counts as the end.
        assert_eq!(Event::wait_any(&[event]), Some(0));
        Ok(event.wait()?)
    }),
    ("Event, awaited", |_, event| {
        Ok(pollster::block_on(std::future::IntoFuture::into_future(
            event.clone(),
        ))?)
    }),
    ("Event::gpu_time", |_, event| {
        let told = event.gpu_time();
        let is_unfinished = matches!(told, Err(ProfilingError::Unfinished { .. }));
        assert!(is_unfinished, "{told:?}");
        Ok(told.map(drop)?)
    }),
    ("Device::flush", |scene, _| Ok(scene.device.flush()?)),
    ("Device::finish", |scene, _| Ok(scene.device.finish()?)),
    ("Device::after", |scene, event| {
        Ok(scene.other.device.after(&[event]).map(|_| ())?)
    }),
    ("SharedHeap::host", |scene, _| {
        Ok(scene.heap.host().map(drop)?)
    }),
    ("SharedHeap::host_timeout", |scene, _| {
        Ok(scene.heap.host_timeout(MINUTE).map(drop)?)
    }),
    ("SharedHeap::read", |scene, _| {
        Ok(scene.heap.read(scene.at, 1).map(drop)?)
    }),
    ("SharedHeap::write", |scene, _| {
        Ok(scene.heap.write(scene.at, &[7])?)
    }),
    ("DeviceBuffer::read", |scene, _| {
        Ok(scene.out.read().map(drop)?)
    }),
    ("Buffer::read", |scene, _| Ok(scene.own.read().map(drop)?)),
    ("Buffer::read_back", |scene, _| {
        Ok(scene.own.read_back(..).map(drop)?)
    }),
    ("Buffer::map", |scene, _| Ok(scene.own.map(..).map(drop)?)),
    ("Buffer::evict", |scene, _| {
        Ok(scene.own.evict(&scene.device)?)
    }),
    ("Buffer::read in the heap", |scene, _| {
        Ok(scene.shared.read().map(drop)?)
    }),
    ("Buffer::write in the heap", |scene, _| {
        Ok(scene.shared.write(0, &[7]).map(drop)?)
    }),
    ("a launch of another device", |scene, _| {
        Ok(scene.other.add(&scene.own, 0).map(drop)?)
    }),
];

const SOURCE: &str = "
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<uniform> which: u32;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<storage, read_write> own: array<u32>;
@group(0) @binding(4) var<storage, read_write> shared_words: array<u32>;
@compute @workgroup_size(1) fn main() {
    let word = usm_u32(at);
    let answer = ask(which);
    *word += answer;
    out[0] += answer;
    own[0] += answer;
    shared_words[0] += answer;
}";

fn scene(f: &Fixture) -> Scene {
    let context = Context::new().unwrap();
    let open = || context.device_named(f.device.name()).unwrap();
    let device = open();
    let heap = context.heap().unwrap();
    Scene {
        other: Kernels::new(&open()),
        event: Mutex::default(),
        at: heap.alloc(0u32).unwrap(),
        out: device.buffer(&[0u32; LEN]).unwrap(),
        own: context.buffer_from(&[0u32; LEN]).unwrap(),
        shared: context.buffer_with(LEN, Placement::Shared).unwrap(),
        heap,
        device,
    }
}

/// The error of the runtime that one of any kind was made of.
fn is_told(error: &(dyn Error + 'static), device: &str) -> bool {
    let text = error.to_string();
    text.contains("`ask` serves calls of kernels") && text.contains(device)
}

fn waits_for_the_caller_are_refused(f: &Fixture) {
    let scene = Arc::new(scene(f));
    let (seen, told) = channel();
    let services = {
        let (scene, seen) = (Arc::clone(&scene), Mutex::new(seen));
        let ask = move |which: u32| -> u32 {
            let begun = Instant::now();
            let event = loop {
                assert!(begun.elapsed() < MINUTE, "the launch has not returned");
                // The launch has returned when the host has put it there.
                if let Some(event) = scene.event.lock().unwrap().clone() {
                    break event;
                }
                std::thread::yield_now();
            };
            // A look is no wait.
            assert_eq!(event.status(), EventStatus::Submitted);
            assert!(matches!(
                event.wait_timeout(Duration::ZERO),
                Err(WaitError::Deadline)
            ));
            let (name, wait) = WAITS[which as usize];
            let _ = seen.lock().unwrap().send((name, wait(&scene, &event)));
            1
        };
        HostServices::builder()
            .call("fn ask(which: u32) -> u32", ask)
            .start()
            .unwrap()
    };
    let program = Program::builder()
        .source("handlers.wgsl", SOURCE)
        .services(&services)
        .build()
        .unwrap();
    let kernel = scene
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let mut count = 0;
    for (index, (name, _)) in WAITS.iter().enumerate() {
        let launch = kernel.launch().services(&services).value("at", &scene.at);
        let launch = launch
            .value("which", &(index as u32))
            .buffer("out", &scene.out);
        let launch = launch
            .buffer("own", &scene.own)
            .buffer("shared_words", &scene.shared);
        let mut launch = launch.workgroups(1);
        if *name == "Event::gpu_time" {
            if !scene.device.has(Aspect::TimestampQueries) {
                continue;
            }
            launch = launch.profiled();
        }
        let event = launch.submit().unwrap();
        scene.device.flush().unwrap();
        *scene.event.lock().unwrap() = Some(event.clone());
        let ended = event.wait_timeout(MINUTE);
        assert!(ended.is_ok(), "{name}: {ended:?}");
        let (told_of, answer) = told.recv_timeout(MINUTE).unwrap();
        assert_eq!(told_of, *name);
        let error = answer.expect_err(name);
        assert!(is_told(&*error, scene.device.name()), "{name}: {error}");
        if let Some(WaitError::Failed(error)) = error.downcast_ref::<WaitError>() {
            assert!(
                matches!(**error, ExecutionError::InHandler { .. }),
                "{name}: {error}"
            );
        }
        *scene.event.lock().unwrap() = None;
        // Nothing is lost, on whichever device it is, and every wait is had by others.
        count += 1;
        assert_eq!(
            *scene.heap.host().unwrap().get(scene.at).unwrap(),
            count,
            "{name}"
        );
        assert_eq!(scene.out.read().unwrap()[0], count, "{name}");
        scene.other.device.finish().unwrap();
        assert_eq!(scene.shared.read().unwrap()[0], count, "{name}");
        scene.own.write(0, &[0]).unwrap();
    }
}

/// Services with a function `ask` that waits until it is released, and then for the device; what that gives is told.
fn patient(device: &Device) -> (HostServices, Sender<()>, Receiver<Waited>) {
    let ((release, released), (seen, told)) = (channel::<()>(), channel());
    let state = Mutex::new((released, seen, device.clone()));
    let ask = move |_: u32| {
        let state = state.lock().unwrap();
        let _ = state.0.recv_timeout(MINUTE);
        let _ = state.1.send(state.2.finish());
    };
    let services = HostServices::builder()
        .call("fn ask(x: u32)", ask)
        .start()
        .unwrap();
    (services, release, told)
}

const POST: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { out[0] = ask_post(1u); }";

fn handlers_may_wait_when_nothing_runs_any_more(f: &Fixture) {
    let device = f.open(|_| {});
    assert!(device.has(Aspect::LiveMemory));
    let (services, release, told) = patient(&device);
    let kernel = kernel_of(&device, &services, POST);
    let out = device.buffer(&[7u32; 4]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    release.send(()).unwrap();
    told.recv_timeout(MINUTE).unwrap().unwrap();
    assert_eq!(out.read().unwrap()[0], CallStatus::Done.code());
}

fn handlers_may_wait_where_calls_are_served_after_the_launch(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let (services, release, told) = patient(&device);
    release.send(()).unwrap();
    let kernel = kernel_of(&device, &services, POST);
    let out = device.buffer(&[7u32; 4]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    told.recv_timeout(MINUTE).unwrap().unwrap();
    assert_eq!(out.read().unwrap()[0], CallStatus::Done.code());
}

/// Drivers may have a submission wait for the kernel that runs, and so for the function itself: a full batch stays open.
fn what_a_handler_records_is_submitted_behind_its_call(f: &Fixture) {
    let device = f.open(|options| options.max_batch = 4);
    let other = device.buffer(&[0u32; LEN]).unwrap();
    let (seen, told) = channel();
    let services = {
        let state = Mutex::new((other.clone(), seen));
        let ask = move |_: u32| -> u32 {
            let (other, seen) = &*state.lock().unwrap();
            let fill = |i: u32| {
                let at = u64::from(i) % LEN as u64;
                other.fill(i, at..at + 1).unwrap()
            };
            let events: Vec<Event> = (0..3 * LEN as u32).map(fill).collect();
            let now: Vec<_> = events.iter().map(Event::status).collect();
            let _ = seen.send((events, now));
            1
        };
        HostServices::builder()
            .call("fn ask(x: u32) -> u32", ask)
            .start()
            .unwrap()
    };
    let kernel = kernel_of(
        &device,
        &services,
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = ask(1u); }",
    );
    let out = device.buffer(&[0u32; LEN]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let (events, then) = told.recv_timeout(MINUTE).unwrap();
    assert_eq!(then, vec![EventStatus::Recorded; 3 * LEN]);
    assert_eq!(out.read().unwrap()[0], 1);
    for event in events {
        event.wait_timeout(MINUTE).unwrap();
    }
    let last: Vec<u32> = (2 * LEN as u32..3 * LEN as u32).collect();
    assert_eq!(other.read().unwrap(), last);
}

/// What the caller has changed in its copy of the heap has to come down before another device may use the heap; a thread
/// that waits for that has the turn in hand, and the function must not wait for the turn.
fn a_refused_wait_leaves_the_changes_of_a_copy_of_the_heap(f: &Fixture) {
    // Callers on lavapipe have no time for more than one look.
    let looks = Duration::from_millis(if f.is_lavapipe() { 0 } else { 100 });
    let context = Context::new().unwrap();
    let open = |placement| {
        let mut options = DeviceOptions::default();
        options.heap_placement = placement;
        context.device_named_with(f.device.name(), options).unwrap()
    };
    let device = open(HeapPlacement::Device);
    let others = [HeapPlacement::Auto, HeapPlacement::Device].map(open);
    let heap = context.heap().unwrap();
    let [at, beside] = [40u32, 0].map(|value| heap.alloc(value).unwrap());
    let ((seen, told), (called, calls)) = (channel(), channel());
    let services = {
        let state = Mutex::new((others.clone(), seen, called));
        let ask = move |which: u32| -> u32 {
            let (others, seen, called) = &*state.lock().unwrap();
            let fill = || others[which as usize].heap_fill(at, 7u32, 1).map(drop);
            let mut refused = fill();
            let _ = called.send(());
            let begun = Instant::now();
            while begun.elapsed() < looks && refused.is_err() {
                refused = fill();
            }
            let _ = seen.send(refused);
            1
        };
        HostServices::builder()
            .call("fn ask(which: u32) -> u32", ask)
            .start()
            .unwrap()
    };
    let kernel = kernel_of(
        &device,
        &services,
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
        @group(0) @binding(1) var<uniform> which: u32;
        @compute @workgroup_size(1) fn main() { let word = usm_u32(at); *word += ask(which); }",
    );
    for which in 0..2u32 {
        let launch = kernel.launch().services(&services).value("at", &at);
        let event = launch.value("which", &which).workgroups(1).submit();
        let event = event.unwrap();
        device.flush().unwrap();
        calls.recv_timeout(MINUTE).unwrap();
        // Waits for the caller, with the turn.
        others[1].heap_fill(beside, which, 1).unwrap();
        event.wait_timeout(MINUTE).unwrap();
        match told.recv_timeout(MINUTE).unwrap() {
            Err(HeapError::Execution(error)) => {
                let is_told = matches!(*error, ExecutionError::InHandler { .. });
                assert!(is_told, "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(heap.read(at, 1).unwrap(), [41 + which]);
        assert_eq!(heap.read(beside, 1).unwrap(), [which]);
    }
}

/// The lease waits for the answer, and so is no lease that is stuck.
fn a_function_may_stop_the_server_that_calls_it(f: &Fixture) {
    if !f.device.has(Aspect::LiveMemory) {
        return;
    }
    let server = Arc::new(Mutex::new(None::<Arc<PersistentKernel>>));
    let services = {
        let server = Arc::clone(&server);
        let stop = move |x: u32| {
            let server = server.lock().unwrap().clone();
            if let Some(server) = server.filter(|_| x == 3) {
                server.stop();
            }
            x * 2
        };
        let builder = HostServices::builder().call("fn g(x: u32) -> u32", stop);
        builder.start().unwrap()
    };
    let program = Program::builder()
        .source(
            "server.wgsl",
            "fn h(x: u32) -> u32 { return g_try(x).value; }",
        )
        .services(&services)
        .build()
        .unwrap();
    let started = PersistentKernel::builder(&f.device, &program)
        .handler("h")
        .services(&services)
        .start();
    let started = Arc::new(started.unwrap());
    *server.lock().unwrap() = Some(Arc::clone(&started));
    let h = started.function::<(u32,), u32>("h").unwrap();
    let answer = h.call_timeout(&(3,), MINUTE);
    // What was posted before the stop is served, unless an adapter that rations turns leaves the call without an answer.
    assert!(matches!(answer, Ok(6) | Ok(0)), "{answer:?}");
    started.stop();
    assert!(started.failure().is_none(), "{:?}", started.failure());
    let later = h.call_timeout(&(1,), MINUTE);
    assert!(matches!(later, Err(CallError::Stopped { .. })), "{later:?}");
    drop(server.lock().unwrap().take());
}
