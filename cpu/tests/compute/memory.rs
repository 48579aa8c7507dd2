//! Buffers, their bounds, and atomics.

use crate::harness::Cpu;

#[test]
fn structures_and_arrays_lie_where_wgsl_says() {
    let cpu = Cpu::new();
    let source = "
        struct Inner { a: vec3<f32>, b: u32, c: array<vec2<u32>, 2> }
        struct Outer { head: u32, inner: array<Inner, 2>, m: mat2x2<f32>, tail: array<Inner> }
        @group(0) @binding(0) var<storage, read_write> data: Outer;
        @compute @workgroup_size(2) fn main(@builtin(local_invocation_index) i: u32) {
            data.tail[i].b = arrayLength(&data.tail) + i;
            data.inner[1u - i].c[i].y = 70u + i;
            data.tail[1].c[i] = vec2(5u, 6u) * (i + 1u);
            data.m[i][1u - i] = f32(i) + 0.5;
            if (i == 0u) { data.head = u32(data.inner[1].a.z); data.tail[0] = data.inner[0]; data.tail[0].b = 99u; }
        }";
    // Inner: a at 0, b at 12, c at 16, 32 bytes. Outer: head 0, inner at 16, m at 80, tail at 96.
    let mut words: Vec<u32> = (0..((96 + 2 * 32) / 4)).collect();
    words[(16 + 32 + 8) / 4] = 42f32.to_bits();
    let out: Vec<u32> = cpu.run(source, [1, 1, 1], &[bytemuck::cast_slice(&words)]);
    let mut expected = words.clone();
    expected[0] = 42;
    expected[(16 + 32 + 16 + 4) / 4] = 70;
    expected[(16 + 16 + 8 + 4) / 4] = 71;
    expected[(80 + 4) / 4] = 0.5f32.to_bits();
    expected[(80 + 8) / 4] = 1.5f32.to_bits();
    let (tail0, tail1) = (96 / 4, (96 + 32) / 4);
    // Invocation 0 copies its structure after its other stores, and maybe before or after those of invocation 1.
    expected[tail0..tail0 + 8].copy_from_slice(&words[4..12]);
    expected[tail0 + 3] = 99;
    expected[tail1 + 3] = 3;
    for (word, value) in [5, 6, 10, 12].into_iter().enumerate() {
        expected[tail1 + 4 + word] = value;
    }
    let raced = tail0 + (16 + 8 + 4) / 4;
    for (at, (found, expected)) in out.iter().zip(&expected).enumerate() {
        assert!(
            found == expected || at == raced,
            "word {at}: {found}, not {expected}"
        );
    }
}

#[test]
fn indices_beyond_the_end_stay_inside() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read> given: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        var<private> table: array<u32, 4> = array<u32, 4>(10u, 11u, 12u, 13u);
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
            let far = given[0] * (id.x + 1u);
            out[0] = given[far];
            out[1] = table[far];
            var v = vec4<u32>(1u, 2u, 3u, 4u);
            v[far] = 9u;
            out[2] = v.w;
            out[far] = 77u;
        }";
    let guard = [5u32; 8];
    for far in [4u32, 8, 1 << 20, u32::MAX] {
        let given = [far, 1, 2, 3];
        let out: Vec<u32> = cpu.run(
            source,
            [1, 1, 1],
            &[bytemuck::cast_slice(&given), bytemuck::cast_slice(&guard)],
        );
        assert!(given.contains(&out[0]), "{out:?}");
        assert!((10..14).contains(&out[1]), "{out:?}");
        assert!([4, 9].contains(&out[2]), "{out:?}");
        assert_eq!(
            out[3..].iter().filter(|&&word| word == 77).count(),
            1,
            "{out:?}"
        );
    }
}

#[test]
fn a_part_of_a_buffer_is_all_that_a_kernel_reaches() {
    let cpu = Cpu::new();
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(1) fn main() { out[0] = arrayLength(&out); out[1000000] = 3u; }",
    );
    let buffer = cpu.buffer(bytemuck::cast_slice(&[9u32; 64]));
    let group = cpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &buffer,
                offset: 64,
                size: wgpu::BufferSize::new(32),
            }),
        }],
    });
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    let out: Vec<u32> = cpu.read(&buffer);
    let mut expected = vec![9; 64];
    expected[16] = 8;
    expected[23] = 3;
    assert_eq!(out, expected);
}

