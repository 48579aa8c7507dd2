//! System allocations larger than what a device holds of them at once: pages come when they are missed.

#[cfg(target_os = "linux")]
use tombolo::system::SystemAccess;
use tombolo::system::{SystemError, SystemMemory, SystemTier};
use tombolo::{Constants, Device, DeviceBuffer, DeviceGlobal, Launch, Program, Ptr};

use crate::cases;
use crate::harness::{Fixture, mix};
use crate::system::kernel;
#[cfg(target_os = "linux")]
use crate::system::{NODE, boxes};
use crate::system_live::numbers;

cases![
    missing_pages_are_fetched,
    a_launch_that_is_repeated_has_one_effect,
    a_list_is_followed_from_page_to_page,
    more_than_fits_is_refused,
    what_cannot_be_undone_is_refused,
    buffers_of_the_context_and_the_heap_are_undone,
    addresses_beyond_four_gibibytes_are_found,
    groups_that_meet_are_repeated_as_a_whole,
    a_lost_device_is_an_error,
];

/// Memory of which devices get copies, all of them alike: of what does not fit, between launches.
fn copied<'a>() -> SystemMemory<'a> {
    let mut memory = SystemMemory::new();
    memory.set_tier(Some(SystemTier::Sliced));
    memory
}

const GATHER: &str = "
    alias Words = array<u32>;
    @group(0) @binding(0) var<uniform> words: usm_ptr;
    @group(0) @binding(1) var<uniform> stride: u32;
    @group(0) @binding(2) var<storage, read_write> sums: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        let w = usm_Words(words);
        sums[id.x] += w[id.x * stride] + w[(255u - id.x) * stride + 1u];
    }";

fn gather(device: &Device, pointer: Ptr<u32>, stride: u32, sums: &DeviceBuffer<u32>) -> Launch {
    (kernel(device, GATHER).launch().value("words", &pointer))
        .value("stride", &stride)
        .buffer("sums", sums)
        .invocations(256u32)
}

fn missing_pages_are_fetched(f: &Fixture) {
    let values = numbers(1 << 20);
    for (pool, stride) in [(1u64 << 20, 3), (2 << 20, 2000), (3 << 20, 1021)] {
        let sums: DeviceBuffer<u32> = f.device.buffer(&[7; 256]).unwrap();
        let mut memory = copied();
        let pointer = memory.lend(&values);
        memory.set_pool_bytes(pool);
        let run = gather(&f.device, pointer, stride, &sums)
            .run_system(&mut memory)
            .unwrap();
        let word = |i: u32| values[i as usize];
        for (i, sum) in (0u32..).zip(sums.read().unwrap()) {
            let expected = 7 + word(i * stride) + word((255 - i) * stride + 1);
            assert_eq!(sum, expected, "{i} of {stride}");
        }
        assert!(run.launches > 1 && run.launches < 40, "{run:?}");
        assert!(run.pages <= pool / 4096, "{run:?}");
    }
}

/// What a kernel adds to buffers, to what is lent, and by atomics, is added once.
fn a_launch_that_is_repeated_has_one_effect(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        alias Count = atomic<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> count: usm_ptr;
        @group(0) @binding(2) var<storage, read_write> sums: array<u32>;
        @group(0) @binding(3) var<storage, read_write> total: atomic<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            sums[id.x] += 1u;
            atomicAdd(&total, id.x);
            atomicAdd(usm_Count(count), 1u);
            let w = usm_Words(words);
            // Each reads where the one before has read of.
            w[id.x * 4099u] += w[id.x * 4099u + 5u];
            sums[id.x] += w[id.x * 4099u];
        }";
    let kernel = kernel(&f.device, source);
    let mut values = numbers(1 << 20);
    let mut expected = values.clone();
    let mut count = 3u32;
    let sums: DeviceBuffer<u32> = f.device.buffer(&[10; 300]).unwrap();
    let total: DeviceBuffer<u32> = f.device.buffer(&[1, 2]).unwrap();
    let mut memory = copied();
    let (words, counter) = (
        memory.lend_mut(&mut values),
        memory.lend_value_mut(&mut count),
    );
    memory.set_pool_bytes(3 << 20);
    let run = (kernel
        .launch()
        .value("words", &words)
        .value("count", &counter))
    .buffer("sums", sums.slice(64..256))
    .buffer("total", total.slice(0..1))
    .invocations(192u32)
    .run_system(&mut memory)
    .unwrap();
    drop(memory);
    assert!(run.launches > 1, "{run:?}");
    let sums = sums.read().unwrap();
    for i in 0..192 {
        let added = expected[i * 4099 + 5];
        expected[i * 4099] = expected[i * 4099].wrapping_add(added);
        assert_eq!(sums[64 + i], 11u32.wrapping_add(expected[i * 4099]), "{i}");
    }
    assert!(sums[..64].iter().chain(&sums[256..]).all(|sum| *sum == 10));
    assert_eq!(values, expected);
    assert_eq!((count, total.read().unwrap()), (195, vec![1 + 191 * 96, 2]));
}

