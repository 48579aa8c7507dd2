//! Pages of system allocations that come before they are missed, and pages that make room.

use tombolo::DeviceBuffer;
use tombolo::system::{SystemError, SystemMemory, SystemTier};

use crate::cases;
use crate::harness::Fixture;
use crate::system::kernel;
use crate::system_live::{EACH, TIERS, numbers};

cases![
    strides_are_fetched_before_they_are_missed,
    what_a_kernel_has_touched_is_there_next_time,
    pages_that_nobody_touched_make_room,
];

fn sliced<'a>() -> SystemMemory<'a> {
    let mut memory = SystemMemory::new();
    memory.set_tier(Some(SystemTier::Sliced));
    memory
}

/// One invocation goes from page to page by a step, up or down.
fn strides_are_fetched_before_they_are_missed(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> steps: vec2<u32>;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let w = usm_Words(words);
            var at = steps.x;
            for (var i = 0u; i < 100u; i++) {
                // What is read says where to go, so that nothing can be read ahead.
                o[i] = w[at];
                at += steps.y + w[at] % 2u;
            }
        }";
    let kernel = kernel(&f.device, source);
    let mut values: Vec<u32> = numbers(1 << 21);
    values.iter_mut().for_each(|value| *value &= !1);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 100]).unwrap();
    // Pages beside each other, and some apart.
    for (tier, [start, step]) in TIERS.into_iter().flat_map(|tier| {
        [
            [0u32, 1024],
            [0, 20 * 1024],
            [1 << 20, 0u32.wrapping_sub(9 * 1024)],
        ]
        .map(|steps| (tier, steps))
    }) {
        let mut memory = SystemMemory::new();
        let words = memory.lend(&values);
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(1024 * 4096);
        let run = (kernel.launch().value("words", &words))
            .value("steps", &[start, step])
            .buffer("o", &o)
            .workgroups(1)
            .run_system(&mut memory)
            .unwrap();
        // A miss in each of a hundred pages without a pattern.
        assert!(run.launches <= 16, "{tier:?} {step}: {run:?}");
        assert!(
            tier == SystemTier::Sliced || run.pages_prefetched >= 40,
            "{step}: {run:?}"
        );
        let at = |i: u32| start.wrapping_add(i.wrapping_mul(step)) as usize;
        let expected: Vec<u32> = (0..100).map(|i| values[at(i)]).collect();
        assert_eq!(o.read().unwrap(), expected, "{tier:?} {step}");
    }
}

fn what_a_kernel_has_touched_is_there_next_time(f: &Fixture) {
    let kernel = kernel(&f.device, EACH);
    let mut values = numbers(300 * 1024);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 256]).unwrap();
    for tier in TIERS {
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(&mut values);
        memory.set_tier(Some(tier));
        // Room for the pages that the kernel touches; a quarter is for others where pages come while it runs.
        memory.set_pool_bytes(400 * 4096);
        let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
        let mut launch = launch.workgroups(4);
        let first = launch.run_system(&mut memory).unwrap();
        assert!(first.pages_missed > 0, "{first:?}");
        let second = launch.run_system(&mut memory).unwrap();
        assert_eq!((second.launches, second.pages_missed), (1, 0), "{second:?}");
        drop(memory);
        let expected: Vec<u32> = (0..256).map(|i| values[i * 1024]).collect();
        assert_eq!(o.read().unwrap(), expected);
    }
}

/// More is fetched than fits, since neighbours are; the pages that are needed fit.
fn pages_that_nobody_touched_make_room(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let w = usm_Words(words);
            var at = 0u;
            for (var step = 0u; step < 24u; step++) {
                o[step] = at;
                at = w[at];
                w[at + 1u] = step;
            }
        }";
    let kernel = kernel(&f.device, source);
    // A chain from page to page, in no order.
    let page = |step: usize| step * 389 % 1009;
    let mut values = vec![0u32; 1010 * 1024];
    for step in 0..24 {
        values[page(step) * 1024] = page(step + 1) as u32 * 1024;
    }
    let mut expected = values.clone();
    for step in 0..24 {
        expected[page(step + 1) * 1024 + 1] = step as u32;
    }
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 24]).unwrap();
    for frames in [25u64, 40, 100] {
        let mut now = values.clone();
        let mut memory = sliced();
        let words = memory.lend_mut(&mut now);
        memory.set_pool_bytes((frames + 1) * 4096);
        let run = (kernel.launch().value("words", &words).buffer("o", &o))
            .workgroups(1)
            .run_system(&mut memory)
            .unwrap();
        assert!(run.pages_dropped > 0, "{run:?}");
        // And in a launch that knows, nothing is missed.
        let again = (kernel.launch().value("words", &words).buffer("o", &o))
            .workgroups(1)
            .run_system(&mut memory)
            .unwrap();
        assert_eq!((again.launches, again.pages_missed), (1, 0), "{again:?}");
        drop(memory);
        assert!(now == expected, "{frames}");
        let steps: Vec<u32> = (0..24).map(|step| page(step) as u32 * 1024).collect();
        assert_eq!(o.read().unwrap(), steps);
    }
    let mut memory = sliced();
    let words = memory.lend_mut(&mut values);
    memory.set_pool_bytes(25 * 4096);
    let refused = (kernel.launch().value("words", &words).buffer("o", &o))
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap_err();
    match refused {
        SystemError::PoolFull {
            pages: 24,
            needed: 25,
            ..
        } => {}
        other => panic!("{other}"),
    }
}
