//! Devices that choose where they use the heap (`HeapPlacement::Auto` on a card with memory of its own, as which every adapter is
//! opened here): what they choose, that it can be seen, and that nothing is refused for the sake of a copy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::cases;
use crate::harness::{Fixture, kernel_of};
use crate::heap_placement::{Model, SCATTER, context, increment, placed_with, scatter};
use crate::mirror::{INCREMENT, kernel};
use tombolo::allocator_api2::{boxed::Box as HeapBox, vec::Vec as HeapVec};
use tombolo::{
    Context, Device, DeviceBuffer, Event, HostServices, Kernel, Ptr, SharedHeap,
    device::{Aspect, Tier},
    heap::{HeapAdvice, HeapAllocator, HeapPlacement},
};

cases![
    launches_in_a_row_move_to_the_copy,
    a_host_that_looks_between_launches_keeps_the_heap,
    advice_and_prefetches_move_the_heap,
    a_prefetch_beside_a_look_moves_the_next_launch,
    devices_without_a_choice_take_no_advice,
    nothing_moves_under_a_launch_in_flight,
    claims_bring_the_heap_back_and_refuse_nothing,
    functions_of_the_host_find_the_heap_in_place,
    live_words_keep_their_launch_in_place,
    devices_of_every_kind_take_turns,
    a_launch_follows_its_arguments_from_place_to_place,
    threads_share_a_device_that_chooses,
    random_histories_of_devices_that_choose,
];

const MINUTE: Duration = Duration::from_secs(60);
/// Words of a MiB.
const MIB: usize = 1 << 18;

/// A device with a choice; `None` where the adapter imports nothing.
fn choosing(context: &Context, f: &Fixture) -> Option<Device> {
    let device = placed_with(context, f, HeapPlacement::Auto, |options| {
        options.unified_memory = Some(false);
    });
    let device = device.unwrap();
    device.has(Aspect::HostImport).then_some(device)
}

/// Blocks whose addresses no kernel is given.
fn allocator(heap: &SharedHeap) -> HeapAllocator {
    // SAFETY: no kernel is given the addresses of the blocks.
    unsafe { heap.allocator() }
}

struct Scene {
    device: Device,
    heap: SharedHeap,
    words: Ptr<u32>,
    by_pointer: Kernel,
}

impl Scene {
    /// `len` words of 1.
    fn open(f: &Fixture, len: usize) -> Option<Self> {
        let context = context();
        let device = choosing(&context, f)?;
        let heap = context.heap().unwrap();
        let words = heap.alloc_slice(&vec![1u32; len]).unwrap();
        Some(Self {
            by_pointer: kernel(&device, SCATTER),
            device,
            heap,
            words,
        })
    }

    /// Adds 1 to the first words.
    fn add(&self, len: usize) {
        scatter(&self.by_pointer, self.words, [0, 1, len as u32, 1]);
    }

    fn finish(&self) {
        self.device.finish().unwrap();
    }

    #[track_caller]
    fn is_at(&self, place: HeapPlacement) {
        assert_eq!(self.heap.residence(&self.device), place);
    }

    #[track_caller]
    fn has(&self, len: usize, value: u32) {
        let seen = self.heap.read(self.words, len).unwrap();
        assert!(seen == vec![value; len], "{:?} for {value}", &seen[..4]);
    }

    fn moves(&self) -> (u64, u64) {
        let statistics = self.heap.mirror_statistics();
        (statistics.moved_in, statistics.moved_out)
    }
}

use HeapPlacement::{Device as OnDevice, InPlace};

fn launches_in_a_row_move_to_the_copy(f: &Fixture) {
    let Some(scene) = Scene::open(f, MIB) else {
        return;
    };
    assert_eq!(scene.heap.tier(&scene.device), Tier::FineGrained);
    let mut launches = 0;
    while scene.heap.residence(&scene.device) == InPlace {
        scene.add(MIB);
        scene.finish();
        launches += 1;
        assert!(launches < 100, "{:?}", scene.heap.mirror_statistics());
    }
    // The first would have been too soon.
    assert!(launches > 2, "{launches}");
    assert_eq!(scene.moves(), (1, 0));
    let before = scene.heap.mirror_statistics();
    assert!(before.uploaded >= 1 << 20, "{before:?}");
    for _ in 0..10 {
        scene.add(MIB);
    }
    scene.finish();
    assert_eq!(scene.heap.mirror_statistics(), before);
    scene.has(MIB, launches + 11);
    // A look does not bring the heap back.
    scene.add(MIB);
    scene.is_at(OnDevice);
    scene.has(MIB, launches + 12);
    assert_eq!(scene.moves(), (1, 0));
}

