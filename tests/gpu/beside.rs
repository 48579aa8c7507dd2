//! Arguments in the heap of kernels that follow pointers as well, and pointers to arguments that functions take.

use crate::beside_functions::FUNCTIONS;
use crate::cases;
use crate::harness::Fixture;
use crate::table::{NODE, Node, Vary, done, each, kernel, list};
use tombolo::{
    Constants, Device, DeviceBuffer, Kernel, Program, Ptr,
    device::{ExecutionError, WaitError},
    heap::HeapError,
    kernel::{KernelError, KernelOptions},
    launch::LaunchError,
};

cases![
    arguments_beside_pointers,
    arguments_and_pointers_reach_the_same_memory,
    arguments_at_every_alignment,
    device_memory_beside_pointers,
    faults_behind_arguments_are_reported,
    overlapping_arguments_are_refused,
    arguments_move_with_the_heap,
    atomics_that_no_binding_can_be_are_refused,
];

pub fn unchecked(device: &Device, source: &str) -> Kernel {
    let program = Program::new("arguments.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    let mut options = KernelOptions::default();
    options.checked_pointers = Some(false);
    device
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap_or_else(|e| panic!("{e}"))
}

const BESIDE: &str = "
struct Node { value: u32, tag: u32, next: usm_ptr }
struct Log { count: atomic<u32>, least: atomic<u32>, lines: array<vec2<u32>> }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;
@group(0) @binding(3) var<storage, read_write> log: Log;
@group(0) @binding(4) var<uniform> factor: vec4<u32>;
@group(0) @binding(5) var<storage, read_write> plain: array<u32>;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var p = first;
    var total = 0u;
    var step = 0u;
    while !usm_is_null(p) {
        let n = usm_Node(p);
        if step % 8u == id.x {
            total += n.value * weights[step];
            n.tag += arrayLength(&weights);
            let line = atomicAdd(&log.count, 1u);
            log.lines[line] = vec2(n.value, line);
            atomicMin(&log.least, n.value + 5u);
        }
        step++;
        p = n.next;
    }
    sums[id.x] = total * factor.z;
    plain[id.x] = arrayLength(&sums) * 1000u + arrayLength(&log.lines);
}";

fn arguments_beside_pointers(f: &Fixture) {
    each(f, &[Vary::Unified, Vary::Checked], |device, heap| {
        let first = list(heap, 50);
        let kernel = kernel(device, BESIDE);
        // In one allocation, apart from each other by a canary.
        let mut room = vec![0xcafe_u32; 256];
        for (i, weight) in room[3..53].iter_mut().enumerate() {
            *weight = i as u32 + 1;
        }
        room[60..62].copy_from_slice(&[0, u32::MAX]);
        let base = heap.alloc_slice(&room).unwrap();
        let plain: DeviceBuffer<u32> = device.buffer(&[9; 8]).unwrap();
        let factors = heap.alloc_slice(&[7u32, 1, 2, 3, 4]).unwrap();
        let mut launch = kernel
            .launch()
            .value("first", &first)
            .pointer("weights", base.add(3), 50)
            .pointer("sums", base.add(200), 8)
            .pointer("log", base.add(60), 2 + 2 * 50)
            .pointer("factor", factors.add(1), 4)
            .buffer("plain", &plain)
            .workgroups(1u32);
        done(launch.submit());
        let seen = heap.read(base, room.len()).unwrap();
        let mut sums = [0u32; 8];
        for i in 0..50u32 {
            sums[i as usize % 8] += 10 * i * (i + 1) * 3;
        }
        assert_eq!(seen[200..208], sums);
        assert_eq!(seen[60..62], [50, 5]);
        let mut lines: Vec<[u32; 2]> = seen[62..162].chunks(2).map(|l| [l[0], l[1]]).collect();
        lines.sort_by_key(|line| line[1]);
        assert!(lines.iter().map(|l| l[1]).eq(0..50));
        let mut logged: Vec<u32> = lines.iter().map(|line| line[0]).collect();
        logged.sort_unstable();
        assert!(logged.into_iter().eq((0..50).map(|i| 10 * i)));
        // What is no argument's is as it was.
        for untouched in [0..60, 162..200, 208..256] {
            assert_eq!(seen[untouched.clone()], room[untouched]);
        }
        assert_eq!(plain.read().unwrap(), [8050; 8]);
        let host = heap.host().unwrap();
        let (mut at, mut tag) = (first, 50);
        while let Ok(node) = host.get(at) {
            assert_eq!(node.tag, tag);
            (at, tag) = (node.next, tag + 1);
        }
        assert_eq!(tag, 100);
    });
}

