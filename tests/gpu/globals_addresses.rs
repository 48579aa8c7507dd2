//! The memory of device globals: addresses, kernels that follow pointers, arguments beside them.

use crate::cases;
use crate::globals::{each, kernel, run};
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Context, DeviceGlobal, DeviceOptions, Ptr, globals::GlobalError, heap::HeapError,
    launch::LaunchError,
};

cases![
    addresses_are_stored_and_followed_by_other_kernels,
    kernels_that_follow_pointers_reach_globals_through_the_heap,
    pointer_arguments_beside_variables,
    a_kept_launch_follows_its_variables_to_what_the_device_imports_anew,
    the_memory_goes_with_the_device,
    the_host_keeps_launches_out_while_it_looks_at_the_heap,
];

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Mail {
    to: Ptr<u32>,
    count: u32,
    _pad: u32,
}

fn addresses_are_stored_and_followed_by_other_kernels(f: &Fixture) {
    static BOX: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("mailbox");
    static MAIL: DeviceGlobal<Mail> = DeviceGlobal::new("mail");
    // The address that the host took, in a structure of the shared heap; one that a kernel took, in a global.
    const FOLLOW: &str = "
        struct Mail { to: usm_ptr, count: u32 }
        alias Words = array<u32, 4>;
        @group(0) @binding(0) var<uniform> mail_at: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let mail = usm_Mail(mail_at);
            let words = usm_Words(mail.to);
            for (var i = 0u; i < mail.count; i++) { words[i] += 10u + i; }
        }";
    const POST: &str = "
        struct Mail { to: usm_ptr, count: u32 }
        var<storage, read_write> mailbox: array<u32, 4>;
        var<storage, read_write> mail: Mail;
        @compute @workgroup_size(1) fn main() {
            mail.to = usm_address(&mailbox[1]);
            mail.count = mailbox[0];
            mailbox[0] = 77u;
        }
        @compute @workgroup_size(1) fn fetch() {
            if usm_is_null(mail.to) { mailbox[3] = 5u; return; }
            let to = usm_u32(mail.to);
            let other = usm_u32(usm_add(mail.to, 4u));
            *to = *other + mail.count;
        }";
    each(f, |device| {
        let address = BOX.on(device).address().unwrap();
        assert_eq!(BOX.on(device).address().unwrap(), address);
        let mut model = [0u32; 4];
        if let Ok(heap) = device.heap() {
            let mail = Mail {
                to: address.cast(),
                count: 3,
                _pad: 0,
            };
            let at = heap.alloc(mail).unwrap();
            for _ in 0..2 {
                let follow = kernel(device, FOLLOW, "main");
                follow
                    .launch()
                    .value("mail_at", &at)
                    .invocations(1)
                    .submit()
                    .unwrap()
                    .wait()
                    .unwrap();
                (0..3).for_each(|i| model[i] += 10 + i as u32);
                assert_eq!(BOX.on(device).read().unwrap(), model);
            }
        }
        run(device, POST, "fetch", 1);
        model[3] = 5;
        assert_eq!(BOX.on(device).read().unwrap(), model);
        run(device, POST, "main", 1);
        let mail = MAIL.on(device).read().unwrap();
        assert_eq!(
            (mail.to, mail.count),
            (address.cast::<u32>().add(1), model[0])
        );
        model[0] = 77;
        run(device, POST, "fetch", 1);
        model[1] = model[2] + mail.count;
        assert_eq!(BOX.on(device).read().unwrap(), model);
        // As an argument of a kernel that knows nothing of globals.
        const ADD: &str = "
            @group(0) @binding(0) var<storage, read_write> words: array<u32>;
            @compute @workgroup_size(4)
            fn main(@builtin(local_invocation_index) i: u32) { words[i] += 1u; }";
        let add = kernel(device, ADD, "main");
        add.launch()
            .pointer("words", address.cast::<u32>(), 4)
            .invocations(4)
            .submit()
            .unwrap();
        assert_eq!(BOX.on(device).read().unwrap(), model.map(|word| word + 1));
    });
}

