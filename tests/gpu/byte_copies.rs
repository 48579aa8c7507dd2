//! Copies that a device makes of any bytes, from any byte of a word to any other, between all kinds of memory and on
//! all tiers of the heap, against a model on the host. What lies around the target has values of its own throughout.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Context, Device, DeviceBuffer, DeviceOptions, Ptr, SharedHeap,
    buffers::MemoryError,
    device::{Aspect, Tier},
    heap::{HeapError, HeapSize},
};

cases![
    every_offset_and_length_between_every_two_kinds,
    bytes_of_one_word_and_its_neighbours,
    large_copies_of_odd_bytes,
    copies_in_several_steps,
    copies_between_segments,
    values_of_odd_sizes,
    bytes_are_ordered_with_launches,
    copies_of_bytes_that_overlap_are_refused,
    imported_buffers_need_what_the_kernel_does,
];

/// Bytes between two copies of a pass, so that a canary surrounds each.
const SLOT: usize = 32;
const LENGTHS: usize = 20;

/// What memory holds before copies, different for each allocation.
pub fn noise(seed: usize, len: usize) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(0x9e37_79b1) ^ seed.wrapping_mul(0x85eb_ca6b)) >> 11;
    (0..len).map(|i| byte(i) as u8).collect()
}

pub struct Machine {
    pub name: String,
    pub context: Context,
    pub heap: SharedHeap,
    pub device: Device,
}

/// Every tier, with device memory that is the heap's and device memory that is not.
pub fn machines(f: &Fixture, test: impl Fn(&Machine)) {
    for tier in ["imported", "mapped", "mirrored"] {
        for unified in [None, Some(false)] {
            let mut options = DeviceOptions::default();
            options.unified_memory = unified;
            options.import_host_memory = tier == "imported";
            options.live_memory = tier != "mirrored";
            let heap = HeapSize::Bytes(96 << 20);
            let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
            let device = context.device_named_with(f.device.name(), options).unwrap();
            let heap = context.heap().unwrap();
            let imported = tier == "imported" && f.device.has(Aspect::HostImport);
            assert_eq!(device.has(Aspect::HostImport), imported);
            assert_eq!(heap.tier(&device) == Tier::FineGrained, tier != "mirrored");
            test(&Machine {
                name: format!("{tier} {unified:?}"),
                context,
                heap,
                device,
            });
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Shared,
    Device,
    Buffer,
}

const KINDS: [Kind; 3] = [Kind::Shared, Kind::Device, Kind::Buffer];

enum Memory {
    Heap(Ptr<u8>),
    Device(Ptr<u8>),
    Buffer(DeviceBuffer<u8>),
}

impl Machine {
    /// Memory of a kind that holds `bytes`, which are whole words.
    fn memory(&self, kind: Kind, bytes: &[u8]) -> Memory {
        match kind {
            Kind::Shared => Memory::Heap(self.heap.alloc_slice(bytes).unwrap()),
            Kind::Device => {
                let ptr = self.device.malloc::<u8>(bytes.len()).unwrap();
                let buffer = self.device.buffer(bytes).unwrap();
                buffer.copy_to_heap(0, ptr, bytes.len() as u64).unwrap();
                Memory::Device(ptr)
            }
            Kind::Buffer => Memory::Buffer(self.device.buffer(bytes).unwrap()),
        }
    }

    fn read(&self, memory: &Memory, len: usize) -> Vec<u8> {
        match memory {
            Memory::Heap(ptr) => self.heap.read(*ptr, len).unwrap(),
            Memory::Device(ptr) => {
                let buffer: DeviceBuffer<u8> = self.device.zeroed(len).unwrap();
                buffer.copy_from_heap(0, *ptr, len as u64).unwrap();
                buffer.read().unwrap()
            }
            Memory::Buffer(buffer) => buffer.read().unwrap(),
        }
    }

    fn free(&self, memory: Memory) {
        match memory {
            Memory::Heap(ptr) => self.heap.free(ptr).unwrap(),
            Memory::Device(ptr) => self.device.free(ptr).unwrap(),
            Memory::Buffer(_) => {}
        }
    }

    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), len: usize) {
        use Memory::{Buffer, Device, Heap};
        let (start, to_start, count) = (from.1 as u64, to.1 as u64, len as u64);
        let copied = match (from.0, to.0) {
            (Heap(a) | Device(a), Heap(b) | Device(b)) => {
                self.device
                    .heap_copy(a.byte_add(start), b.byte_add(to_start), len)
            }
            (Heap(a) | Device(a), Buffer(b)) => {
                b.copy_from_heap(to_start, a.byte_add(start), count)
            }
            (Buffer(a), Heap(b) | Device(b)) => a.copy_to_heap(start, b.byte_add(to_start), count),
            (Buffer(_), Buffer(_)) => unreachable!("these have a command of their own"),
        };
        copied.unwrap_or_else(|e| panic!("{start} -> {to_start}, {len}: {e}"));
    }
}

