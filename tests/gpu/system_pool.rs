//! Launches that touch more pages of lent memory than the pool has frames, in both tiers.

use tombolo::DeviceBuffer;
use tombolo::system::{SystemError, SystemMemory, SystemTier};

use crate::cases;
use crate::harness::Fixture;
use crate::system::kernel;
use crate::system_live::{EACH, TIERS, is_of, numbers};

cases![
    frames_are_given_to_other_pages_while_the_kernel_runs,
    more_pages_than_frames_come_in_turn,
    one_frame_takes_every_page_in_turn,
    more_misses_than_the_list_has_slots,
    more_written_pages_than_frames_run_in_parts,
    as_many_written_pages_as_frames_leave_none_for_others,
    a_pool_without_frames_is_an_error,
];

/// Whether pages make room for others while a kernel runs: where kernels run on the host's processors, if these keep the
/// order of loads.
pub fn makes_room(f: &Fixture) -> bool {
    let device_type = f.context.adapters()[f.index].device_type;
    device_type == wgpu::DeviceType::Cpu && cfg!(target_arch = "x86_64")
}

/// Every invocation reads pages in an order of its own, again and again, and counts what it has read in a page that stays.
fn frames_are_given_to_other_pages_while_the_kernel_runs(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        alias Wide = array<vec3<u32>>;
        alias Counts = array<atomic<u32>>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> counts: usm_ptr;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let w = usm_Words(words);
            let wide = usm_Wide(words);
            var sum = 0u;
            for (var i = 0u; i < 12u; i++) {
                let at = ((id.x * 12u + i) * 2654435761u) % 76800u;
                sum = sum * 31u + w[at] + wide[at / 4u].z;
                atomicAdd(&usm_Counts(counts)[at % 32u], w[at]);
            }
            o[id.x] = sum;
        }";
    let kernel = kernel(&f.device, source);
    // A vector of three words takes the room of four, and begins at a multiple of that.
    let values = numbers(76_804 + 4);
    let first = (4 - values.as_ptr() as usize / 4 % 4) % 4;
    let values = &values[first..first + 76_804];
    let mut expected = vec![0u32; 32];
    let mut totals = [0u32; 32];
    for (id, sum) in (0u32..).zip(&mut expected) {
        for i in 0..12u32 {
            let at = ((id * 12 + i).wrapping_mul(2_654_435_761) % 76_800) as usize;
            let added = values[at].wrapping_add(values[at / 4 * 4 + 2]);
            *sum = sum.wrapping_mul(31).wrapping_add(added);
            totals[at % 32] = totals[at % 32].wrapping_add(values[at]);
        }
    }
    let is_rationed = f.device.capabilities().needs_loop_guard();
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 32]).unwrap();
    let mut counts = vec![0u32; 32];
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(values);
    let counter = memory.lend_mut(&mut counts);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(6 * 4096);
    let ended = (kernel.launch().value("words", &pointer))
        .value("counts", &counter)
        .buffer("o", &o)
        .invocations(32u32)
        .run_system(&mut memory);
    let run = match ended {
        Ok(run) => run,
        // A busy machine may use up a ration, and a work-group alone touches more; on a card pages stay while a kernel runs.
        Err(SystemError::PoolFull { .. }) if is_rationed || !makes_room(f) => return,
        Err(error) => panic!("{error}"),
    };
    drop(memory);
    assert_eq!(o.read().unwrap(), expected, "{run:?}");
    assert_eq!(counts, totals, "{run:?}");
    assert!(makes_room(f), "{run:?}");
    if !is_rationed {
        assert_eq!((run.launches, run.parts), (1, 1), "{run:?}");
        assert!(run.pages_dropped > 0 && run.pages > 75, "{run:?}");
    }
}

fn more_pages_than_frames_come_in_turn(f: &Fixture) {
    let kernel = kernel(&f.device, EACH);
    let values = numbers(300 * 1024);
    let expected: Vec<u32> = (0..256).map(|i| values[i * 1024]).collect();
    for tier in TIERS {
        let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 256]).unwrap();
        let mut memory = SystemMemory::new();
        let pointer = memory.lend(&values);
        memory.set_tier(Some(tier));
        // Enough for a work-group, and not for two.
        memory.set_pool_bytes(101 * 4096);
        let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
        let run = launch.workgroups(4).run_system(&mut memory).unwrap();
        assert_eq!(o.read().unwrap(), expected, "{run:?}");
        let tier = match makes_room(f) {
            true => tier,
            false => SystemTier::Sliced,
        };
        assert!(is_of(&kernel, &run, tier), "{run:?}");
        assert!(run.pages_dropped > 0, "{run:?}");
        assert_eq!(
            run.parts == 1,
            run.tier == Some(SystemTier::Live),
            "{run:?}"
        );
    }
}

