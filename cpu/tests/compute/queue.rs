//! Submissions: their order, their ends, threads, indirect dispatches and timestamps.

use std::time::Duration;

use tombolo_cpu::{Api, Loss};

use crate::harness::Cpu;

#[test]
fn submissions_run_in_order_whatever_their_size() {
    let cpu = Cpu::new();
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             out[id.x] = out[id.x] * 3u + id.x;
         }",
    );
    let n = 64 * 1000;
    let buffer = cpu.buffer(bytemuck::cast_slice(&vec![1u32; n]));
    let group = cpu.group(&pipeline, &[&buffer]);
    let mut expected = vec![1u32; n];
    for round in 0..60 {
        let groups = [1, 1000, 10, 700][round % 4];
        cpu.dispatch(&pipeline, &group, [groups, 1, 1]);
        for (i, value) in expected.iter_mut().enumerate().take(64 * groups as usize) {
            *value = value.wrapping_mul(3).wrapping_add(i as u32);
        }
    }
    assert_eq!(cpu.read::<u32>(&buffer), expected);
}

#[test]
fn threads_share_work_groups_and_results_do_not_depend_on_their_number() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = f32(id.x) * 0.001;
            for (var k = 0; k < 100; k++) { x = x * 1.0001 + 0.1 / (x + 1.0); }
            out[id.x] = x;
        }";
    let poison = vec![0f32; 32 * 500];
    let run = |threads| {
        let mut options = tombolo_cpu::Options::default();
        options.threads = Some(threads);
        Cpu::with(options).run::<u32>(source, [500, 1, 1], &[bytemuck::cast_slice(&poison)])
    };
    let alone = run(1);
    assert!(alone.iter().all(|&bits| bits != 0));
    assert_eq!(alone, run(2));
    assert_eq!(alone, run(7));
}

#[test]
fn indirect_dispatches_take_their_counts_from_a_buffer() {
    let cpu = Cpu::new();
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> out: atomic<u32>;
         @compute @workgroup_size(4) fn main() { atomicAdd(&out, 1u); }",
    );
    let buffer = cpu.buffer(&[0; 4]);
    let counts = cpu.buffer(bytemuck::cast_slice(&[0u32, 9, 9, 3, 5, 2]));
    let group = cpu.group(&pipeline, &[&buffer]);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups_indirect(&counts, 0);
    pass.dispatch_workgroups_indirect(&counts, 12);
    drop(pass);
    cpu.queue.submit([encoder.finish()]);
    assert_eq!(cpu.read::<u32>(&buffer), [4 * 3 * 5 * 2]);
}

#[test]
fn timestamps_grow() {
    let cpu = Cpu::new();
    let set = cpu.device.create_query_set(&wgpu::QuerySetDescriptor {
        label: None,
        ty: wgpu::QueryType::Timestamp,
        count: 3,
    });
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(1) fn main() { for (var k = 0u; k < out[1]; k++) { out[0] += k; } }",
    );
    let buffer = cpu.buffer(bytemuck::cast_slice(&[0u32, 100_000]));
    let group = cpu.group(&pipeline, &[&buffer]);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
        label: None,
        timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
            query_set: &set,
            beginning_of_pass_write_index: Some(0),
            end_of_pass_write_index: Some(1),
        }),
    });
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    encoder.write_timestamp(&set, 2);
    let resolved = cpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 24,
        usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    });
    encoder.resolve_query_set(&set, 0..3, &resolved, 0);
    cpu.queue.submit([encoder.finish()]);
    let [start, end, after] = cpu.read::<u64>(&resolved)[..] else {
        panic!("three timestamps")
    };
    assert!(start < end && end <= after, "{start} {end} {after}");
    assert_eq!(cpu.queue.get_timestamp_period(), 1.0);
}

/// A kernel that does not end, which the caller may release by a word of memory.
const ENDLESS: &str = "
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(1) fn main() { loop { out[0] += 1u; if (out[1] == 77u) { break; } } }";

#[test]
fn a_device_with_an_endless_kernel_can_be_dropped() {
    let cpu = Cpu::new();
    let pipeline = cpu.pipeline(ENDLESS);
    let buffer = cpu.buffer(&[0; 8]);
    let group = cpu.group(&pipeline, &[&buffer]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    let submitted = cpu.queue.submit([]);
    let waited = cpu.device.poll(wgpu::PollType::Wait {
        submission_index: Some(submitted),
        timeout: Some(Duration::from_millis(20)),
    });
    assert!(waited.is_err(), "the kernel has ended by itself");
    // SAFETY: the device is only asked, nothing is destroyed.
    let loss = |device: &wgpu::Device| unsafe { device.as_hal::<Api>() }.unwrap().loss();
    assert_eq!(loss(&cpu.device), None);
    let device = cpu.device.clone();
    drop((cpu, pipeline, buffer, group));
    assert_eq!(loss(&device), Some(Loss::Dropped));
}

/// Every work-group adds itself and waits until all have.
const MEETING: &str = "
    @group(0) @binding(0) var<storage, read_write> here: atomic<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(4) fn main(
        @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) i: u32
    ) {
        for (var round = 1u; round <= 3u; round++) {
            if (i == 0u) {
                atomicAdd(&here, 1u);
                while (atomicLoad(&here) < round * groups.x) {}
            }
            workgroupBarrier();
        }
        out[4u * group.x + i] = atomicLoad(&here);
    }";