fn a_host_that_looks_between_launches_keeps_the_heap(f: &Fixture) {
    let Some(scene) = Scene::open(f, 8 * MIB) else {
        return;
    };
    for round in 0..200 {
        scene.add(1024);
        scene.has(1024, round + 2);
        scene.is_at(InPlace);
    }
    assert_eq!(scene.heap.mirror_statistics().mirrors, 0);
}

/// The host is in nobody's way, as where devices use the heap in place.
fn a_prefetch_beside_a_look_moves_the_next_launch(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    let host = scene.heap.host().unwrap();
    (scene.device.heap_prefetch(scene.words, 4096).unwrap())
        .wait()
        .unwrap();
    assert_eq!(host.slice(scene.words, 4096).unwrap(), [1; 4096]);
    drop(host);
    scene.is_at(InPlace);
    scene.add(4096);
    scene.is_at(OnDevice);
    scene.has(4096, 2);
}

fn advice_and_prefetches_move_the_heap(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    let (heap, device) = (&scene.heap, &scene.device);
    assert_eq!(heap.advice(device), HeapAdvice::None);
    heap.advise(device, HeapAdvice::PreferDevice);
    assert_eq!(heap.advice(device), HeapAdvice::PreferDevice);
    for round in 0..5 {
        scene.add(4096);
        scene.is_at(OnDevice);
        scene.has(4096, round + 2);
    }
    heap.advise(device, HeapAdvice::PreferHost);
    scene.add(4096);
    scene.is_at(InPlace);
    assert_eq!(scene.moves(), (1, 1));
    device.heap_prefetch(scene.words, 4096).unwrap();
    scene.is_at(InPlace);
    heap.advise(device, HeapAdvice::None);
    scene.finish();
    device.heap_prefetch(scene.words, 4096).unwrap();
    scene.is_at(OnDevice);
    let uploaded = heap.mirror_statistics().uploaded;
    scene.add(4096);
    assert_eq!(heap.mirror_statistics().uploaded, uploaded);
    scene.has(4096, 8);
}

fn devices_without_a_choice_take_no_advice(f: &Fixture) {
    for placement in [InPlace, OnDevice, HeapPlacement::Auto] {
        let context = context();
        let device = placed_with(&context, f, placement, |options| {
            // Everything is one memory, so that there is nothing to choose.
            options.unified_memory = Some(true);
        });
        let (device, heap) = (device.unwrap(), context.heap().unwrap());
        let before = heap.residence(&device);
        for advice in [HeapAdvice::PreferDevice, HeapAdvice::PreferHost] {
            heap.advise(&device, advice);
            let words = heap.alloc_slice(&[1u32; 64]).unwrap();
            increment(&kernel(&device, INCREMENT), words, 64).unwrap();
            assert_eq!(heap.read(words, 64).unwrap(), [2; 64]);
            assert_eq!(heap.residence(&device), before);
        }
        assert_eq!(heap.advice(&device), HeapAdvice::None);
        assert_eq!(heap.mirror_statistics().moved_in, 0);
    }
}

/// A launch never waits for another one that it would not have waited for in place.
fn nothing_moves_under_a_launch_in_flight(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    scene.add(4096);
    scene.heap.advise(&scene.device, HeapAdvice::PreferDevice);
    // The first launch is not even submitted.
    scene.add(4096);
    scene.is_at(InPlace);
    scene.finish();
    scene.add(4096);
    scene.is_at(OnDevice);
    scene.has(4096, 4);
}