#[test]
fn atomics_lose_nothing() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<atomic<u32>, 8>;
        @group(0) @binding(1) var<storage, read_write> signed: atomic<i32>;
        @group(0) @binding(2) var<storage, read_write> float_sum: atomic<f32>;
        @group(0) @binding(3) var<storage, read_write> wide: atomic<u64>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            atomicAdd(&out[0], id.x); atomicSub(&out[1], 1u); atomicMax(&out[2], id.x * 7u); atomicMin(&out[3], id.x);
            atomicOr(&out[4], 1u << (id.x % 32u)); atomicXor(&out[5], id.x); atomicAnd(&out[6], ~(1u << (id.x % 32u)));
            atomicMin(&signed, 5 - i32(id.x));
            atomicAdd(&float_sum, 0.5);
            atomicAdd(&wide, u64(id.x) << 20u);
            loop {
                let old = atomicLoad(&out[7]);
                let r = atomicCompareExchangeWeak(&out[7], old, old * 2u + 1u);
                if (r.exchanged && r.old_value == old) { break; }
            }
        }";
    let pipeline = cpu.pipeline(source);
    let n = 64 * 200u32;
    let mut start = [0u32; 8];
    start[1] = n;
    start[3] = u32::MAX;
    start[6] = u32::MAX;
    let buffers = [
        cpu.buffer(bytemuck::cast_slice(&start)),
        cpu.buffer(&100i32.to_le_bytes()),
        cpu.buffer(&1f32.to_le_bytes()),
        cpu.buffer(&0u64.to_le_bytes()),
    ];
    let group = cpu.group(&pipeline, &buffers.iter().collect::<Vec<_>>());
    cpu.dispatch(&pipeline, &group, [200, 1, 1]);
    let sum = n * (n - 1) / 2;
    let xor = (0..n).fold(0, |x, i| x ^ i);
    assert_eq!(
        cpu.read::<u32>(&buffers[0]),
        [sum, 0, (n - 1) * 7, 0, u32::MAX, xor, 0, u32::MAX]
    );
    assert_eq!(cpu.read::<i32>(&buffers[1]), [5 - (n as i32 - 1)]);
    assert_eq!(cpu.read::<f32>(&buffers[2]), [1.0 + 0.5 * n as f32]);
    assert_eq!(cpu.read::<u64>(&buffers[3]), [u64::from(sum) << 20]);
}

#[test]
fn copies_and_clears() {
    let cpu = Cpu::new();
    let source: Vec<u32> = (0..256).collect();
    let from = cpu.buffer(bytemuck::cast_slice(&source));
    let to = cpu.buffer(bytemuck::cast_slice(&[7u32; 256]));
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&from, 16, &to, 32, 400);
    encoder.clear_buffer(&to, 64, Some(128));
    cpu.queue.submit([encoder.finish()]);
    cpu.queue.write_buffer(&to, 1000, &[1; 8]);
    let mut expected = vec![7u32; 256];
    expected[8..108].copy_from_slice(&source[4..104]);
    expected[16..48].fill(0);
    expected[250..252].fill(0x0101_0101);
    assert_eq!(cpu.read::<u32>(&to), expected);
}

#[test]
fn immediates_and_dynamic_offsets() {
    let cpu = Cpu::new();
    let layout = cpu
        .device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[0, 1].map(|binding| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage {
                        read_only: binding == 0,
                    },
                    has_dynamic_offset: true,
                    min_binding_size: None,
                },
                count: None,
            }),
        });
    let pipeline_layout = cpu
        .device
        .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 8,
        });
    let module = cpu
        .device
        .create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(
                "struct Now { factor: u32, at: u32 }
             var<immediate> now: Now;
             @group(0) @binding(0) var<storage, read> given: array<u32, 8>;
             @group(0) @binding(1) var<storage, read_write> out: array<u32, 8>;
             @compute @workgroup_size(1) fn main() { out[now.at] = now.factor * given[now.at]; }"
                    .into(),
            ),
        });
    let pipeline = cpu
        .device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
    let given: Vec<u32> = (0..32).map(|i| 100 + i).collect();
    let from = cpu.buffer(bytemuck::cast_slice(&given));
    let to = cpu.buffer(bytemuck::cast_slice(&[1u32; 32]));
    let range = |buffer| {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset: 32,
            size: wgpu::BufferSize::new(32),
        })
    };
    let group = cpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &[
            wgpu::BindGroupEntry {
                binding: 0,
                resource: range(&from),
            },
            wgpu::BindGroupEntry {
                binding: 1,
                resource: range(&to),
            },
        ],
    });
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    for (factor, at, offsets) in [(2u32, 3u32, [0, 64]), (3, 5, [64, 0])] {
        pass.set_immediates(0, bytemuck::cast_slice(&[factor, at]));
        pass.set_bind_group(0, &group, &offsets);
        pass.dispatch_workgroups(1, 1, 1);
    }
    drop(pass);
    cpu.queue.submit([encoder.finish()]);
    let mut expected = vec![1u32; 32];
    expected[8 + 16 + 3] = 2 * given[8 + 3];
    expected[8 + 5] = 3 * given[8 + 16 + 5];
    assert_eq!(cpu.read::<u32>(&to), expected);
}

