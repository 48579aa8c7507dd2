//! What pointers are checked for, and what kernels are made of that use them in one way or another.

use crate::cases;
use crate::harness::Fixture;
use crate::pointers::{NODE, Node, kernel, list, walk};
use tombolo::{
    Constants, DeviceBuffer, Program, Ptr,
    device::{ExecutionError, WaitError},
    heap::HeapError,
    kernel::{KernelError, KernelOptions, TranslationMode},
};

cases![
    bad_pointers_fail_the_launch,
    good_pointers_raise_nothing,
    faults_point_into_the_source,
    kernels_without_pointers_are_untouched,
    translation_modes,
];

const POKE: &str = "struct Node { value: f32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> at: usm_ptr;
@group(0) @binding(1) var<storage, read_write> sink: array<f32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x == 2u {
        let n = usm_Node(at);
        sink[0] = n.value;
        n.tag = 77u;
    }
}";

fn bad_pointers_fail_the_launch(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let device = f.open(|options| options.checked_pointers = true);
    let kernel = kernel(&device, POKE);
    let good = heap
        .alloc(Node {
            value: 5.0,
            tag: 1,
            next: Ptr::null(),
        })
        .unwrap();
    let beyond = heap.base().byte_add((4 << 30) - 64).cast();
    let bad: [(Ptr<Node>, &str); 6] = [
        (Ptr::null(), "null"),
        (Ptr::from_address(1), ""),
        (good.byte_add(4), "misaligned"),
        (beyond, "out of the heap"),
        (Ptr::from_address(u64::MAX), ""),
        (Ptr::from_address(1 << 50), "out of the heap"),
    ];
    for (pointer, words) in bad {
        let sink = device.buffer(&[-1f32]).unwrap();
        let event = kernel
            .launch()
            .value("at", &pointer)
            .buffer("sink", &sink)
            .workgroups(1)
            .submit()
            .unwrap();
        match event.wait() {
            Err(WaitError::Failed(error)) => match &*error {
                ExecutionError::Pointer {
                    reason,
                    address,
                    invocation,
                    ..
                } => {
                    assert!(reason.contains(words), "{error}");
                    assert_eq!((*address, *invocation), (pointer.address(), 2), "{error}");
                }
                other => panic!("{other}"),
            },
            other => panic!("{pointer:?}: {other:?}"),
        }
        assert!(sink.read().is_err());
        assert!(matches!(
            heap.host().map(|_| ()).unwrap_err(),
            HeapError::Execution(_)
        ));
    }
    // Nothing was written anywhere, and the device goes on.
    let host = heap.host().unwrap();
    assert_eq!(
        (host.get(good).unwrap().tag, host.get(good).unwrap().value),
        (1, 5.0)
    );
    drop(host);
    let sink = device.buffer(&[-1f32]).unwrap();
    kernel
        .launch()
        .value("at", &good)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [5.0]);
    assert_eq!(heap.host().unwrap().get(good).unwrap().tag, 77);
}

fn good_pointers_raise_nothing(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    for checked in [false, true] {
        let device = f.open(|options| options.checked_pointers = checked);
        let first = list(&heap, 64);
        let kernel = kernel(
            &device,
            &format!(
                "{NODE}
                @group(0) @binding(0) var<uniform> first: usm_ptr;
                @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
                @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {{
                    var p = first;
                    for (var k = 0u; k < 8u * i; k++) {{ p = usm_Node(p).next; }}
                    sink[i] = usm_Node(p).value;
                }}"
            ),
        );
        let sink: DeviceBuffer<f32> = device.zeroed(8).unwrap();
        kernel
            .launch()
            .value("first", &first)
            .buffer("sink", &sink)
            .workgroups(1)
            .submit()
            .unwrap()
            .wait()
            .unwrap();
        let expected: Vec<f32> = walk(&heap, first)
            .iter()
            .step_by(8)
            .map(|n| n.value)
            .collect();
        assert_eq!(sink.read().unwrap(), expected);
    }
}

