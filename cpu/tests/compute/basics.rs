//! The adapter as wgpu sees it, and the simplest kernels.

use tombolo_cpu::Options;

use crate::harness::{Cpu, instance};

const SAXPY: &str = "
    struct Params { a: f32, n: u32 }
    @group(0) @binding(0) var<uniform> params: Params;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x >= params.n) { return; }
        y[id.x] = params.a * x[id.x] + y[id.x];
    }";

#[test]
fn the_adapter_is_found_and_says_what_it_is() {
    let instance = instance(Options::default());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let [adapter] = adapters.as_slice() else {
        panic!("one adapter, not {}", adapters.len())
    };
    let info = adapter.get_info();
    assert_eq!(info.device_type, wgpu::DeviceType::Cpu);
    assert!(info.name.contains("embedded"), "{}", info.name);
    let downlevel = adapter.get_downlevel_capabilities();
    assert!(
        downlevel
            .flags
            .contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    );
}

#[test]
fn a_device_with_default_limits_opens() {
    let instance = instance(Options::default());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
    pollster::block_on(adapter.request_device(&Default::default())).unwrap();
}

#[test]
fn saxpy() {
    let cpu = Cpu::new();
    let n = 1000;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.25 - 7.0).collect();
    let y: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
    let pipeline = cpu.pipeline(SAXPY);
    let mut params = 2.5f32.to_le_bytes().to_vec();
    params.extend(900u32.to_le_bytes());
    let buffers = [
        cpu.uniform(&params),
        cpu.buffer(bytemuck::cast_slice(&x)),
        cpu.buffer(bytemuck::cast_slice(&y)),
    ];
    let group = cpu.group(&pipeline, &buffers.iter().collect::<Vec<_>>());
    cpu.dispatch(&pipeline, &group, [16, 1, 1]);
    let expected: Vec<f32> = (0..n as usize)
        .map(|i| if i < 900 { 2.5 * x[i] + y[i] } else { y[i] })
        .collect();
    assert_eq!(cpu.read::<f32>(&buffers[2]), expected);
}

#[test]
fn ids_of_invocations_cover_the_grid_in_three_dimensions() {
    let cpu = Cpu::new();
    let size = [2u32, 3, 2];
    let groups = [3u32, 2, 4];
    let extent: Vec<u32> = (0..3).map(|axis| size[axis] * groups[axis]).collect();
    let count = extent.iter().product::<u32>() as usize;
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
        @compute @workgroup_size(2, 3, 2)
        fn main(
            @builtin(global_invocation_id) global: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
            @builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(num_workgroups) groups: vec3<u32>,
        ) {
            let extent = groups * vec3(2u, 3u, 2u);
            let at = global.x + extent.x * (global.y + extent.y * global.z);
            out[at] = vec4(local.x + 10u * local.y + 100u * local.z, index,
                group.x + 10u * group.y + 100u * group.z, out[at].w + 1u);
        }";
    let poison = vec![0u32; 4 * count];
    let out: Vec<u32> = cpu.run(source, groups, &[bytemuck::cast_slice(&poison)]);
    for (at, found) in out.chunks_exact(4).enumerate() {
        let at = at as u32;
        let global = [
            at % extent[0],
            at / extent[0] % extent[1],
            at / extent[0] / extent[1],
        ];
        let digits = |of: &dyn Fn(usize) -> u32| of(0) + 10 * of(1) + 100 * of(2);
        let local = |axis: usize| global[axis] % size[axis];
        let group = |axis: usize| global[axis] / size[axis];
        let index = local(0) + size[0] * (local(1) + size[1] * local(2));
        assert_eq!(
            found,
            [digits(&local), index, digits(&group), 1],
            "at {global:?}"
        );
    }
}

#[test]
fn textures_of_depths_are_refused_and_the_device_lives() {
    let cpu = Cpu::new();
    let scope = cpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
    let refused = cpu.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d::default(),
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Depth32Float,
        usage: wgpu::TextureUsages::TEXTURE_BINDING,
        view_formats: &[],
    });
    assert!(pollster::block_on(scope.pop()).is_some(), "{refused:?}");
    let out = cpu.map("", "out[i] = i * i;", 100);
    assert_eq!(out, (0..100).map(|i| i * i).collect::<Vec<u32>>());
}

/// Of memory of the work-group, WGSL lets overrides decide the size.
#[test]
fn overrides_size_arrays_of_the_work_group() {
    let cpu = Cpu::new();
    let out: Vec<u32> = cpu.run(
        "override half: u32 = 20; override width: u32 = 2 * half;
         @group(0) @binding(0) var<storage, read_write> out: array<u32>;
         var<workgroup> before: array<u32, half>;
         var<workgroup> turned: array<u32, width>;
         var<workgroup> behind: array<vec2<u32>, half>;
         @compute @workgroup_size(width)
         fn main(@builtin(local_invocation_index) i: u32) {
             before[i / 2u] = 7u;
             behind[i / 2u] = vec2(8u);
             turned[i] = i * i;
             workgroupBarrier();
             out[i] = turned[width - 1u - i] + before[i / 2u] + behind[i / 2u].y;
         }",
        [1, 1, 1],
        &[bytemuck::cast_slice(&[0xdead_beef_u32; 40])],
    );
    let expected = (0..40u32).map(|i| (39 - i) * (39 - i) + 15);
    assert_eq!(out, expected.collect::<Vec<_>>());
}

#[test]
fn overrides_take_their_values_from_the_pipeline() {
    let cpu = Cpu::new();
    let module = cpu
        .device
        .create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(
                "override factor: u32 = 3; @id(7) override width: u32;
             @group(0) @binding(0) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(width)
             fn main(@builtin(local_invocation_index) i: u32) { out[i] = factor * i + 1u; }"
                    .into(),
            ),
        });
    let pipeline = cpu
        .device
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[("factor", 5.0), ("7", 8.0)],
                ..Default::default()
            },
            cache: None,
        });
    let buffer = cpu.buffer(&[0; 40]);
    let group = cpu.group(&pipeline, &[&buffer]);
    cpu.dispatch(&pipeline, &group, [1, 1, 1]);
    assert_eq!(
        cpu.read::<u32>(&buffer),
        [1, 6, 11, 16, 21, 26, 31, 36, 0, 0]
    );
}
