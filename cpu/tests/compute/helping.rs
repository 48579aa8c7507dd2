//! Threads that do what their work-groups wait for.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tombolo_cpu::{Api, Loss, Options};

use crate::harness::Cpu;

/// As many rounds as the first word says, in each of which a work-group asks in its own word and waits for an answer in the
/// next.
const ASKING: &str = "
    @group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
        let own = 1u + 2u * group.x;
        for (var round = 1u; round <= atomicLoad(&words[0]); round++) {
            atomicStore(&words[own], round);
            while (atomicLoad(&words[own + 1u]) != round) {}
        }
    }";

/// Work-groups that ask again and again until all of the words' work-groups have begun.
const MEETING: &str = "
    @group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
        let own = 1u + 2u * group.x;
        atomicAdd(&words[0], 1u);
        for (var round = 1u; atomicLoad(&words[0]) < arrayLength(&words) / 2u - 1u; round++) {
            atomicStore(&words[own], round);
            while (atomicLoad(&words[own + 1u]) != round) {}
        }
    }";

/// As [`ASKING`], with the number of looks in vain in the last word.
const COUNTING: &str = "
    @group(0) @binding(0) var<storage, read_write> words: array<atomic<u32>>;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
        var looks = 0u;
        for (var round = 1u; round <= atomicLoad(&words[0]); round++) {
            atomicStore(&words[1], round);
            while (atomicLoad(&words[2]) != round) { looks++; }
        }
        atomicStore(&words[arrayLength(&words) - 1u], looks);
    }";

struct Asking {
    cpu: Cpu,
    words: Arc<Vec<AtomicU32>>,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

/// Work-groups that ask in words which the host sees.
fn asking(threads: usize, groups: u32, rounds: u32) -> Asking {
    asking_by(ASKING, threads, groups, rounds)
}

fn asking_by(source: &str, threads: usize, groups: u32, rounds: u32) -> Asking {
    let mut options = Options::default();
    options.threads = Some(threads);
    let cpu = Cpu::with(options);
    let words: Arc<Vec<AtomicU32>> =
        Arc::new((0..2 + 2 * groups).map(|_| AtomicU32::new(0)).collect());
    words[0].store(rounds, Ordering::Relaxed);
    let size = 4 * words.len() as u64;
    let address = NonNull::from(words.as_slice()).cast::<u8>();
    // SAFETY: the buffer keeps the words, which are atomic on both sides.
    let buffer = unsafe {
        let buffer = tombolo_cpu::Buffer::from_host(address, size, Box::new(words.clone()));
        let descriptor = wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        };
        (cpu.device).create_buffer_from_hal::<Api>(buffer, &descriptor)
    };
    let pipeline = cpu.pipeline(source);
    let group = cpu.group(&pipeline, &[&buffer]);
    Asking {
        cpu,
        words,
        pipeline,
        group,
    }
}

impl Asking {
    fn help(&self, help: impl Fn() -> bool + Send + Sync + 'static) -> bool {
        // SAFETY: the device is only told.
        unsafe { self.cpu.device.as_hal::<Api>() }
            .unwrap()
            .help_while_waiting(help)
    }

    fn run(&self, groups: u32) {
        self.cpu
            .dispatch(&self.pipeline, &self.group, [groups, 1, 1]);
        let polled = self.cpu.device.poll(wgpu::PollType::Wait {
            submission_index: None,
            timeout: Some(Duration::from_secs(60)),
        });
        polled.unwrap();
    }
}

/// Answers what was asked; whether anything was.
fn answer(words: &[AtomicU32]) -> bool {
    let mut asked = false;
    for pair in words[1..].chunks_exact(2) {
        let round = pair[0].load(Ordering::Acquire);
        if pair[1].load(Ordering::Relaxed) != round {
            pair[1].store(round, Ordering::Release);
            asked = true;
        }
    }
    asked
}

