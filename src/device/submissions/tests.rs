//! What is said of work on a device that wgpu cannot be asked about any more; which devices are given more work; and what a
//! signal is worth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Standing;
use crate::buffers::LiveBuffer;
use crate::clock::Instant;
use crate::device::{Aspect, EventStatus, WaitError, hooks};
use crate::{
    Constants, Context, DeviceBuffer, Program,
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
        // With the proof it opens.
        submissions.mute.store(false, Ordering::Release);
        drop(heap.host().unwrap());
    }
}

/// Numbers that no submission will signal stand for work that has not ended.
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

/// The next submission of the queue takes the signal, and that may be one that the program makes on the queue itself.
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
        // Other tests submit, too.
        let this = std::thread::current().id();
        hooks::set(Some(Arc::new(move |point| {
            if point == hooks::Point::Submitting
                && std::thread::current().id() == this
                && is_first.swap(false, Ordering::SeqCst)
            {
                let mut encoder = program_submits
                    .raw()
                    .create_command_encoder(&Default::default());
                encoder.clear_buffer(other.raw(), 0, None);
                program_submits.raw_queue().submit([encoder.finish()]);
            }
        })));
        let event = launch.submit().unwrap();
        device.flush().unwrap();
        let submissions = &device.shared.submissions;
        let batch = event.batch().unwrap();
        let deadline = Instant::now() + MINUTE;
        while !submissions.has_reached(batch) {
            assert!(
                Instant::now() < deadline,
                "{}: nobody took the signal",
                device.name()
            );
            std::thread::yield_now();
        }
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
