//! System allocations: a pointee that is translated once for all its accesses, beside one that is translated at each.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use tombolo::device::{ExecutionError, WaitError};
use tombolo::kernel::{KernelOptions, TranslationMode};
use tombolo::system::{SystemError, SystemMemory, SystemTier};
use tombolo::{Constants, Device, DeviceBuffer, Kernel, Program, Ptr};

use crate::cases;
use crate::harness::Fixture;
use crate::system::BOTH;
use crate::system_live::numbers;

cases![
    members_over_borders_of_pages_are_found,
    elements_beyond_an_array_lie_behind_the_pointee,
    a_pointee_that_is_lent_in_part_fails_where_it_ends,
    a_member_that_is_lent_for_reading_is_not_written,
    a_pointer_with_a_wrong_alignment_fails,
    the_first_of_several_faults_is_told,
    a_loop_behind_a_fault_ends,
    a_page_behind_that_is_not_lent_is_not_asked_for,
];

/// With and without translations that are kept.
pub const KEPT: [bool; 2] = [true, false];

pub fn kernel(device: &Device, source: &str, hoisted: bool) -> Kernel {
    let program = Program::new("system.wgsl", source).unwrap();
    let mut options = KernelOptions::default();
    options.pointers = TranslationMode::System;
    options.hoisted = Some(hoisted);
    device
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap_or_else(|e| panic!("{e}"))
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Item {
    matrix: [[f32; 4]; 4],
    at: [f32; 3],
    count: u32,
    slots: [u32; 6],
    next: Ptr<Item>,
}

const ITEMS: usize = 300;

/// Each invocation changes its item, in a loop and without, and reads of another what nobody writes.
const CHANGE: &str = "
    struct Item { matrix: mat4x4<f32>, at: vec3<f32>, count: u32, slots: array<u32, 6>, next: usm_ptr }
    alias Items = array<Item>;
    @group(0) @binding(0) var<uniform> items: usm_ptr;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= 300u { return; }
        let one = &usm_Items(items)[id.x];
        let other = usm_Item(one.next);
        var sum = one.count;
        for (var i = 0u; i < 6u; i++) {
            sum = sum * 3u + one.slots[i];
            if (i + id.x) % 2u == 0u { one.slots[i] = sum; }
        }
        let along = other.matrix * vec4(other.at, 1.0);
        one.count = sum + u32(along.x + along[id.x % 4u]) + u32(other.matrix[id.x % 4u][1]);
        one.slots[id.x % 6u] ^= u32(other.at.y);
    }";

fn items(start: u64) -> Vec<Item> {
    let item = |i: usize| {
        let v = i as f32;
        Item {
            matrix: std::array::from_fn(|c| std::array::from_fn(|r| v + (4 * c + r) as f32)),
            at: [v + 1.0, 2.0, v],
            count: 1000 + i as u32,
            slots: std::array::from_fn(|s| (i * 7 + s) as u32),
            next: Ptr::from_address(start + ((i * 37) % ITEMS * size_of::<Item>()) as u64),
        }
    };
    (0..ITEMS).map(item).collect()
}

/// What the kernel above makes of the items.
fn changed(items: &[Item]) -> Vec<Item> {
    let change = |(id, item): (usize, &Item)| {
        let mut item = *item;
        let other = &items[id * 37 % ITEMS];
        let mut sum = item.count;
        for i in 0..6 {
            sum = sum.wrapping_mul(3).wrapping_add(item.slots[i]);
            if (i + id).is_multiple_of(2) {
                item.slots[i] = sum;
            }
        }
        let at = [other.at[0], other.at[1], other.at[2], 1.0];
        let along = |r: usize| -> f32 { (0..4).map(|c| other.matrix[c][r] * at[c]).sum() };
        item.count = sum
            .wrapping_add((along(0) + along(id % 4)) as u32)
            .wrapping_add(other.matrix[id % 4][1] as u32);
        item.slots[id % 6] ^= other.at[1] as u32;
        item
    };
    items.iter().enumerate().map(change).collect()
}