/// What is written through one of both is read through the other, within one invocation.
fn arguments_and_pointers_reach_the_same_memory(f: &Fixture) {
    each(f, &[Vary::Unified, Vary::Checked], |device, heap| {
        let data = heap.alloc_slice(&[1u32, 2, 3, 4]).unwrap();
        let kernel = kernel(
            device,
            "alias Words = array<u32>;
            @group(0) @binding(0) var<uniform> at: usm_ptr;
            @group(0) @binding(1) var<storage, read_write> data: array<u32>;
            @group(0) @binding(2) var<storage, read_write> seen: array<u32>;
            @compute @workgroup_size(1) fn main() {
                let words = usm_Words(at);
                words[0] = 70u;
                seen[0] = data[0];
                data[1] = 80u;
                seen[1] = words[1];
                words[2] += data[2];
                seen[2] = data[2];
            }",
        );
        let seen: DeviceBuffer<u32> = device.buffer(&[0xee; 3]).unwrap();
        let mut launch = kernel
            .launch()
            .value("at", &data)
            .pointer("data", data, 4)
            .buffer("seen", &seen)
            .workgroups(1u32);
        done(launch.submit());
        assert_eq!(seen.read().unwrap(), [70, 80, 6]);
        assert_eq!(heap.read(data, 4).unwrap(), [70, 80, 6, 4]);
    });
}

fn arguments_at_every_alignment(f: &Fixture) {
    let types = [
        ("u32", 1, "v[i] = v[i] * 2u + one;"),
        ("vec2<u32>", 2, "v[i] = v[i] * 2u + one;"),
        ("vec4<u32>", 4, "v[i] = v[i] * 2u + one;"),
        (
            "S",
            8,
            "let s = v[i]; v[i].a = s.a * 2u + one; v[i].b = s.b.yxwz * 2u + one;
             v[i].c.x = s.c.x * 2u + one; v[i].c.y = v[i].c.y * 2u + one;",
        ),
    ];
    each(f, &[Vary::Checked], |device, heap| {
        for (ty, words, body) in types {
            let source = format!(
                "struct S {{ c: vec2<u32>, a: vec2<u32>, b: vec4<u32> }}
                @group(0) @binding(0) var<uniform> one_at: usm_ptr;
                @group(0) @binding(1) var<storage, read_write> v: array<{ty}>;
                @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                    let i = id.x;
                    let one = *usm_u32(one_at);
                    {body}
                }}"
            );
            let kernel = kernel(device, &source);
            let one = heap.alloc(1u32).unwrap();
            for shift in [0usize, 1, 2, 3, 4, 6, 8, 63] {
                let room: Vec<u32> = (100..220).collect();
                let base = heap.alloc_slice(&room).unwrap();
                let count = 4 * words;
                let mut launch = kernel
                    .launch()
                    .value("one_at", &one)
                    .pointer("v", base.add(shift as u64), count)
                    .workgroups(1u32);
                done(launch.submit());
                let mut expected = room.clone();
                for element in expected[shift..shift + count].chunks_mut(words) {
                    if words == 8 {
                        let old = element.to_vec();
                        for (to, from) in element[4..].iter_mut().zip([5, 4, 7, 6]) {
                            *to = old[from];
                        }
                    }
                    for word in element {
                        *word = *word * 2 + 1;
                    }
                }
                assert_eq!(
                    heap.read(base, room.len()).unwrap(),
                    expected,
                    "{ty} + {shift}"
                );
                heap.free(base).unwrap();
            }
        }
    });
}