/// Where pages stay while a kernel runs, the grid runs in parts, and an invocation of a work-group of 64 is none.
fn one_frame_takes_every_page_in_turn(f: &Fixture) {
    let kernel = kernel(&f.device, EACH);
    let values = numbers(300 * 1024);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 256]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(&values);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(2 * 4096);
    let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
    let ended = launch.workgroups(4).run_system(&mut memory);
    let is_rationed = f.device.capabilities().needs_loop_guard();
    match ended {
        Err(SystemError::PoolFull { pages: 1, .. }) if is_rationed || !makes_room(f) => {}
        ended => {
            let run = ended.unwrap();
            let expected: Vec<u32> = (0..256).map(|i| values[i * 1024]).collect();
            assert_eq!(o.read().unwrap(), expected, "{run:?}");
        }
    }
}

/// One invocation reads 300 pages over and over, in an order that foretells nothing.
fn more_misses_than_the_list_has_slots(f: &Fixture) {
    const READS: u32 = 18_000;
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let w = usm_Words(words);
            var at = 1u;
            var sum = 0u;
            for (var i = 0u; i < 18000u; i++) {
                at = at * 1664525u + 1013904223u;
                sum = sum * 31u + w[(at >> 8u) % 300u * 1024u + i % 1024u];
            }
            o[0] = sum;
        }";
    let kernel = kernel(&f.device, source);
    let values = numbers(300 * 1024);
    let (mut at, mut expected) = (1u32, 0u32);
    for i in 0..READS {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = values[((at >> 8) % 300 * 1024 + i % 1024) as usize];
        expected = expected.wrapping_mul(31).wrapping_add(word);
    }
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(&values);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(9 * 4096);
    let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
    let ended = launch.workgroups(1).run_system(&mut memory);
    let is_rationed = f.device.capabilities().needs_loop_guard();
    match ended {
        Err(SystemError::PoolFull { pages: 8, .. }) if is_rationed || !makes_room(f) => {}
        // So many turns, each with an access, may be more than the adapter allows.
        Err(SystemError::Wait(_)) if is_rationed => {}
        ended => {
            let run = ended.unwrap();
            assert_eq!(o.read().unwrap(), [expected], "{run:?}");
            assert!(run.pages_missed > 16_384, "{run:?}");
        }
    }
}

/// All frames keep pages that have been written, and one more page is read.
fn as_many_written_pages_as_frames_leave_none_for_others(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> written: usm_ptr;
        @group(0) @binding(1) var<uniform> others: usm_ptr;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(8) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
        ) {
            let w = usm_Words(written);
            if group.x == 0u { w[i * 1024u] += i + 1u; } else { o[i] = usm_Words(others)[i]; }
        }";
    let kernel = kernel(&f.device, source);
    // Whole pages.
    let mut memory_of_pages = numbers(9 * 1024);
    let first = memory_of_pages.as_ptr().align_offset(4096);
    let written = &mut memory_of_pages[first..first + 8 * 1024];
    let mut expected = written.to_vec();
    (0..8).for_each(|i| expected[i * 1024] = expected[i * 1024].wrapping_add(i as u32 + 1));
    let others = numbers(8);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead; 8]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(written);
    let read = memory.lend(&others);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(9 * 4096);
    let launch = (kernel.launch().value("written", &pointer)).value("others", &read);
    let run = (launch.buffer("o", &o).workgroups(2)).run_system(&mut memory);
    let run = run.unwrap();
    drop(memory);
    assert_eq!(o.read().unwrap(), others, "{run:?}");
    assert!(
        memory_of_pages[first..first + 8 * 1024] == expected,
        "{run:?}"
    );
}

