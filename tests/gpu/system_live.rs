//! System allocations whose pages come while the kernel runs, and what both tiers have in common.

use tombolo::device::{ExecutionError, WaitError};
use tombolo::system::{SystemAccess, SystemError, SystemMemory, SystemRun, SystemTier};
use tombolo::{Constants, Device, DeviceBuffer, HostServices, Kernel, Program, Ptr};

use crate::cases;
use crate::harness::{Fixture, mix};
use crate::system::{NODE, boxes, kernel, kernel as kernel_on};

cases![
    pages_come_while_the_kernel_runs,
    kernels_with_calls_and_prints_run_once,
    lists_are_followed_and_changed_from_page_to_page,
    groups_that_meet_wait_for_pages,
    wrong_addresses_fail_with_their_place_in_both_tiers,
    memory_that_is_not_there_is_a_fault,
    a_page_that_does_not_come_in_time_is_an_error,
    what_cannot_be_live_is_refused,
    threads_miss_pages_at_once,
    devices_miss_pages_in_turn,
    a_lost_device_ends_the_wait,
];

pub const TIERS: [SystemTier; 2] = [SystemTier::Live, SystemTier::Sliced];

/// The kernel adds words of the host's to others, far apart.
const SCATTER: &str = "
    alias Words = array<u32>;
    alias Count = atomic<u32>;
    @group(0) @binding(0) var<uniform> words: usm_ptr;
    @group(0) @binding(1) var<uniform> count: usm_ptr;
    @group(0) @binding(2) var<uniform> stride: u32;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let w = usm_Words(words);
        w[id.x * stride] += w[(255u - id.x) * stride + 1u];
        atomicAdd(usm_Count(count), id.x);
    }";

/// Whether the run was of this tier. On an adapter that rations turns of loops a busy machine may use up the ration, and the
/// launch is repeated.
pub fn is_of(kernel: &Kernel, run: &SystemRun, tier: SystemTier) -> bool {
    let is_rationed = kernel.device().capabilities().needs_loop_guard();
    let is_live = run.tier == Some(SystemTier::Live) && run.launches == 1;
    match tier {
        SystemTier::Live => is_live || is_rationed && run.tier == Some(SystemTier::Sliced),
        _ => run.tier == Some(tier),
    }
}

pub fn numbers(count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| i.wrapping_mul(0x9e37_79b9) >> 7)
        .collect()
}

/// Runs the kernel above with so large a pool, and checks each word.
fn scatter(kernel: &Kernel, tier: SystemTier, pool: u64, stride: u32) -> SystemRun {
    let mut values = numbers(1 << 19);
    let mut expected = values.clone();
    for i in 0..256 {
        let added = expected[((255 - i) * stride + 1) as usize];
        let word = &mut expected[(i * stride) as usize];
        *word = word.wrapping_add(added);
    }
    let mut count = 5u32;
    let mut memory = SystemMemory::new();
    let words = memory.lend_mut(&mut values);
    let counter = memory.lend_value_mut(&mut count);
    memory.set_tier(Some(tier));
    memory.set_pool_bytes(pool);
    let run = (kernel.launch().value("words", &words))
        .value("count", &counter)
        .value("stride", &stride)
        .invocations(256u32)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    assert!(values == expected, "stride {stride}: {run:?}");
    assert_eq!(count, 5 + 255 * 128);
    assert!(is_of(kernel, &run, tier), "{run:?}");
    assert_eq!(run.pages, run.pages_missed + run.pages_prefetched);
    run
}

fn pages_come_while_the_kernel_runs(f: &Fixture) {
    let kernel = kernel(&f.device, SCATTER);
    for (pool, stride) in [(1u64 << 20, 3), (2 << 20, 2000), (2 << 20, 1021)] {
        let run = scatter(&kernel, SystemTier::Live, pool, stride);
        assert!(run.pages_missed > 0, "{run:?}");
        assert!(run.pages - run.pages_dropped <= pool / 4096, "{run:?}");
        let repeated = scatter(&kernel, SystemTier::Sliced, pool, stride);
        assert!(repeated.launches > 1, "{repeated:?}");
        assert_eq!(repeated.words_written, run.words_written);
    }
}

