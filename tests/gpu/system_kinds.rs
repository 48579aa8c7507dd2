//! System allocations: memory of all kinds, lent as a whole or in parts, by several threads and to several devices.

use std::sync::atomic::{AtomicU32, Ordering};

use tombolo::system::SystemMemory;
use tombolo::{Context, DeviceBuffer, Ptr};

use crate::cases;
use crate::harness::Fixture;
#[cfg(unix)]
use crate::system::is_host;
use crate::system::{BOTH, DOUBLE, check_place, kernel};

cases![
    words_that_a_kernel_leaves_alone_stay,
    bytes_in_a_word_belong_to_their_owners,
    a_mapped_file_is_searched,
    memory_of_all_kinds_is_lent_together,
    memory_behind_free_addresses_is_used_where_it_is,
    the_heap_is_lent_like_any_memory,
    eight_threads_lend_at_once,
    two_devices_work_on_the_same_memory_in_turn,
];

/// The host's own processor copies nothing there, whatever else lies in the address space.
#[cfg(unix)]
fn memory_behind_free_addresses_is_used_where_it_is(f: &Fixture) {
    const HALF: usize = 32 << 20;
    const COUNT: usize = 5000;
    // SAFETY: a new mapping of anonymous memory, anywhere.
    let start = unsafe {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
        );
        libc::mmap(std::ptr::null_mut(), 2 * HALF, rights, flags, -1, 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    let second = start.wrapping_byte_add(HALF);
    // SAFETY: the first half is this function's, and nobody knows of it.
    assert_eq!(unsafe { libc::munmap(start, HALF) }, 0);
    // SAFETY: the second half is mapped, zeroed and aligned, and nobody else's.
    let values = unsafe { std::slice::from_raw_parts_mut(second.cast::<f32>(), COUNT) };
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(values);
    let run = (kernel(&f.device, DOUBLE).launch().value("values", &pointer))
        .value("count", &(COUNT as u32))
        .invocations(COUNT as u32)
        .run_system(&mut memory)
        .unwrap();
    drop(memory);
    assert!(values.iter().all(|&value| value == 1.0));
    assert_eq!(run.pages_in_place > 0, is_host(f), "{run:?}");
    check_place(f, true, &run, COUNT as u64);
    // SAFETY: `values` is used no longer.
    assert_eq!(unsafe { libc::munmap(second, HALF) }, 0);
}

#[cfg(not(unix))]
fn memory_behind_free_addresses_is_used_where_it_is(_: &Fixture) {}

/// What lies beside a lent slice, in the same pages, is not touched, not even by writing the same again.
fn words_that_a_kernel_leaves_alone_stay(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    let mut values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    let beside = AtomicU32::new(0);
    let (front, rest) = values.split_at_mut(1001);
    let (middle, back) = rest.split_at_mut(1500);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Another thread owns what lies on both sides.
            while beside.load(Ordering::Acquire) == 0 {
                front
                    .iter_mut()
                    .chain(back.iter_mut())
                    .for_each(|value| *value += 1.0);
                std::thread::yield_now();
            }
            front
                .iter_mut()
                .chain(back.iter_mut())
                .for_each(|value| *value = -1.0);
        });
        let mut memory = SystemMemory::new();
        let pointer = memory.lend_mut(middle);
        let run = (kernel.launch().value("values", &pointer))
            .value("count", &1500u32)
            .invocations(1500u32)
            .run_system(&mut memory);
        beside.store(1, Ordering::Release);
        check_place(f, true, &run.unwrap(), 1500);
    });
    for (i, value) in values.iter().enumerate() {
        let expected = match (1001..2501).contains(&i) {
            true => i as f32 * 2.0 + 1.0,
            false => -1.0,
        };
        assert_eq!(*value, expected, "{i}");
    }
}