fn device_memory_beside_pointers(f: &Fixture) {
    each(f, &[Vary::Unified], |device, heap| {
        let own = device.malloc::<u32>(64).unwrap();
        let first = list(heap, 8);
        let start: Vec<u32> = (0..64).collect();
        device
            .buffer(&start)
            .unwrap()
            .copy_to_heap(0, own, 64)
            .unwrap();
        let kernel = kernel(
            device,
            &format!(
                "{NODE}
                @group(0) @binding(0) var<uniform> first: usm_ptr;
                @group(0) @binding(1) var<storage, read_write> own: array<u32>;
                @group(0) @binding(2) var<storage, read_write> sink: array<u32>;
                @compute @workgroup_size(1) fn main() {{
                    var p = first;
                    var i = 0u;
                    while !usm_is_null(p) {{
                        let n = usm_Node(p);
                        own[i] += n.value;
                        n.tag = own[i + 8u];
                        i++;
                        p = n.next;
                    }}
                    sink[0] = arrayLength(&own);
                }}"
            ),
        );
        let sink: DeviceBuffer<u32> = device.buffer(&[5]).unwrap();
        let mut launch = kernel
            .launch()
            .value("first", &first)
            .pointer("own", own.add(16), 32)
            .buffer("sink", &sink)
            .workgroups(1u32);
        done(launch.submit());
        assert_eq!(sink.read().unwrap(), [32]);
        let host = heap.host().unwrap();
        let (mut at, mut tag) = (first, 24);
        while let Ok(node) = host.get(at) {
            assert_eq!(node.tag, tag);
            (at, tag) = (node.next, tag + 1);
        }
        assert_eq!(tag, 32);
        drop(host);
        let mut expected = start;
        for i in 0..8 {
            expected[16 + i] += 10 * i as u32;
        }
        let seen: DeviceBuffer<u32> = device.zeroed(64).unwrap();
        seen.copy_from_heap(0, own, 64).unwrap();
        assert_eq!(seen.read().unwrap(), expected);
        device.free(own).unwrap();
    });
}

fn faults_behind_arguments_are_reported(f: &Fixture) {
    let source = "alias Words = array<u32>;
@group(0) @binding(0) var<uniform> at: vec2<u32>;
@group(0) @binding(1) var<uniform> pointer: usm_ptr;
@group(0) @binding(2) var<storage, read_write> words: Words;
fn put(to: ptr<storage, Words, read_write>, at: u32) { to[at] = 9u; }
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x == 2u {
        if at.y == 0u { words[at.x] = usm_Words(pointer)[0]; }
        else { put(&words, at.x); }
    }
}";
    each(f, &[], |device, heap| {
        let program = Program::new("faults.wgsl", source).unwrap();
        let mut options = KernelOptions::default();
        options.checked_pointers = Some(true);
        let kernel = device
            .kernel_with(&program, "main", &Constants::new(), options)
            .unwrap();
        let room = heap.alloc_slice(&[5u32; 32]).unwrap();
        for (way, place) in [(0u32, (8u32, "words[at.x]")), (1, (5, "to[at]"))] {
            for at in [8u32, 9, 20, u32::MAX] {
                let event = kernel
                    .launch()
                    .value("at", &[at, way])
                    .value("pointer", &room)
                    .pointer("words", room.add(4), 8)
                    .workgroups(1u32)
                    .submit()
                    .unwrap();
                let Err(WaitError::Failed(error)) = event.wait() else {
                    panic!("nobody noticed index {at}");
                };
                let ExecutionError::Pointer {
                    line,
                    reason,
                    address,
                    invocation,
                    excerpt,
                    ..
                } = &*error
                else {
                    panic!("{error}");
                };
                assert!(reason.contains("index"), "{error}");
                assert_eq!((*line, *invocation), (place.0, 2), "{error}");
                assert!(excerpt.contains(place.1), "{error}");
                let low = (room.add(4).address() as u32).wrapping_add(at.wrapping_mul(4));
                assert_eq!(*address as u32, low, "{error}");
                assert!(matches!(
                    heap.host().map(|_| ()),
                    Err(HeapError::Execution(_))
                ));
                assert_eq!(heap.read(room, 32).unwrap(), [5; 32]);
            }
            let mut launch = kernel
                .launch()
                .value("at", &[7, way])
                .value("pointer", &room)
                .pointer("words", room.add(4), 8)
                .workgroups(1u32);
            done(launch.submit());
            assert_eq!(
                heap.read(room.add(11), 1).unwrap(),
                [if way == 0 { 5 } else { 9 }]
            );
            heap.write(room.add(11), &[5]).unwrap();
        }
    });
}