fn claims_bring_the_heap_back_and_refuse_nothing(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    let heap = &scene.heap;
    heap.advise(&scene.device, HeapAdvice::PreferDevice);
    scene.add(4096);
    scene.is_at(OnDevice);
    let view = heap.atomic_u32_slice(scene.words, 4096).unwrap();
    // What was changed on the copy is there.
    assert_eq!(view[9].load(Ordering::Acquire), 2);
    view[9].store(10, Ordering::Release);
    scene.add(4096);
    scene.is_at(InPlace);
    scene.finish();
    assert_eq!(view[9].load(Ordering::Acquire), 11);
    view[9].store(3, Ordering::Release);
    drop(view);
    scene.add(4096);
    scene.is_at(OnDevice);
    scene.has(4096, 4);
    let kept = HeapVec::<u32, _>::with_capacity_in(64, allocator(heap));
    scene.add(4096);
    scene.is_at(InPlace);
    drop(kept);
    scene.finish();
    scene.add(4096);
    scene.is_at(OnDevice);
    scene.has(4096, 6);
    assert_eq!(scene.moves(), (3, 2));
}

/// What a function of the host may do with the heap while its caller waits is the same whatever came before: in place nothing of
/// it is a wait for the caller.
fn functions_of_the_host_find_the_heap_in_place(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    if !scene.device.capabilities().live_memory() {
        return;
    }
    let heap = &scene.heap;
    heap.advise(&scene.device, HeapAdvice::PreferDevice);
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let services = {
        let (heap, words, errors) = (heap.clone(), scene.words, Arc::clone(&errors));
        let ask = move |which: u32| -> u32 {
            let note = |error: String| errors.lock().unwrap().push(error);
            // Claims, which are refused while a copy has changes.
            match heap.atomic_u32(words) {
                Ok(view) => view.store(70 + which, Ordering::Release),
                Err(error) => note(error.to_string()),
            }
            let mut kept = HeapVec::new_in(allocator(&heap));
            if kept.try_reserve(1).is_err() {
                note("a claim was refused".to_owned());
                return 0;
            }
            kept.push(which);
            if which == 0 {
                // Its caller has nothing to do with the heap.
                heap.write(words, &[80])
                    .unwrap_or_else(|e| note(e.to_string()));
            }
            kept[0] + 1
        };
        HostServices::builder()
            .call("fn ask(which: u32) -> u32", ask)
            .start()
            .unwrap()
    };
    let sources = [
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] = ask(0u); }",
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() { out[0] = ask(1u); let word = usm_u32(at); *word = 90u; }",
    ];
    for (which, source) in sources.into_iter().enumerate() {
        let asking = kernel_of(&scene.device, &services, source);
        let out: DeviceBuffer<u32> = scene.device.zeroed(1).unwrap();
        // The copy has changes.
        scene.add(4096);
        scene.is_at(OnDevice);
        let mut launch = asking.launch().services(&services).buffer("out", &out);
        if which == 1 {
            launch = launch.value("at", &scene.words);
        }
        let event = launch.workgroups(1).submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
        assert_eq!(out.read().unwrap(), [which as u32 + 1]);
        let expected = [80, 90][which];
        let seen = heap.read(scene.words, 2).unwrap();
        assert_eq!(seen, [expected, 2 + which as u32]);
    }
    assert_eq!(*errors.lock().unwrap(), [""; 0]);
}