/// Where a slice begins or ends inside a word, kernels see zeros instead of others' bytes, and change none of these.
fn bytes_in_a_word_belong_to_their_owners(f: &Fixture) {
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        @group(0) @binding(1) var<uniform> count: u32;
        @group(0) @binding(2) var<storage, read_write> seen: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < count { let w = usm_Words(first); seen[id.x] = w[id.x]; w[id.x] = 0x77777777u; }
        }";
    let kernel = kernel(&f.device, source);
    for in_place in BOTH {
        for (from, to) in [
            (1usize, 3usize),
            (3, 6),
            (4, 9),
            (2, 9001),
            (4095, 4097),
            (7, 8192),
        ] {
            let mut words = vec![0x1111_1111u32; 3000];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            let first = from / 4;
            let count = to.div_ceil(4) - first;
            let start = bytes.as_ptr() as u64 + 4 * first as u64;
            let seen: DeviceBuffer<u32> = f.device.buffer(&vec![0; count]).unwrap();
            let mut memory = SystemMemory::new();
            memory.set_in_place(in_place);
            memory.lend_mut(&mut bytes[from..to]);
            (kernel
                .launch()
                .value("first", &Ptr::<u32>::from_address(start)))
            .value("count", &(count as u32))
            .buffer("seen", &seen)
            .invocations(count as u32)
            .run_system(&mut memory)
            .unwrap();
            drop(memory);
            let seen = seen.read().unwrap();
            let seen: &[u8] = bytemuck::cast_slice(&seen);
            for (at, byte) in bytes.iter().enumerate() {
                let is_lent = (from..to).contains(&at);
                assert_eq!(
                    *byte,
                    if is_lent { 0x77 } else { 0x11 },
                    "{at} of {from}..{to}"
                );
                if let Some(seen) = at.checked_sub(4 * first).and_then(|at| seen.get(at)) {
                    assert_eq!(
                        *seen,
                        if is_lent { 0x11 } else { 0 },
                        "{at} of {from}..{to}"
                    );
                }
            }
        }
    }
}

/// Bytes of a file that the system has mapped.
#[cfg(unix)]
pub fn mapped(file: &std::fs::File, bytes: usize) -> &'static [u8] {
    use std::os::fd::AsRawFd;
    // SAFETY: a new private mapping of a file that nobody else changes, never unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts(at.cast(), bytes)
    }
}

#[cfg(unix)]
fn a_mapped_file_is_searched(f: &Fixture) {
    use std::io::Write;
    let mut text = String::new();
    for i in 0..20_000u32 {
        text.push_str(&format!(
            "line {i}: {}\n",
            i.wrapping_mul(0x9e37_79b9) % 1000
        ));
    }
    let needle = b": 77";
    let expected = text.as_bytes().windows(4).filter(|w| w == needle).count();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let bytes = mapped(&file, text.len());
    let source = "
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> text: usm_ptr;
        @group(0) @binding(1) var<uniform> bytes: u32;
        @group(0) @binding(2) var<storage, read_write> found: atomic<u32>;
        fn byte(i: u32) -> u32 {
            let words = usm_Words(text);
            return (words[i / 4u] >> (i % 4u * 8u)) & 0xffu;
        }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x + 4u > bytes { return; }
            if byte(id.x) == 58u && byte(id.x + 1u) == 32u && byte(id.x + 2u) == 55u && byte(id.x + 3u) == 55u {
                atomicAdd(&found, 1u);
            }
        }";
    let kernel = kernel(&f.device, source);
    let found: DeviceBuffer<u32> = f.device.buffer(&[0]).unwrap();
    let mut memory = SystemMemory::new();
    let pointer = memory.lend(bytes);
    let run = (kernel.launch().value("text", &pointer))
        .value("bytes", &(bytes.len() as u32))
        .buffer("found", &found)
        .invocations(bytes.len() as u32)
        .run_system(&mut memory)
        .unwrap();
    assert_eq!(found.read().unwrap(), [expected as u32]);
    assert_eq!((run.launches, run.words_written), (1, 0));
}

#[cfg(not(unix))]
fn a_mapped_file_is_searched(_: &Fixture) {}