fn faults_point_into_the_source(f: &Fixture) {
    let device = f.open(|options| options.checked_pointers = true);
    let kernel = kernel(&device, POKE);
    let sink: DeviceBuffer<f32> = device.zeroed(1).unwrap();
    let event = kernel
        .launch()
        .value("at", &Ptr::<Node>::null())
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    match event.wait() {
        Err(WaitError::Failed(error)) => match &*error {
            ExecutionError::Pointer {
                line,
                pointee,
                excerpt,
                ..
            } => {
                assert!((6..=8).contains(line), "{error}");
                assert_eq!(&**pointee, "Node");
                assert!(!excerpt.is_empty());
            }
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    }
    let _ = f.device.heap().unwrap().host();
    // Faults that the compiler sees are told before anything runs.
    let wrong = Program::new(
        "wrong.wgsl",
        "@group(0) @binding(0) var<uniform> at: usm_ptr;
         @compute @workgroup_size(1) fn main() {
            let n = usm_Missing(at);
         }",
    );
    let error = wrong.unwrap_err();
    let place = error.diagnostic().unwrap();
    assert_eq!(place.line, 3, "{error}");
    let lengths = Program::new(
        "length.wgsl",
        "alias Floats = array<f32>;
         @group(0) @binding(0) var<uniform> at: usm_ptr;
         @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main() {
            sink[0] = arrayLength(usm_Floats(at));
         }",
    );
    let error = lengths.unwrap_err();
    assert!(matches!(error, KernelError::Pointer(_)), "{error}");
    assert_eq!(error.diagnostic().unwrap().line, 5, "{error}");
}

fn kernels_without_pointers_are_untouched(f: &Fixture) {
    // The type alone costs nothing: a kernel that carries pointers without following them needs no heap.
    let device = f.open(|options| options.live_memory = false);
    let before = device.heap().unwrap().mirror_statistics();
    let kernel = kernel(
        &device,
        "@group(0) @binding(0) var<uniform> p: usm_ptr;
         @group(0) @binding(1) var<storage, read_write> sink: array<usm_ptr>;
         @compute @workgroup_size(1) fn main() { sink[0] = usm_add(p, 16u); }",
    );
    let sink: DeviceBuffer<Ptr<u8>> = device.zeroed(1).unwrap();
    let pointer = Ptr::<u8>::from_address(0x7_ffff_fff8);
    kernel
        .launch()
        .value("p", &pointer)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [pointer.byte_add(16)]);
    // Nor does the device get a copy of the heap on its account.
    assert_eq!(device.heap().unwrap().mirror_statistics(), before);
}

fn translation_modes(f: &Fixture) {
    let heap = f.context.heap().unwrap();
    let node = heap
        .alloc(Node {
            value: 2.5,
            tag: 0,
            next: Ptr::null(),
        })
        .unwrap();
    let program = Program::new("pointers.wgsl", POKE).unwrap();
    let with = |pointers, checked| {
        let mut options = KernelOptions::default();
        options.pointers = pointers;
        options.checked_pointers = Some(checked);
        f.device
            .kernel_with(&program, "main", &Constants::new(), options)
    };
    for mode in [
        TranslationMode::DeviceFavored,
        TranslationMode::SharedFavored,
    ] {
        for checked in [false, true] {
            let sink: DeviceBuffer<f32> = f.device.zeroed(1).unwrap();
            with(mode, checked)
                .unwrap()
                .launch()
                .value("at", &node)
                .buffer("sink", &sink)
                .workgroups(1)
                .submit()
                .unwrap();
            assert_eq!(sink.read().unwrap(), [2.5]);
        }
    }
    let error = with(TranslationMode::Disabled, false).unwrap_err();
    assert!(matches!(error, KernelError::Pointer(_)), "{error}");
    assert!(error.to_string().contains("Disabled"), "{error}");
    heap.free(node).unwrap();
}