#[test]
fn work_groups_that_wait_for_one_another_all_run() {
    for (threads, groups) in [(1, 1), (1, 100), (2, 700), (3, 5)] {
        let mut options = tombolo_cpu::Options::default();
        options.threads = Some(threads);
        let cpu = Cpu::with(options);
        let out: Vec<u32> = cpu.run(
            MEETING,
            [groups, 1, 1],
            &[
                &[0; 4],
                bytemuck::cast_slice(&vec![0u32; 4 * groups as usize]),
            ],
        );
        assert_eq!(
            out,
            vec![3 * groups; 4 * groups as usize],
            "{groups} groups on {threads} threads"
        );
    }
}

#[test]
fn a_kernel_that_waits_for_ever_leaves_room_for_others() {
    let mut options = tombolo_cpu::Options::default();
    options.threads = Some(2);
    let instance = crate::harness::instance(options);
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
    let open = || {
        let opened = pollster::block_on(adapter.request_device(&Default::default()));
        let (device, queue) = opened.unwrap();
        Cpu { device, queue }
    };
    let waiting = open();
    let pipeline = waiting.pipeline(
        "@group(0) @binding(0) var<storage, read_write> word: atomic<u32>;
         @compute @workgroup_size(1) fn main() { while (atomicLoad(&word) == 0u) {} }",
    );
    let word = waiting.buffer(&[0; 4]);
    // The word has its contents before the kernel is submitted: a later copy would undo what the host writes there.
    waiting.queue.submit([]);
    waiting
        .device
        .poll(wgpu::PollType::wait_indefinitely())
        .unwrap();
    let group = waiting.group(&pipeline, &[&word]);
    waiting.dispatch(&pipeline, &group, [8, 1, 1]);
    let working = open();
    let out = working.map("", "out[i] = i + 7u;", 64 * 300);
    assert_eq!(out, (7..64 * 300 + 7).collect::<Vec<u32>>());
    // SAFETY: the buffer is only asked where it lies.
    let address = unsafe { word.as_hal::<Api>() }.unwrap().address();
    // SAFETY: the word is aligned, lives as long as the buffer, and the kernels read it by atomic operations.
    let word_in_memory = unsafe { std::sync::atomic::AtomicU32::from_ptr(address.as_ptr().cast()) };
    word_in_memory.store(1, std::sync::atomic::Ordering::Relaxed);
    waiting
        .device
        .poll(wgpu::PollType::wait_indefinitely())
        .unwrap();
}

#[test]
fn a_kernel_that_touches_what_is_not_there_loses_its_device_and_nothing_else() {
    let cpu = Cpu::new();
    // SAFETY: a wrong index is what this test is about.
    let module = unsafe {
        cpu.device.create_shader_module_trusted(
            wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Wgsl(
                    "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
                     @compute @workgroup_size(1) fn far(@builtin(workgroup_id) group: vec3<u32>) {
                         if (group.x == 70u) { out[3000000000u + out[0]] = 1u; }
                     }"
                    .into(),
                ),
            },
            wgpu::ShaderRuntimeChecks::unchecked(),
        )
    };
    let pipeline = cpu
        .device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
    let buffer = cpu.buffer(&[0; 64]);
    let group = cpu.group(&pipeline, &[&buffer]);
    let scope = cpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
    cpu.dispatch(&pipeline, &group, [100, 1, 1]);
    // The word behind 12 GB belongs to nobody in all likelihood; if it does, the kernel has written there and is done.
    let polled = cpu.device.poll(wgpu::PollType::wait_indefinitely());
    drop(pollster::block_on(scope.pop()));
    // SAFETY: the device is only asked.
    let loss = unsafe { cpu.device.as_hal::<Api>() }.unwrap().loss();
    match &loss {
        Some(Loss::Fault { kernel, .. }) => assert_eq!(kernel, "far"),
        other => panic!("{other:?}, after {polled:?}"),
    }
    let other = Cpu::new();
    assert_eq!(other.map("", "out[i] = 5u;", 3), [5; 3]);
}

#[test]
fn the_floats_of_a_thread_are_its_own_matter() {
    #[cfg(target_arch = "x86_64")]
    {
        let set = |control: u32| {
            // SAFETY: the flags say that small numbers become zero, which nothing here depends on.
            unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &control) };
        };
        let cpu = Cpu::new();
        set(0x1f80 | 0x8040);
        let out = cpu.map(
            "",
            "let x = bitcast<f32>(3u + i); out[i] = bitcast<u32>(x * 1.0000001 + x);",
            1,
        );
        let mut control = 0u32;
        // SAFETY: stores the register to a variable of its size.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut control) };
        set(0x1f80);
        assert_eq!(out, [6], "subnormal numbers are kept");
        assert_eq!(control & 0x8040, 0x8040, "and the thread's own ways too");
    }
}
