//! Where a device keeps the heap, by choice: in place, or a copy in memory of its own. The same programs with the same results,
//! and what the copy costs.

use crate::cases;
use crate::harness::Fixture;
use crate::mirror::{INCREMENT, THIN, kernel, list, walk};
use crate::wgsl_types::Random;
use tombolo::{
    Context, Device, DeviceBuffer, DeviceOptions, Kernel, Ptr, SharedHeap,
    device::{Aspect, Capability, DeviceError, Tier},
    heap::{HeapError, HeapPlacement, HeapSize, MirrorStatistics},
    launch::LaunchError,
    wgpu,
};

cases![
    the_choice_is_what_tiers_tell,
    a_place_that_cannot_be_had_is_an_error,
    a_list_is_the_same_in_both_places,
    launches_alone_move_and_search_nothing,
    the_host_costs_what_it_touches,
    what_the_host_zeroes_does_not_travel,
    every_bit_of_a_page_counts,
    changes_that_are_taken_back_are_changes,
    claims_advise_the_other_place,
    random_histories_on_devices_of_both_places,
];

const PAGE: u64 = 4096;

/// A context of its own.
pub fn context() -> Context {
    Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap()
}

pub fn placed_with(
    context: &Context,
    f: &Fixture,
    placement: HeapPlacement,
    change: impl FnOnce(&mut DeviceOptions),
) -> Result<Device, DeviceError> {
    let mut options = DeviceOptions::default();
    options.heap_placement = placement;
    change(&mut options);
    context.device_named_with(f.device.name(), options)
}

fn placed(context: &Context, f: &Fixture, placement: HeapPlacement) -> Device {
    placed_with(context, f, placement, |_| {}).unwrap()
}

/// The work's share of the statistics: bytes up, down, and searched.
fn cost(heap: &SharedHeap, work: impl FnOnce()) -> (u64, u64, u64) {
    let before = heap.mirror_statistics();
    work();
    let after = heap.mirror_statistics();
    (
        after.uploaded - before.uploaded,
        after.downloaded - before.downloaded,
        after.searched - before.searched,
    )
}

/// Adds to every so many words behind a pointer.
pub const SCATTER: &str = "
alias Words = array<u32>;
@group(0) @binding(0) var<uniform> words: usm_ptr;
@group(0) @binding(1) var<uniform> what: vec4<u32>; // the first, the step, how many, and what is added
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < what.z {
        let place = usm_Words(words);
        place[what.x + id.x * what.y] += what.w;
    }
}";

pub fn scatter(kernel: &Kernel, words: Ptr<u32>, what: [u32; 4]) {
    let launch = kernel.launch().value("words", &words).value("what", &what);
    launch.invocations(what[2]).submit().unwrap();
}

pub fn increment(kernel: &Kernel, words: Ptr<u32>, len: usize) -> Result<(), LaunchError> {
    let mut launch = kernel.launch().pointer("data", words, len);
    launch = launch.invocations(len as u32);
    launch.submit().map(|_| ())
}

fn the_choice_is_what_tiers_tell(f: &Fixture) {
    let context = context();
    let heap = context.heap().unwrap();
    for (placement, expected) in [
        (HeapPlacement::Auto, Tier::FineGrained),
        (HeapPlacement::InPlace, Tier::FineGrained),
        (HeapPlacement::Device, Tier::CoarseGrained),
    ] {
        let device = placed(&context, f, placement);
        assert_eq!(device.capabilities().heap_placement, placement);
        let report = device.capabilities().tier(Capability::Pointers);
        assert_eq!(report.tier, expected, "{report}");
        if !f.device.has(Aspect::HostImport) && placement != HeapPlacement::Device {
            continue;
        }
        assert_eq!(heap.tier(&device), expected);
        // What the adapter can do is the same.
        assert_eq!(
            device.has(Aspect::HostImport),
            f.device.has(Aspect::HostImport)
        );
    }
}

fn a_place_that_cannot_be_had_is_an_error(f: &Fixture) {
    let nothing = |options: &mut DeviceOptions| options.live_memory = false;
    let refused = placed_with(&context(), f, HeapPlacement::InPlace, nothing).unwrap_err();
    let DeviceError::HeapPlacement { adapter, why } = &refused else {
        panic!("{refused}");
    };
    assert!(f.device.name() == adapter && !why.is_empty());
    assert!(refused.to_string().contains("HeapPlacement::Auto"));
    if !f.device.has(Aspect::HostImport) {
        return;
    }
    // A device that could have mapped the heap, in a context whose heap another device imports.
    let context = context();
    let importing = placed(&context, f, HeapPlacement::InPlace);
    let heap = importing.heap().unwrap();
    let mapping = placed_with(&context, f, HeapPlacement::InPlace, |options| {
        options.import_host_memory = false;
    });
    let mapping = mapping.unwrap();
    let words = heap.alloc_slice(&[3u32; 64]).unwrap();
    increment(&kernel(&importing, INCREMENT), words, 64).unwrap();
    let refused = mapping.heap_fill(words, 0, 64).unwrap_err();
    assert!(matches!(refused, HeapError::Placement { .. }), "{refused}");
    assert!(refused.to_string().contains("HeapPlacement::Device"));
    assert_eq!(heap.read(words, 64).unwrap(), [4; 64]);
    assert_eq!(heap.mirror_statistics().mirrors, 0);
}