#[test]
fn work_groups_are_answered_by_their_own_threads() {
    const ROUNDS: u32 = 20;
    for (threads, groups) in [(1, 1), (1, 100), (2, 300)] {
        let asking = asking(threads, groups, ROUNDS);
        let words = asking.words.clone();
        let here = std::thread::current().id();
        assert!(asking.help(move || {
            assert_ne!(std::thread::current().id(), here);
            answer(&words)
        }));
        assert!(!asking.help(|| false), "there is one already");
        asking.run(groups);
        let words = asking.words[1..=2 * groups as usize].iter();
        assert!(
            words
                .map(|word| word.load(Ordering::Relaxed))
                .all(|word| word == ROUNDS)
        );
    }
}

#[test]
fn a_helper_is_asked_at_the_first_look_in_vain() {
    const ROUNDS: u32 = 20;
    let asking = asking_by(COUNTING, 1, 1, ROUNDS);
    let words = asking.words.clone();
    asking.help(move || {
        let round = words[1].load(Ordering::Acquire);
        words[2].swap(round, Ordering::AcqRel) != round
    });
    asking.run(1);
    assert_eq!(asking.words[3].load(Ordering::Relaxed), ROUNDS);
}

#[test]
fn work_groups_that_are_helped_let_others_begin() {
    for threads in [1, 2] {
        let asking = asking_by(MEETING, threads, 30, 0);
        let words = asking.words.clone();
        asking.help(move || answer(&words));
        asking.run(30);
        assert_eq!(asking.words[0].load(Ordering::Relaxed), 30);
    }
}

#[test]
fn helpers_that_panic_or_do_nothing_are_asked_again() {
    let asking = asking(2, 40, 5);
    let (words, count) = (asking.words.clone(), AtomicU32::new(0));
    asking.help(move || match count.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => std::panic::resume_unwind(Box::new("on purpose")),
        1 => false,
        _ => answer(&words),
    });
    asking.run(40);
    assert_eq!(asking.words[80].load(Ordering::Relaxed), 5);
}

#[test]
fn helpers_may_run_kernels_of_other_devices() {
    let asking = asking(1, 30, 3);
    let (words, others) = (asking.words.clone(), Arc::new(AtomicU32::new(0)));
    let counted = others.clone();
    asking.help(move || {
        // Both ways of a submission: on this thread, and on others. A few times: each opens a device.
        let ways: &[u32] = match counted.load(Ordering::Relaxed) < 6 {
            true => &[1, 5000],
            false => &[],
        };
        for &groups in ways {
            let count: Vec<u32> = Cpu::new().run(
                "@group(0) @binding(0) var<storage, read_write> out: atomic<u32>;
                 @compute @workgroup_size(1) fn main() { atomicAdd(&out, 1u); }",
                [groups, 1, 1],
                &[&[0; 4]],
            );
            counted.fetch_add(u32::from(count == [groups]), Ordering::Relaxed);
        }
        answer(&words)
    });
    asking.run(30);
    let answered = (0..30).all(|group| asking.words[2 + 2 * group].load(Ordering::Relaxed) == 3);
    assert!(answered);
    assert!(others.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_device_whose_last_handle_a_helper_drops_is_stopped() {
    let asking = asking(1, 2, 1);
    let device = asking.cpu.device.clone();
    let kept = Arc::new(Mutex::new(None));
    let dropped = kept.clone();
    let (tell, told) = std::sync::mpsc::channel();
    asking.help(move || {
        let last: Option<Asking> = dropped.lock().unwrap().take();
        if last.is_some() {
            drop(last);
            let _ = tell.send(());
        }
        false
    });
    asking
        .cpu
        .dispatch(&asking.pipeline, &asking.group, [2, 1, 1]);
    *kept.lock().unwrap() = Some(asking);
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let begun = std::time::Instant::now();
    // SAFETY: the device is only asked.
    while unsafe { device.as_hal::<Api>() }.unwrap().loss() != Some(Loss::Dropped) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the kernel runs on"
        );
        std::thread::yield_now();
    }
}
