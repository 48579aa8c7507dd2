//! The standing of work on a device gone for wgpu; the choice of devices for more work; the worth of a signal; and the
//! times of questions to wgpu about ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{ClosedBatch, Commands, Standing};
use crate::buffers::LiveBuffer;
use crate::clock::Instant;
use crate::device::{Aspect, EventStatus, ExecutionError, WaitError, hooks};
use crate::{
    Constants, Context, Device, DeviceBuffer, Program,
    heap::{HeapError, HeapSize},
};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main() { data[0] += 7u; }";

/// Whether a kernel writes still is not known there, and so nobody is let in.
#[test]
fn a_heap_stays_closed_while_nobody_can_tell_whether_kernels_have_ended() {
    let _alone = hooks::alone();
    let open = || Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
    for index in 0..open().adapters().len() {
        let context = open();
        let device = context.device_at(index).unwrap();
        let heap = context.heap().unwrap();
        let data = heap.alloc_slice(&[1u32; 4]).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut launch = kernel.launch().pointer("data", data, 4).workgroups(1);
        launch.submit().unwrap();
        device.flush().unwrap();
        // As after a panic inside wgpu's call of the driver.
        let submissions = &device.shared.submissions;
        submissions.mute.store(true, Ordering::Release);
        submissions.lost.raise("for a test");
        for _ in 0..2 {
            let error = heap.host().map(drop).unwrap_err();
            let HeapError::Unproven {
                device: name,
                reason,
            } = &error
            else {
                panic!("{}: {error}", device.name());
            };
            assert_eq!(
                (name.as_str(), reason.as_str()),
                (device.name(), "for a test")
            );
        }
        // With the proof the heap opens.
        submissions.mute.store(false, Ordering::Release);
        drop(heap.host().unwrap());
    }
}

/// Numbers without a submission to signal them stand for unfinished work.
#[test]
fn devices_with_work_get_more_only_where_that_keeps_them_busy() {
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        device.buffer(&[1u32; 4]).unwrap().read().unwrap();
        device.finish().unwrap();
        let submissions = &device.shared.submissions;
        let signalled = submissions.signalled.load(Ordering::Acquire);
        assert!(submissions.signal.is_some() && signalled > 0);
        let needs: Vec<bool> = (0..3)
            .map(|more| {
                (submissions.signalled).store(signalled + more, Ordering::Release);
                submissions.needs_more()
            })
            .collect();
        submissions.signalled.store(signalled, Ordering::Release);
        let expected = match device.capabilities().software {
            true => [true, false, false],
            false => [true, true, false],
        };
        assert_eq!(needs, expected, "{}", device.name());
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Waits for a condition.
fn within_a_minute(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + MINUTE;
    while !holds() {
        assert!(Instant::now() < deadline, "it does not become true");
        std::thread::yield_now();
    }
}

/// Has `act` called between the staging of a signal and its submission, on this thread: other tests submit, too.
fn before_own_submissions(act: impl Fn() + Send + Sync + 'static) {
    let this = std::thread::current().id();
    hooks::set(Some(Arc::new(move |point| {
        if point == hooks::Point::Submitting && std::thread::current().id() == this {
            act();
        }
    })));
}

/// Some milliseconds of work.
const BUSY: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = id.x;
    for (var i = 0u; i < 5000u; i++) { x = x * 1664525u + 1013904223u; }
    if (x == 1u) { out[0] = x; }
}";

const HELD: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
@compute @workgroup_size(1) fn main() {
    while atomicLoad(&words[0]) == 0u { storageBarrier(); }
    atomicStore(&words[1], 7u);
}";

/// Lets the kernel go and the hook, however a test ends.
struct LetGo(LiveBuffer);

impl Drop for LetGo {
    fn drop(&mut self) {
        hooks::set(None);
        self.0.store(0, 1);
    }
}