fn kernels_with_calls_and_prints_run_once(f: &Fixture) {
    let services = HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let w = usm_Words(words);
            let value = w[id.x * 9001u];
            let mixed = mix(value);
            o[id.x] += mixed;
            w[id.x * 9001u + 2000u] = mixed;
            if id.x == 3u { print(\"found {}\", value); }
        }";
    let program = Program::builder()
        .source("calls.wgsl", source)
        .services(&services)
        .build()
        .unwrap();
    let mut pointers = tombolo::kernel::KernelOptions::default();
    pointers.pointers = tombolo::kernel::TranslationMode::System;
    let kernel = (f.device)
        .kernel_with(&program, "main", &Constants::new(), pointers)
        .unwrap();
    let mut values = numbers(1 << 17);
    let expected: Vec<u32> = (0..12).map(|i| mix(values[i * 9001])).collect();
    let third = values[3 * 9001];
    let o: DeviceBuffer<u32> = f.device.buffer(&[1; 12]).unwrap();
    let (options, taken) = crate::print::collect();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut values);
    memory.set_pool_bytes(64 * 4096);
    // Chosen by itself where memory is not used in place: the launch cannot be repeated.
    memory.set_in_place(false);
    let ended = (kernel.launch().value("words", &pointer))
        .buffer("o", &o)
        .services(&services)
        .print_to(options)
        .workgroups(3)
        .run_system(&mut memory);
    drop(memory);
    let run = match ended {
        Ok(run) => run,
        // A busy machine may use up a ration of turns, and the launch cannot be repeated.
        Err(SystemError::Unanswered { .. }) if f.device.capabilities().needs_loop_guard() => return,
        Err(error) => panic!("{error}"),
    };
    assert_eq!((run.launches, run.tier), (1, Some(SystemTier::Live)));
    let found = o.read().unwrap();
    for i in 0..12 {
        assert_eq!(found[i], expected[i].wrapping_add(1), "{i}");
        assert_eq!(values[i * 9001 + 2000], expected[i], "{i}");
    }
    assert_eq!(crate::print::lines(&taken), [format!("found {third}")]);
}

fn lists_are_followed_and_changed_from_page_to_page(f: &Fixture) {
    let source = format!(
        "{NODE}
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @compute @workgroup_size(1) fn main() {{
            var p = first; var number = 0u;
            while !usm_is_null(p) {{
                let n = usm_Node(p);
                n.tag = number;
                number += 1u;
                p = n.next;
            }}
        }}"
    );
    let kernel = kernel(&f.device, &source);
    for tier in TIERS {
        let (mut nodes, first) = boxes(300);
        let between: Vec<Vec<u8>> = nodes.iter().map(|_| vec![1; 3000]).collect();
        let mut memory = SystemMemory::new();
        for node in &mut nodes {
            memory.lend_value_mut(&mut **node);
        }
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(600 * 4096);
        let run = (kernel.launch().value("first", &first))
            .workgroups(1)
            .run_system(&mut memory)
            .unwrap();
        drop(memory);
        let order = (0..300).map(|i| i * 7919 % 300);
        for (number, at) in (0..).zip(order) {
            assert_eq!((nodes[at].tag, nodes[at].value), (number, at as f32));
        }
        // Two have their own number already.
        assert_eq!(run.words_written, 298, "{run:?}");
        assert!(between.iter().flatten().all(|byte| *byte == 1));
    }
}

fn groups_that_meet_wait_for_pages(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        var<workgroup> part: array<u32, 60>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        // No multiple of the lanes that an adapter runs together.
        @compute @workgroup_size(60) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
        ) {
            let w = usm_Words(words);
            var sum = 0u;
            for (var round = 0u; round < 8u; round++) {
                if i % 3u != 1u { part[i] = w[(group.x * 8u + round) * 3000u + i * 5u]; }
                else { part[i] = w[(group.x * 8u + round) * 3000u + 1500u + i]; }
                workgroupBarrier();
                sum += part[59u - i];
                workgroupBarrier();
            }
            o[group.x * 60u + i] = sum;
        }";
    let kernel = kernel(&f.device, source);
    let values = numbers(1 << 18);
    for tier in TIERS {
        let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 480]).unwrap();
        let mut memory = SystemMemory::new();
        let pointer = memory.lend(&values);
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(1 << 20);
        let run = (kernel.launch().value("words", &pointer).buffer("o", &o))
            .workgroups(8)
            .run_system(&mut memory)
            .unwrap();
        assert!(is_of(&kernel, &run, tier), "{run:?}");
        for (at, found) in o.read().unwrap().into_iter().enumerate() {
            let (group, i) = (at / 60, 59 - at % 60);
            let expected = (0..8).map(|round| {
                let start = (group * 8 + round) * 3000;
                values[start + if i % 3 != 1 { i * 5 } else { 1500 + i }]
            });
            assert_eq!(found, expected.fold(0, u32::wrapping_add), "{at}");
        }
    }
}

