//! Many threads on one heap: allocating, freeing, reading and owning memory while kernels of every device
//! run on it. Each thread knows what its own memory holds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use hashbrown::{DefaultHashBuilder, HashMap};
use tombolo::allocator_api2::boxed::Box as HeapBox;
use tombolo::allocator_api2::vec::Vec as HeapVec;
use tombolo::{
    Constants, Context, Device, DeviceOptions, Event, Kernel, Program, Ptr, SharedHeap,
    heap::{HeapAllocator, HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    eight_threads_allocate_free_and_read_while_every_device_runs,
    collections_on_several_threads_while_every_device_runs,
    many_invocations_build_lists_that_rust_walks,
];

const THREADS: u32 = 8;

/// Adds one to each word, and goes round for a while, so that launches are in flight.
const WORK: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&data) { return; }
    var x = data[id.x];
    for (var i = 0u; i < 300u; i++) { x = x ^ (x << 13u); x = x ^ (x >> 17u); x = x ^ (x << 5u); }
    data[id.x] = x;
}";

fn worked(mut x: u32) -> u32 {
    for _ in 0..300 {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    x
}

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("threads.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Every adapter twice: with the heap in place, and, for `mirrored`, with a copy.
fn devices(context: &Context, mirrored: bool) -> Vec<Device> {
    let mut devices = Vec::new();
    for adapter in context.adapters() {
        devices.push(context.device_at(adapter.index).unwrap());
        if mirrored {
            let mut options = DeviceOptions::default();
            options.import_host_memory = false;
            options.live_memory = false;
            devices.push(context.device_at_with(adapter.index, options).unwrap());
        }
    }
    devices
}

/// Submits once no thread is looking.
fn submit(kernel: &Kernel, data: Ptr<u32>, len: u32) -> Event {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut launch = kernel.launch().pointer("data", data, len as usize);
    launch = launch.invocations(len);
    loop {
        match launch.submit() {
            Ok(event) => return event,
            Err(LaunchError::Heap(HeapError::HostAccess { .. })) => {
                assert!(Instant::now() < deadline, "others look for ever");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A small generator (xorshift32), so that each thread does the same every time.
struct Random(u32);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % end
    }
}

fn eight_threads_allocate_free_and_read_while_every_device_runs(f: &Fixture) {
    for mirrored in [false, true] {
        let size = HeapSize::Bytes(256 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        // This test's adapter has to be among them.
        let devices = devices(&context, mirrored);
        assert!(devices.iter().any(|d| d.name() == f.device.name()));
        let kernels: Vec<Kernel> = devices.iter().map(|d| kernel(d, WORK)).collect();
        let heap = context.heap().unwrap();
        let ran: Vec<AtomicU32> = devices.iter().map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for t in 0..THREADS {
                let (heap, kernels, ran) = (&heap, &kernels, &ran);
                scope.spawn(move || one_thread(t, heap, kernels, ran));
            }
        });
        assert_eq!(heap.allocations(), []);
        for device in &devices {
            device.finish().unwrap();
        }
        assert_eq!(heap.statistics().in_use, 0);
        for (device, ran) in devices.iter().zip(ran) {
            assert!(ran.into_inner() > 0, "{} did nothing", device.name());
        }
    }
}

/// Does something at random with some allocations of its own, and knows what each holds.
fn one_thread(t: u32, heap: &SharedHeap, kernels: &[Kernel], ran: &[AtomicU32]) {
    let mut random = Random(t * 7919 + 1);
    let mut mine: Vec<(Ptr<u32>, Vec<u32>)> = Vec::new();
    for step in 0..40u32 {
        match random.below(6) {
            0 | 1 => {
                let len = 1 + random.below(700);
                let values: Vec<u32> = (0..len).map(|i| i << 8 | t << 4 | step & 15).collect();
                mine.push((heap.alloc_slice(&values).unwrap(), values));
            }
            2 | 3 if !mine.is_empty() => {
                let at = random.below(mine.len() as u32) as usize;
                let which = (step + t) as usize % kernels.len();
                let (data, values) = &mut mine[at];
                submit(&kernels[which], *data, values.len() as u32);
                ran[which].fetch_add(1, Ordering::Relaxed);
                values.iter_mut().for_each(|x| *x = worked(*x));
            }
            4 if !mine.is_empty() => {
                // Whatever still runs on it: nothing else comes there before it has ended.
                let (data, _) = mine.swap_remove(random.below(mine.len() as u32) as usize);
                heap.free(data).unwrap();
            }
            5 if !mine.is_empty() => {
                let (data, values) = &mine[random.below(mine.len() as u32) as usize];
                assert_eq!(
                    heap.read(*data, values.len()).unwrap(),
                    *values,
                    "{t} {step}"
                );
            }
            _ => {}
        }
    }
    for (data, values) in mine {
        assert_eq!(heap.read(data, values.len()).unwrap(), values, "{t}");
        heap.free(data).unwrap();
    }
}

fn collections_on_several_threads_while_every_device_runs(f: &Fixture) {
    type Map = HashMap<u32, HeapVec<u64, HeapAllocator>, DefaultHashBuilder, HeapAllocator>;
    type Reference = std::collections::HashMap<u32, Vec<u64>>;
    let size = HeapSize::Bytes(256 << 20);
    let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
    let devices = devices(&context, false);
    assert!(devices.iter().any(|d| d.name() == f.device.name()));
    let heap = context.heap().unwrap();
    // SAFETY: the launches below reach `data` alone, which is none of what the allocator hands out.
    let allocator = unsafe { heap.allocator() };
    let data = heap.alloc_slice(&[9u32; 4096]).unwrap();
    let built: Vec<(Map, Reference, HeapBox<[u64; 64], HeapAllocator>)> =
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6u32)
                .map(|t| {
                    let allocator = allocator.clone();
                    scope.spawn(move || {
                        let mut random = Random(t + 77);
                        let mut map = Map::new_in(allocator.clone());
                        let mut reference = Reference::new();
                        for step in 0..600u64 {
                            let key = random.below(50);
                            match random.below(8) {
                                0 => {
                                    let gone = map.remove(&key).map(|values| values.to_vec());
                                    assert_eq!(gone, reference.remove(&key), "{t} {step}");
                                }
                                1 => {
                                    map.shrink_to_fit();
                                    if let Some(values) = map.get_mut(&key) {
                                        values.shrink_to_fit();
                                    }
                                }
                                _ => {
                                    let values = map.entry(key);
                                    let values = values
                                        .or_insert_with(|| HeapVec::new_in(allocator.clone()));
                                    values.push(step * step);
                                    reference.entry(key).or_default().push(step * step);
                                }
                            }
                            // Comes and goes.
                            let boxed = HeapBox::new_in([step; 30], allocator.clone());
                            assert_eq!(*boxed, [step; 30]);
                        }
                        let kept = HeapBox::new_in([u64::from(t); 64], allocator);
                        (map, reference, kept)
                    })
                })
                .collect();
            let kernels: Vec<Kernel> = devices.iter().map(|d| kernel(d, WORK)).collect();
            for round in 0..20 {
                submit(&kernels[round % kernels.len()], data, 4096)
                    .wait()
                    .unwrap();
            }
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
    let expected = (0..20).fold(9, |x, _| worked(x));
    assert_eq!(heap.read(data, 4096).unwrap(), [expected; 4096]);
    for (t, (map, reference, kept)) in built.into_iter().enumerate() {
        assert_eq!(map.len(), reference.len());
        for (key, values) in &reference {
            assert_eq!(map[key][..], values[..], "{t}");
        }
        // Everything lies in the heap, and belongs to this thread now.
        assert!(heap.pointer_to(std::ptr::from_ref(&*kept)).is_some());
        assert_eq!(*kept, [t as u64; 64]);
        drop(kept);
        for values in map.values().filter(|values| !values.is_empty()) {
            assert!(heap.pointer_to(values.as_ptr()).is_some());
        }
        drop(map);
    }
    heap.free(data).unwrap();
    assert_eq!(heap.allocations(), []);
}

/// Each invocation takes nodes from an arena, by a counter, and pushes them onto one of several lists; a
/// list that it finds empty it begins.
const BUILD: &str = "
struct Node { owner: u32, turn: u32, next: usm_ptr }
struct Lists { taken: atomic<u32>, pad: u32, heads: array<Head, 3> }
struct Head { low: atomic<u32>, count: atomic<u32> }
@group(0) @binding(0) var<uniform> lists: usm_ptr;
@group(0) @binding(1) var<uniform> arena: usm_ptr;
@group(0) @binding(2) var<uniform> limit: u32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let l = usm_Lists(lists);
    for (var turn = 0u; turn < 3u; turn++) {
        let slot = atomicAdd(&l.taken, 1u);
        if slot >= limit { return; }
        let place = usm_element(arena, slot, 16u);
        let n = usm_Node(place);
        n.owner = id.x;
        n.turn = turn;
        let which = (id.x + turn) % 3u;
        // All nodes lie in one window of 4 GiB: the low words tell them apart.
        var pushed = false;
        for (var tries = 0u; tries < 20000u && !pushed; tries++) {
            let old = atomicLoad(&l.heads[which].low);
            n.next = vec2<u32>(old, select(place.y, 0u, old == 0u));
            pushed = atomicCompareExchangeWeak(&l.heads[which].low, old, place.x).exchanged;
        }
        if pushed { atomicAdd(&l.heads[which].count, 1u); }
    }
}";

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Node {
    owner: u32,
    turn: u32,
    next: Ptr<Node>,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Lists {
    taken: u32,
    pad: u32,
    /// Low word of the first node's address, and how many there are.
    heads: [[u32; 2]; 3],
}

fn many_invocations_build_lists_that_rust_walks(f: &Fixture) {
    const INVOCATIONS: u32 = 1024;
    for mirrored in [false, true] {
        let size = HeapSize::Bytes(64 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let mut options = DeviceOptions::default();
        options.import_host_memory = !mirrored;
        options.live_memory = !mirrored;
        let device = context.device_named_with(f.device.name(), options);
        let device = device.unwrap();
        let heap = context.heap().unwrap();
        let kernel = kernel(&device, BUILD);
        // Enough nodes for all, and for some.
        for limit in [3 * INVOCATIONS, 1000] {
            let lists = heap.alloc(Lists::zeroed()).unwrap();
            let poison = Node {
                owner: !0,
                turn: !0,
                next: Ptr::from_address(1),
            };
            let arena = heap.alloc_slice(&vec![poison; limit as usize + 1]).unwrap();
            let launch = kernel.launch().value("lists", &lists);
            let launch = launch.value("arena", &arena).value("limit", &limit);
            launch
                .invocations(INVOCATIONS)
                .submit()
                .unwrap()
                .wait()
                .unwrap();
            let host = heap.host().unwrap();
            let heads = host.get(lists).unwrap();
            let mut seen = vec![false; limit as usize];
            let mut told = std::collections::HashSet::new();
            for (which, [low, count]) in heads.heads.into_iter().enumerate() {
                let mut at: Ptr<Node> = match low {
                    0 => Ptr::null(),
                    low => Ptr::from_address(heap.base().address() | u64::from(low)),
                };
                let mut walked = 0;
                while !at.is_null() {
                    let offset: u64 = at.address() - arena.address();
                    assert_eq!(offset % 16, 0);
                    // A node is in one list, once.
                    assert!(!std::mem::replace(&mut seen[offset as usize / 16], true));
                    let node = *host.get(at).unwrap();
                    assert!(node.owner < INVOCATIONS && node.turn < 3, "{node:?}");
                    assert_eq!((node.owner + node.turn) as usize % 3, which);
                    assert!(told.insert((node.owner, node.turn)), "{node:?} twice");
                    at = node.next;
                    walked += 1;
                }
                assert_eq!(walked, count);
            }
            assert!(seen.iter().all(|&seen| seen));
            assert!(heads.taken >= limit && heads.taken <= 3 * INVOCATIONS);
            assert_eq!(*host.get(arena.add(u64::from(limit))).unwrap(), poison);
        }
    }
}