/// The next submission of the queue takes the signal, possibly a submission by the program on the queue itself.
#[test]
fn a_signal_that_the_programs_own_submission_takes_ends_no_wait() {
    let _alone = hooks::alone();
    let mut held = 0;
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        if !device.has(Aspect::LiveMemory) || device.capabilities().needs_loop_guard() {
            // No kernel waits there for as long as it likes.
            continue;
        }
        held += 1;
        let words = device.live(2).unwrap();
        let other: DeviceBuffer<u32> = device.zeroed(64).unwrap();
        let program = Program::new("held.wgsl", HELD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut launch = kernel
            .launch()
            .buffer("words", words.as_buffer())
            .workgroups(1);
        device.finish().unwrap();
        let let_go = LetGo(words);
        let (program_submits, is_first) = (device.clone(), AtomicBool::new(true));
        before_own_submissions(move || {
            if is_first.swap(false, Ordering::SeqCst) {
                let mut encoder = program_submits
                    .raw()
                    .create_command_encoder(&Default::default());
                encoder.clear_buffer(other.raw(), 0, None);
                program_submits.raw_queue().submit([encoder.finish()]);
            }
        });
        let event = launch.submit().unwrap();
        device.flush().unwrap();
        let submissions = &device.shared.submissions;
        let batch = event.batch().unwrap();
        // Somebody has taken the signal.
        within_a_minute(|| submissions.has_reached(batch));
        assert!(!batch.is_signal_own(), "{}", device.name());
        // The kernel runs on.
        assert_eq!(event.status(), EventStatus::Submitted, "{}", device.name());
        assert_ne!(submissions.standing(batch), Standing::Ended);
        let wait = event.wait_timeout(Duration::from_millis(20));
        assert!(matches!(wait, Err(WaitError::Deadline)), "{wait:?}");
        let_go.0.store(0, 1);
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(submissions.standing(batch), Standing::Ended);
        assert_eq!(let_go.0.load(1), Some(7));
    }
    assert!(held > 0, "no adapter holds a kernel");
}

/// wgpu keeps the memory of a launch until asked: after a wait, a program dropping a large buffer has the memory back.
#[test]
fn whoever_waits_for_a_launch_of_large_buffers_asks_wgpu() {
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        for (len, is_light) in [(1 << 10, true), (8 << 20, false)] {
            let data: DeviceBuffer<u32> = device.zeroed(len).unwrap();
            device.finish().unwrap();
            let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
            for launches in 1..=3u32 {
                let event = launch.submit().unwrap();
                event.wait().unwrap();
                let batch = event.batch().unwrap();
                let submissions = &device.shared.submissions;
                assert_eq!(batch.is_light(), is_light, "{}", device.name());
                assert!(is_light || submissions.standing(batch) == Standing::Ended);
                // With the end, all written values are there.
                assert_eq!(data.read_range(..1).unwrap(), [7 * launches]);
                assert_eq!(submissions.standing(batch), Standing::Ended);
                assert_eq!(event.status(), EventStatus::Complete);
            }
        }
    }
}

/// Waits end with the signal where it is that of the batch's own submission: that of every launch but the first, unless others
/// submit as well.
#[test]
fn signals_of_plain_launches_are_their_own() {
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let data: DeviceBuffer<u32> = device.zeroed(4).unwrap();
        device.finish().unwrap();
        let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
        let mut submit = || {
            let event = launch.submit().unwrap();
            // Not waited for: a wait for the first may register a marker more.
            device.flush().unwrap();
            event
        };
        let events: Vec<_> = (0..5).map(|_| submit()).collect();
        for event in events.iter().skip(1) {
            assert!(event.batch().unwrap().is_signal_own(), "{}", device.name());
        }
        let submissions = &device.shared.submissions;
        let last = events.last().and_then(|event| event.batch()).unwrap();
        within_a_minute(|| submissions.has_reached(last));
        // wgpu is not asked.
        assert_eq!(events[4].status(), EventStatus::Complete);
        device.raw_queue().submit([]);
        assert!(!submit().batch().unwrap().is_signal_own());
        assert!(submit().batch().unwrap().is_signal_own());
        assert_eq!(data.read_range(..1).unwrap(), [49]);
    }
}

/// Commands refused by wgpu when finished.
fn refused_commands(device: &Device) -> wgpu::CommandEncoder {
    let small = device.raw().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = (device.raw()).create_command_encoder(&Default::default());
    encoder.clear_buffer(&small, 8, Some(8));
    encoder
}

/// Errors of commands finished inside the submitting call belong to the commands, also where the program's submission
/// has taken the signal; errors of callbacks run by the call do not.
#[test]
fn errors_of_commands_are_told_from_errors_of_callbacks() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        let submissions = &device.shared.submissions;
        let send = |encoder| {
            let closed = ClosedBatch::with(Commands::Recorded(encoder));
            submissions.send_now(device.raw_queue(), closed)
        };
        let nothing = || (device.raw()).create_command_encoder(&Default::default());
        send(nothing());
        for takes_signal in [false, true] {
            let queue = device.raw_queue().clone();
            if takes_signal {
                before_own_submissions(move || {
                    queue.submit([]);
                });
            }
            let batch = send(refused_commands(&device));
            hooks::set(None);
            let verdict = batch.submission();
            let is_refused = |error: &Arc<ExecutionError>| matches!(&**error, ExecutionError::Refused { message } if message.contains("CommandEncoder"));
            assert!(
                matches!(verdict, Some(Err(error)) if is_refused(error)),
                "{}: {verdict:?}",
                device.name()
            );
            assert!(!batch.is_signal_own());
        }
        for submits in [false, true] {
            send(nothing());
            let (ran, runs) = (Arc::new(AtomicBool::new(false)), device.clone());
            let has_run = Arc::clone(&ran);
            device.raw_queue().on_submitted_work_done(move || {
                drop(refused_commands(&runs).finish());
                if submits {
                    let (submissions, queue) = (&runs.shared.submissions, runs.raw_queue());
                    let encoder = runs.raw().create_command_encoder(&Default::default());
                    let closed = ClosedBatch::with(Commands::Recorded(encoder));
                    submissions.send_now(queue, closed);
                }
                has_run.store(true, Ordering::SeqCst);
            });
            // The program's marker is known here to have taken an index and no signal.
            submissions.order.marked(submissions.order.last() + 1);
            within_a_minute(|| {
                let batch = send(nothing());
                assert!(matches!(batch.submission(), Some(Ok(()))));
                assert!(batch.is_signal_own(), "{}", device.name());
                ran.load(Ordering::SeqCst)
            });
        }
    }
}