const SET: &str = "@group(0) @binding(0) var<uniform> at: usm_ptr;
    @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x == 6u {
            let place = usm_u32(at);
            *place = 7u;
        }
    }";

fn set(kernel: &Kernel, at: u64, memory: &mut SystemMemory<'_>) -> Result<(), SystemError> {
    let launch = kernel.launch().value("at", &Ptr::<u32>::from_address(at));
    launch.workgroups(2).run_system(memory).map(|_| ())
}

/// The reason that the fault at this address tells.
fn reason(error: SystemError, at: u64) -> String {
    let SystemError::Wait(WaitError::Failed(error)) = error else {
        panic!("{error}");
    };
    match &*error {
        ExecutionError::Pointer {
            address,
            line: 4,
            invocation: 6,
            reason,
            ..
        } => {
            assert_eq!(*address, at);
            reason.to_string()
        }
        other => panic!("{other}"),
    }
}

fn wrong_addresses_fail_with_their_place_in_both_tiers(f: &Fixture) {
    let kernel = kernel(&f.device, SET);
    let mut values = vec![0u32; 40_000];
    let read = vec![1u32; 40_000];
    let other = [2u32; 100];
    let start = values.as_ptr() as u64;
    for tier in TIERS {
        let mut memory = SystemMemory::new();
        memory.lend_mut(&mut values[10..39_000]);
        memory.lend(&read[..39_999]);
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(16 * 4096);
        let of = |values: &[u32]| values.as_ptr() as u64;
        for (at, why) in [
            (0, "a null pointer"),
            (of(&other) + 8, "not lent"),
            (start + 36, "not lent"),
            (start + 4 * 39_000, "not lent"),
            (start + 4 * 500 + 1, "misaligned"),
            (of(&read), "lent for reading was written"),
            (of(&read) + 4 * 20_000, "lent for reading was written"),
            (0xffff_8000_0000_0000, "not lent"),
            (u64::MAX - 7, "not lent"),
        ] {
            let Err(error) = set(&kernel, at, &mut memory) else {
                panic!("{tier:?}, {at:#x}: {why}");
            };
            let found = reason(error, at);
            assert!(found.contains(why), "{tier:?}, {at:#x}: {found}");
        }
        for index in [10, 20_000, 38_999] {
            set(&kernel, start + 4 * index, &mut memory).unwrap();
        }
        drop(memory);
        for (i, value) in values.iter_mut().enumerate() {
            let expected = if [10, 20_000, 38_999].contains(&i) {
                7
            } else {
                0
            };
            assert_eq!(std::mem::take(value), expected, "{i}");
        }
    }
}