/// In the memory of the whole process each step may lead to a page that is missing.
#[cfg(target_os = "linux")]
fn a_list_is_followed_from_page_to_page(f: &Fixture) {
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
    let (mut nodes, first) = boxes(400);
    let between: Vec<Vec<u8>> = nodes.iter().map(|_| vec![1; 3000]).collect();
    let mut memory = copied();
    // SAFETY: the kernel follows the list, and writes the tags of nodes, which are looked at when it has ended.
    unsafe { memory.lend_process(SystemAccess::ReadWrite) };
    let run = (kernel.launch().value("first", &first))
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
    let order = (0..400).map(|i| i * 7919 % 400);
    for (number, at) in (0..).zip(order) {
        let node: &mut crate::system::Node = &mut nodes[at];
        assert_eq!((node.tag, node.value), (number, at as f32));
    }
    assert!(run.launches > 1, "{run:?}");
    assert!(between.iter().flatten().all(|byte| *byte == 1));
}

#[cfg(not(target_os = "linux"))]
fn a_list_is_followed_from_page_to_page(_: &Fixture) {}

fn more_than_fits_is_refused(f: &Fixture) {
    let values = numbers(1 << 19);
    let sums: DeviceBuffer<u32> = f.device.buffer(&[0; 256]).unwrap();
    for (pool, pages) in [(0, 0), (4096, 0), (16 * 4096, 15)] {
        let mut memory = copied();
        let pointer = memory.lend(&values);
        memory.set_pool_bytes(pool);
        let refused = gather(&f.device, pointer, 2000, &sums)
            .run_system(&mut memory)
            .unwrap_err();
        match &refused {
            SystemError::PoolFull { pages: found, .. } => assert_eq!(*found, pages, "{refused}"),
            other => panic!("{other}"),
        }
    }
    // And the same memory, in parts or in a larger pool.
    let mut memory = copied();
    let pointer = memory.lend(&values);
    gather(&f.device, pointer, 2000, &sums)
        .run_system(&mut memory)
        .unwrap();
    memory.set_pool_bytes(16 * 4096);
    gather(&f.device, pointer, 3, &sums)
        .run_system(&mut memory)
        .unwrap();
}