/// On the stack, in the heap of the process, in mappings of its own and of a file, far from each other.
#[cfg(unix)]
fn memory_of_all_kinds_is_lent_together(f: &Fixture) {
    use std::io::Write;
    static FIXED: [u32; 300] = [4; 300];
    let source = "
        alias Words = array<u32>;
        alias Pointers = array<usm_ptr>;
        @group(0) @binding(0) var<uniform> pointers: usm_ptr;
        @group(0) @binding(1) var<uniform> sums: usm_ptr;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            if i >= 5u { return; }
            let p = usm_Pointers(pointers);
            let w = usm_Words(p[i]);
            var sum = 0u;
            for (var at = 0u; at < 300u; at++) { sum += w[at]; }
            let s = usm_Words(sums);
            s[i] = sum;
        }";
    let kernel = kernel(&f.device, source);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[3; 10_000]).unwrap();
    let bytes = mapped(&file, 10_000);
    let large = vec![2u32; 4 << 20];
    for in_place in BOTH {
        let on_stack = [1u32; 300];
        let boxed: Box<[u32; 300]> = Box::new([5; 300]);
        let mut sums = [0u32; 5];
        let mut memory = SystemMemory::new();
        memory.set_in_place(in_place);
        let pointers = [
            memory.lend(&on_stack),
            memory.lend(&large),
            memory.lend(bytes).cast(),
            memory.lend(&FIXED),
            memory.lend(&*boxed),
        ];
        let list = memory.lend(&pointers);
        let kept = memory.lend_mut(&mut sums);
        let run = (kernel
            .launch()
            .value("pointers", &list)
            .value("sums", &kept))
        .workgroups(1)
        .run_system(&mut memory)
        .unwrap();
        drop(memory);
        assert_eq!(run.launches, 1);
        assert_eq!(
            sums,
            [300, 600, 300u32.wrapping_mul(0x0303_0303), 1200, 1500]
        );
        let large = run.pages_in_place >= 4096;
        assert!(large || run.pages_in_place == 0, "{run:?}");
        assert!(!large || in_place && is_host(f), "{run:?}");
    }
}

#[cfg(not(unix))]
fn memory_of_all_kinds_is_lent_together(_: &Fixture) {}

fn the_heap_is_lent_like_any_memory(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let pointer = heap.alloc_slice(&[1.0f32; 2000]).unwrap();
    let kernel = kernel(&f.device, DOUBLE);
    let mut host = heap.host().unwrap();
    let mut memory = SystemMemory::new();
    let lent = memory.lend_mut(host.slice_mut(pointer, 2000).unwrap());
    assert_eq!(lent, pointer);
    (kernel
        .launch()
        .value("values", &pointer)
        .value("count", &2000u32))
    .invocations(2000u32)
    .run_system(&mut memory)
    .unwrap();
    drop(memory);
    assert!(
        host.slice(pointer, 2000)
            .unwrap()
            .iter()
            .all(|value| *value == 3.0)
    );
    drop(host);
    heap.free(pointer).unwrap();
}

fn eight_threads_lend_at_once(f: &Fixture) {
    let kernel = kernel(&f.device, DOUBLE);
    std::thread::scope(|threads| {
        for thread in 0..8u32 {
            let kernel = &kernel;
            threads.spawn(move || {
                for round in 0..5u32 {
                    let count = 700 * (thread + 1) + round;
                    let mut values: Vec<f32> = (0..count).map(|i| (i ^ thread) as f32).collect();
                    let mut memory = SystemMemory::new();
                    let pointer = memory.lend_mut(&mut values);
                    (kernel
                        .launch()
                        .value("values", &pointer)
                        .value("count", &count))
                    .invocations(count)
                    .run_system(&mut memory)
                    .unwrap();
                    drop(memory);
                    for (i, value) in (0..count).zip(values) {
                        assert_eq!(value, (i ^ thread) as f32 * 2.0 + 1.0);
                    }
                }
            });
        }
    });
}

fn two_devices_work_on_the_same_memory_in_turn(f: &Fixture) {
    // The next adapter of the machine, and another device of this one.
    let others: Context = Context::new().unwrap();
    let next = (f.index + 1) % others.adapters().len();
    let devices = [
        f.device.clone(),
        others.device_at(next).unwrap(),
        f.open(|_| {}),
    ];
    let kernels = devices.each_ref().map(|device| kernel(device, DOUBLE));
    let mut values = vec![1.0f32; 3000];
    let mut memory = SystemMemory::new();
    let pointer = memory.lend_mut(&mut values);
    for _ in 0..2 {
        for kernel in &kernels {
            (kernel
                .launch()
                .value("values", &pointer)
                .value("count", &3000u32))
            .invocations(3000u32)
            .run_system(&mut memory)
            .unwrap();
        }
    }
    drop(memory);
    let expected = (0..6).fold(1.0, |value, _| value * 2.0 + 1.0);
    assert!(values.iter().all(|value| *value == expected));
}