fn a_list_is_the_same_in_both_places(f: &Fixture) {
    let mut results = Vec::new();
    for placement in [HeapPlacement::Auto, HeapPlacement::Device] {
        let context = context();
        let device = placed(&context, f, placement);
        let heap = context.heap().unwrap();
        let first = list(&heap, 500);
        let sum: DeviceBuffer<f32> = device.buffer(&[-1.0]).unwrap();
        let thin = kernel(&device, THIN);
        let mut launch = thin.launch().value("first", &first).buffer("sum", &sum);
        launch = launch.workgroups(1);
        launch.submit().unwrap();
        launch.submit().unwrap();
        let nodes = walk(&heap, first).into_iter().map(|n| (n.value, n.tag));
        results.push((sum.read().unwrap(), nodes.collect::<Vec<_>>()));
    }
    let expected: Vec<(f32, u32)> = (0..500).step_by(4).map(|i| (i as f32 * 4.0, i)).collect();
    for (sum, nodes) in results {
        assert_eq!(nodes, expected);
        // Doubled, and every second one.
        assert_eq!(
            sum,
            [(0..500).step_by(2).map(|i| i as f32 * 2.0).sum::<f32>()]
        );
    }
}

fn launches_alone_move_and_search_nothing(f: &Fixture) {
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[9u32; 2000]).unwrap();
    let (by_pointer, by_argument) = (kernel(&device, SCATTER), kernel(&device, INCREMENT));
    scatter(&by_pointer, words, [0, 1, 2000, 1]);
    let before = heap.mirror_statistics();
    assert_eq!((before.mirrors, before.downloaded), (1, 0));
    for _ in 0..20 {
        scatter(&by_pointer, words, [0, 1, 2000, 1]);
        increment(&by_argument, words, 2000).unwrap();
    }
    device.finish().unwrap();
    assert_eq!(heap.mirror_statistics(), before);
    assert_eq!(heap.read(words, 2000).unwrap(), [50; 2000]);
}

fn the_host_costs_what_it_touches(f: &Fixture) {
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    // Aligned to pages, in the middle of more.
    let more = heap.alloc_bytes(4 << 20, PAGE).unwrap().cast::<u32>();
    heap.fill(more, 7u32, 1 << 20).unwrap();
    let words = more.add(1 << 19);
    let (by_pointer, by_argument) = (kernel(&device, SCATTER), kernel(&device, INCREMENT));
    increment(&by_argument, words, 1024).unwrap();
    let bits = heap.committed() / PAGE / 8;
    // What is allocated, in whole pages.
    let in_use = more.address() - heap.base().address() + (4 << 20);
    let read = |expected: u32| assert_eq!(heap.read(words, 1024).unwrap(), [expected; 1024]);
    // A launch says by its arguments what it may write.
    assert_eq!(cost(&heap, || read(8)), (0, PAGE, 0));
    assert_eq!(cost(&heap, || read(8)), (0, 0, 0));
    let write = || heap.write(words, &[20u32; 1024]).unwrap();
    assert_eq!(cost(&heap, write), (0, 0, 0));
    let launch = || increment(&by_argument, words, 1024).unwrap();
    assert_eq!(cost(&heap, launch), (PAGE, 0, 0));
    assert_eq!(cost(&heap, || read(21)), (0, PAGE, 0));
    // What follows pointers is searched for: on the device, and once.
    let launch = || scatter(&by_pointer, words, [0, 1, 1024, 1]);
    assert_eq!(cost(&heap, launch), (0, 0, 0));
    assert_eq!(cost(&heap, || read(22)), (0, PAGE + bits, in_use));
    assert_eq!(cost(&heap, || read(22)), (0, 0, 0));
    // A kernel that writes what was there has changed nothing.
    let launch = || scatter(&by_pointer, words, [0, 1, 1024, 0]);
    assert_eq!(cost(&heap, launch), (0, 0, 0));
    assert_eq!(cost(&heap, || read(22)), (0, bits, in_use));
    // Reading on the device, and a prefetch, change nothing either.
    let copy: DeviceBuffer<u32> = device.zeroed(1024).unwrap();
    let look = || {
        copy.copy_from_heap(0, words, 1024).unwrap();
        device.heap_prefetch(words, 1024).unwrap();
        read(22);
    };
    assert_eq!(cost(&heap, look), (0, 0, 0));
    assert_eq!(copy.read().unwrap(), [22; 1024]);
    // A transfer changes its target.
    let fill = || {
        device.heap_fill(words.add(1024), 5u32, 3000).unwrap();
        assert_eq!(heap.read(words.add(1024), 3000).unwrap(), [5; 3000]);
    };
    assert_eq!(cost(&heap, fill), (0, 3 * PAGE, 0));
    assert_eq!(heap.read(words.add(4024), 1000).unwrap(), [7; 1000]);
}