/// A word of each of 256 pages is written, and more is added to a buffer and a page that all share.
const EACH_WRITTEN: &str = "
    alias Words = array<u32>;
    alias Count = atomic<u32>;
    @group(0) @binding(0) var<uniform> words: usm_ptr;
    @group(0) @binding(1) var<uniform> count: usm_ptr;
    @group(0) @binding(2) var<storage, read_write> o: array<atomic<u32>>;
    @compute @workgroup_size(64) fn main(
        @builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,
    ) {
        let w = usm_Words(words);
        w[id.x * 1024u + 7u] += id.x;
        // The page of an invocation of the work-group before, which has ended by then or runs beside.
        if group.x > 0u { w[(id.x - 64u) * 1024u + 9u] = id.x; }
        atomicAdd(usm_Count(count), id.x);
        atomicAdd(&o[id.x % 4u], 1u);
    }";

/// No page that has been written makes room while the kernel runs: the launch is repeated in parts, and has one effect.
fn more_written_pages_than_frames_run_in_parts(f: &Fixture) {
    let made = kernel(&f.device, EACH_WRITTEN);
    let mut expected = numbers(300 * 1024);
    for id in 0..256u32 {
        let word = &mut expected[id as usize * 1024 + 7];
        *word = word.wrapping_add(id);
        if id >= 64 {
            expected[(id as usize - 64) * 1024 + 9] = id;
        }
    }
    for tier in TIERS {
        let o: DeviceBuffer<u32> = f.device.buffer(&[10; 4]).unwrap();
        let (mut values, mut count) = (numbers(300 * 1024), 3u32);
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(&mut values);
        let counter = memory.lend_value_mut(&mut count);
        memory.set_tier(Some(tier));
        memory.set_pool_bytes(150 * 4096);
        let mut launch = (made.launch().value("words", &pointer))
            .value("count", &counter)
            .buffer("o", &o)
            .workgroups(4);
        let run = launch.run_system(&mut memory).unwrap();
        assert_eq!(run.tier, Some(SystemTier::Sliced), "{run:?}");
        assert!(run.parts >= 3 && run.pages_dropped > 0, "{run:?}");
        drop(memory);
        assert_eq!(o.read().unwrap(), [74; 4], "{run:?}");
        assert_eq!(count, 3 + 255 * 128);
        assert!(values == expected, "{run:?}");
    }
    // What cannot be repeated says so.
    let keeps = EACH_WRITTEN.replace("let w =", "reached_written = 1u; let w =");
    let keeps = format!("var<storage, read_write> reached_written: u32; {keeps}");
    let (mut values, mut count) = (numbers(300 * 1024), 0u32);
    let o: DeviceBuffer<u32> = f.device.buffer(&[10; 4]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut values);
    let counter = memory.lend_value_mut(&mut count);
    memory.set_tier(Some(SystemTier::Live));
    memory.set_pool_bytes(150 * 4096);
    let launch = (kernel(&f.device, &keeps).launch()).value("words", &pointer);
    let refused = (launch.value("count", &counter).buffer("o", &o))
        .workgroups(4)
        .run_system(&mut memory);
    let is_full = matches!(refused, Err(SystemError::PoolFull { pages: 149, .. }));
    let is_late = matches!(refused, Err(SystemError::Unanswered { .. }));
    assert!(
        is_full || is_late && f.device.capabilities().needs_loop_guard(),
        "{refused:?}"
    );
}

fn a_pool_without_frames_is_an_error(f: &Fixture) {
    let kernel = kernel(&f.device, EACH);
    let values = numbers(300 * 1024);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 256]).unwrap();
    for (tier, frames) in [
        (SystemTier::Live, 0u64),
        (SystemTier::Sliced, 0),
        (SystemTier::Sliced, 60),
    ] {
        let mut memory = SystemMemory::new();
        let pointer = memory.lend(&values);
        memory.set_tier(Some(tier));
        memory.set_pool_bytes((frames + 1) * 4096);
        let launch = kernel.launch().value("words", &pointer).buffer("o", &o);
        match launch.workgroups(4).run_system(&mut memory).unwrap_err() {
            SystemError::PoolFull { pages, needed, .. } => {
                assert_eq!(pages, frames);
                // No more than a work-group touches.
                assert!(needed > frames && needed <= 64, "{needed}");
            }
            other => panic!("{other}"),
        }
    }
}