fn live_words_keep_their_launch_in_place(f: &Fixture) {
    let Some(scene) = Scene::open(f, 4096) else {
        return;
    };
    if !scene.device.has(Aspect::LiveMemory) {
        return;
    }
    scene.heap.advise(&scene.device, HeapAdvice::PreferDevice);
    let live = scene.device.live(64).unwrap();
    let count = kernel(
        &scene.device,
        "alias Words = array<u32>;
        @group(0) @binding(0) var<uniform> words: usm_ptr;
        @group(0) @binding(1) var<storage, read_write> live: array<atomic<u32>>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let place = usm_Words(words);
            place[id.x] += atomicLoad(&live[0]);
        }",
    );
    scene.add(4096);
    scene.is_at(OnDevice);
    live.store(0, 5).unwrap();
    let launch = count.launch().value("words", &scene.words);
    let event = launch.buffer("live", &live).workgroups(1).submit();
    scene.is_at(InPlace);
    event.unwrap().wait_timeout(MINUTE).unwrap();
    let seen = scene.heap.read(scene.words, 128).unwrap();
    assert_eq!(seen[..64], [7; 64]);
    assert_eq!(seen[64..], [2; 64]);
    // Without the heap, too, its launch may wait for a function that uses the heap.
    let store = kernel(
        &scene.device,
        "@group(0) @binding(0) var<storage, read_write> live: array<atomic<u32>>;
        @compute @workgroup_size(1) fn main() { atomicStore(&live[0], 6u); }",
    );
    scene.add(4096);
    scene.is_at(OnDevice);
    let before = scene.heap.mirror_statistics().downloaded;
    let event = store.launch().buffer("live", &live).workgroups(1).submit();
    assert!(scene.heap.mirror_statistics().downloaded > before);
    event.unwrap().wait_timeout(MINUTE).unwrap();
    assert_eq!(live.load(0), Some(6));
}

fn devices_of_every_kind_take_turns(f: &Fixture) {
    let context = context();
    let Some(first) = choosing(&context, f) else {
        return;
    };
    let second = choosing(&context, f).unwrap();
    let others = [InPlace, OnDevice].map(|place| placed_with(&context, f, place, |_| {}).unwrap());
    let heap = context.heap().unwrap();
    heap.advise(&first, HeapAdvice::PreferDevice);
    let words = heap.alloc_slice(&[0u32; 5000]).unwrap();
    let [in_place, mirrored] = &others;
    let devices = [&first, in_place, &second, &first, mirrored, &second, &first];
    let kernels = devices.map(|device| (kernel(device, SCATTER), kernel(device, INCREMENT)));
    let kernels = devices.into_iter().zip(kernels);
    let mut expected = 0;
    for round in 0..6 {
        for (device, (by_pointer, by_argument)) in kernels.clone() {
            scatter(&by_pointer, words, [0, 1, 5000, 3]);
            increment(&by_argument, words, 5000).unwrap();
            expected += 4;
            // Devices in place work beside each other.
            if heap.residence(device) == InPlace {
                device.finish().unwrap();
            }
        }
        if round == 2 {
            heap.advise(&second, HeapAdvice::PreferDevice);
        }
        if round % 2 == 0 {
            assert_eq!(heap.read(words, 5000).unwrap(), [expected; 5000]);
        }
    }
    assert_eq!(heap.read(words, 5000).unwrap(), [expected; 5000]);
}

/// The arguments of a launch name buffers of one place: the same launch runs in the other, also where the first is gone.
fn a_launch_follows_its_arguments_from_place_to_place(f: &Fixture) {
    let context = context();
    let Some(device) = choosing(&context, f) else {
        return;
    };
    let heap = context.heap().unwrap();
    let words = heap.alloc_slice(&[0u32; 3000]).unwrap();
    let by_argument = kernel(&device, INCREMENT);
    let mut launch = by_argument.launch().pointer("data", words, 3000);
    launch = launch.invocations(3000u32);
    let mut submit = || {
        let event: Event = launch.submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
    };
    let (there, here) = (HeapAdvice::PreferDevice, HeapAdvice::PreferHost);
    let mut expected = 0;
    for advice in [here, there, here, there, there, here, here, there] {
        heap.advise(&device, advice);
        submit();
        expected += 1;
        let is_there = heap.residence(&device) == OnDevice;
        assert_eq!(is_there, advice == there);
        if expected % 3 == 0 {
            assert_eq!(heap.read(words, 3000).unwrap(), [expected; 3000]);
        }
        if expected % 2 == 0 {
            // Grows, so that everything is bound anew; then gives that back.
            let more = heap.alloc_zeroed::<u32>(5 << 20).unwrap();
            submit();
            heap.free(more).unwrap();
            heap.trim();
            expected += 1;
        }
    }
    assert_eq!(heap.read(words, 3000).unwrap(), [expected; 3000]);
}