fn overlapping_arguments_are_refused(f: &Fixture) {
    each(f, &[], |device, heap| {
        let kernel = kernel(device, BESIDE);
        let room = heap.alloc_slice(&[0u32; 64]).unwrap();
        let plain: DeviceBuffer<u32> = device.zeroed(8).unwrap();
        let launch = |sums: u64, log: u64| {
            kernel
                .launch()
                .value("first", &Ptr::<Node>::null())
                .pointer("weights", room, 8)
                .pointer("sums", room.add(sums), 8)
                .pointer("log", room.add(log), 10)
                .value("factor", &[0u32; 4])
                .buffer("plain", &plain)
                .workgroups(1u32)
                .submit()
        };
        for (sums, log) in [(7, 40), (0, 40), (20, 27), (20, 12)] {
            let refused = launch(sums, log);
            assert!(
                matches!(refused, Err(LaunchError::Aliased { .. })),
                "{sums} {log}: {refused:?}"
            );
        }
        done(launch(8, 16));
        let refused = kernel
            .launch()
            .value("first", &Ptr::<Node>::null())
            .pointer("weights", room.byte_add(2), 8)
            .pointer("sums", room.add(20), 8)
            .pointer("log", room.add(40), 10)
            .value("factor", &[0u32; 4])
            .buffer("plain", &plain)
            .workgroups(1u32)
            .submit();
        assert!(refused.is_err(), "{refused:?}");
    });
}

/// A launch that is kept finds its arguments after the heap has grown into more memory, and more segments.
fn arguments_move_with_the_heap(f: &Fixture) {
    each(f, &[], |device, heap| {
        let first = list(heap, 4);
        let kernel = kernel(device, FUNCTIONS);
        let room = heap.alloc_slice(&[1u32; 64]).unwrap();
        let list = heap.alloc(31u32).unwrap();
        let sink: DeviceBuffer<u32> = device.zeroed(5).unwrap();
        let b: DeviceBuffer<u32> = device.zeroed(6).unwrap();
        let mut launch = kernel
            .launch()
            .value("list", &list)
            .pointer("a", room.add(1), 9)
            .buffer("b", &b)
            .pointer::<u8>("t", room.add(16).cast(), 32)
            .pointer::<u8>("r", room.add(32).cast(), 32)
            .buffer("sink", &sink)
            .workgroups(1u32);
        for round in 0..3u32 {
            done(launch.submit());
            assert_eq!(heap.read(room.add(4), 2).unwrap(), [40, 41]);
            // Of row 1 and row 2 of the table.
            let count = round + 1;
            assert_eq!(
                heap.read(room.add(20), 4).unwrap(),
                [1 + count, 1 + 2 * count, 1 + count, 1 + 2 * count]
            );
            assert_eq!(b.read().unwrap(), [50, 51, 0, 0, 0, 60]);
            heap.write(room.add(4), &[0, 0]).unwrap();
            b.write(0, &[0; 6]).unwrap();
            let bytes = [20usize, 110][round.min(1) as usize] << 20;
            heap.alloc_zeroed::<u8>(bytes).unwrap();
        }
        assert_eq!(heap.read(first, 1).unwrap()[0].tag, 0);
    });
}

/// What truly cannot be had is refused with a typed error: one binding cannot be atomic in two ways.
fn atomics_that_no_binding_can_be_are_refused(f: &Fixture) {
    each(f, &[Vary::Checked], |device, heap| {
        let kernel = kernel(
            device,
            "struct Most { signed: atomic<i32> }
            @group(0) @binding(0) var<uniform> at: usm_ptr;
            @group(0) @binding(1) var<storage, read_write> most: array<atomic<u32>>;
            @compute @workgroup_size(1) fn main() {
                let m = usm_Most(at);
                atomicMax(&m.signed, 4i);
                atomicMax(&most[0], 5u);
            }",
        );
        let (most, at) = (heap.alloc(1u32).unwrap(), heap.alloc(1u32).unwrap());
        let buffer = device.buffer(&[1u32]).unwrap();
        let base = kernel.launch().value("at", &at).workgroups(1u32);
        done(base.clone().buffer("most", &buffer).submit());
        assert_eq!(buffer.read().unwrap(), [5]);
        assert_eq!(heap.read(at, 1).unwrap(), [4]);
        let refused = base.pointer("most", most, 1).submit();
        match refused {
            Err(LaunchError::Kernel(error)) => {
                assert!(matches!(*error, KernelError::Pointer(_)), "{error}");
                assert!(error.to_string().contains("i32 and u32"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(heap.read(most, 1).unwrap(), [1]);
    });
}

/// Words as raw bytes, for structures that no Rust type declares.
pub fn bytes_of(words: &[u32]) -> &[u8] {
    bytemuck::cast_slice(words)
}