/// In one form of memory after the other, at a distance of 16 bytes at which pages end in each member of some item.
fn members_over_borders_of_pages_are_found(f: &Fixture) {
    assert_eq!(size_of::<Item>(), 112);
    let tiers = [None, Some(SystemTier::Live), Some(SystemTier::Sliced)];
    for hoisted in KEPT {
        let kernel = kernel(&f.device, CHANGE, hoisted);
        for (tier, in_place) in tiers
            .into_iter()
            .flat_map(|tier| BOTH.map(|both| (tier, both)))
        {
            let mut room: Vec<[f32; 4]> = vec![[-1.0; 4]; ITEMS * 7 + 1];
            let skip = usize::from((room.as_ptr() as usize).is_multiple_of(32));
            let lent: &mut [Item] = bytemuck::cast_slice_mut(&mut room[skip..skip + ITEMS * 7]);
            lent.copy_from_slice(&items(lent.as_ptr() as u64));
            let expected = changed(lent);
            let mut memory = SystemMemory::new();
            let pointer = memory.lend_mut(&mut *lent);
            memory.set_in_place(in_place);
            memory.set_tier(tier);
            memory.set_pool_bytes(64 * 4096);
            let mut launch = kernel.launch().value("items", &pointer);
            launch = launch.invocations(ITEMS as u32);
            let run = launch.run_system(&mut memory).unwrap();
            drop(memory);
            assert!(lent == expected, "{hoisted} {tier:?} {in_place}: {run:?}");
        }
    }
}

/// An index beyond an array of fixed size reaches what lies behind, kept or not.
fn elements_beyond_an_array_lie_behind_the_pointee(f: &Fixture) {
    let source = "
        alias Four = array<u32, 4>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> begin: u32;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let four = usm_Four(words);
            var sum = 0u;
            for (var i = 0u; i < 8u; i++) { sum = sum * 5u + four[begin + i * 600u]; }
            o[0] = sum;
        }";
    let values = numbers(8000);
    for (hoisted, tier) in KEPT.into_iter().flat_map(|kept| {
        [None, Some(SystemTier::Live), Some(SystemTier::Sliced)].map(|tier| (kept, tier))
    }) {
        let kernel = kernel(&f.device, source, hoisted);
        for begin in [0u32, 3, 4] {
            let o: DeviceBuffer<u32> = f.device.buffer(&[0xdead]).unwrap();
            let mut memory = SystemMemory::new();
            let pointer = memory.lend(&values);
            memory.set_tier(tier);
            (kernel.launch().value("words", &pointer))
                .value("begin", &begin)
                .buffer("o", &o)
                .workgroups(1)
                .run_system(&mut memory)
                .unwrap();
            let expected = (0..8u32).fold(0u32, |sum, i| {
                sum.wrapping_mul(5)
                    .wrapping_add(values[(begin + i * 600) as usize])
            });
            assert_eq!(o.read().unwrap(), [expected], "{hoisted} {tier:?} {begin}");
            let mut memory = SystemMemory::new();
            let pointer = memory.lend(&values[..2000]);
            memory.set_tier(tier);
            let ended = (kernel.launch().value("words", &pointer))
                .value("begin", &begin)
                .buffer("o", &o)
                .workgroups(1)
                .run_system(&mut memory);
            let error = pointer_error(ended.unwrap_err());
            let ExecutionError::Pointer { address, .. } = &*error else {
                panic!("{error}");
            };
            let beyond = pointer.address() + 4 * u64::from(2400 + begin);
            assert_eq!(*address, beyond, "{hoisted} {tier:?} {begin}");
        }
    }
}

fn pointer_error(error: SystemError) -> Arc<ExecutionError> {
    match error {
        SystemError::Wait(WaitError::Failed(error)) => error,
        other => panic!("{other}"),
    }
}

/// Runs the kernel on an address; the address and the reason where it fails.
fn outcome(
    kernel: &Kernel,
    o: &DeviceBuffer<u32>,
    address: u64,
    choice: u32,
    memory: &mut SystemMemory<'_>,
) -> Result<(), (u64, String)> {
    o.clear_error();
    let ended = (kernel
        .launch()
        .value("at", &Ptr::<u32>::from_address(address)))
    .value("choice", &choice)
    .buffer("o", o)
    .workgroups(1)
    .run_system(memory);
    ended.map(|_| ()).map_err(|error| {
        let error = pointer_error(error);
        match &*error {
            ExecutionError::Pointer {
                address, reason, ..
            } => (*address, reason.to_string()),
            _ => panic!("{error}"),
        }
    })
}

