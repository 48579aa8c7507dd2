//! More storage buffers than the adapter binds: plain kernels, kernels with some of their arguments in the heap,
//! and kernels that follow pointers. Every case runs on devices that use the host's memory in place
//! and on devices that keep a copy, with device memory that is the heap's and with memory apart.

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use std::fmt::Write;
use tombolo::{
    Constants, Context, Device, DeviceBuffer, Event, Kernel, Program, Ptr, SharedHeap,
    device::WaitError, heap::HeapSize, kernel::KernelOptions, launch::LaunchError,
};

cases![
    forty_storage_buffers,
    forty_storage_buffers_while_the_heap_is_taken,
    forty_storage_buffers_some_of_them_in_the_heap,
    forty_storage_buffers_beside_pointers,
    indices_stay_within_their_argument,
    a_failed_launch_taints_what_travels,
];

/// How a device differs from the default one.
#[derive(Clone, Copy, PartialEq)]
pub enum Vary {
    Unified,
    Checked,
}

/// Runs a test on devices that use the host's memory in place and on devices that do not, and, of either, on
/// all that `vary` makes of them; each time with a heap of its own.
pub fn each(f: &Fixture, vary: &[Vary], test: impl Fn(&Device, &SharedHeap)) {
    let kinds = |vary_it: bool| if vary_it { 2 } else { 1 };
    for in_place in [true, false] {
        for unified in &[None, Some(false)][..kinds(vary.contains(&Vary::Unified))] {
            for checked in &[false, true][..kinds(vary.contains(&Vary::Checked))] {
                let heap = HeapSize::Bytes(512 << 20);
                let context = Context::with_heap(wgpu::Backends::all(), heap).unwrap();
                let mut options = tombolo::DeviceOptions::default();
                options.import_host_memory = in_place;
                options.live_memory = in_place;
                options.unified_memory = *unified;
                options.checked_pointers = *checked;
                let device = context.device_named_with(f.device.name(), options);
                test(&device.unwrap(), &context.heap().unwrap());
            }
        }
    }
}

pub fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("arguments.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

pub fn done(event: Result<Event, LaunchError>) {
    let event = event.unwrap_or_else(|e| panic!("{e}"));
    event.wait().unwrap_or_else(|e| panic!("{e}"));
}

const COUNT: usize = 40;

/// Elements of argument `i`.
fn len(i: usize) -> usize {
    70 + 3 * i
}

/// The first values of argument `i`.
fn values(i: usize) -> Vec<u32> {
    (0..len(i)).map(|x| (1000 * i + x) as u32).collect()
}

/// A kernel with forty storage buffers: every third is only read, the others are changed by the next one's
/// length and by a value.
fn forty(prelude: &str, extra: &str) -> String {
    let mut source = prelude.to_owned();
    let mut body = String::new();
    for i in 0..COUNT {
        let access = if i % 3 == 2 { "read" } else { "read_write" };
        let (group, binding) = (i % 2, i / 2);
        let _ = writeln!(
            source,
            "@group({group}) @binding({binding}) var<storage, {access}> a{i}: array<u32>;"
        );
        let next = (i + 1) % COUNT;
        let _ = match access {
            "read" => writeln!(body, "sum += a{i}[x % 64u];"),
            _ => writeln!(
                body,
                "if x < arrayLength(&a{i}) {{ a{i}[x] += arrayLength(&a{next}) + value; }}"
            ),
        };
    }
    format!(
        "{source}
        @group(2) @binding(0) var<uniform> value: u32;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let x = id.x;
            var sum = 0u;
            {body}
            if x < 64u {{ a0[x] += sum; }}
            {extra}
        }}"
    )
}

/// What one launch makes of the arguments.
fn forty_expected(all: &mut [Vec<u32>], value: u32) {
    let lengths: Vec<u32> = all.iter().map(|values| values.len() as u32).collect();
    let mut sums = [0; 64];
    for (i, values) in all.iter_mut().enumerate() {
        if i % 3 == 2 {
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += *value);
        } else {
            let more = lengths[(i + 1) % COUNT] + value;
            values.iter_mut().for_each(|value| *value += more);
        }
    }
    all[0]
        .iter_mut()
        .zip(sums)
        .for_each(|(value, sum)| *value += sum);
}

