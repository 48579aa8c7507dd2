//! The shared heap in memory that a device maps for good: the tests of the heap and of pointers again, on
//! devices that import nothing, and what is peculiar to that memory.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex};

use crate::harness::{Case, Fixture};
use crate::{
    cases, device_memory, heap, heap_api, pointer_atomics, pointer_checks, pointer_helpers,
    pointer_types, pointers,
};
use tombolo::{
    Constants, Context, Device, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    device::{Aspect, Capability, Tier},
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    the_heap_is_the_devices_memory,
    both_see_each_others_writes_at_once,
    other_devices_keep_copies,
    the_first_heap_stays,
    its_size_is_fixed_and_told,
    alignments_are_those_of_addresses,
    checked_pointers_end_with_the_heap,
    memory_outlives_its_device,
    memory_outlives_a_lost_device,
    uniforms_lie_in_the_heap,
    threads_share_it,
    many_arguments_go_through_the_heap,
];

/// The cases of other modules that use the heap of the fixture's context: their device maps it.
pub fn again() -> Vec<(String, impl Fn(&Fixture) + Clone + Send + 'static)> {
    // These make contexts of their own, and their devices import.
    let elsewhere = [
        "a_heap_larger_than_one_binding",
        "growth_keeps_pointers_valid",
        "trimming_keeps_pointers_valid",
        "failed_launches_are_told",
        "large_transfers_between_segments",
        "failures_travel_with_copies",
        // That one is about devices that need no copy; here all but one do.
        "two_devices_extend_one_list_in_turn",
        // There every thread would wait for a copy, again and again.
        "eight_threads_share_the_heap",
    ];
    let opened: Arc<Mutex<HashMap<usize, Arc<Fixture>>>> = Arc::default();
    let modules = [
        heap::CASES,
        heap_api::CASES,
        pointers::CASES,
        pointer_atomics::CASES,
        pointer_checks::CASES,
        pointer_helpers::CASES,
        pointer_types::CASES,
        device_memory::CASES,
    ];
    let all = modules.into_iter().flatten();
    all.filter(|case| !elsewhere.iter().any(|name| case.name.ends_with(name)))
        .map(|&Case { name, run }| {
            let opened = Arc::clone(&opened);
            let on = move |f: &Fixture| {
                let mut opened = opened.lock().unwrap_or_else(|e| e.into_inner());
                let live = opened.entry(f.index).or_insert_with(|| Arc::new(mapped(f)));
                let live = Arc::clone(live);
                drop(opened);
                run(&live);
            };
            let name = name.split_once("::").map_or(name, |(_, name)| name);
            (format!("heap_live::{name}"), on)
        })
        .collect()
}

fn options() -> DeviceOptions {
    let mut options = DeviceOptions::default();
    options.import_host_memory = false;
    options
}

/// A context of its own, whose heap lies in memory of the device.
fn mapped(f: &Fixture) -> Fixture {
    mapped_with(f, HeapSize::Bytes(96 << 20))
}

fn mapped_with(f: &Fixture, heap: HeapSize) -> Fixture {
    let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
    let name = f.device.name();
    let index = (context.adapters().iter())
        .position(|adapter| adapter.name == name)
        .unwrap();
    let device = context.device_at_with(index, options()).unwrap();
    let heap = context.heap().unwrap();
    assert_eq!(heap.tier(&device), Tier::FineGrained);
    Fixture {
        context,
        index,
        device,
    }
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

/// Adds one to a word behind a pointer that is behind a pointer.
const FOLLOW: &str = "
alias Cell = usm_ptr;
@group(0) @binding(0) var<uniform> cell: usm_ptr;
@compute @workgroup_size(1) fn main() {
    let next = usm_Cell(cell);
    let word = usm_u32(*next);
    *word += 1u;
}";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("heap_live.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let kernel = device.kernel(&program, "main", &Constants::new());
    kernel.unwrap_or_else(|e| panic!("{e}"))
}

fn increment(device: &Device, data: Ptr<u32>, len: u32) -> tombolo::Event {
    let kernel = kernel(device, INCREMENT);
    let launch = kernel.launch().pointer("data", data, len as usize);
    launch.invocations(len).submit().unwrap()
}

fn follow(device: &Device, heap: &SharedHeap, to: Ptr<u32>) {
    let cell = heap.alloc(to).unwrap();
    let mut launch = kernel(device, FOLLOW).launch().value("cell", &cell);
    launch = launch.workgroups(1);
    launch.submit().unwrap().wait().unwrap();
    heap.free(cell).unwrap();
}

