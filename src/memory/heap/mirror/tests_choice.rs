//! Devices with a choice of places for the heap: unavailable copies, and measured kernels.

use super::policy::Place;
use crate::device::hooks::{self, Point};
use crate::device::{Aspect, HeapPlacement};
use crate::heap::{HeapAdvice, HeapSize};
use crate::{Constants, Context, Device, DeviceOptions, Kernel, Program, Ptr, SharedHeap};

const ADD: &str = "
alias Words = array<u32>;
@group(0) @binding(0) var<uniform> words: usm_ptr;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let place = usm_Words(words);
    place[id.x] += 7u;
}";

const LEN: usize = 4096;

struct Scene {
    device: Device,
    heap: SharedHeap,
    words: Ptr<u32>,
    kernel: Kernel,
}

impl Scene {
    /// A device on each adapter with imports of the host's memory, treated as a card.
    fn all() -> Vec<Self> {
        let open = || Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(64 << 20)).unwrap();
        let adapters = open().adapters().len();
        let scenes = (0..adapters).map(|index| {
            let context = open();
            let options = DeviceOptions {
                unified_memory: Some(false),
                ..DeviceOptions::default()
            };
            let device = context.device_at_with(index, options).unwrap();
            let heap = context.heap().unwrap();
            let program = Program::new("add.wgsl", ADD).unwrap();
            Self {
                words: heap.alloc_slice(&[1u32; LEN]).unwrap(),
                kernel: device.kernel(&program, "main", &Constants::new()).unwrap(),
                device,
                heap,
            }
        });
        let imports = |scene: &Scene| scene.device.has(Aspect::HostImport);
        let scenes: Vec<Self> = scenes.filter(imports).collect();
        assert!(!scenes.is_empty());
        scenes
    }

    fn add(&self) {
        let launch = self.kernel.launch().value("words", &self.words);
        launch.invocations(LEN).submit().unwrap();
    }

    fn is_on_copy(&self) -> bool {
        self.heap.residence(&self.device) == HeapPlacement::Device
    }

    fn assert_words(&self, value: u32) {
        let seen = self.heap.read(self.words, LEN).unwrap();
        assert!(seen == [value; LEN], "{:?} for {value}", &seen[..4]);
    }
}

/// A copy is a means: bytes refused to a copy are used in place, with everything from the copy.
#[test]
fn a_copy_that_cannot_be_had_is_no_error() {
    let _alone = hooks::alone();
    for scene in Scene::all() {
        let refuse = || hooks::refuse(Point::HeapSent(scene.device.shared.id));
        scene.heap.advise(&scene.device, HeapAdvice::PreferDevice);
        refuse();
        scene.add();
        assert!(!scene.is_on_copy());
        scene.device.finish().unwrap();
        // Not tried again at this size.
        scene.add();
        assert!(!scene.is_on_copy());
        scene.assert_words(15);
        scene.heap.advise(&scene.device, HeapAdvice::PreferDevice);
        scene.add();
        assert!(scene.is_on_copy());
        assert_eq!(scene.heap.mirror_statistics().mirrors, 1);
        // With changes of the copy's own under way.
        let more = scene.heap.alloc_slice(&[3u32; 64]).unwrap();
        refuse();
        scene.add();
        assert!(!scene.is_on_copy());
        let statistics = scene.heap.mirror_statistics();
        assert_eq!((statistics.mirrors, statistics.held), (0, 0));
        scene.add();
        scene.assert_words(36);
        assert_eq!(scene.heap.read(more, 64).unwrap(), [3; 64]);
        let _ = scene.device.heap_prefetch(scene.words, LEN).unwrap();
        scene.add();
        assert!(scene.is_on_copy());
        scene.assert_words(43);
    }
}

#[test]
fn kernels_are_measured_in_either_place() {
    let _alone = hooks::alone();
    for scene in Scene::all() {
        let kernel = scene.kernel.shared.compiled.id;
        let is_known = |place| {
            let shared = &scene.heap.shared;
            shared.with_policy(&scene.device.shared, |policy| {
                // Asked twice, since one launch in a number of launches is measured anyway.
                !(policy.is_due(kernel, place) && policy.is_due(kernel, place))
            })
        };
        if !scene.device.has(Aspect::TimestampQueries) {
            assert!(!is_known(Place::Host));
            continue;
        }
        let mut expected = 1;
        for (advice, place) in [
            (HeapAdvice::PreferHost, Place::Host),
            (HeapAdvice::PreferDevice, Place::Copy),
        ] {
            scene.heap.advise(&scene.device, advice);
            assert!(!is_known(place));
            // The second launch looks at the first one's time.
            for _ in 0..3 {
                scene.add();
                scene.device.finish().unwrap();
                expected += 7;
            }
            assert!(is_known(place), "{place:?} on {}", scene.device.name());
        }
        scene.assert_words(expected);
    }
}