fn forty_storage_buffers(f: &Fixture) {
    each(f, &[], |device, _| {
        let kernel = kernel(device, &forty("", ""));
        let mut expected: Vec<Vec<u32>> = (0..COUNT).map(values).collect();
        let buffers: Vec<DeviceBuffer<u32>> = (expected.iter())
            .map(|values| device.buffer(values).unwrap())
            .collect();
        let mut launch = kernel.launch().value("value", &5u32).invocations(256u32);
        for (i, buffer) in buffers.iter().enumerate() {
            launch = launch.buffer(&format!("a{i}"), buffer);
        }
        // Twice in one batch: the second goes on from what the first has made.
        launch.submit().unwrap();
        launch.set_value("value", &900u32).unwrap();
        launch.submit().unwrap();
        forty_expected(&mut expected, 5);
        forty_expected(&mut expected, 900);
        // A slice of another buffer, of another size and in the middle, for one without a binding.
        let other: Vec<u32> = (0..512).collect();
        let large = device.buffer(&other).unwrap();
        launch.set_buffer("a39", large.slice(64..264)).unwrap();
        done(launch.submit());
        let kept = std::mem::replace(&mut expected[39], other[64..264].to_vec());
        forty_expected(&mut expected, 900);
        let mut sliced = other;
        sliced[64..264].copy_from_slice(&expected[39]);
        expected[39] = kept;
        for (i, (buffer, expected)) in buffers.iter().zip(&expected).enumerate() {
            assert_eq!(&buffer.read().unwrap(), expected, "a{i}");
        }
        assert_eq!(large.read().unwrap(), sliced);
    });
}

/// A plain kernel has nothing to do with the heap, whatever happens there.
fn forty_storage_buffers_while_the_heap_is_taken(f: &Fixture) {
    each(f, &[], |device, heap| {
        let word = heap.alloc(7u32).unwrap();
        let view = heap.atomic_u32(word).unwrap();
        let kernel = kernel(device, &forty("", ""));
        let mut expected: Vec<Vec<u32>> = (0..COUNT).map(values).collect();
        let buffers: Vec<DeviceBuffer<u32>> = (expected.iter())
            .map(|values| device.buffer(values).unwrap())
            .collect();
        let mut launch = kernel.launch().value("value", &1u32).invocations(256u32);
        for (i, buffer) in buffers.iter().enumerate() {
            launch = launch.buffer(&format!("a{i}"), buffer);
        }
        let access = heap.host().unwrap();
        done(launch.submit());
        drop(access);
        forty_expected(&mut expected, 1);
        for (buffer, expected) in buffers.iter().zip(&expected) {
            assert_eq!(&buffer.read().unwrap(), expected);
        }
        assert_eq!(heap.allocations().len(), 1);
        drop(view);
    });
}