#[cfg(target_os = "linux")]
fn memory_that_is_not_there_is_a_fault(f: &Fixture) {
    let kernel = kernel(&f.device, SET);
    // SAFETY: forty pages that nobody else knows, one in the middle given back at once.
    let start = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            40 * 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at.byte_add(20 * 4096), 4096), 0);
        at as u64
    };
    for tier in TIERS {
        let mut memory = SystemMemory::new();
        // SAFETY: the pages are this test's alone.
        unsafe { memory.lend_range(start, 40 * 4096, SystemAccess::ReadWrite) };
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(32 * 4096);
        let gone = start + 20 * 4096 + 8;
        let found = reason(set(&kernel, gone, &mut memory).unwrap_err(), gone);
        assert!(found.contains("not lent"), "{found}");
        set(&kernel, start + 21 * 4096, &mut memory).unwrap();
        // SAFETY: no launch uses the page any more.
        let word = unsafe {
            std::ptr::with_exposed_provenance_mut::<u32>(start as usize + 21 * 4096).replace(0)
        };
        assert_eq!(word, 7);
    }
    // SAFETY: the mapping made above, which nobody uses any more.
    unsafe {
        libc::munmap(
            std::ptr::with_exposed_provenance_mut(start as usize),
            40 * 4096,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn memory_that_is_not_there_is_a_fault(_: &Fixture) {}

/// A word of each of 256 pages.
pub const EACH: &str = "
    alias Words = array<u32>;
    @group(0) @binding(0) var<uniform> words: usm_ptr;
    @group(0) @binding(1) var<storage, read_write> o: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        o[id.x] = usm_Words(words)[id.x * 1024u];
    }";

fn a_page_that_does_not_come_in_time_is_an_error(f: &Fixture) {
    let kernel = kernel(&f.device, EACH);
    let values = numbers(300 * 1024);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 256]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(&values);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(320 * 4096);
    memory.set_wait_turns(Some(0));
    let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
    let mut launch = launch.workgroups(4);
    match launch.run_system(&mut memory) {
        Err(SystemError::Unanswered { turns: 0, .. }) => {}
        // What rations turns repeats the launch.
        Ok(run) => assert!(f.is_lavapipe() && run.launches > 1, "{run:?}"),
        Err(other) => panic!("{other}"),
    }
    // A launch that cannot be repeated fails everywhere.
    let (options, taken) = crate::print::collect();
    let prints = EACH.replace("o[id.x] =", "print(\"{}\", id.x); o[id.x] =");
    let prints = kernel_on(&f.device, &prints)
        .launch()
        .value("words", &pointer);
    let refused = (prints.buffer("o", &o).print_to(options).workgroups(4)).run_system(&mut memory);
    assert!(matches!(
        refused,
        Err(SystemError::Unanswered { turns: 0, .. })
    ));
    drop(taken);
    memory.set_wait_turns(None);
    let run = launch.run_system(&mut memory).unwrap();
    assert!(run.pages_missed > 0);
    let expected: Vec<u32> = (0..256).map(|i| values[i * 1024]).collect();
    assert_eq!(o.read().unwrap(), expected);
}

fn what_cannot_be_live_is_refused(f: &Fixture) {
    let kernel = kernel(&f.device, SET);
    let mut memory = SystemMemory::new();
    // SAFETY: nothing is launched.
    unsafe { memory.lend_process(SystemAccess::ReadWrite) };
    memory.set_tier(Some(SystemTier::Live));
    let error = set(&kernel, 8, &mut memory).unwrap_err();
    assert!(matches!(error, SystemError::NoLiveTier { .. }), "{error}");
    assert!(error.to_string().contains("2^24 pages"), "{error}");
    // Nor is anything on a device without live memory; the other tier is.
    let without = f.open(|options| options.live_memory = false);
    let kernel = kernel_on(&without, SCATTER);
    let mut values = [0u32; 4];
    let mut memory = SystemMemory::new();
    let at = memory.lend_mut(&mut values).address();
    memory.set_tier(Some(SystemTier::Live));
    let set_kernel = kernel_on(&without, SET);
    let error = set(&set_kernel, at, &mut memory).unwrap_err();
    assert!(matches!(error, SystemError::NoLiveTier { .. }), "{error}");
    drop(memory);
    scatter(&kernel, SystemTier::Sliced, 2 << 20, 1021);
}

fn threads_miss_pages_at_once(f: &Fixture) {
    let kernel = kernel(&f.device, SCATTER);
    std::thread::scope(|threads| {
        for thread in 0..8u32 {
            let kernel = &kernel;
            threads.spawn(move || {
                let tier = TIERS[thread as usize % 2];
                scatter(kernel, tier, 2 << 20, 1000 + thread);
            });
        }
    });
}

fn devices_miss_pages_in_turn(f: &Fixture) {
    let devices: [Device; 2] = [f.device.clone(), f.open(|_| {})];
    let kernels = devices.each_ref().map(|device| kernel(device, SCATTER));
    for round in 0..2 {
        for kernel in &kernels {
            scatter(kernel, SystemTier::Live, 2 << 20, 1500 + round);
        }
    }
}

fn a_lost_device_ends_the_wait(f: &Fixture) {
    let device = f.open_alone(|_| {});
    let kernel = kernel(&device, EACH);
    let values = numbers(300 * 1024);
    let o: DeviceBuffer<u32> = device.buffer(&[0; 256]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(&values);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(320 * 4096);
    let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
    let mut launch = launch.workgroups(4);
    launch.run_system(&mut memory).unwrap();
    device.raw().destroy();
    launch.run_system(&mut memory).unwrap_err();
}