fn the_heap_is_the_devices_memory(f: &Fixture) {
    let f = mapped(f);
    assert!(!f.device.has(Aspect::HostImport) && f.device.has(Aspect::LiveMemory));
    let report = f.device.capabilities().tier(Capability::Pointers);
    assert_eq!(report.tier, Tier::FineGrained, "{report}");
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[5u32; 100]).unwrap();
    for round in 0..3 {
        increment(&f.device, data, 100);
        follow(&f.device, &heap, data);
        let host = heap.host().unwrap();
        let seen = host.slice(data, 100).unwrap();
        assert_eq!(seen[0], 5 + 2 * (round + 1));
        assert_eq!(seen[1..], [5 + round + 1; 99]);
    }
    // Nothing has travelled.
    let moved = heap.mirror_statistics();
    assert_eq!((moved.mirrors, moved.uploaded, moved.downloaded), (0, 0, 0));
}

fn both_see_each_others_writes_at_once(f: &Fixture) {
    if f.tells_that_kernels_read_old_words() {
        return;
    }
    // The kernel finds the words through a pointer, and the host answers while it runs.
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let kernel = kernel(
        &f.device,
        "struct Words { call: atomic<u32>, answer: atomic<u32>, token: atomic<u32>, heard: atomic<u32> }
         @group(0) @binding(0) var<uniform> words: usm_ptr;
         var<workgroup> answer: u32;
         @compute @workgroup_size(1) fn main() {
            let w = usm_Words(words);
            let token = atomicLoad(&w.token);
            atomicStore(&w.call, token);
            for (var i = 0u; i < 60000u; i++) {
                storageBarrier();
                answer = atomicLoad(&w.answer);
                if workgroupUniformLoad(&answer) == token + 1u {
                    atomicStore(&w.heard, token + 2u);
                    break;
                }
            }
         }",
    );
    let words = heap.alloc_zeroed::<u32>(4).unwrap();
    let view = heap.atomic_u32_slice(words, 4).unwrap();
    let heard = (0..20).any(|attempt| {
        let token = 1000 + attempt * 10;
        view[2].store(token, Release);
        let mut launch = kernel.launch().value("words", &words).workgroups(256);
        let event = launch.submit().unwrap();
        f.device.flush().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while view[0].load(Acquire) != token {
            assert!(
                std::time::Instant::now() < deadline,
                "the kernel is not heard"
            );
            std::hint::spin_loop();
        }
        view[1].store(token + 1, Release);
        event.wait().unwrap();
        view[3]
            .compare_exchange(token + 2, 0, AcqRel, Acquire)
            .is_ok()
    });
    assert!(heard, "no kernel saw the host's word while it ran");
}

fn other_devices_keep_copies(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_zeroed::<u32>(300).unwrap();
    let mut devices = vec![f.device.clone()];
    // Whatever they could import, this heap is no such memory.
    for adapter in f.context.adapters() {
        for import in [true, false] {
            let mut options = options();
            options.import_host_memory = import;
            let device = f.context.device_at_with(adapter.index, options).unwrap();
            assert_eq!(heap.tier(&device), Tier::CoarseGrained);
            devices.push(device);
        }
    }
    let mut expected = 0;
    for round in 0..2 {
        for device in &devices {
            increment(device, data, 300);
            follow(device, &heap, data.add(7));
            expected += 1;
        }
        let mut host = heap.host().unwrap();
        let seen = host.slice_mut(data, 300).unwrap();
        assert_eq!(seen[7], 2 * expected);
        seen[7] = expected;
        assert_eq!(seen, vec![expected; 300]);
        seen.fill(100 * round);
        expected = 100 * round;
    }
    assert_eq!(heap.mirror_statistics().mirrors, devices.len() - 1);
}

fn the_first_heap_stays(f: &Fixture) {
    // A device that imports was there when the heap was made: the other one keeps a copy.
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
    let mapping = context
        .device_named_with(f.device.name(), options())
        .unwrap();
    let importing = context.device_named(f.device.name()).unwrap();
    let heap = context.heap().unwrap();
    assert_eq!(heap.tier(&importing), Tier::FineGrained);
    assert_eq!(heap.tier(&mapping), Tier::CoarseGrained);
    assert_eq!(heap.base().address() as u32, 0);
    let data = heap.alloc_zeroed::<u32>(64).unwrap();
    increment(&mapping, data, 64);
    increment(&importing, data, 64);
    assert_eq!(heap.host().unwrap().slice(data, 64).unwrap(), [2; 64]);
}