fn pairs() -> impl Iterator<Item = (Kind, Kind)> {
    let all = KINDS
        .into_iter()
        .flat_map(|from| KINDS.map(|to| (from, to)));
    all.filter(|&pair| pair != (Kind::Buffer, Kind::Buffer))
}

/// The first difference, which says more than two long vectors.
pub fn same(seen: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(seen.len(), wanted.len(), "{what}");
    if seen == wanted {
        return;
    }
    if let Some(i) = (0..seen.len()).find(|&i| seen[i] != wanted[i]) {
        let near = i.saturating_sub(8)..(i + 24).min(seen.len());
        panic!(
            "{what}: byte {i}\n   seen {:02x?}\n wanted {:02x?}",
            &seen[near.clone()],
            &wanted[near]
        );
    }
}

fn every_offset_and_length_between_every_two_kinds(f: &Fixture) {
    const BYTES: usize = SLOT * 16 * LENGTHS;
    machines(f, |m| {
        for (from, to) in pairs() {
            let values = noise(1, BYTES);
            let mut wanted = noise(2, BYTES);
            let source = m.memory(from, &values);
            let target = m.memory(to, &wanted);
            for case in 0..16 * LENGTHS {
                let (start, to_start, len) = (case % 4, case / 4 % 4, case / 16);
                // Somewhere else in the source than in the target.
                let start = (case * 7 % (16 * LENGTHS)) * SLOT + start;
                let to_start = case * SLOT + 4 + to_start;
                m.copy((&source, start), (&target, to_start), len);
                wanted[to_start..to_start + len].copy_from_slice(&values[start..start + len]);
            }
            let what = format!("{}, {from:?} to {to:?}", m.name);
            same(&m.read(&target, BYTES), &wanted, &what);
            same(&m.read(&source, BYTES), &values, &what);
            m.free(source);
            m.free(target);
        }
    });
}

fn bytes_of_one_word_and_its_neighbours(f: &Fixture) {
    const BYTES: usize = SLOT * 16 * 9;
    machines(f, |m| {
        for kind in [Kind::Shared, Kind::Device] {
            let mut wanted = noise(3, BYTES);
            let memory = m.memory(kind, &wanted);
            for case in 0..16 * 9 {
                // Side by side, in either order: source and target share words.
                let (start, gap, len) = (case % 4, case / 4 % 4, case / 16);
                let at = case * SLOT + start;
                let (from, to) = match case % 2 {
                    0 => (at, at + len + gap),
                    _ => (at + len + gap, at),
                };
                m.copy((&memory, from), (&memory, to), len);
                wanted.copy_within(from..from + len, to);
            }
            let what = format!("{}, {kind:?}", m.name);
            same(&m.read(&memory, BYTES), &wanted, &what);
            m.free(memory);
        }
    });
}

/// Copies `len` bytes between two kinds of memory that are little longer.
fn large(m: &Machine, (from, to): (Kind, Kind), (start, to_start, len): (usize, usize, usize)) {
    let bytes = (len + 64).next_multiple_of(4);
    let values = noise(len, bytes);
    let mut wanted = noise(len + 1, bytes);
    let source = m.memory(from, &values);
    let target = m.memory(to, &wanted);
    m.copy((&source, start), (&target, to_start), len);
    wanted[to_start..to_start + len].copy_from_slice(&values[start..start + len]);
    let what = format!("{}, {from:?} to {to:?}, {len} bytes", m.name);
    same(&m.read(&target, bytes), &wanted, &what);
    m.free(source);
    m.free(target);
}

