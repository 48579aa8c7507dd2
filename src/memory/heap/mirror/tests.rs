//! Interleavings of a launch and of threads that allocate, held in place.

use crate::device::hooks;
use crate::{Constants, Context, DeviceOptions, Program, heap::HeapSize};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 7u; }
}";

#[test]
fn what_is_allocated_while_a_launch_begins_goes_up_with_the_next() {
    let _alone = hooks::alone();
    let open = || Context::with_heap(wgpu::Backends::VULKAN, HeapSize::Bytes(256 << 20)).unwrap();
    let count = open().adapters().len();
    assert!(count > 0);
    for index in 0..count {
        let context = open();
        let options = DeviceOptions {
            live_memory: false,
            ..DeviceOptions::default()
        };
        let device = context.device_at_with(index, options).unwrap();
        let heap = device.heap().unwrap();
        let known = heap.alloc(1u32).unwrap();
        let program = Program::new("add.wgsl", ADD).unwrap();
        let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
        let add = |data, count: usize| {
            let launch = kernel.launch().pointer("data", data, count);
            launch.invocations(count as u32).submit().unwrap();
        };
        add(known, 1);
        let mut expected = Vec::new();
        for round in 1..4u32 {
            let shared = &heap.shared;
            assert!(shared.is_mirrored(&device.shared));
            // A launch: the mirror covers the heap, and has not been sent anything yet.
            let mut table = shared.mirrors.write();
            let covered = shared
                .cover(&mut table, &device.shared)
                .unwrap()
                .buffers
                .covered;
            let values: Vec<u32> = (0..(covered / 4) as u32).map(|i| i ^ round).collect();
            let data = heap.alloc_slice(&values).unwrap();
            assert!(shared.committed().unwrap() > covered);
            shared.bring_up(&mut table, &device.shared).unwrap();
            drop(table);
            add(data, values.len());
            let values: Vec<u32> = values.iter().map(|value| value.wrapping_add(7)).collect();
            expected.push((data, values));
        }
        for (data, values) in expected {
            assert!(heap.read(data, values.len()).unwrap() == values);
        }
    }
}