fn its_size_is_fixed_and_told(f: &Fixture) {
    let told = |size, most: u64| {
        let f = mapped_with(f, size);
        let heap = f.context.heap().unwrap();
        let bound = heap.bound();
        assert!(bound <= most && bound > most - (4 << 20), "{bound} {most}");
        let mut held = Vec::new();
        let error = loop {
            match heap.alloc_bytes(8 << 20, 16) {
                Ok(block) => held.push(block),
                Err(error) => break error,
            }
        };
        match error {
            HeapError::OutOfMemory {
                bytes,
                bound: limit,
                ..
            } => assert_eq!((bytes, limit), (8 << 20, bound)),
            other => panic!("{other}"),
        }
        assert!(held.len() as u64 >= bound / (8 << 20) - 2);
        assert!(matches!(
            heap.alloc_bytes(129 << 20, 16).unwrap_err(),
            HeapError::TooLarge { .. }
        ));
        // The kernel reaches the last byte.
        let last = held.iter().max_by_key(|block| block.address()).unwrap();
        let last = last.cast::<u32>().add((8 << 18) - 1);
        follow(&f.device, &heap, last);
        assert_eq!(heap.read(last, 1).unwrap(), [1]);
        held.into_iter().for_each(|block| heap.free(block).unwrap());
        // The memory is the device's and stays; what is seen of it goes back to the least.
        assert!(heap.committed() > 16 << 20);
        assert_eq!(heap.trim(), 0);
        assert_eq!(heap.committed(), 16 << 20);
        let again = heap.alloc_bytes(24 << 20, 16).unwrap();
        follow(&f.device, &heap, again.cast());
        assert_eq!(heap.read(again.cast::<u32>(), 2).unwrap(), [1, 0]);
    };
    told(HeapSize::Bytes(40 << 20), 40 << 20);
    // No more than one binding of the device.
    let binding = f.device.capabilities().storage_binding_bytes;
    let binding = (1 << binding.ilog2()).min(2u64 << 30);
    if binding <= 128 << 20 {
        told(HeapSize::Bytes(1 << 30), binding);
    }
}

fn alignments_are_those_of_addresses(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    for align in [16, 256, 4096, 64 << 10, 1 << 20, 2 << 20] {
        let block = heap.alloc_bytes(24, align).unwrap();
        assert_eq!(block.address() % align, 0);
        follow(&f.device, &heap, block.cast());
        assert_eq!(heap.read(block.cast::<u32>(), 2).unwrap(), [1, 0]);
    }
    match heap.alloc_bytes(24, 4 << 20).unwrap_err() {
        HeapError::TooLarge { limit, instead, .. } => {
            assert_eq!(limit, 0);
            assert!(instead.contains("2 MiB"), "{instead}");
        }
        other => panic!("{other}"),
    }
}

fn checked_pointers_end_with_the_heap(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[3u32, 4]).unwrap();
    let program = Program::new(
        "poke.wgsl",
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
         @compute @workgroup_size(1) fn main() { let word = usm_u32(at); *word += 1u; }",
    )
    .unwrap();
    let mut options = tombolo::kernel::KernelOptions::default();
    options.checked_pointers = Some(true);
    let kernel = (f.device)
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap();
    let run = |at: Ptr<u32>| {
        let mut launch = kernel.launch().value("at", &at).workgroups(1);
        launch.submit().unwrap().wait()
    };
    let beyond = heap.base().byte_add(heap.bound() + (4 << 20)).cast();
    let before = Ptr::from_address(heap.base().address() - (4 << 20));
    let wrapped = Ptr::from_address(data.address() ^ (1 << 33));
    for bad in [Ptr::null(), data.byte_add(2), beyond, before, wrapped] {
        assert!(run(bad).is_err(), "{bad:?}");
        assert!(matches!(
            heap.host().map(|_| ()).unwrap_err(),
            HeapError::Execution(_)
        ));
    }
    assert_eq!(heap.read(data, 2).unwrap(), [3, 4]);
    run(data).unwrap();
    run(data.add(1)).unwrap();
    assert_eq!(heap.read(data, 2).unwrap(), [4, 5]);
}

fn memory_outlives_its_device(f: &Fixture) {
    let Fixture {
        context, device, ..
    } = mapped(f);
    let heap = context.heap().unwrap();
    let data = heap.alloc_slice(&[1u32; 64]).unwrap();
    let words = heap.alloc_zeroed::<u32>(4).unwrap();
    let view = heap.atomic_u32_slice(words, 4).unwrap();
    increment(&device, data, 64);
    drop(device);
    // The launch was not even submitted; it has its effect all the same.
    let host = heap.host().unwrap();
    let seen = host.slice(data, 64).unwrap();
    assert_eq!(seen, [2; 64]);
    view[3].store(9, Release);
    drop(context);
    assert_eq!(seen, [2; 64]);
    assert_eq!(view[3].fetch_add(1, AcqRel), 9);
    drop((host, view));
    assert_eq!(heap.read(words, 4).unwrap(), [0, 0, 0, 10]);
    // And it is used on, by the host and by whoever keeps a copy.
    heap.free(data).unwrap();
    heap.alloc_slice(&[3u32; 1 << 20]).unwrap();
}