fn large_copies_of_odd_bytes(f: &Fixture) {
    // The words in the middle apart from the ends, at each place in a word, and as few as that is done for; fewer;
    // and bytes that lie differently in their words.
    let cases = [
        (1, 1, 65_542),
        (3, 3, 65_538),
        (2, 2, 65_537),
        (0, 0, 65_539),
        (1, 3, 65_541),
    ];
    machines(f, |m| {
        for (turn, pair) in pairs().enumerate() {
            large(m, pair, cases[turn % cases.len()]);
        }
    });
}

fn copies_in_several_steps(f: &Fixture) {
    const MIB: usize = 1 << 20;
    let m = Machine {
        name: String::from("in steps"),
        context: f.context.clone(),
        heap: f.context.heap().unwrap(),
        device: f.device.clone(),
    };
    // More than one dispatch, and more than goes through the third buffer at once.
    large(&m, (Kind::Buffer, Kind::Shared), (2, 1, 8 * MIB + 1));
    large(&m, (Kind::Shared, Kind::Shared), (3, 3, 16 * MIB + 2));
}

fn copies_between_segments(f: &Fixture) {
    const SEGMENT: u64 = 1 << 20;
    const LEN: usize = (600 << 10) + 3;
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(24 << 20)).unwrap();
    let mut options = DeviceOptions::default();
    options.storage_binding_bytes = Some(SEGMENT);
    let device = context.device_named_with(f.device.name(), options).unwrap();
    let heap = context.heap().unwrap();
    let values = noise(5, LEN + 5);
    // More than half a segment each: they cannot lie in one.
    let from = heap.alloc_slice(&values).unwrap();
    let to = heap.alloc_slice(&noise(6, LEN + 5)).unwrap();
    let segment = |ptr: Ptr<u8>| (ptr.address() - heap.base().address()) / SEGMENT;
    assert_ne!(segment(from), segment(to));
    let mut wanted = noise(6, LEN + 5);
    for (start, to_start, len) in [(1, 2, LEN), (3, 3, 70_001), (2, 1, 1)] {
        let (from, to) = (from.byte_add(start), to.byte_add(to_start));
        device.heap_copy(from, to, len).unwrap();
        let (start, to_start) = (start as usize, to_start as usize);
        wanted[to_start..to_start + len].copy_from_slice(&values[start..start + len]);
    }
    same(
        &heap.read(to, LEN + 5).unwrap(),
        &wanted,
        "between segments",
    );
    heap.free(from).unwrap();
    heap.free(to).unwrap();
}

fn values_of_odd_sizes(f: &Fixture) {
    machines(f, |m| {
        let values: Vec<[u8; 3]> = (0..50u8).map(|i| [i, i ^ 0x5a, 200 - i]).collect();
        let from = m.heap.alloc_slice(&values).unwrap();
        let to = m.device.malloc::<[u8; 3]>(50).unwrap();
        m.device.heap_fill(to, [9u8; 3], 50).unwrap();
        m.device.heap_copy(from.add(7), to.add(2), 31).unwrap();
        let buffer = m.device.buffer(&[[1u8; 3]; 50]).unwrap();
        // The last elements end with the allocation on one side only.
        buffer.copy_from_heap(5, to.add(1), 45).unwrap();
        let shorts = m.heap.alloc_slice(&[[0xabu8; 3]; 50]).unwrap();
        buffer.copy_to_heap(11, shorts.add(1), 39).unwrap();
        let mut copied = [[9u8; 3]; 50];
        copied[2..33].copy_from_slice(&values[7..38]);
        let mut wanted = [[1u8; 3]; 50];
        wanted[5..50].copy_from_slice(&copied[1..46]);
        assert_eq!(buffer.read().unwrap(), wanted, "{}", m.name);
        let mut last = [[0xabu8; 3]; 50];
        last[1..40].copy_from_slice(&wanted[11..50]);
        assert_eq!(m.heap.read(shorts, 50).unwrap(), last, "{}", m.name);
        m.device.free(to).unwrap();
        m.heap.free(from).unwrap();
        m.heap.free(shorts).unwrap();
    });
}