fn what_the_host_zeroes_does_not_travel(f: &Fixture) {
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    let words = heap.alloc_bytes(64 * PAGE, PAGE).unwrap().cast::<u32>();
    let len = 64 * PAGE as usize / 4;
    heap.fill(words, 7u32, len).unwrap();
    let kernel = kernel(&device, INCREMENT);
    let launch = || increment(&kernel, words, len).unwrap();
    assert_eq!(cost(&heap, launch).0, 64 * PAGE);
    heap.fill(words, 0u32, len).unwrap();
    heap.write(words.add(5000), &[1u32]).unwrap();
    assert_eq!(cost(&heap, launch).0, PAGE);
    let mut expected = vec![1; len];
    expected[5000] = 2;
    assert_eq!(heap.read(words, len).unwrap(), expected);
}

fn every_bit_of_a_page_counts(f: &Fixture) {
    const PAGES: u32 = 256;
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    let words = heap.alloc_bytes(u64::from(PAGES) * PAGE, PAGE).unwrap();
    let words = words.cast::<u32>();
    let mut random = Random(9);
    let mut model: Vec<u32> = (0..PAGES * 1024).map(|_| random.next() as u32).collect();
    heap.write(words, &model).unwrap();
    let flip = kernel(
        &device,
        "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<uniform> round: u32;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let place = usm_Words(words);
            place[id.x * 1024u + (id.x * 37u + round * 211u) % 1024u] ^= 1u << ((id.x + round) % 32u);
        }",
    );
    let bits = heap.committed() / PAGE / 8;
    for round in 0..4u32 {
        let launch = flip.launch().value("words", &words).value("round", &round);
        launch.invocations(PAGES).submit().unwrap();
        for page in 0..PAGES {
            let word = page * 1024 + (page * 37 + round * 211) % 1024;
            model[word as usize] ^= 1 << ((page + round) % 32);
        }
        let read = || {
            assert!(
                heap.read(words, model.len()).unwrap() == model,
                "round {round}"
            )
        };
        let (_, down, _) = cost(&heap, read);
        // One word of each page, and all pages have come.
        assert_eq!(down, u64::from(PAGES) * PAGE + bits);
    }
}

/// A page is compared with what it was at the last agreement, however that came about: by a transfer of few pages, by a
/// search, or by an upload.
fn changes_that_are_taken_back_are_changes(f: &Fixture) {
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[7u32; 64]).unwrap();
    let (by_pointer, by_argument) = (kernel(&device, SCATTER), kernel(&device, INCREMENT));
    let read = |expected: u32| assert_eq!(heap.read(words, 64).unwrap(), [expected; 64]);
    let add = |what: i32| scatter(&by_pointer, words, [0, 1, 64, what as u32]);
    increment(&by_argument, words, 64).unwrap();
    read(8);
    add(-1);
    read(7);
    add(1);
    read(8);
    heap.write(words, &[9; 64]).unwrap();
    add(-1);
    read(8);
}

fn claims_advise_the_other_place(f: &Fixture) {
    let context = context();
    let device = placed(&context, f, HeapPlacement::Device);
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[5u32; 8]).unwrap();
    let kernel = kernel(&device, INCREMENT);
    // The copy has the words before the host changes one without asking.
    increment(&kernel, words, 8).unwrap();
    let view = heap.atomic_u32_slice(words, 8).unwrap();
    let refused = increment(&kernel, words, 8).unwrap_err();
    let LaunchError::Heap(error @ HeapError::AtomicView { .. }) = &refused else {
        panic!("{refused}");
    };
    let advises = error.to_string().contains("HeapPlacement::InPlace");
    assert_eq!(advises, f.device.has(Aspect::HostImport), "{error}");
    view[0].store(10, std::sync::atomic::Ordering::Release);
    drop(view);
    increment(&kernel, words, 8).unwrap();
    assert_eq!(heap.read(words, 8).unwrap(), [11, 7, 7, 7, 7, 7, 7, 7]);
}

/// Allocations with what they should have.
pub struct Model {
    heap: SharedHeap,
    live: Vec<(Ptr<u32>, Vec<u32>)>,
    random: Random,
    /// The device of a step finishes before the next.
    pub finishes: bool,
}

