//! Dispatches stopped by themselves: while they run, before they begin, too late, and by a time limit; and work-groups that wait
//! for more of their kind than a thread takes.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tombolo_cpu::{Api, Options, Stop, StopState};

use crate::harness::Cpu;

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// The bytes of a buffer before a kernel is run.
const POISON: u32 = 0xdead_beef;

/// Bodies of kernels without an end, each of which looks for a stop in a way of its own. `out[0]` says that they have begun. A buffer
/// that is only added to would show nothing before the end.
const ENDLESS: [&str; 4] = [
    // A loop that nobody else can end.
    "atomicStore(&out[0], 1u); var n = i; loop { n = n * 1664525u + 1u; if (n == 5u && i == 1000u) { break; } } atomicStore(&out[1], n);",
    // A loop that waits for others.
    "atomicAdd(&out[0], 1u); while (atomicLoad(&out[1]) != 77u) {}",
    // A loop that works, and waits for others.
    "atomicAdd(&out[0], 1u); loop { atomicAdd(&out[2], i); if (atomicLoad(&out[1]) == 77u) { break; } }",
    // A loop around a barrier.
    "atomicStore(&out[0], 1u); loop { workgroupBarrier(); if (workgroupUniformLoad(&go_on) == 77u) { break; } }",
];

fn source(body: &str, width: u32) -> String {
    format!(
        "var<workgroup> go_on: u32;
         @group(0) @binding(0) var<storage, read_write> out: array<atomic<u32>>;
         @compute @workgroup_size({width}) fn main(@builtin(local_invocation_index) i: u32) {{ if (i == 1001u) {{ go_on = 1u; }} {body} }}"
    )
}

/// A dispatch that can be stopped, with its buffer.
struct Run {
    buffer: wgpu::Buffer,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Run {
    fn new(cpu: &Cpu, source: &str, contents: &[u32]) -> Self {
        let pipeline = cpu.pipeline(source);
        let buffer = cpu.buffer(bytemuck::cast_slice(contents));
        let group = cpu.group(&pipeline, &[&buffer]);
        // The contents are there before any kernel looks.
        cpu.queue.submit([]);
        Self {
            buffer,
            pipeline,
            group,
        }
    }

    /// Submits the dispatch behind a marker.
    fn submit(&self, cpu: &Cpu, marker: &str, groups: u32) {
        let mut encoder = cpu.device.create_command_encoder(&Default::default());
        self.encode(&mut encoder, marker, groups);
        cpu.queue.submit([encoder.finish()]);
    }

    fn encode(&self, encoder: &mut wgpu::CommandEncoder, marker: &str, groups: u32) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.insert_debug_marker(marker);
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }

    /// A word of the buffer, while kernels use the word.
    fn word(&self, index: usize) -> u32 {
        // SAFETY: the buffer is only asked where it lies.
        let address = unsafe { self.buffer.as_hal::<Api>() }.unwrap().address();
        // SAFETY: the word is in the buffer, aligned, and used by atomic operations alone.
        let word = unsafe { AtomicU32::from_ptr(address.as_ptr().cast::<u32>().add(index)) };
        word.load(Ordering::Relaxed)
    }

    /// Waits until a word is `at_least` so much.
    fn await_word(&self, index: usize, at_least: u32) {
        let begin = Instant::now();
        while self.word(index) < at_least {
            assert!(begin.elapsed() < LONG, "the kernel does not get there");
            std::thread::yield_now();
        }
    }
}

fn stop(cpu: &Cpu, marker: &str, limit: Option<Duration>) -> Stop {
    // SAFETY: the device is only asked.
    let device = unsafe { cpu.device.as_hal::<Api>() }.unwrap();
    device.stop_behind(marker, limit).unwrap()
}

/// Waits for everything, and sees that the device lives on.
fn finish(cpu: &Cpu) {
    let waited = cpu.device.poll(wgpu::PollType::Wait {
        submission_index: None,
        timeout: Some(LONG),
    });
    waited.unwrap();
    // SAFETY: the device is only asked.
    assert_eq!(unsafe { cpu.device.as_hal::<Api>() }.unwrap().loss(), None);
    assert_eq!(
        cpu.map("", "out[i] = i * 3u;", 70),
        (0..70).map(|i| i * 3).collect::<Vec<u32>>()
    );
}

fn variants() -> [Options; 5] {
    let changed = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        options
    };
    [
        changed(|options| options.threads = Some(3)),
        changed(|options| (options.threads, options.lanes) = (Some(1), 1)),
        changed(|options| options.sanitizer = Some(Default::default())),
        changed(|options| options.coverage = true),
        changed(|options| options.schedule = Some(7)),
    ]
}

#[test]
fn a_running_kernel_is_stopped_and_its_device_lives_on() {
    for options in variants() {
        let cpu = Cpu::with(options);
        for (body, width) in ENDLESS.into_iter().flat_map(|body| [(body, 1), (body, 8)]) {
            let run = Run::new(&cpu, &source(body, width), &[0, 0, 0]);
            let stop = stop(&cpu, "endless", None);
            run.submit(&cpu, "endless", 5);
            run.await_word(0, 1);
            assert_eq!(stop.state(), StopState::Open);
            assert!(stop.stop(), "{body}");
            assert!(!stop.stop());
            finish(&cpu);
            assert_eq!(stop.state(), StopState::Asked);
            assert!(!stop.stop());
            // What was written stays.
            assert!(cpu.read::<u32>(&run.buffer)[0] >= 1);
        }
    }
}