/// Adds one to each word.
const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn bytes_are_ordered_with_launches(f: &Fixture) {
    const WORDS: usize = 100;
    machines(f, |m| {
        let program = tombolo::Program::new("byte_copies.wgsl", INCREMENT).unwrap();
        let kernel = m.device.kernel(&program, "main", &Default::default());
        let kernel = kernel.unwrap();
        let data = m.heap.alloc_zeroed::<u32>(WORDS).unwrap();
        let log = m.heap.alloc_zeroed::<u8>(8 * 64).unwrap();
        let mut words = [0u32; WORDS];
        let mut wanted = vec![0u8; 8 * 64];
        for round in 0..8usize {
            let launch = kernel.launch().pointer("data", data, WORDS);
            launch.invocations(WORDS as u32).submit().unwrap();
            words
                .iter_mut()
                .for_each(|word| *word = word.wrapping_add(1));
            // Some of the words go to the log, and some of the log's bytes into the words.
            let (from, to) = (data.cast::<u8>().byte_add(41), round * 64 + round % 4);
            m.device
                .heap_copy(from, log.byte_add(to as u64), 37)
                .unwrap();
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            wanted[to..to + 37].copy_from_slice(&bytes[41..78]);
            let back = log.byte_add(to as u64 + 3);
            m.device
                .heap_copy(back, data.cast::<u8>().byte_add(202), 6)
                .unwrap();
            bytes[202..208].copy_from_slice(&wanted[to + 3..to + 9]);
        }
        assert_eq!(m.heap.read(log, 8 * 64).unwrap(), wanted, "{}", m.name);
        assert_eq!(m.heap.read(data, WORDS).unwrap(), words, "{}", m.name);
        m.heap.free(data).unwrap();
        m.heap.free(log).unwrap();
    });
}

fn copies_of_bytes_that_overlap_are_refused(f: &Fixture) {
    machines(f, |m| {
        let values = noise(8, 64);
        let heap = m.heap.alloc_slice(&values).unwrap();
        let own = m.device.malloc::<u8>(64).unwrap();
        for ptr in [heap, own] {
            for (from, to, len) in [(1, 4, 4), (4, 1, 4), (7, 7, 1), (0, 9, 10)] {
                let (from, to) = (ptr.byte_add(from), ptr.byte_add(to));
                let refused = m.device.heap_copy(from, to, len).unwrap_err();
                assert!(matches!(refused, HeapError::Overlap { .. }), "{refused}");
            }
            let beyond = m.device.heap_copy(ptr.byte_add(1), ptr.byte_add(50), 15);
            assert!(matches!(beyond, Err(HeapError::NotAllocated { .. })));
        }
        assert_eq!(m.heap.read(heap, 64).unwrap(), values);
        m.heap.free(heap).unwrap();
        m.device.free(own).unwrap();
    });
}

fn imported_buffers_need_what_the_kernel_does(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc_slice(&noise(9, 40)).unwrap();
    let imported = |size, usage| {
        let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        f.device.import::<u8>(raw).unwrap()
    };
    let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let plain = imported(40, copies);
    plain.copy_from_heap(0, ptr, 40).unwrap();
    let refused = plain.copy_from_heap(3, ptr, 9).unwrap_err();
    assert!(
        matches!(&refused, HeapError::Buffer(MemoryError::MissingUsage { needed, .. })
            if needed.contains(wgpu::BufferUsages::STORAGE)),
        "{refused}"
    );
    // As a source it is only copied.
    plain.copy_to_heap(3, ptr.byte_add(5), 7).unwrap();
    let mut wanted = noise(9, 40);
    assert_eq!(plain.read().unwrap(), wanted);
    wanted.copy_within(3..10, 5);
    assert_eq!(heap.read(ptr, 40).unwrap(), wanted);
    // Nobody can copy the part of a word that the buffer ends with.
    let short = imported(38, copies | wgpu::BufferUsages::STORAGE);
    for refused in [
        short.copy_from_heap(30, ptr, 8),
        short.copy_to_heap(30, ptr, 8),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, HeapError::Buffer(MemoryError::Misaligned { .. })),
            "{refused}"
        );
    }
    heap.free(ptr).unwrap();
}