impl Model {
    /// Some allocations.
    pub fn new(heap: &SharedHeap, seed: u64) -> Self {
        let mut model = Self {
            heap: heap.clone(),
            live: Vec::new(),
            random: Random(seed),
            finishes: false,
        };
        (0..4).for_each(|_| model.allocate());
        model
    }

    pub fn below(&mut self, most: usize) -> usize {
        (self.random.next() as usize >> 3) % most
    }

    fn allocate(&mut self) {
        let len = 1 + self.below(60_000);
        let first = self.below(1000) as u32;
        let values: Vec<u32> = (first..).take(len).collect();
        let ptr = self.heap.alloc_slice(&values).unwrap();
        self.live.push((ptr, values));
    }

    /// Prefetches an allocation.
    pub fn prefetch(&mut self, device: &Device) {
        let at = self.below(self.live.len());
        let (ptr, values) = &self.live[at];
        device.heap_prefetch(*ptr, values.len()).unwrap();
    }

    /// Everything is as it should be.
    pub fn check(&self, seed: u64) {
        let host = self.heap.host().unwrap();
        for (ptr, values) in &self.live {
            let seen = host.slice(*ptr, values.len()).unwrap();
            let other = (0..values.len()).find(|&at| seen[at] != values[at]);
            let other = other.map(|at| (at, seen[at], values[at]));
            assert_eq!(
                other, None,
                "seed {seed}: place, value, and what it should be"
            );
        }
    }

    pub fn step(&mut self, kernels: &[(Device, Kernel, Kernel)]) {
        let (device, by_pointer, by_argument) = &kernels[self.below(kernels.len())];
        let at = self.below(self.live.len());
        let len = self.live[at].1.len();
        let start = self.below(len);
        let count = 1 + self.below(len - start);
        let value = self.below(1 << 20) as u32;
        let action = self.below(12);
        let (ptr, model) = &mut self.live[at];
        let part = ptr.add(start as u64);
        match action {
            0..3 => {
                increment(by_argument, part, count).unwrap();
                model[start..start + count].iter_mut().for_each(|x| *x += 1);
            }
            3..5 => {
                let step = 1 + value as usize % 700;
                let count = (len - start).div_ceil(step);
                let what = [start, step, count].map(|x| x as u32);
                scatter(by_pointer, *ptr, [what[0], what[1], what[2], value]);
                let hit = model[start..].iter_mut().step_by(step);
                hit.for_each(|x| *x = x.wrapping_add(value));
            }
            5 => {
                device.heap_fill(part, value, count).unwrap();
                model[start..start + count].fill(value);
            }
            6 => {
                self.heap.write(part, &vec![value; count]).unwrap();
                model[start..start + count].fill(value);
            }
            7 => {
                let mut host = self.heap.host().unwrap();
                *host.get_mut(part).unwrap() ^= value;
                model[start] ^= value;
                let seen = host.slice(*ptr, len).unwrap();
                let other = (0..len).find(|&at| seen[at] != model[at]);
                let other = other.map(|at| (at, seen[at], model[at]));
                assert_eq!(other, None, "place, value, and what it should be");
            }
            8 => {
                let view = self.heap.atomic_u32_slice(part, count).unwrap();
                view[count - 1].store(value, std::sync::atomic::Ordering::Release);
                model[start + count - 1] = value;
            }
            9 => {
                let seen = self.heap.read(part, count).unwrap();
                assert!(seen == model[start..start + count]);
            }
            _ if self.live.len() < 12 => self.allocate(),
            _ => {
                let (ptr, _) = self.live.swap_remove(at);
                self.heap.free(ptr).unwrap();
            }
        }
        if self.finishes {
            device.finish().unwrap();
        }
    }
}

fn random_histories_on_devices_of_both_places(f: &Fixture) {
    for seed in [1, 2] {
        let context = context();
        // Several small segments.
        let small = |placement| {
            let device = placed_with(&context, f, placement, |options| {
                options.storage_binding_bytes = Some(1 << 20);
            });
            let device = device.unwrap();
            let kernels = [SCATTER, INCREMENT].map(|source| kernel(&device, source));
            let [by_pointer, by_argument] = kernels;
            (device, by_pointer, by_argument)
        };
        let mut kernels = vec![small(HeapPlacement::Device), small(HeapPlacement::Device)];
        if seed == 1 {
            kernels.push(small(HeapPlacement::Auto));
        }
        let heap = context.heap().unwrap();
        let mut model = Model::new(&heap, seed);
        for _ in 0..80 {
            model.step(&kernels);
        }
        model.check(seed);
        let MirrorStatistics { mirrors, .. } = heap.mirror_statistics();
        assert!((2..=3).contains(&mirrors), "{mirrors}");
    }
}