fn what_cannot_be_undone_is_refused(f: &Fixture) {
    let global: DeviceGlobal<u32> = DeviceGlobal::new("repeated");
    let values = numbers(100_000);
    let head = "@group(0) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() { let value = *usm_u32(at);";
    for (what, items, body) in [
        ("it prints", "", "print(\"{}\", value);"),
        (
            "device globals",
            "var<storage, read_write> repeated: u32;",
            "repeated = value;",
        ),
        (
            "a texture",
            "@group(0) @binding(1) var t: texture_storage_2d<r32uint, write>;",
            "textureStore(t, vec2(0u), vec4(value));",
        ),
    ] {
        let source = format!("{items}\n{head} {body} }}");
        let kernel = kernel(&f.device, &source);
        let texture = f
            .device
            .raw()
            .create_texture(&tombolo::wgpu::TextureDescriptor {
                label: None,
                size: Default::default(),
                mip_level_count: 1,
                sample_count: 1,
                dimension: tombolo::wgpu::TextureDimension::D2,
                format: tombolo::wgpu::TextureFormat::R32Uint,
                usage: tombolo::wgpu::TextureUsages::STORAGE_BINDING,
                view_formats: &[],
            });
        let mut memory = SystemMemory::new();
        memory.set_in_place(false);
        let pointer = memory.lend(&values);
        let mut launch = kernel.launch().value("at", &pointer).workgroups(1);
        if what == "a texture" {
            launch = launch.texture("t", texture.create_view(&Default::default()));
        }
        // Where everything fits there is nothing to undo.
        let run = launch.run_system(&mut memory).unwrap();
        assert_eq!(run.launches, 1);
        memory.set_pool_bytes(16 * 4096);
        memory.set_tier(Some(SystemTier::Sliced));
        let refused = launch.run_system(&mut memory).unwrap_err();
        assert!(
            matches!(refused, SystemError::NotRepeatable { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains(what), "{refused}");
    }
    assert_eq!(global.on(&f.device).read().unwrap(), values[0]);
    let services = tombolo::HostServices::builder()
        .call("fn mix(x: u32) -> u32", mix)
        .start()
        .unwrap();
    let source = format!("{head} let _x = mix(value); }}");
    let program = Program::builder()
        .source("calls.wgsl", source)
        .services(&services)
        .build();
    let mut options = tombolo::kernel::KernelOptions::default();
    options.pointers = tombolo::kernel::TranslationMode::System;
    let kernel = (f.device)
        .kernel_with(&program.unwrap(), "main", &Constants::new(), options)
        .unwrap();
    let mut memory = copied();
    let pointer = memory.lend(&values);
    memory.set_pool_bytes(16 * 4096);
    let mut launch = kernel
        .launch()
        .value("at", &pointer)
        .services(&services)
        .workgroups(1);
    let refused = launch.run_system(&mut memory).unwrap_err();
    assert!(
        refused.to_string().contains("calls functions of the host"),
        "{refused}"
    );
}

/// The other ways to memory that a kernel writes: each attempt begins with what was there before.
fn buffers_of_the_context_and_the_heap_are_undone(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> moving: array<u32>;
        @group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;
        @group(0) @binding(3) var<storage, read_write> own: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let w = usm_Words(words);
            moving[id.x] += 1u;
            own[id.x] += 3u;
            atomicAdd(&counts[id.x % 7u], 1u);
            // Each misses a page, where the one before leads.
            let next = w[id.x * 4099u] % 64u;
            moving[id.x] += w[(next + 64u) * 4099u];
        }";
    let kernel = kernel(&f.device, source);
    let values = numbers(1 << 20);
    let moving = f.context.buffer_from::<u32>(&[100; 200]).unwrap();
    let heap = f.context.heap().unwrap();
    let shared = heap.alloc_slice(&[5u32; 9]).unwrap();
    let own: DeviceBuffer<u32> = f.device.buffer(&[50; 64]).unwrap();
    let mut memory = copied();
    let words = memory.lend(&values);
    memory.set_pool_bytes(3 << 20);
    let part = moving.slice(70..134).unwrap();
    let mut launch = (kernel.launch().value("words", &words))
        .buffer("moving", &part)
        .pointer("counts", shared.add(1), 7)
        .buffer("own", &own)
        .invocations(64u32);
    for round in 1..3u32 {
        let run = launch.run_system(&mut memory).unwrap();
        // The second one knows what the first has touched.
        assert_eq!(run.launches > 1, round == 1, "{run:?}");
        let found = moving.read().unwrap();
        for i in 0..200u32 {
            let lane = i.wrapping_sub(70);
            let added = match lane {
                0..64 => {
                    let next = values[lane as usize * 4099] % 64;
                    1 + values[(next as usize + 64) * 4099]
                }
                _ => 0,
            };
            let expected = (0..round).fold(100u32, |sum, _| sum.wrapping_add(added));
            assert_eq!(found[i as usize], expected, "{i} of round {round}");
        }
        let counts = heap.host().unwrap().slice(shared, 9).unwrap().to_vec();
        for (i, count) in (0u32..).zip(counts) {
            let lanes = match i {
                1..8 => (0..64).filter(|lane| lane % 7 == i - 1).count() as u32,
                _ => 0,
            };
            assert_eq!(count, 5 + round * lanes, "{i} of round {round}");
        }
        assert_eq!(own.read().unwrap(), [50 + 3 * round; 64]);
    }
    // A launch that gives up leaves a buffer of the device as it was.
    memory.set_pool_bytes(32 * 4096);
    launch.run_system(&mut memory).unwrap_err();
    assert_eq!(own.read().unwrap(), [56; 64]);
    drop(launch);
    heap.free(shared).unwrap();
}

/// Memory that is reserved only takes no room.
#[cfg(target_os = "linux")]
fn addresses_beyond_four_gibibytes_are_found(f: &Fixture) {
    [false, true]
        .into_iter()
        .for_each(|in_place| find_beyond_four_gibibytes(f, in_place));
}

#[cfg(target_os = "linux")]
fn find_beyond_four_gibibytes(f: &Fixture, in_place: bool) {
    const WORDS: usize = 3 << 29;
    // SAFETY: a new mapping of zeros that nobody else knows.
    let words: &mut [u32] = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4 * WORDS,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(at.cast(), WORDS)
    };
    let indices = [
        0usize,
        1 << 29,
        (1 << 30) - 1,
        1 << 30,
        (1 << 30) + 77,
        WORDS - 1,
    ];
    for (number, index) in indices.into_iter().enumerate() {
        words[index] = 100 + number as u32;
    }
    let source = "
        struct Twelve { a: u32, b: u32, c: u32 }
        alias Words = array<u32>;
        alias Twelves = array<Twelve>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read> indices: array<u32>;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(6) fn main(@builtin(local_invocation_index) i: u32) {
            let w = usm_Words(words);
            let t = usm_Twelves(words);
            o[i] = w[indices[i]];
            w[indices[i]] = 0u;
            let third = indices[i] / 3u;
            let rest = indices[i] % 3u;
            if rest == 0u { t[third].a = o[i] + 1u; }
            if rest == 1u { t[third].b = o[i] + 1u; }
            if rest == 2u { t[third].c = o[i] + 1u; }
        }";
    let kernel = kernel(&f.device, source);
    let list: DeviceBuffer<u32> = f.device.buffer(&indices.map(|i| i as u32)).unwrap();
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 6]).unwrap();
    let mut memory = copied();
    if in_place {
        memory.set_tier(None);
    }
    let pointer = memory.lend_mut(&mut *words);
    (kernel.launch().value("words", &pointer))
        .buffer("indices", &list)
        .buffer("o", &o)
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    assert_eq!(o.read().unwrap(), [100, 101, 102, 103, 104, 105]);
    assert_eq!(
        indices.map(|index| words[index]),
        [101, 102, 103, 104, 105, 106]
    );
    // SAFETY: the mapping made above, which nobody uses any more.
    unsafe { libc::munmap(words.as_mut_ptr().cast(), 4 * WORDS) };
}