/// A hook may make a submission between another submission and the marker of the latter: the hook's is not taken for
/// the marker.
#[test]
fn a_submission_in_front_of_the_last_ones_marker_has_no_signal_of_its_own() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = context.device_at(index).unwrap();
        let submissions = &device.shared.submissions;
        let recorded = |device: &Device| {
            let encoder = (device.raw()).create_command_encoder(&Default::default());
            ClosedBatch::with(Commands::Recorded(encoder))
        };
        submissions.send_now(device.raw_queue(), recorded(&device));
        let (told, inner) = std::sync::mpsc::channel();
        let submits = device.clone();
        let mut outer = recorded(&device);
        outer.hooks.push(Box::new(move |_| {
            let queue = submits.raw_queue().clone();
            before_own_submissions(move || {
                queue.submit([]);
            });
            let (submissions, closed) = (&submits.shared.submissions, recorded(&submits));
            let batch = submissions.send_now(submits.raw_queue(), closed);
            hooks::set(None);
            told.send(batch).unwrap();
        }));
        let outer = submissions.send_now(device.raw_queue(), outer);
        let inner = inner.recv().unwrap();
        let next = submissions.send_now(device.raw_queue(), recorded(&device));
        let last = submissions.send_now(device.raw_queue(), recorded(&device));
        let are_own = [&outer, &inner, &next, &last].map(|batch| batch.is_signal_own());
        assert_eq!(are_own, [true, false, false, true], "{}", device.name());
    }
}

/// The time of a thread's next look is a guess and decides nothing.
#[test]
fn waits_end_with_the_work_and_at_deadlines_whatever_recent_waits_took() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    for index in 0..context.adapters().len() {
        let device = {
            let _cards = hooks::Cards::begin();
            context.device_at(index).unwrap()
        };
        let submissions = &device.shared.submissions;
        let recent = submissions.recent.as_ref().expect("recent waits of a card");
        let data = device.buffer(&[5u32]).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
        let mut wait_for_some = || {
            for _ in 0..50 {
                launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
            }
        };
        wait_for_some();
        // These take longer than threads look for them; and sooner or later one takes no longer than is kept.
        let out = device.buffer(&[0u32]).unwrap();
        let program = Program::new("busy.wgsl", BUSY).unwrap();
        let busy = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut busy = busy.launch().buffer("out", &out).workgroups(64);
        let begun = Instant::now();
        loop {
            busy.submit().unwrap().wait_timeout(MINUTE).unwrap();
            if recent.next(Duration::ZERO).is_some() {
                break;
            }
            assert!(begun.elapsed() < MINUTE, "{}", device.name());
        }
        // Long ago, now, soon, and far behind the end of any of these launches.
        for time in [50, 1_000, 20_000, 90_000] {
            recent.note(Duration::from_micros(time));
        }
        wait_for_some();
        assert_eq!(data.read().unwrap(), [5 + 100 * 7], "{}", device.name());
        if !device.has(Aspect::LiveMemory) || device.capabilities().needs_loop_guard() {
            continue;
        }
        let words = device.live(2).unwrap();
        let program = Program::new("held.wgsl", HELD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let mut launch = (kernel.launch())
            .buffer("words", words.as_buffer())
            .workgroups(1);
        let let_go = LetGo(words);
        let event = launch.submit().unwrap();
        for time in [0, 1, 5, 20] {
            recent.note(Duration::from_millis(20));
            let wait = event.wait_timeout(Duration::from_millis(time));
            assert!(matches!(wait, Err(WaitError::Deadline)), "{wait:?}");
        }
        let_go.0.store(0, 1);
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(let_go.0.load(1), Some(7));
    }
}