fn forty_storage_buffers_some_of_them_in_the_heap(f: &Fixture) {
    each(f, &[Vary::Unified], |device, heap| {
        let kernel = kernel(device, &forty("", ""));
        let mut expected: Vec<Vec<u32>> = (0..COUNT).map(values).collect();
        // One allocation for all that lie there, each behind a gap that no adapter can bind behind.
        let mut room: Vec<u32> = Vec::new();
        let mut starts = vec![None; COUNT];
        for i in [0, 1, 2, 20, 21, 38, 39] {
            room.resize(room.len() + 1 + i % 3, 0xdead);
            starts[i] = Some(room.len());
            room.extend(&expected[i]);
        }
        room.push(0xdead);
        let base = heap.alloc_slice(&room).unwrap();
        let buffers: Vec<DeviceBuffer<u32>> = (expected.iter())
            .map(|values| device.buffer(values).unwrap())
            .collect();
        let mut launch = kernel.launch().value("value", &3u32).invocations(256u32);
        for (i, start) in starts.iter().enumerate() {
            let name = format!("a{i}");
            launch = match start {
                Some(start) => launch.pointer(&name, base.add(*start as u64), len(i)),
                None => launch.buffer(&name, &buffers[i]),
            };
        }
        for _ in 0..2 {
            launch.submit().unwrap();
            forty_expected(&mut expected, 3);
        }
        for (i, start) in starts.iter().enumerate() {
            match start {
                Some(start) => room[*start..start + len(i)].copy_from_slice(&expected[i]),
                None => assert_eq!(buffers[i].read().unwrap(), expected[i], "a{i}"),
            }
        }
        assert_eq!(heap.read(base, room.len()).unwrap(), room);
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    pub value: u32,
    pub tag: u32,
    pub next: Ptr<Node>,
}

pub const NODE: &str = "struct Node { value: u32, tag: u32, next: usm_ptr }\n";

pub fn list(heap: &SharedHeap, len: u32) -> Ptr<Node> {
    let mut first = Ptr::null();
    for tag in (0..len).rev() {
        let value = 10 * tag;
        let next = first;
        first = heap.alloc(Node { value, tag, next }).unwrap();
    }
    first
}

fn forty_storage_buffers_beside_pointers(f: &Fixture) {
    let prelude = format!("{NODE}@group(2) @binding(1) var<uniform> first: usm_ptr;\n");
    let extra = "if x == 0u {
        var p = first;
        while !usm_is_null(p) { let n = usm_Node(p); n.tag += 1u; p = n.next; }
    }";
    let source = forty(&prelude, extra);
    each(f, &[Vary::Checked], |device, heap| {
        let first = list(heap, 20);
        let kernel = kernel(device, &source);
        let mut expected: Vec<Vec<u32>> = (0..COUNT).map(values).collect();
        let in_heap = heap.alloc_slice(&expected[4]).unwrap();
        let buffers: Vec<DeviceBuffer<u32>> = (expected.iter())
            .map(|values| device.buffer(values).unwrap())
            .collect();
        let mut launch = kernel
            .launch()
            .value("value", &8u32)
            .value("first", &first)
            .pointer("a4", in_heap, len(4))
            .invocations(256u32);
        for (i, buffer) in buffers.iter().enumerate().filter(|(i, _)| *i != 4) {
            launch = launch.buffer(&format!("a{i}"), buffer);
        }
        for _ in 0..2 {
            launch.submit().unwrap();
            forty_expected(&mut expected, 8);
        }
        for (i, buffer) in buffers.iter().enumerate().filter(|(i, _)| *i != 4) {
            assert_eq!(buffer.read().unwrap(), expected[i], "a{i}");
        }
        assert_eq!(heap.read(in_heap, len(4)).unwrap(), expected[4]);
        let host = heap.host().unwrap();
        let (mut at, mut tag) = (first, 2);
        while let Ok(node) = host.get(at) {
            assert_eq!(node.tag, tag);
            (at, tag) = (node.next, tag + 1);
        }
        assert_eq!(tag, 22);
    });
}

/// Indices from far below to far beyond an argument reach no other one.
fn indices_stay_within_their_argument(f: &Fixture) {
    let mut source = String::new();
    for i in 0..COUNT {
        let _ = writeln!(
            source,
            "@group(0) @binding({i}) var<storage, read_write> a{i}: array<u32>;"
        );
    }
    let touch: String = (0..COUNT)
        .map(|i| format!("if at.y == {i}u {{ a{i}[at.x + id.x] = 7u; }}\n"))
        .collect();
    source += &format!(
        "@group(1) @binding(0) var<uniform> at: vec2<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {touch} }}"
    );
    each(f, &[], |device, _| {
        let kernel = kernel(device, &source);
        let buffers: Vec<DeviceBuffer<u32>> = (0..COUNT)
            .map(|i| device.buffer(&[i as u32; 16]).unwrap())
            .collect();
        let mut launch = kernel.launch().value("at", &[0u32; 2]).workgroups(1u32);
        for (i, buffer) in buffers.iter().enumerate() {
            launch = launch.buffer(&format!("a{i}"), buffer);
        }
        for target in [0, 20, 39] {
            for at in [16, 17, 1000, 0x3fff_fffc, 0x4000_0000, u32::MAX - 16] {
                launch.set_value("at", &[at, target]).unwrap();
                launch.submit().unwrap();
            }
        }
        for (i, buffer) in buffers.iter().enumerate() {
            let seen = buffer.read().unwrap();
            // What was meant may have been hit: at its end, where it has no binding, and where the driver likes,
            // where it has one.
            let rest = match i {
                0 | 20 => 0,
                39 if device.raw().limits().max_storage_buffers_per_shader_stage
                    >= COUNT as u32 =>
                {
                    0
                }
                39 => 15,
                _ => 16,
            };
            assert_eq!(seen[..rest], vec![i as u32; 16][..rest], "a{i}");
        }
    });
}

/// Arguments that travel carry the outcome of their launch like any others.
fn a_failed_launch_taints_what_travels(f: &Fixture) {
    let mut source = NODE.to_owned();
    let mut body = String::new();
    for i in 0..COUNT {
        let _ = writeln!(
            source,
            "@group(0) @binding({i}) var<storage, read_write> a{i}: array<u32>;"
        );
        let _ = writeln!(body, "a{i}[0] = value;");
    }
    source += &format!(
        "@group(1) @binding(0) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() {{ let value = usm_Node(at).value; {body} }}"
    );
    each(f, &[Vary::Unified], |device, heap| {
        let program = Program::new("taint.wgsl", source.as_str()).unwrap();
        let mut options = KernelOptions::default();
        options.checked_pointers = Some(true);
        options.checked_allocations = Some(true);
        let kernel = device
            .kernel_with(&program, "main", &Constants::new(), options)
            .unwrap();
        let buffers: Vec<DeviceBuffer<u32>> = (0..COUNT)
            .map(|_| device.buffer(&[1, 2]).unwrap())
            .collect();
        let good = list(heap, 1);
        let launch = |at: Ptr<Node>| {
            let mut launch = kernel.launch().value("at", &at).workgroups(1u32);
            for (i, buffer) in buffers.iter().enumerate() {
                launch = launch.buffer(&format!("a{i}"), buffer);
            }
            launch.submit().unwrap()
        };
        let failed = launch(Ptr::null()).wait();
        assert!(matches!(failed, Err(WaitError::Failed(_))), "{failed:?}");
        for buffer in &buffers {
            assert!(buffer.read().is_err());
        }
        assert!(heap.host().is_err());
        for buffer in &buffers {
            buffer.clear_error();
        }
        launch(good).wait().unwrap();
        for buffer in &buffers {
            assert_eq!(buffer.read().unwrap(), [0, 2]);
        }
    });
}