#[cfg(not(target_os = "linux"))]
fn addresses_beyond_four_gibibytes_are_found(_: &Fixture) {}

/// Loops in which invocations meet are not left by some of them.
fn groups_that_meet_are_repeated_as_a_whole(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        var<workgroup> part: array<u32, 64>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(64) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
        ) {
            let w = usm_Words(words);
            var sum = 0u;
            for (var round = 0u; round < 8u; round++) {
                part[i] = w[(group.x * 8u + round) * 3000u + i * 5u];
                workgroupBarrier();
                sum += part[63u - i];
                workgroupBarrier();
            }
            o[group.x * 64u + i] = sum;
        }";
    let kernel = kernel(&f.device, source);
    let values = numbers(1 << 18);
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 512]).unwrap();
    let mut memory = copied();
    let pointer = memory.lend(&values);
    memory.set_pool_bytes(1 << 20);
    let run = (kernel.launch().value("words", &pointer).buffer("o", &o))
        .workgroups(8)
        .run_system(&mut memory)
        .unwrap();
    assert!(run.launches > 1, "{run:?}");
    for (at, found) in o.read().unwrap().into_iter().enumerate() {
        let (group, i) = (at / 64, at % 64);
        let expected = (0..8).map(|round| values[(group * 8 + round) * 3000 + (63 - i) * 5]);
        assert_eq!(found, expected.fold(0, u32::wrapping_add), "{at}");
    }
}

fn a_lost_device_is_an_error(f: &Fixture) {
    let device = f.open_alone(|_| {});
    let values = numbers(256);
    let sums: DeviceBuffer<u32> = device.buffer(&[0; 256]).unwrap();
    let mut memory = copied();
    let pointer = memory.lend(&values);
    let mut launch = gather(&device, pointer, 0, &sums);
    device.raw().destroy();
    let error = launch.run_system(&mut memory).unwrap_err();
    assert!(
        matches!(
            error,
            SystemError::Memory(_) | SystemError::Launch(_) | SystemError::Wait(_)
        ),
        "{error}"
    );
}