/// Reads three members, and a further one, which may not be lent, if told to; writes likewise.
const PARTS: &str = "
    struct Parts { a: u32, b: u32, c: u32, d: u32, e: vec4<u32> }
    @group(0) @binding(0) var<uniform> at: usm_ptr;
    @group(0) @binding(1) var<uniform> choice: u32;
    @group(0) @binding(2) var<storage, read_write> o: array<u32>;
    @compute @workgroup_size(1) fn main() {
        let parts = usm_Parts(at);
        o[0] = parts.a; o[1] = parts.b; o[2] = parts.c;
        if choice == 1u { o[3] = parts.d; }
        if choice == 2u { o[3] = parts.e.z; }
        if choice == 3u { parts.a = 70u; parts.b = 71u; }
        if choice == 4u { parts.a = 70u; parts.d = 73u; }
    }";

fn a_pointee_that_is_lent_in_part_fails_where_it_ends(f: &Fixture) {
    // Aligned as the structure is.
    let values: Vec<[u32; 4]> = vec![[10, 11, 12, 13], [14, 15, 16, 17]];
    let words: &[u32] = values.as_flattened();
    let start = words.as_ptr() as u64;
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    for hoisted in KEPT {
        let kernel = kernel(&f.device, PARTS, hoisted);
        for (lent, choice, beyond) in [
            (3, 0, None),
            (3, 1, Some(12)),
            (4, 1, None),
            (4, 2, Some(24)),
            (6, 2, Some(24)),
            (8, 2, None),
        ] {
            let mut memory = SystemMemory::new();
            memory.lend(&words[..lent]);
            let ended = outcome(&kernel, &o, start, choice, &mut memory);
            match beyond {
                None => {
                    assert_eq!(ended, Ok(()), "{hoisted} {lent} {choice}");
                    assert_eq!(o.read().unwrap()[..3], [10, 11, 12]);
                }
                Some(at) => {
                    let (address, reason) = ended.unwrap_err();
                    assert_eq!(address, start + at, "{hoisted} {lent} {choice}");
                    assert!(reason.contains("not lent"), "{reason}");
                }
            }
        }
    }
}

/// A write is told from a read of the same pointee, in whole pages and in parts.
fn a_member_that_is_lent_for_reading_is_not_written(f: &Fixture) {
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    for hoisted in KEPT {
        let kernel = kernel(&f.device, PARTS, hoisted);
        let mut values: Vec<[u32; 4]> = vec![[10, 11, 12, 13], [14, 15, 16, 17]];
        let words: &mut [u32] = values.as_flattened_mut();
        let start = words.as_ptr() as u64;
        for (choice, beyond) in [(0, None), (3, None), (4, Some(12))] {
            let (first, rest) = words.split_at_mut(3);
            let mut memory = SystemMemory::new();
            memory.lend_mut(first);
            memory.lend(&*rest);
            let ended = outcome(&kernel, &o, start, choice, &mut memory);
            let address = ended.clone().err().map(|(address, _)| address);
            assert_eq!(address, beyond.map(|at| start + at), "{hoisted} {choice}");
            if let Err((_, reason)) = ended {
                assert!(reason.contains("reading"), "{reason}");
            }
        }
        assert_eq!(words[3..], [13, 14, 15, 16, 17]);
        let pages = vec![[5u32; 4]; 4096];
        let mut memory = SystemMemory::new();
        let start = memory.lend(pages.as_flattened()).address() + 4096;
        let start = start.next_multiple_of(4096) + 64;
        assert_eq!(outcome(&kernel, &o, start, 2, &mut memory), Ok(()));
        let (address, _) = outcome(&kernel, &o, start, 3, &mut memory).unwrap_err();
        assert_eq!(address, start, "{hoisted}");
    }
}

fn a_pointer_with_a_wrong_alignment_fails(f: &Fixture) {
    let values = vec![[3u32; 4]; 2000];
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    for hoisted in KEPT {
        let kernel = kernel(&f.device, PARTS, hoisted);
        for (off, choice, at) in [(1, 0, Some(1)), (4, 0, None), (4, 2, None), (0, 2, None)] {
            let mut memory = SystemMemory::new();
            let start = memory.lend(values.as_flattened()).address() + off;
            let ended = outcome(&kernel, &o, start, choice, &mut memory);
            let address = ended.err().map(|(address, _)| address);
            assert_eq!(address, at.map(|_| start), "{hoisted} {off} {choice}");
        }
    }
}