fn memory_outlives_a_lost_device(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let data = heap.alloc_slice(&[1u32; 64]).unwrap();
    increment(&f.device, data, 64).wait().unwrap();
    let host = heap.host().unwrap();
    let seen = host.slice(data, 64).unwrap();
    let late = kernel(&f.device, INCREMENT).launch();
    let mut late = late.pointer("data", data, 64).invocations(64);
    f.device.raw().destroy();
    assert_eq!(seen, [2; 64]);
    drop(host);
    // Neither a launch nor its event hides it.
    let launched = late.submit().map(|event| event.wait());
    assert!(!matches!(launched, Ok(Ok(()))), "{launched:?}");
    // The loss is told once, if anything was recorded; the bytes are there.
    let _ = heap.host();
    let mut host = heap.host().unwrap();
    assert_eq!(host.slice(data, 64).unwrap(), [2; 64]);
    host.slice_mut(data, 64).unwrap()[0] = 7;
    drop(host);
    // Another device goes on with a copy.
    let other = f.context.device_at_with(f.index, options()).unwrap();
    assert_eq!(heap.tier(&other), Tier::CoarseGrained);
    increment(&other, data, 64);
    let seen = heap.read(data, 64).unwrap();
    assert_eq!((seen[0], &seen[1..]), (8, &[3; 63][..]));
}

fn uniforms_lie_in_the_heap(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let kernel = kernel(
        &f.device,
        "@group(0) @binding(0) var<uniform> step: vec4<u32>;
         @group(0) @binding(1) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            data[id.x] += step.y;
         }",
    );
    let step = heap.alloc_slice(&[0u32, 11, 0, 0]).unwrap();
    let data = f.device.buffer(&[1u32; 8]).unwrap();
    let launch = kernel.launch().pointer("step", step, 4);
    launch.buffer("data", &data).workgroups(8).submit().unwrap();
    assert_eq!(data.read().unwrap(), [12; 8]);
}

fn threads_share_it(f: &Fixture) {
    let f = mapped(f);
    let heap = f.context.heap().unwrap();
    let kernel = kernel(&f.device, INCREMENT);
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let (heap, kernel) = (&heap, &kernel);
            scope.spawn(move || {
                for i in 0..20u32 {
                    let len = 16 + (t * 37 + i * 11) % 500;
                    let data = heap.alloc_slice(&vec![t; len as usize]).unwrap();
                    let event = loop {
                        let launch = kernel.launch().pointer("data", data, len as usize);
                        match launch.invocations(len).submit() {
                            Ok(event) => break event,
                            // Another thread is looking.
                            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                                std::thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    event.wait().unwrap();
                    let seen = heap.read(data, len as usize).unwrap();
                    assert_eq!(seen, vec![t + 1; len as usize]);
                    heap.free(data).unwrap();
                }
            });
        }
    });
    assert!(heap.allocations().is_empty());
}

fn many_arguments_go_through_the_heap(f: &Fixture) {
    let f = mapped(f);
    // Some GPUs have more than a kernel can be written with, and bind them all.
    let count = f.device.capabilities().storage_bindings_per_stage.min(250) + 6;
    let mut source = String::new();
    let mut body = String::new();
    for i in 0..count {
        source += &format!("@group(0) @binding({i}) var<storage, read_write> a{i}: array<u32>;\n");
        body += &format!("a{i}[id.x] += {i}u + id.x;\n");
    }
    source += &format!(
        "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n{body}}}"
    );
    let buffers: Vec<_> = (0..count)
        .map(|i| f.device.buffer(&[i * 100; 8]).unwrap())
        .collect();
    let mut launch = kernel(&f.device, &source).launch();
    for (i, buffer) in buffers.iter().enumerate() {
        launch = launch.buffer(&format!("a{i}"), buffer);
    }
    launch.workgroups(1).submit().unwrap();
    for (i, buffer) in (0..count).zip(&buffers) {
        let expected: Vec<u32> = (0..8).map(|k| i * 101 + k).collect();
        assert_eq!(buffer.read().unwrap(), expected, "argument {i}");
    }
}