fn kernels_that_follow_pointers_reach_globals_through_the_heap(f: &Fixture) {
    static TALLY: DeviceGlobal<[i32; 3]> = DeviceGlobal::new("tally");
    static SCALE: DeviceGlobal<[f32; 4]> =
        DeviceGlobal::new("scale").initial(&[2.0, 3.0, 4.0, 5.0]);
    const WALK: &str = "
        struct Node { value: f32, next: usm_ptr }
        @group(0) @binding(0) var<uniform> first: usm_ptr;
        var<storage, read_write> tally: array<atomic<i32>, 3>;
        var<storage, read> scale: vec4<f32>;
        fn visit(node: ptr<storage, Node, read_write>, i: u32) {
            node.value *= scale[i];
            atomicAdd(&tally[0], 1);
            atomicMax(&tally[1], i32(node.value));
        }
        @compute @workgroup_size(1) fn main() {
            var p = first;
            for (var i = 0u; i < 4u; i++) {
                if usm_is_null(p) { break; }
                visit(usm_Node(p), i);
                p = usm_Node(p).next;
            }
            atomicStore(&tally[2], -1);
        }";
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    struct Node {
        value: f32,
        _pad: u32,
        next: Ptr<Node>,
    }
    each(f, |device| {
        SCALE.declare(device).unwrap();
        let heap = device.heap().unwrap();
        let last = heap
            .alloc(Node {
                value: 30.0,
                _pad: 0,
                next: Ptr::null(),
            })
            .unwrap();
        let first = heap
            .alloc(Node {
                value: 1.5,
                _pad: 0,
                next: last,
            })
            .unwrap();
        let walk = kernel(device, WALK, "main");
        let names: Vec<&str> = walk
            .interface()
            .globals
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, ["tally", "scale"]);
        walk.launch()
            .value("first", &first)
            .invocations(1)
            .submit()
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(TALLY.on(device).read().unwrap(), [2, 90, -1]);
        let host = heap.host().unwrap();
        assert_eq!(
            (
                host.get(first).unwrap().value,
                host.get(last).unwrap().value
            ),
            (3.0, 90.0)
        );
    });
}

fn pointer_arguments_beside_variables(f: &Fixture) {
    static OUT: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("out_values");
    static KEY: DeviceGlobal<u32> = DeviceGlobal::new("key").initial(&3);
    let write = "
        var<storage, read_write> out_values: array<u32, 4>;
        @group(0) @binding(0) var<storage, read> words: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) { out_values[i] = words[i] * 2u; }";
    let read = "
        var<storage, read> key: u32;
        @group(0) @binding(0) var<storage, read_write> words: array<u32>;
        @group(0) @binding(1) var<storage, read> more: array<u32>;
        @compute @workgroup_size(4)
        fn main(@builtin(local_invocation_index) i: u32) { words[i] += key * more[i]; }";
    each(f, |device| {
        KEY.declare(device).unwrap();
        let heap = device.heap().unwrap();
        let words = heap.alloc_slice(&[5u32, 6, 7, 8]).unwrap();
        let more = heap.alloc_slice(&[1u32, 10, 100, 1000]).unwrap();
        let launch = kernel(device, write, "main")
            .launch()
            .pointer("words", words, 4)
            .invocations(4)
            .submit();
        launch.unwrap();
        assert_eq!(OUT.on(device).read().unwrap(), [10, 12, 14, 16]);
        let mut launch = kernel(device, read, "main")
            .launch()
            .pointer("words", words, 4)
            .pointer("more", more, 4)
            .invocations(4);
        launch.submit().unwrap().wait().unwrap();
        // Growth of the heap moves both to a new buffer, under the launch's feet.
        let large = heap.alloc_zeroed::<u32>(8 << 20).unwrap();
        launch.submit().unwrap().wait().unwrap();
        let host = heap.host().unwrap();
        assert_eq!(
            host.slice(words, 4).unwrap(),
            [5 + 6, 6 + 60, 7 + 600, 8 + 6000]
        );
        drop(host);
        heap.free(large).unwrap();
        assert_eq!(KEY.on(device).read().unwrap(), 3);
        // The variable itself, as an argument beside its name.
        let own = OUT.on(device).address().unwrap().cast::<u32>();
        let error = kernel(device, write, "main")
            .launch()
            .pointer("words", own, 4)
            .invocations(4)
            .submit();
        assert!(matches!(error.unwrap_err(), LaunchError::Aliased { .. }));
    });
}

