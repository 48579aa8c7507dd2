//! Functions of the host that wait for a kernel of another device: refused to the last thread that could answer that kernel,
//! and had by all others, but on a card, whose devices take turns: there every wait for another of them is refused.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of, run_with};
use tombolo::{
    Device, DeviceBuffer, Event, HostServices, Kernel,
    device::{ExecutionError, WaitError},
};

cases![
    waits_for_whom_the_function_would_have_to_answer_are_refused,
    waits_for_kernels_without_calls_are_had_beside_the_caller,
    waits_for_other_adapters_are_had,
    one_thread_of_two_may_wait,
];

const MINUTE: Duration = Duration::from_secs(60);

/// A kernel whose first `groups` work-groups, of one invocation, call `ask` with `which` and their own number added.
fn asking(groups: u32, which: u32) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {{
            if id.x < {groups}u {{ out[id.x] = ask({which}u + id.x); }}
        }}"
    )
}

type Waited = Result<(), WaitError>;

/// What a function does for numbers below 10: submits a launch of another device, and waits for it.
struct Elsewhere {
    kernel: Kernel,
    services: Option<Arc<HostServices>>,
    out: DeviceBuffer<u32>,
    events: Vec<Event>,
}

type Scene = Arc<Mutex<Option<Elsewhere>>>;

impl Elsewhere {
    fn submit(&mut self) -> Event {
        let mut launch = self.kernel.launch().buffer("out", &self.out);
        if let Some(services) = &self.services {
            launch = launch.services(services);
        }
        let event = launch.workgroups(1).submit().unwrap();
        self.events.push(event.clone());
        event
    }
}

/// Services of so many threads, whose `ask` calls `wait` for numbers below 10.
fn services(
    threads: usize,
    scene: &Scene,
    told: Sender<Waited>,
    meet: Option<Barrier>,
) -> Arc<HostServices> {
    let state = (Arc::clone(scene), Mutex::new(told));
    let ask = move |which: u32| -> u32 {
        if which < 10 {
            let event = state.0.lock().unwrap().as_mut().unwrap().submit();
            if let Some(barrier) = &meet {
                barrier.wait();
            }
            let waited = event.wait_timeout(MINUTE);
            let _ = state.1.lock().unwrap().send(waited);
        }
        which + 100
    };
    let builder = HostServices::builder().threads(threads);
    let builder = builder.call("fn ask(which: u32) -> u32", ask);
    Arc::new(builder.start().unwrap())
}

fn is_refused(waited: &Waited, f: &Fixture) -> bool {
    match waited {
        Err(WaitError::Failed(error)) => matches!(
            &**error,
            ExecutionError::InHandler { handler, device, .. }
                if handler == "ask" && device == f.device.name()
        ),
        _ => false,
    }
}

/// Runs a kernel of `groups` calls that each submit a launch elsewhere, and returns what the waits gave.
fn run(f: &Fixture, threads: usize, groups: u32, meet: Option<Barrier>) -> Vec<Waited> {
    let (seen, told) = channel();
    let scene = Scene::default();
    let services = services(threads, &scene, seen, meet);
    let other = f.open(|_| ());
    *scene.lock().unwrap() = Some(Elsewhere {
        kernel: kernel_of(&other, &services, &asking(1, 10)),
        services: Some(Arc::clone(&services)),
        out: other.buffer(&[7u32; 4]).unwrap(),
        events: Vec::new(),
    });
    let kernel = kernel_of(&f.device, &services, &asking(groups, 0));
    let out = f.device.buffer(&[7u32; 4]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.workgroups(groups).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let waits = (0..groups).map(|_| told.recv_timeout(MINUTE).unwrap());
    let waits = waits.collect();
    let expected = (0..4).map(|i| if i < groups { 100 + i } else { 7 });
    assert!(expected.eq(out.read().unwrap()));
    // What was submitted runs, and is answered when the function has returned.
    let elsewhere = scene.lock().unwrap().take().unwrap();
    for event in &elsewhere.events {
        event.wait_timeout(MINUTE).unwrap();
    }
    assert_eq!(elsewhere.out.read().unwrap(), [110, 7, 7, 7]);
    waits
}

fn waits_for_whom_the_function_would_have_to_answer_are_refused(f: &Fixture) {
    let waits = run(f, 1, 1, None);
    assert!(is_refused(&waits[0], f), "{waits:?}");
}

/// Where all devices of a driver share its threads, the calling kernel may keep these.
fn has_threads_to_spare(f: &Fixture) -> bool {
    !f.is_lavapipe() && !f.is_swiftshader()
}

/// Has a function that serves a call of the fixture's device wait for a kernel of `other` that calls nobody.
fn wait_for_one_alone(f: &Fixture, other: &Device) -> Waited {
    let (seen, told) = channel();
    let scene = Scene::default();
    let services = services(1, &scene, seen, None);
    let source = asking(1, 10).replace("ask(", "5u + (");
    let program = tombolo::Program::new("alone.wgsl", source).unwrap();
    let kernel = other.kernel(&program, "main", &tombolo::Constants::new());
    *scene.lock().unwrap() = Some(Elsewhere {
        kernel: kernel.unwrap(),
        services: None,
        out: other.buffer(&[7u32; 4]).unwrap(),
        events: Vec::new(),
    });
    // A launch there that calls, and has ended, is in nobody's way.
    let calling = kernel_of(other, &services, &asking(1, 20));
    let (out, ended) = run_with(&calling, &services, 4, |launch| launch.workgroups(1));
    ended.unwrap();
    assert_eq!(out.read().unwrap()[0], 120);
    let kernel = kernel_of(&f.device, &services, &asking(1, 0));
    let launch = kernel.launch().services(&services);
    let out = f.device.buffer(&[7u32; 4]).unwrap();
    let event = launch.buffer("out", &out).workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(out.read().unwrap(), [100, 7, 7, 7]);
    let waited = told.recv_timeout(MINUTE).unwrap();
    // Refused or not, what was submitted runs.
    let elsewhere = scene.lock().unwrap().take().unwrap();
    assert_eq!(elsewhere.out.read().unwrap(), [15, 7, 7, 7]);
    waited
}

fn waits_for_kernels_without_calls_are_had_beside_the_caller(f: &Fixture) {
    if !has_threads_to_spare(f) {
        return;
    }
    let waited = wait_for_one_alone(f, &f.open(|_| ()));
    match f.is_card() {
        true => assert!(is_refused(&waited, f), "{waited:?}"),
        false => waited.unwrap(),
    }
}

fn waits_for_other_adapters_are_had(f: &Fixture) {
    let adapters = f.context.adapters();
    // Two cards of one name are told apart by their addresses, where there are some.
    let is_other = |index: &usize| {
        let (own, other) = (&adapters[f.index], &adapters[*index]);
        own.name != other.name || own.pci_address != other.pci_address
    };
    for index in (0..adapters.len()).filter(is_other) {
        let other = f.context.device_at(index).unwrap();
        let waited = wait_for_one_alone(f, &other);
        assert!(waited.is_ok(), "{}: {waited:?}", other.name());
    }
}

fn one_thread_of_two_may_wait(f: &Fixture) {
    if !has_threads_to_spare(f) {
        return;
    }
    let waits = run(f, 2, 2, Some(Barrier::new(2)));
    let refused = waits.iter().filter(|waited| is_refused(waited, f));
    let expected = if f.is_card() { 2 } else { 1 };
    assert_eq!(refused.count(), expected, "{waits:?}");
    let had = waits.iter().filter(|waited| waited.is_ok());
    assert_eq!(had.count(), 2 - expected, "{waits:?}");
}