#[test]
fn memory_of_the_host_is_a_buffer() {
    let cpu = Cpu::new();
    let mut lent = vec![0u64; 64].into_boxed_slice();
    let address = std::ptr::NonNull::from(&mut *lent).cast::<u8>();
    // SAFETY: the memory is aligned to 8 bytes, enough for words, and lives until the buffer and the device are gone.
    let buffer = unsafe {
        let buffer = tombolo_cpu::Buffer::from_host(address, 512, Box::new(()));
        cpu.device.create_buffer_from_hal::<tombolo_cpu::Api>(
            buffer,
            &wgpu::BufferDescriptor {
                label: None,
                size: 512,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            },
        )
    };
    let pipeline = cpu.pipeline(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) { out[i] = i + 1u; }",
    );
    let group = cpu.group(&pipeline, &[&buffer]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    cpu.device
        .poll(wgpu::PollType::wait_indefinitely())
        .unwrap();
    drop((group, buffer, cpu));
    let words: &[u32] = bytemuck::cast_slice(&lent);
    assert_eq!(words[..64], (1..=64).collect::<Vec<u32>>());
    assert_eq!(words[64..], [0; 64]);
}

/// Lanes that a branch has switched off load from wherever their index leads, so kernels with several lanes get no memory that may
/// not be there.
#[test]
fn memory_with_gaps_is_for_one_lane_at_a_time() {
    for (body, runs) in [
        ("out[i] = i + 1u;", false),
        (
            "out[i] = i + 1u; if atomicAdd(&count, 1u) > 1000u { out[i] = 0u; }",
            true,
        ),
    ] {
        let cpu = Cpu::new();
        let mut lent = vec![0u64; 64].into_boxed_slice();
        let address = std::ptr::NonNull::from(&mut *lent).cast::<u8>();
        // SAFETY: the memory is aligned to 8 bytes, enough for words, all of it is there, and it lives until the buffer and the
        // device are gone.
        let buffer = unsafe {
            let buffer = tombolo_cpu::Buffer::from_address_space(address, 512, Box::new(()));
            cpu.device.create_buffer_from_hal::<tombolo_cpu::Api>(
                buffer,
                &wgpu::BufferDescriptor {
                    label: None,
                    size: 512,
                    usage: wgpu::BufferUsages::STORAGE,
                    mapped_at_creation: false,
                },
            )
        };
        let count = cpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        });
        let declared = match runs {
            true => "@group(0) @binding(1) var<storage, read_write> count: atomic<u32>;",
            false => "",
        };
        let pipeline = cpu.pipeline(&format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>; {declared}
             @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
        ));
        let buffers: &[&wgpu::Buffer] = match runs {
            true => &[&buffer, &count],
            false => &[&buffer],
        };
        let group = cpu.group(&pipeline, buffers);
        cpu.device.on_uncaptured_error(std::sync::Arc::new(|_| {}));
        let failed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let note = std::sync::Arc::clone(&failed);
        cpu.device.set_device_lost_callback(move |_, _| {
            note.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        cpu.dispatch(&pipeline, &group, [1, 1, 1]);
        let _ = cpu.device.poll(wgpu::PollType::wait_indefinitely());
        assert_eq!(failed.load(std::sync::atomic::Ordering::SeqCst), !runs);
        drop((group, buffer, cpu));
        let words: &[u32] = bytemuck::cast_slice(&lent);
        let expected: Vec<u32> = (1..=64).map(|i| if runs { i } else { 0 }).collect();
        assert_eq!(words[..64], expected);
    }
}