/// Launches of two threads, claims and accesses of a third, and a fourth that changes its mind: nobody waits for ever, and nothing is
/// lost.
fn threads_share_a_device_that_chooses(f: &Fixture) {
    const ROUNDS: u32 = 40;
    let context = context();
    let Some(device) = choosing(&context, f) else {
        return;
    };
    let heap = context.heap().unwrap();
    let by_pointer = kernel(&device, SCATTER);
    // On pages that all of them change.
    let all = heap.alloc_zeroed::<u32>(3 * 3000).unwrap();
    let claimed = heap.alloc_zeroed::<u32>(64).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let launchers = [0, 1].map(|which| {
            let (by_pointer, device) = (&by_pointer, &device);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    scatter(by_pointer, all, [which, 3, 3000, 1]);
                    if round % (2 + which) == 0 {
                        device.finish().unwrap();
                    }
                }
            })
        });
        let host = scope.spawn(|| {
            for round in 0..ROUNDS {
                let view = heap.atomic_u32_slice(claimed, 64).unwrap();
                view[9].fetch_add(1, Ordering::AcqRel);
                drop(view);
                let mut host = heap.host().unwrap();
                let words = host.slice_mut(all, 3 * 3000).unwrap();
                words.iter_mut().skip(2).step_by(3).for_each(|x| *x += 1);
                assert!(words.iter().skip(2).step_by(3).all(|x| *x == round + 1));
            }
        });
        let advisor = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                for advice in [HeapAdvice::PreferDevice, HeapAdvice::PreferHost] {
                    heap.advise(&device, advice);
                    heap.residence(&device);
                    thread::yield_now();
                }
            }
        });
        let done = launchers.into_iter().chain([host]);
        let failed = done
            .map(|thread| thread.join().is_err())
            .filter(|failed| *failed);
        let failures = failed.count();
        is_over.store(true, Ordering::Release);
        advisor.join().unwrap();
        assert_eq!(failures, 0);
    });
    let seen = heap.read(all, 3 * 3000).unwrap();
    assert!(seen == [ROUNDS; 3 * 3000], "{:?}", &seen[..6]);
    assert_eq!(heap.read(claimed, 64).unwrap()[9], ROUNDS);
}

fn random_histories_of_devices_that_choose(f: &Fixture) {
    for seed in [11, 12, 13] {
        let context = context();
        let small = |placement, is_card: bool| {
            let device = placed_with(&context, f, placement, |options| {
                options.storage_binding_bytes = Some(1 << 20);
                if is_card {
                    options.unified_memory = Some(false);
                }
            });
            let device = device.unwrap();
            let [by_pointer, by_argument] = [SCATTER, INCREMENT].map(|s| kernel(&device, s));
            (device, by_pointer, by_argument)
        };
        let mut kernels = vec![small(HeapPlacement::Auto, true)];
        if seed > 11 {
            kernels.push(small(HeapPlacement::Auto, true));
        }
        if seed > 12 {
            kernels.push(small(HeapPlacement::Device, true));
            kernels.push(small(HeapPlacement::Auto, false));
        }
        let heap = context.heap().unwrap();
        let mut model = Model::new(&heap, seed);
        // Devices in place work beside each other.
        model.finishes = kernels.len() > 1;
        for step in 0..120 {
            let (device, ..) = &kernels[model.below(kernels.len())];
            match model.below(8) {
                0 => heap.advise(device, HeapAdvice::PreferDevice),
                1 => heap.advise(device, HeapAdvice::PreferHost),
                2 => heap.advise(device, HeapAdvice::None),
                3 => device.finish().unwrap(),
                4 => model.prefetch(device),
                _ => {}
            }
            // Claims stay for some launches.
            let has_mirror = seed > 12;
            let claim =
                (step % 10 == 3 && !has_mirror).then(|| HeapBox::new_in(step, allocator(&heap)));
            model.step(&kernels);
            if let Some(claim) = claim {
                model.step(&kernels);
                assert_eq!(*claim, step);
            }
        }
        model.check(seed);
        let statistics = heap.mirror_statistics();
        let has_choice = kernels[0].0.has(Aspect::HostImport);
        assert!(
            !has_choice || (statistics.moved_in > 1 && statistics.moved_out > 0),
            "{statistics:?}"
        );
    }
}