/// Faults of members and of words, in one order and in the other, in a function and in front of an early end.
fn the_first_of_several_faults_is_told(f: &Fixture) {
    let source = "
        struct Parts { a: u32, b: u32, c: u32, d: u32, e: vec4<u32> }
        alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @group(0) @binding(1) var<uniform> choice: u32;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        fn both(parts: ptr<storage, Parts, read_write>) -> u32 { return parts.a + parts.d; }
        @compute @workgroup_size(1) fn main() {
            let parts = usm_Parts(at);
            let w = usm_Words(at);
            o[0] = parts.a;
            switch choice {
                case 0u: { o[1] = parts.e.y; o[2] = w[9u + o[3]]; o[2] += parts.d; }
                case 1u: { o[2] = w[9u + o[3]]; o[1] = parts.e.y; }
                case 2u: { o[1] = both(parts); o[2] = parts.e.y; return; }
                case 3u: { parts.e.z = 7u; return; }
                default: { o[1] = parts.b + parts.c; }
            }
            o[2] = parts.a;
        }";
    let values: Vec<[u32; 4]> = vec![[10, 11, 12, 13], [14, 15, 16, 17]];
    let words = values.as_flattened();
    let start = words.as_ptr() as u64;
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    for hoisted in KEPT {
        let kernel = kernel(&f.device, source, hoisted);
        for (choice, beyond) in [
            (0, Some(20)),
            (1, Some(36)),
            (2, Some(12)),
            (3, Some(24)),
            (4, None),
        ] {
            let mut memory = SystemMemory::new();
            memory.lend(&words[..3]);
            let ended = outcome(&kernel, &o, start, choice, &mut memory);
            let address = ended.err().map(|(address, _)| address);
            assert_eq!(address, beyond.map(|at| start + at), "{hoisted} {choice}");
        }
    }
}

/// What is read beyond is a zero, and the loop waits for another value.
fn a_loop_behind_a_fault_ends(f: &Fixture) {
    let source = "
        struct Parts { a: u32, b: u32, c: u32, d: u32 }
        @group(0) @binding(0) var<uniform> at: usm_ptr;
        @group(0) @binding(1) var<uniform> choice: u32;
        @group(0) @binding(2) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() {
            let parts = usm_Parts(at);
            o[0] = parts.a;
            loop {
                o[1] += 1u;
                if parts.d == 13u || choice == 1u { break; }
            }
        }";
    let values = [[10u32, 11, 12, 13]];
    let words = values.as_flattened();
    let start = words.as_ptr() as u64;
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    for hoisted in KEPT {
        let kernel = kernel(&f.device, source, hoisted);
        for (lent, beyond) in [(3, Some(start + 12)), (4, None)] {
            let mut memory = SystemMemory::new();
            memory.lend(&words[..lent]);
            let ended = outcome(&kernel, &o, start, 0, &mut memory);
            let address = ended.err().map(|(address, _)| address);
            assert_eq!(address, beyond, "{hoisted} {lent}");
        }
    }
}

/// A pointee that begins in the last lent page: what is not accessed need not be lent.
fn a_page_behind_that_is_not_lent_is_not_asked_for(f: &Fixture) {
    let values = vec![[3u32; 4]; 1024];
    let words = values.as_flattened();
    let o: DeviceBuffer<u32> = f.device.buffer(&[0; 4]).unwrap();
    let first = words.as_ptr() as u64;
    let border = (first + 4096).next_multiple_of(4096);
    let inside = ((border - first) / 4) as usize;
    for (hoisted, tier) in KEPT.into_iter().flat_map(|kept| {
        [None, Some(SystemTier::Live), Some(SystemTier::Sliced)].map(|tier| (kept, tier))
    }) {
        let kernel = kernel(&f.device, PARTS, hoisted);
        for (lent, choice, beyond) in [
            (inside, 0, None),
            (inside, 1, None),
            (inside, 2, Some(border + 8)),
            (inside + 2, 2, Some(border + 8)),
            (inside + 3, 2, None),
        ] {
            let mut memory = SystemMemory::new();
            memory.lend(&words[..lent]);
            memory.set_tier(tier);
            let ended = outcome(&kernel, &o, border - 16, choice, &mut memory);
            let address = ended.err().map(|(address, _)| address);
            assert_eq!(address, beyond, "{hoisted} {tier:?} {lent} {choice}");
        }
    }
}
