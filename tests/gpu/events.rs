//! Events: waiting for several of them, callbacks at their ends, their times, and how threads wait.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::{Fixture, kernel_of};
use crate::launches::INCREMENT;
use crate::panics::ON_PURPOSE;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Event, HostServices, Kernel, Program,
    device::{Aspect, EventStatus, ExecutionError, ProfilingError, WaitError, WaitPolicy},
};

cases![
    all_are_waited_for_and_the_first_failure_is_told,
    any_is_the_one_that_ends,
    callbacks_run_once_with_the_result_on_another_thread,
    callbacks_wait_submit_panic_and_drop_devices,
    events_know_their_times,
    every_way_to_wait_sees_the_end,
];

const MINUTE: Duration = Duration::from_secs(60);
const LEN: usize = 64;
const POISON: u32 = 0xDEAD_BEEF;

const FAILING: &str = "
@group(0) @binding(0) var<uniform> which: u32;
@compute @workgroup_size(1) fn main() { panic(\"launch {}\", which); }";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("events.wgsl", source).unwrap();
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

/// Words of a device, and a kernel that increments them.
struct Words {
    data: DeviceBuffer<u32>,
    kernel: Kernel,
}

impl Words {
    fn new(device: &Device) -> Self {
        Self {
            data: device.buffer(&[POISON; LEN]).unwrap(),
            kernel: kernel(device, INCREMENT),
        }
    }

    fn increment(&self) -> Event {
        let launch = self.kernel.launch().buffer("data", &self.data);
        launch.invocations(LEN as u32).submit().unwrap()
    }

    fn assert_incremented(&self, times: u32) {
        let expected = [POISON.wrapping_add(times); LEN];
        assert_eq!(self.data.read().unwrap(), expected);
    }
}

fn failing(device: &Device, which: u32) -> Event {
    let launch = kernel(device, FAILING).launch().value("which", &which);
    let quiet = tombolo::PrintOptions::sink(|_: &tombolo::print::PrintRecord<'_>| {});
    launch.workgroups(1).print_to(quiet).submit().unwrap()
}

fn is_failure(error: &ExecutionError, which: u32) -> bool {
    let is_panic = matches!(error, ExecutionError::Assertion { .. });
    is_panic && error.to_string().contains(&format!("launch {which}"))
}

fn all_are_waited_for_and_the_first_failure_is_told(f: &Fixture) {
    let other = f.open(|_| {});
    let words = [Words::new(&f.device), Words::new(&other)];
    let events: Vec<Event> = (0..6).map(|i| words[i % 2].increment()).collect();
    let borrowed: Vec<&Event> = events.iter().collect();
    Event::wait_all_timeout(&borrowed, MINUTE).unwrap();
    for event in &events {
        assert_eq!(event.status(), EventStatus::Complete);
    }
    words.iter().for_each(|words| words.assert_incremented(3));
    Event::wait_all(&[]).unwrap();
    // The first in the order given, though the second may end before; and the others have ended.
    let failed = [failing(&other, 1), failing(&f.device, 2)];
    let last = words[1].increment();
    match Event::wait_all(&[&events[0], &failed[1], &failed[0], &last]) {
        Err(WaitError::Failed(error)) => assert!(is_failure(&error, 2), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(failed[0].status(), EventStatus::Failed);
    assert_eq!(last.status(), EventStatus::Complete);
    words[1].assert_incremented(4);
    // A failure is no reason to come back before the others have ended.
    if let Some(held) = held(&other) {
        std::thread::scope(|scope| {
            scope.spawn(|| held.release.send(()).unwrap());
            Event::wait_all(&[&failed[0], &held.event]).unwrap_err();
            assert_eq!(held.event.status(), EventStatus::Complete);
        });
    }
}

/// A kernel that ends when the host wants it to.
struct Held {
    event: Event,
    release: Sender<()>,
    /// Waits for the call when dropped, which ends without a releaser.
    _services: HostServices,
}

/// Has the device hold a kernel that waits for the host; `None` where kernels cannot wait, or not for as long as they like.
fn held(device: &Device) -> Option<Held> {
    if !device.has(Aspect::LiveMemory) || device.capabilities().needs_loop_guard() {
        return None;
    }
    let (entered, has_entered) = channel();
    let (release, released) = channel();
    let inside: Mutex<(Sender<()>, Receiver<()>)> = Mutex::new((entered, released));
    let ask = move |x: u32| -> u32 {
        let inside = inside.lock().unwrap();
        let _ = inside.0.send(());
        let _ = inside.1.recv_timeout(MINUTE);
        x
    };
    let services = HostServices::builder()
        .call("fn ask(x: u32) -> u32", ask)
        .start()
        .unwrap();
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = ask(7u); }";
    let out = device.buffer(&[POISON; 4]).unwrap();
    let launch = kernel_of(device, &services, source).launch();
    let launch = launch.services(&services).buffer("out", &out);
    let event = launch.workgroups(1).submit().unwrap();
    device.flush().unwrap();
    has_entered.recv_timeout(MINUTE).unwrap();
    Some(Held {
        event,
        release,
        _services: services,
    })
}

fn any_is_the_one_that_ends(f: &Fixture) {
    assert_eq!(Event::wait_any(&[]), None);
    let (mine, other) = (Words::new(&f.device), f.open(|_| {}));
    // One device: whichever it is, its wait is over. Nothing was submitted before.
    let events = [mine.increment(), mine.increment()];
    let ended = Event::wait_any(&[&events[1], &events[0]]).unwrap();
    events[1 - ended].wait_timeout(Duration::ZERO).unwrap();
    Event::wait_all(&[&events[0], &events[1]]).unwrap();
    // Of several that have ended, the first; a failure is an end; and what has nothing to do has ended.
    assert_eq!(Event::wait_any(&[&events[1], &events[0]]), Some(0));
    let failed = failing(&f.device, 3);
    assert_eq!(Event::wait_any(&[&failed]), Some(0));
    assert_eq!(failed.status(), EventStatus::Failed);
    let launch = mine.kernel.launch().buffer("data", &mine.data);
    let nothing = launch.workgroups(0).submit().unwrap();
    assert_eq!(Event::wait_any(&[&mine.increment(), &nothing]), Some(1));
    // One of two devices is held.
    let Some(held) = held(&other) else {
        return;
    };
    let behind = Words::new(&other).increment();
    let events = [&held.event, &behind];
    let short = Duration::from_millis(2);
    assert_eq!(Event::wait_any_timeout(&events, short), None);
    assert_eq!(Event::wait_any_timeout(&events, Duration::ZERO), None);
    let late = Event::wait_all_timeout(&[&mine.increment(), &held.event], short);
    assert!(matches!(late, Err(WaitError::Deadline)), "{late:?}");
    // Processors may have one thread for the kernels of all devices: then the free device goes on behind the held one, which
    // is let go while this thread waits.
    let free = mine.increment();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| held.release.send(()).unwrap());
        Event::wait_any_timeout(&[&behind, &held.event, &free], MINUTE).unwrap()
    });
    [&behind, &held.event, &free][ended]
        .wait_timeout(Duration::ZERO)
        .unwrap();
    // The first to end of one device is the first in its queue.
    assert_eq!(Event::wait_any_timeout(&events, MINUTE), Some(0));
    Event::wait_all_timeout(&[&behind, &free], MINUTE).unwrap();
}

/// What a callback was given, and the name of the thread that ran it.
type Called = (Result<(), Arc<ExecutionError>>, Option<String>);

fn report(sender: &Sender<Called>) -> impl FnOnce(Result<(), Arc<ExecutionError>>) + use<> {
    let sender = sender.clone();
    move |result| {
        let name = std::thread::current().name().map(str::to_owned);
        let _ = sender.send((result, name));
    }
}

fn callbacks_run_once_with_the_result_on_another_thread(f: &Fixture) {
    let (sender, calls) = channel::<Called>();
    let words = Words::new(&f.device);
    // Nobody submits or waits for the command.
    let event = words.increment();
    event.on_completion(report(&sender));
    let (result, thread) = calls.recv_timeout(MINUTE).unwrap();
    result.unwrap();
    assert_ne!(thread.as_deref(), std::thread::current().name());
    assert_eq!(event.status(), EventStatus::Complete);
    words.assert_incremented(1);
    // One that is done, and one that had nothing to do.
    event.on_completion(report(&sender));
    let launch = words.kernel.launch().buffer("data", &words.data);
    let nothing = launch.workgroups(0).submit().unwrap();
    nothing.on_completion(report(&sender));
    for _ in 0..2 {
        let (result, thread) = calls.recv_timeout(MINUTE).unwrap();
        result.unwrap();
        assert_ne!(thread.as_deref(), std::thread::current().name());
    }
    failing(&f.device, 4).on_completion(report(&sender));
    let error = calls.recv_timeout(MINUTE).unwrap().0.unwrap_err();
    assert!(is_failure(&error, 4), "{error}");
    if let Some(held) = held(&f.device) {
        held.event.on_completion(report(&sender));
        calls.try_recv().unwrap_err();
        held.release.send(()).unwrap();
        calls.recv_timeout(MINUTE).unwrap().0.unwrap();
    }
    // Each once: no callback is left that would have a sender.
    drop(sender);
    let left = calls.recv_timeout(MINUTE).map(|(result, _)| result);
    assert!(left.is_err(), "called again with {left:?}");
}

fn callbacks_wait_submit_panic_and_drop_devices(f: &Fixture) {
    let device = f.open(|_| {});
    let words = Arc::new(Words::new(&device));
    let (sender, ended) = channel();
    words
        .increment()
        .on_completion(|_| panic!("{ON_PURPOSE}: in a callback"));
    let event = words.increment();
    let inside = (Arc::clone(&words), sender.clone());
    event.on_completion(move |result| {
        let (words, sender) = inside;
        let waited = words.increment().wait();
        let _ = sender.send(result.is_ok() && waited.is_ok());
        // A callback that comes from a callback, and has the last handle of the device.
        let event = words.increment();
        event.on_completion(move |result| {
            words.assert_incremented(4);
            drop(words);
            let _ = sender.send(result.is_ok());
        });
    });
    drop((event, words, device));
    assert!(ended.recv_timeout(MINUTE).unwrap());
    assert!(ended.recv_timeout(MINUTE).unwrap());
    drop(sender);
    ended.recv_timeout(MINUTE).unwrap_err();
    // Callbacks of a device that is gone are called, with its loss.
    let device = f.open(|_| {});
    let (sender, calls) = channel();
    let words = Words::new(&device);
    device.finish().unwrap();
    device.raw().destroy();
    let launch = words.kernel.launch().buffer("data", &words.data);
    // Where the loss is known at once, there is no launch.
    if let Ok(event) = launch.invocations(LEN as u32).submit() {
        event.on_completion(report(&sender));
        calls.recv_timeout(MINUTE).unwrap().0.unwrap_err();
    }
}

fn events_know_their_times(f: &Fixture) {
    let words = Words::new(&f.device);
    f.device.finish().unwrap();
    let before = Instant::now();
    let event = words.increment();
    assert_eq!(event.submitted_at(), None);
    event.wait().unwrap();
    let submitted = event.submitted_at().unwrap();
    assert!(before <= submitted && submitted <= Instant::now());
    assert_eq!(event.gpu_times().unwrap_err(), ProfilingError::NotProfiled);
    if !f.device.has(Aspect::TimestampQueries) {
        return;
    }
    let launch = words.kernel.launch().buffer("data", &words.data);
    let mut launch = launch.invocations(LEN as u32).profiled();
    let events: Vec<Event> = (0..3).map(|_| launch.submit().unwrap()).collect();
    for event in &events {
        let times = event.gpu_times().unwrap();
        assert_eq!(times.ended - times.started, event.gpu_time().unwrap());
    }
    // Each writes what the one before has written.
    for pair in events.windows(2) {
        let (first, second) = (pair[0].gpu_times().unwrap(), pair[1].gpu_times().unwrap());
        assert!(first.started <= second.started, "{first:?} {second:?}");
        assert!(first.ended <= second.ended, "{first:?} {second:?}");
    }
    assert!(submitted <= events[0].submitted_at().unwrap());
    let nothing = launch.workgroups(0).submit().unwrap();
    assert_eq!(nothing.gpu_times().unwrap_err(), ProfilingError::NothingRun);
    assert_eq!(nothing.submitted_at(), None);
}

fn every_way_to_wait_sees_the_end(f: &Fixture) {
    let spins = [Duration::ZERO, Duration::from_micros(500), Duration::MAX];
    let spins = spins.map(WaitPolicy::Spin);
    let context = Context::new().unwrap();
    for policy in [WaitPolicy::Park].into_iter().chain(spins) {
        let mut options = f.device.options().clone();
        options.wait = policy;
        options.probe = Some(false);
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let words = Words::new(&device);
        for times in 1..=3 {
            words.increment().wait().unwrap();
            words.assert_incremented(times);
        }
        device.raw().destroy();
        let launch = words.kernel.launch().buffer("data", &words.data);
        let launched = launch.invocations(LEN as u32).submit();
        let ended = launched.map(|event| event.wait_timeout(MINUTE));
        assert!(!matches!(ended, Ok(Ok(()))), "{policy:?}: {ended:?}");
        assert!(
            !matches!(ended, Ok(Err(WaitError::Deadline))),
            "{policy:?}: {ended:?}"
        );
    }
}