fn a_kept_launch_follows_its_variables_to_what_the_device_imports_anew(f: &Fixture) {
    static HITS: DeviceGlobal<u32> = DeviceGlobal::new("hits");
    let count = "
        var<storage, read_write> hits: u32;
        @compute @workgroup_size(1) fn main() { hits += 1u; }";
    let touch = "
        @group(0) @binding(0) var<storage, read_write> words: array<u32>;
        @compute @workgroup_size(1) fn main() { words[0] += 1u; }";
    let device = f.open_alone(|_| {});
    let heap = device.heap().unwrap();
    let mut kept = kernel(&device, count, "main").launch().invocations(1);
    kept.submit().unwrap();
    let asked = || {
        let counts = device.cache_statistics().bind_groups;
        counts.hits + counts.misses
    };
    let before = asked();
    kept.submit().unwrap();
    assert_eq!(asked(), before, "what is bound already is not bound again");
    // More than is backed by memory: the device imports the heap again, as another buffer.
    let begun = heap.committed();
    let large = (0..64)
        .map(|_| heap.alloc_zeroed::<u32>(8 << 20).unwrap())
        .find(|_| heap.committed() > begun)
        .unwrap();
    let touch = kernel(&device, touch, "main")
        .launch()
        .pointer("words", large, 1)
        .invocations(1)
        .submit();
    touch.unwrap();
    let before = asked();
    kept.submit().unwrap();
    // Memory of the device's own stays where it is.
    let again = u64::from(device.capabilities().unified_memory);
    assert_eq!(
        asked(),
        before + again,
        "the variable is bound in the new buffer"
    );
    assert_eq!(HITS.on(&device).read().unwrap(), 3);
}

fn the_memory_goes_with_the_device(f: &Fixture) {
    static BIG: DeviceGlobal<[u32; 1000]> = DeviceGlobal::new("big");
    for unified in [None, Some(false)] {
        let context = Context::new().unwrap();
        let mut options = DeviceOptions::default();
        options.unified_memory = unified;
        let device = context
            .device_named_with(f.device.name(), options.clone())
            .unwrap();
        let heap = context.heap().unwrap();
        BIG.on(&device).set(999, &7).unwrap();
        let in_heap = device.has(tombolo::device::Aspect::UnifiedMemory);
        assert_eq!(heap.allocations().len(), usize::from(in_heap));
        // Its address is not that of an allocation that anybody may free.
        assert!(device.free(BIG.on(&device).address().unwrap()).is_err());
        assert!(device.global_bytes() >= 4000);
        drop(device);
        assert!(heap.allocations().is_empty());
        // Another device of the context knows the name, and begins anew.
        let device = context.device_named_with(f.device.name(), options).unwrap();
        assert_eq!(device.globals().len(), 1);
        assert_eq!(BIG.on(&device).get(999).unwrap(), 0);
    }
}

fn the_host_keeps_launches_out_while_it_looks_at_the_heap(f: &Fixture) {
    static HITS: DeviceGlobal<u32> = DeviceGlobal::new("hits");
    let source = "
        var<storage, read_write> hits: u32;
        @compute @workgroup_size(1) fn main() { hits += 1u; }";
    for unified in [None, Some(false)] {
        let device = f.open_alone(|options| options.unified_memory = unified);
        let kernel = kernel(&device, source, "main");
        kernel.launch().invocations(1).submit().unwrap();
        let heap = device.heap().unwrap();
        let host = heap.host().unwrap();
        let refused = |error: &HeapError| matches!(error, HeapError::HostAccess { .. });
        let launched = kernel.launch().invocations(1).submit();
        if device.has(tombolo::device::Aspect::UnifiedMemory) {
            assert!(matches!(launched, Err(LaunchError::Heap(error)) if refused(&error)));
            let error = HITS.on(&device).write(&9).unwrap_err();
            assert!(
                matches!(&error, GlobalError::Heap { source, .. } if refused(source)),
                "{error}"
            );
            drop(host);
            assert_eq!(HITS.on(&device).read().unwrap(), 1);
        } else {
            launched.unwrap();
            assert_eq!(HITS.on(&device).read().unwrap(), 2);
        }
    }
}