#[test]
fn a_kernel_in_line_never_begins_and_copies_run_all_the_same() {
    let cpu = Cpu::new();
    let endless = Run::new(&cpu, &source(ENDLESS[1], 1), &[0; 3]);
    let add = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) { out[i] = i; }";
    let (queued, free) = (
        Run::new(&cpu, add, &[POISON; 4]),
        Run::new(&cpu, add, &[POISON; 4]),
    );
    let copied = cpu.buffer(&[0; 16]);
    let stops = ["endless", "queued"].map(|marker| stop(&cpu, marker, None));
    endless.submit(&cpu, "endless", 1);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    queued.encode(&mut encoder, "queued", 1);
    encoder.copy_buffer_to_buffer(&queued.buffer, 0, &copied, 0, 16);
    // Behind another marker the dispatch is not part of the stop.
    free.encode(&mut encoder, "free", 1);
    cpu.queue.submit([encoder.finish()]);
    assert!(stops[1].stop());
    endless.await_word(0, 1);
    assert!(stops[0].stop());
    finish(&cpu);
    assert_eq!(cpu.read::<u32>(&queued.buffer), [POISON; 4]);
    assert_eq!(cpu.read::<u32>(&copied), [POISON; 4]);
    assert_eq!(cpu.read::<u32>(&free.buffer), [0, 1, 2, 3]);
}

#[test]
fn a_stop_behind_the_end_comes_too_late() {
    let cpu = Cpu::new();
    let short = Run::new(&cpu, &source("atomicAdd(&out[0], 5u);", 1), &[0; 3]);
    let endless = Run::new(&cpu, &source(ENDLESS[1], 1), &[0; 3]);
    let [first, second] = ["short", "endless"].map(|marker| stop(&cpu, marker, None));
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    short.encode(&mut encoder, "short", 1);
    endless.encode(&mut encoder, "endless", 1);
    cpu.queue.submit([encoder.finish()]);
    endless.await_word(0, 1);
    // The submission still runs, the dispatch does not.
    assert!(!first.stop());
    assert_eq!(first.state(), StopState::Over);
    assert!(second.stop());
    finish(&cpu);
    // The end of the submission is an end as well.
    let last = stop(&cpu, "last", None);
    short.submit(&cpu, "last", 1);
    finish(&cpu);
    assert!(!last.stop());
    assert_eq!(last.state(), StopState::Over);
    assert_eq!(cpu.read::<u32>(&short.buffer)[0], 10);
}

#[test]
fn a_kernel_is_stopped_by_its_time_limit() {
    let cpu = Cpu::new();
    for body in ENDLESS {
        let endless = Run::new(&cpu, &source(body, 8), &[0; 3]);
        let short = Run::new(&cpu, &source("atomicAdd(&out[0], 5u);", 1), &[0; 3]);
        let late = stop(&cpu, "late", Some(Duration::from_millis(2)));
        let in_time = stop(&cpu, "in time", Some(LONG));
        endless.submit(&cpu, "late", 3);
        short.submit(&cpu, "in time", 1);
        finish(&cpu);
        assert_eq!(late.state(), StopState::TimeLimit, "{body}");
        assert_eq!(in_time.state(), StopState::Over);
        assert_eq!(cpu.read::<u32>(&short.buffer)[0], 5);
    }
}

#[test]
fn a_device_dropped_with_a_kernel_that_can_be_stopped_ends_like_any_other() {
    let cpu = Cpu::new();
    let run = Run::new(&cpu, &source(ENDLESS[2], 1), &[0; 3]);
    let stop = stop(&cpu, "endless", None);
    run.submit(&cpu, "endless", 1);
    run.await_word(0, 1);
    let device = cpu.device.clone();
    drop((cpu, run));
    // SAFETY: the device is only asked.
    let loss = unsafe { device.as_hal::<Api>() }.unwrap().loss();
    assert_eq!(loss, Some(tombolo_cpu::Loss::Dropped));
    // Nobody stopped the dispatch by itself, and it is over.
    assert_eq!(stop.state(), StopState::Over);
}

/// The most waiting work-groups on one thread, as documented.
const MOST_WAITING: u32 = 4096;

/// Every work-group waits until so many others are there.
fn meeting(groups: u32) -> String {
    source(
        &format!(
            "atomicAdd(&out[0], 1u); while (atomicLoad(&out[0]) < {groups}u) {{}} atomicAdd(&out[1], 1u);"
        ),
        1,
    )
}

fn on_one_thread() -> Cpu {
    let mut options = Options::default();
    options.threads = Some(1);
    Cpu::with(options)
}

#[test]
fn as_many_work_groups_as_promised_wait_for_one_another_on_one_thread() {
    let cpu = on_one_thread();
    let run = Run::new(&cpu, &meeting(MOST_WAITING), &[0; 3]);
    let stop = stop(&cpu, "meeting", None);
    run.submit(&cpu, "meeting", MOST_WAITING);
    finish(&cpu);
    assert_eq!(stop.state(), StopState::Over);
    assert_eq!(
        cpu.read::<u32>(&run.buffer),
        [MOST_WAITING, MOST_WAITING, 0]
    );
}

#[test]
fn with_one_work_group_more_none_gets_on_until_the_kernel_is_stopped() {
    let cpu = on_one_thread();
    let groups = MOST_WAITING + 1;
    let run = Run::new(&cpu, &meeting(groups), &[0; 3]);
    let stop = stop(&cpu, "meeting", None);
    run.submit(&cpu, "meeting", groups);
    run.await_word(0, MOST_WAITING);
    assert!(stop.stop());
    finish(&cpu);
    assert_eq!(stop.state(), StopState::Asked);
    // The last has never begun, and nobody has met it.
    assert_eq!(cpu.read::<u32>(&run.buffer), [MOST_WAITING, 0, 0]);
}
