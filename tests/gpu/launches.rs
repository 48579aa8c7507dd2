//! Launches: arguments and their checks, grids, batches, events, profiling.

use std::sync::Arc;
use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Aspect, Constants, DeviceBuffer, EventStatus, Kernel, LaunchError, ProfilingError, Program,
    WaitError,
};

cases![
    arguments_by_name_in_any_order,
    uniform_structs_and_scalars_as_values,
    more_values_than_dynamic_offsets,
    a_value_may_also_be_a_buffer,
    unknown_missing_and_doubled_arguments,
    wrong_kinds_are_named,
    padding_of_vec3_is_noticed,
    dense_elements_may_be_flattened,
    uniforms_of_the_wrong_size_are_refused,
    too_small_and_partial_buffers_are_refused,
    misaligned_and_outside_slices_are_refused,
    slices_bind_their_range,
    one_buffer_twice_is_refused_when_written,
    read_only_aliases_are_fine,
    more_storage_buffers_than_slots,
    textures_and_samplers_are_bound,
    immediates_are_set,
    grids_in_two_and_three_dimensions,
    empty_grids_run_nothing,
    grids_beyond_one_dispatch,
    tiled_grids_with_struct_arguments,
    grids_too_large_are_refused,
    indirect_grids,
    automatic_work_group_size,
    batches_are_one_submission,
    batches_are_capped,
    repeated_launches_bind_nothing_new,
    values_change_between_submissions,
    dropped_buffers_leave_the_cache,
    events_tell_their_status,
    events_are_futures,
    deadlines_pass,
    profiling_measures_every_launch,
    many_values_in_one_batch,
    threads_share_a_device,
];

const SCALE: &str = "
struct Params { factor: f32, offset: f32, count: u32 }
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> sink: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.count { sink[id.x] = source[id.x] * params.factor + params.offset; }
}";

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    factor: f32,
    offset: f32,
    count: u32,
}

fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("test.wgsl", source).unwrap();
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

fn arguments_by_name_in_any_order(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let source = f.device.buffer(&input).unwrap();
    let sink = f.device.buffer(&[f32::NAN; 1000]).unwrap();
    let params = Params {
        factor: 3.0,
        offset: -1.0,
        count: 1000,
    };
    kernel
        .launch()
        .value("params", &params)
        .buffer("sink", &sink)
        .buffer("source", &source)
        .invocations(1000)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let expected: Vec<f32> = input.iter().map(|x| x * 3.0 - 1.0).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn uniform_structs_and_scalars_as_values(f: &Fixture) {
    let kernel = kernel(
        f,
        "struct S { a: vec3<f32>, b: f32, m: mat2x2<f32> }
         @group(0) @binding(0) var<uniform> s: S;
         @group(0) @binding(1) var<uniform> k: u32;
         @group(1) @binding(0) var<uniform> v: vec3<f32>;
         @group(1) @binding(5) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(1) fn main() {
            sink[0] = s.a.x; sink[1] = s.a.z; sink[2] = s.b; sink[3] = s.m[1].x;
            sink[4] = f32(k); sink[5] = v.z;
         }",
    );
    let sink = f.device.buffer(&[-9f32; 6]).unwrap();
    kernel
        .launch()
        .value("s", &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        .value("k", &77u32)
        .value("v", &[9f32, 10.0, 11.0])
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [1.0, 3.0, 4.0, 7.0, 77.0, 11.0]);
}

fn more_values_than_dynamic_offsets(f: &Fixture) {
    let limits = f.device.raw().limits();
    let count = (limits.max_dynamic_uniform_buffers_per_pipeline_layout + 3)
        .min(limits.max_uniform_buffers_per_shader_stage)
        .min(24);
    let mut source = String::new();
    let mut body = String::new();
    for i in 0..count {
        source += &format!("@group(0) @binding({}) var<uniform> u{i}: u32;\n", i + 1);
        body += &format!("sink[{i}] = u{i};\n");
    }
    source += "@group(0) @binding(0) var<storage, read_write> sink: array<u32>;\n";
    source += &format!("@compute @workgroup_size(1) fn main() {{ {body} }}");
    let kernel = kernel(f, &source);
    let sink: DeviceBuffer<u32> = f.device.zeroed(count as usize).unwrap();
    for round in 0..3 {
        let mut launch = kernel.launch().buffer("sink", &sink).workgroups(1);
        for i in 0..count {
            launch = launch.value(&format!("u{i}"), &(1000 * (round + 1) + i));
        }
        launch.submit().unwrap().wait().unwrap();
        let expected: Vec<u32> = (0..count).map(|i| 1000 * (round + 1) + i).collect();
        assert_eq!(sink.read().unwrap(), expected);
    }
}

fn a_value_may_also_be_a_buffer(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let params = f
        .device
        .buffer(&[Params {
            factor: 2.0,
            offset: 0.5,
            count: 4,
        }])
        .unwrap();
    let source = f.device.buffer(&[1f32, 2.0, 3.0, 4.0]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    kernel
        .launch()
        .buffer("params", &params)
        .buffer("source", &source)
        .buffer("sink", &sink)
        .invocations(4)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [2.5, 4.5, 6.5, 8.5]);
}

fn unknown_missing_and_doubled_arguments(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let error = kernel
        .launch()
        .buffer("sauce", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, LaunchError::UnknownArgument { .. }),
        "{text}"
    );
    for part in ["`sauce`", "`source`", "`sink`", "`params`", "array<f32>"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, LaunchError::MissingArguments { .. }),
        "{text}"
    );
    assert!(text.contains("`sink`") && text.contains("`params`") && !text.contains("`source`"));
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("source", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::DuplicateArgument { .. }));
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("sink", &sink)
        .value("params", &[0u32; 3])
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::NoGrid { .. }));
}

fn wrong_kinds_are_named(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .value("source", &1f32)
        .buffer("sink", &sink)
        .buffer("params", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(
        matches!(&error, LaunchError::WrongKind { argument, .. } if argument == "source"),
        "{error}"
    );
}

const VEC3: &str = "
struct Body { at: vec3<f32>, velocity: vec3<f32> }
@group(0) @binding(0) var<storage, read> points: array<vec3<f32>>;
@group(0) @binding(1) var<storage, read> bodies: array<Body>;
@group(0) @binding(2) var<storage, read_write> sink: array<f32>;
@compute @workgroup_size(1) fn main() {
    sink[0] = points[1].x; sink[1] = bodies[1].velocity.y;
}";

fn padding_of_vec3_is_noticed(f: &Fixture) {
    let kernel = kernel(f, VEC3);
    let sink: DeviceBuffer<f32> = f.device.zeroed(2).unwrap();
    let tight = f.device.buffer(&[[1f32, 2.0, 3.0]; 8]).unwrap();
    let padded = f
        .device
        .buffer(&[[1f32, 2.0, 3.0, 0.0], [4.0, 5.0, 6.0, 0.0]])
        .unwrap();
    let bodies = f
        .device
        .buffer(&[[0f32; 8], [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]])
        .unwrap();
    let tight_bodies = f.device.buffer(&[[0f32; 6]; 4]).unwrap();
    let error = kernel
        .launch()
        .buffer("points", &tight)
        .buffer("bodies", &bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    match error {
        LaunchError::ElementMismatch {
            stride: 16,
            element_bytes: 12,
            argument,
            ..
        } => {
            assert_eq!(argument, "points");
            assert!(text.contains("[f32; 4]"), "{text}");
        }
        other => panic!("{other}"),
    }
    let error = kernel
        .launch()
        .buffer("points", &padded)
        .buffer("bodies", &tight_bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("4 bytes before `velocity`") && text.contains("32 bytes"),
        "{text}"
    );
    kernel
        .launch()
        .buffer("points", &padded)
        .buffer("bodies", &bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [4.0, 5.0]);
}

fn dense_elements_may_be_flattened(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
         @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(1) fn main() { sink[0] = a[1].z; sink[1] = f32(arrayLength(&a)); }",
    );
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let flat = f.device.buffer(&values).unwrap();
    let bytes = f
        .device
        .buffer(bytemuck::cast_slice::<f32, u8>(&values))
        .unwrap();
    let sink: DeviceBuffer<[f32; 2]> = f.device.zeroed(1).unwrap();
    let mut launch = kernel
        .launch()
        .buffer("a", &flat)
        .buffer("sink", &sink)
        .workgroups(1);
    launch.submit().unwrap();
    assert_eq!(sink.read().unwrap(), [[6.0, 3.0]]);
    launch.set_buffer("a", &bytes).unwrap();
    launch.submit().unwrap();
    assert_eq!(sink.read().unwrap(), [[6.0, 3.0]]);
}

fn uniforms_of_the_wrong_size_are_refused(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("sink", &sink)
        .value("params", &[1f32; 2])
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::UniformSize {
            size: 12,
            value_bytes: 8,
            ..
        }
    ));
}

fn too_small_and_partial_buffers_are_refused(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> a: array<u32, 16>;
         @group(0) @binding(1) var<storage, read_write> b: array<vec2<u32>>;
         @compute @workgroup_size(1) fn main() { a[0] = 1u; b[0].x = 1u; }",
    );
    let few: DeviceBuffer<u32> = f.device.zeroed(15).unwrap();
    let enough: DeviceBuffer<u32> = f.device.zeroed(16).unwrap();
    let odd: DeviceBuffer<u32> = f.device.zeroed(7).unwrap();
    let error = kernel
        .launch()
        .buffer("a", &few)
        .buffer("b", &enough)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::BufferTooSmall {
            needed: 64,
            given: 60,
            ..
        }
    ));
    let error = kernel
        .launch()
        .buffer("a", &enough)
        .buffer("b", &odd)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::PartialElement {
            stride: 8,
            given: 28,
            ..
        }
    ));
}

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn misaligned_and_outside_slices_are_refused(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(1000).unwrap();
    let alignment = f.device.capabilities().storage_offset_alignment;
    let error = kernel
        .launch()
        .buffer("data", data.slice(1..))
        .invocations(9)
        .submit()
        .unwrap_err();
    assert!(
        matches!(error, LaunchError::Misaligned { offset: 4, alignment: a, .. } if a == alignment),
        "{error}"
    );
    let error = kernel
        .launch()
        .buffer("data", data.slice(0..1001))
        .invocations(9)
        .submit()
        .unwrap_err();
    assert!(
        matches!(error, LaunchError::OutOfRange { len: 1000, .. }),
        "{error}"
    );
}

fn slices_bind_their_range(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(1000).unwrap();
    let step = u64::from(f.device.capabilities().storage_offset_alignment / 4);
    kernel
        .launch()
        .buffer("data", data.slice(step..step + 10))
        .invocations(1000)
        .submit()
        .unwrap();
    let expected: Vec<u32> = (0..1000u64)
        .map(|i| u32::from((step..step + 10).contains(&i)))
        .collect();
    assert_eq!(data.read().unwrap(), expected);
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    sink[id.x] = a[id.x] + b[id.x];
}";

fn one_buffer_twice_is_refused_when_written(f: &Fixture) {
    let kernel = kernel(f, COPY);
    let one: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let two: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("a", &two)
        .buffer("b", &one)
        .buffer("sink", &one)
        .invocations(4)
        .submit()
        .unwrap_err();
    match error {
        LaunchError::Aliased { first, second, .. } => {
            assert_eq!((first.as_str(), second.as_str()), ("b", "sink"));
        }
        other => panic!("{other}"),
    }
}

fn read_only_aliases_are_fine(f: &Fixture) {
    let kernel = kernel(f, COPY);
    let one = f.device.buffer(&[1u32, 2, 3]).unwrap();
    let sink: DeviceBuffer<u32> = f.device.zeroed(3).unwrap();
    kernel
        .launch()
        .buffer("a", &one)
        .buffer("b", &one)
        .buffer("sink", &sink)
        .invocations(3)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [2, 4, 6]);
}

fn more_storage_buffers_than_slots(f: &Fixture) {
    // Forty storage buffers: more than either software adapter binds. Each gets its own arithmetic, some
    // are structures, some read-only, some shorter than the grid.
    let mut source = "struct Pair { a: vec2<f32>, b: u32, c: u32 }\n".to_string();
    let mut body = String::new();
    for i in 0..40u32 {
        let (access, ty) = match i % 4 {
            0 => ("read", "array<u32>"),
            3 => ("read_write", "array<Pair>"),
            _ => ("read_write", "array<u32>"),
        };
        source += &format!(
            "@group({}) @binding({}) var<storage, {access}> b{i}: {ty};\n",
            i / 20,
            i % 20
        );
        body += &match i % 4 {
            0 => format!("sum += b{i}[id.x];\n"),
            3 => format!("b{i}[id.x].b = sum + {i}u; b{i}[id.x].a.y += 0.5;\n"),
            _ => format!("if id.x < arrayLength(&b{i}) {{ b{i}[id.x] += sum * {i}u; }}\n"),
        };
    }
    source += &format!(
        "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var sum = 0u;
            {body}
        }}"
    );
    let kernel = kernel(f, &source);
    const N: usize = 16;
    let words: Vec<DeviceBuffer<u32>> = (0..40u32)
        .map(|i| {
            let len = match i % 4 {
                3 => 4 * N,
                2 => N - 5,
                _ => N,
            };
            let values: Vec<u32> = (0..len as u32)
                .map(|k| if i % 4 == 3 { 0 } else { i * 100 + k })
                .collect();
            f.device.buffer(&values).unwrap()
        })
        .collect();
    let mut launch = kernel.launch().invocations(N);
    for (i, buffer) in words.iter().enumerate() {
        launch = launch.buffer(&format!("b{i}"), buffer);
    }
    for round in 1..=2u32 {
        launch.submit().unwrap().wait().unwrap();
        let mut sum = [0u32; N];
        for (i, buffer) in words.iter().enumerate() {
            let found = buffer.read().unwrap();
            let i = i as u32;
            for (k, sum) in sum.iter_mut().enumerate() {
                let first = i * 100 + k as u32;
                match i % 4 {
                    0 => {
                        assert_eq!(found[k], first);
                        *sum += first;
                    }
                    3 => {
                        assert_eq!(found[4 * k + 2], *sum + i, "b{i}[{k}]");
                        assert_eq!(f32::from_bits(found[4 * k + 1]), 0.5 * round as f32);
                    }
                    _ if k < found.len() => {
                        assert_eq!(found[k], first + round * *sum * i, "b{i}[{k}]")
                    }
                    _ => {}
                }
            }
        }
    }
}

fn textures_and_samplers_are_bound(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var image: texture_2d<f32>;
         @group(0) @binding(1) var nearest: sampler;
         @group(0) @binding(2) var painted: texture_storage_2d<rgba8unorm, write>;
         @group(1) @binding(0) var<storage, read_write> sink: array<vec4<f32>>;
         @compute @workgroup_size(2, 2) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let c = textureSampleLevel(image, nearest, (vec2<f32>(id.xy) + 0.5) / 2.0, 0.0);
            sink[id.y * 2u + id.x] = c;
            textureStore(painted, id.xy, c.bgra);
         }",
    );
    let device = f.device.raw();
    let texture = |usage| {
        device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d {
                width: 2,
                height: 2,
                depth_or_array_layers: 1,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage,
            view_formats: &[],
        })
    };
    let image = texture(wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST);
    let painted = texture(wgpu::TextureUsages::STORAGE_BINDING);
    let pixels: [u8; 16] = [
        255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 51, 102, 153, 0,
    ];
    f.device.raw_queue().write_texture(
        image.as_image_copy(),
        &pixels,
        wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(8),
            rows_per_image: None,
        },
        image.size(),
    );
    let sampler = device.create_sampler(&wgpu::SamplerDescriptor::default());
    let sink: DeviceBuffer<f32> = f.device.zeroed(16).unwrap();
    let view = image.create_view(&wgpu::TextureViewDescriptor::default());
    let mut launch = kernel
        .launch()
        .texture("image", &view)
        .sampler("nearest", &sampler)
        .texture(
            "painted",
            &painted.create_view(&wgpu::TextureViewDescriptor::default()),
        )
        .buffer("sink", &sink)
        .invocations([2, 2]);
    for _ in 0..2 {
        launch.submit().unwrap();
        for (found, byte) in sink.read().unwrap().iter().zip(pixels) {
            approx::assert_abs_diff_eq!(*found, f32::from(byte) / 255.0, epsilon = 1e-3);
        }
    }
}

fn immediates_are_set(f: &Fixture) {
    let source = "
        var<immediate> add: vec2<u32>;
        @group(0) @binding(0) var<storage, read_write> sink: array<u32>;
        @compute @workgroup_size(1) fn main() { sink[0] = add.x; sink[1] = add.y; }";
    let program = match Program::new("immediates.wgsl", source) {
        Ok(program) => program,
        Err(error) => panic!("{error}"),
    };
    let kernel = f.device.kernel(&program, "main", &Constants::new());
    let sink: DeviceBuffer<u32> = f.device.zeroed(2).unwrap();
    if !f
        .device
        .capabilities()
        .features
        .contains(wgpu::Features::IMMEDIATES)
    {
        assert!(kernel.is_err());
        return;
    }
    let kernel = kernel.unwrap();
    let error = kernel
        .launch()
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::MissingArguments { .. }));
    kernel
        .launch()
        .buffer("sink", &sink)
        .immediate(&[5u32, 6])
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [5, 6]);
}

fn grids_in_two_and_three_dimensions(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> hits: array<atomic<u32>>;
         @compute @workgroup_size(4, 2, 2)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if all(id < vec3(7u, 5u, 3u)) { atomicAdd(&hits[(id.z * 5u + id.y) * 7u + id.x], 1u); }
         }",
    );
    let hits: DeviceBuffer<u32> = f.device.zeroed(105).unwrap();
    let mut launch = kernel.launch().buffer("hits", &hits).invocations([7, 5, 3]);
    launch.submit().unwrap();
    assert_eq!(hits.read().unwrap(), vec![1; 105]);
    launch = launch.workgroups([2, 3, 2]);
    launch.submit().unwrap();
    assert_eq!(hits.read().unwrap(), vec![2; 105]);
}

fn empty_grids_run_nothing(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    for event in [
        kernel.launch().buffer("data", &data).invocations(0),
        kernel.launch().buffer("data", &data).workgroups([0, 5, 5]),
        kernel.launch().buffer("data", &data).invocations([7, 0]),
    ]
    .iter_mut()
    .map(|launch| launch.submit().unwrap())
    {
        assert_eq!(event.status(), EventStatus::Complete);
        event.wait().unwrap();
    }
    assert_eq!(data.read().unwrap(), [0; 4]);
    // Wrong arguments are wrong whatever the grid.
    assert!(kernel.launch().invocations(0).submit().is_err());
}

fn grids_beyond_one_dispatch(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read_write> hits: array<u32>;
        @group(0) @binding(1) var<storage, read_write> groups: array<u32>;
        @compute @workgroup_size(2)
        fn main(@builtin(global_invocation_id) id: vec3<u32>,
                @builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) local: u32,
                @builtin(num_workgroups) count: vec3<u32>) {
            hits[id.x] += group.x * 2u + local + 1u;
            if id.x == 0u { groups[0] = count.x; groups[1] = count.y; }
        }";
    let kernel = kernel(f, source);
    let n = 65_535u32 * 2 + 17;
    let hits: DeviceBuffer<u32> = f.device.zeroed(2 * n as usize).unwrap();
    let groups: DeviceBuffer<u32> = f.device.zeroed(2).unwrap();
    let event = kernel
        .launch()
        .buffer("hits", &hits)
        .buffer("groups", &groups)
        .workgroups(n)
        .submit()
        .unwrap();
    event.wait().unwrap();
    let expected: Vec<u32> = (1..=2 * n).collect();
    assert!(hits.read().unwrap() == expected);
    assert_eq!(groups.read().unwrap(), [n, 1]);
}

fn tiled_grids_with_struct_arguments(f: &Fixture) {
    let source = "
        struct In { @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32> }
        @group(0) @binding(0) var<storage, read_write> hits: array<u32>;
        @compute @workgroup_size(1, 1)
        fn main(input: In) { hits[input.id.y] = input.id.y * 3u + input.id.x + input.local.y; }";
    let kernel = kernel(f, source);
    let n = 70_000u32;
    let hits: DeviceBuffer<u32> = f.device.zeroed(n as usize).unwrap();
    kernel
        .launch()
        .buffer("hits", &hits)
        .workgroups([1, n])
        .submit()
        .unwrap();
    let expected: Vec<u32> = (0..n).map(|i| i * 3).collect();
    assert!(hits.read().unwrap() == expected);
}

fn grids_too_large_are_refused(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("data", &data)
        .invocations(1u64 << 40)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::GridTooLarge { axis: "x", .. }));
}

fn indirect_grids(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(300).unwrap();
    let counts = f.device.buffer(&[9u32, 2, 1, 1, 0, 0]).unwrap();
    kernel
        .launch()
        .buffer("data", &data)
        .indirect(&counts, 4)
        .submit()
        .unwrap();
    let expected: Vec<u32> = (0..300).map(|i| u32::from(i < 128)).collect();
    assert_eq!(data.read().unwrap(), expected);
    for offset in [2, 16, u64::MAX - 11, u64::MAX] {
        let error = kernel
            .launch()
            .buffer("data", &data)
            .indirect(&counts, offset)
            .submit();
        match error.unwrap_err() {
            LaunchError::Indirect { bytes: 24, .. } => {}
            other => panic!("{other}"),
        }
    }
    let error = kernel
        .launch()
        .buffer("data", &counts)
        .indirect(&counts, 0)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::Aliased { .. }));
}

fn automatic_work_group_size(f: &Fixture) {
    let program = Program::new(
        "auto.wgsl",
        "override size: u32;
         @group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(size) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = size; }
         }",
    )
    .unwrap();
    let auto = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let [x, y, z] = auto.workgroup_size();
    assert!(x >= 8 && x.is_power_of_two() && (y, z) == (1, 1), "{x}");
    let data: DeviceBuffer<u32> = f.device.zeroed(100).unwrap();
    let _ = auto
        .launch()
        .buffer("data", &data)
        .invocations(100)
        .submit()
        .unwrap();
    assert_eq!(data.read().unwrap(), vec![x; 100]);
    let fixed = f
        .device
        .kernel(&program, "main", &Constants::new().set("size", 17u32))
        .unwrap();
    assert_eq!(fixed.workgroup_size(), [17, 1, 1]);
}

fn batches_are_one_submission(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data = device.buffer(&[0u32; 10]).unwrap();
    device.finish().unwrap();
    let before = device.cache_statistics().submissions;
    let mut launch = kernel.launch().buffer("data", &data).invocations(10);
    let events: Vec<_> = (0..1000).map(|_| launch.submit().unwrap()).collect();
    assert_eq!(device.cache_statistics().submissions, before);
    assert_eq!(events[0].status(), EventStatus::Recorded);
    device.flush().unwrap();
    device.flush().unwrap();
    assert_eq!(device.cache_statistics().submissions, before + 1);
    for event in &events {
        event.wait().unwrap();
    }
    assert_eq!(data.read().unwrap(), vec![1000; 10]);
}

fn batches_are_capped(f: &Fixture) {
    let device = f.open(|options| options.max_batch = 10);
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let data: DeviceBuffer<u32> = device.zeroed(10).unwrap();
    device.finish().unwrap();
    let before = device.cache_statistics().submissions;
    let mut launch = kernel.launch().buffer("data", &data).invocations(10);
    for _ in 0..35 {
        launch.submit().unwrap();
    }
    assert_eq!(device.cache_statistics().submissions, before + 3);
    assert_eq!(data.read().unwrap(), vec![35; 10]);
}

fn repeated_launches_bind_nothing_new(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("scale.wgsl", SCALE).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let source = device.buffer(&[1f32; 8]).unwrap();
    let sink: DeviceBuffer<f32> = device.zeroed(8).unwrap();
    for i in 0..50u32 {
        let params = Params {
            factor: i as f32,
            offset: 0.0,
            count: 8,
        };
        let event = kernel
            .launch()
            .buffer("source", &source)
            .buffer("sink", &sink)
            .value("params", &params)
            .invocations(8)
            .submit()
            .unwrap();
        if i % 7 == 0 {
            event.wait().unwrap();
        }
    }
    let statistics = device.cache_statistics();
    assert_eq!(statistics.bind_groups.misses, 1, "{statistics:?}");
    assert_eq!(statistics.bind_groups.hits, 49, "{statistics:?}");
    assert_eq!(sink.read().unwrap(), [49.0; 8]);
}

fn values_change_between_submissions(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let source = f.device.buffer(&[1f32; 4]).unwrap();
    let sinks: Vec<DeviceBuffer<f32>> = (0..5).map(|_| f.device.zeroed(4).unwrap()).collect();
    let params = |factor| Params {
        factor,
        offset: 0.0,
        count: 4,
    };
    let mut launch = kernel.launch().buffer("source", &source).invocations(4);
    for (i, sink) in sinks.iter().enumerate() {
        launch.set_buffer("sink", sink).unwrap();
        launch.set_value("params", &params(i as f32)).unwrap();
        launch.submit().unwrap();
    }
    for (i, sink) in sinks.iter().enumerate() {
        assert_eq!(sink.read().unwrap(), [i as f32; 4]);
    }
    assert!(launch.set_value("nothing", &1u32).is_err());
}

fn dropped_buffers_leave_the_cache(f: &Fixture) {
    let device = f.open(|_| {});
    let program = Program::new("inc.wgsl", INCREMENT).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    for _ in 0..20 {
        let data: DeviceBuffer<u32> = device.zeroed(4).unwrap();
        kernel
            .launch()
            .buffer("data", &data)
            .invocations(4)
            .submit()
            .unwrap();
        assert_eq!(data.read().unwrap(), [1; 4]);
    }
    assert_eq!(device.cache_statistics().bind_groups.entries, 0);
}

fn events_tell_their_status(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let event = kernel
        .launch()
        .buffer("data", &data)
        .invocations(4)
        .submit()
        .unwrap();
    assert_eq!(event.status(), EventStatus::Recorded);
    assert!(event.error().is_none());
    f.device.flush().unwrap();
    assert_ne!(event.status(), EventStatus::Recorded);
    event.wait().unwrap();
    assert_eq!(event.status(), EventStatus::Complete);
    event.wait().unwrap();
    event.clone().wait_timeout(Duration::ZERO).unwrap();
}

fn events_are_futures(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let mut launch = kernel.launch().buffer("data", &data).invocations(4);
    let events: Vec<_> = (0..10).map(|_| launch.submit().unwrap()).collect();
    for result in pollster::block_on(futures::future::join_all(
        events.into_iter().map(IntoFuture::into_future),
    )) {
        result.unwrap();
    }
    assert_eq!(data.read().unwrap(), [10; 4]);
}

fn deadlines_pass(f: &Fixture) {
    // Long enough for no machine to have finished before the wait looks, and within every budget.
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = data[id.x];
            for (var i = 0u; i < 20000u; i++) { x = x * 1664525u + 1013904223u; }
            data[id.x] = x;
         }",
    );
    let data: DeviceBuffer<u32> = f.device.zeroed(65_536).unwrap();
    let event = kernel
        .launch()
        .buffer("data", &data)
        .invocations(65_536)
        .submit()
        .unwrap();
    match event.wait_timeout(Duration::ZERO) {
        Err(WaitError::Deadline) => {}
        other => panic!("{other:?}"),
    }
    event.wait().unwrap();
    let expected = (0..20_000).fold(0u32, |x, _| {
        x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
    });
    assert!(data.read().unwrap().iter().all(|&x| x == expected));
}

fn profiling_measures_every_launch(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(1 << 20).unwrap();
    let plain = kernel
        .launch()
        .buffer("data", &data)
        .invocations(64)
        .submit()
        .unwrap();
    assert_eq!(plain.gpu_time().unwrap_err(), ProfilingError::NotProfiled);
    let mut launch = kernel
        .launch()
        .buffer("data", &data)
        .invocations(1 << 20)
        .profiled();
    if !f.device.has(Aspect::TimestampQueries) {
        assert!(matches!(
            launch.submit().unwrap_err(),
            LaunchError::Profiling(ProfilingError::Unsupported { .. })
        ));
        return;
    }
    let events: Vec<_> = (0..5).map(|_| launch.submit().unwrap()).collect();
    for (i, event) in events.iter().enumerate() {
        let time = event.gpu_time().unwrap();
        assert!(time > Duration::ZERO, "launch {i} took {time:?}");
    }
    // More launches than one set of queries holds.
    let mut small = launch.clone().invocations(64);
    let events: Vec<_> = (0..600).map(|_| small.submit().unwrap()).collect();
    let measured = events
        .iter()
        .filter(|event| event.gpu_time().is_ok())
        .count();
    assert_eq!(measured, 600);
    // A grid of several dispatches is one launch, and all of it is measured.
    let tiled = launch.workgroups(70_000).submit().unwrap();
    assert!(tiled.gpu_time().unwrap() > Duration::ZERO);
    assert!(data.read().unwrap()[64..].iter().all(|&x| x == 6));
}

fn many_values_in_one_batch(f: &Fixture) {
    // More than the uniform ring holds at first.
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<uniform> at: vec2<u32>;
         @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main() { sink[at.x] = at.y; }",
    );
    let sink: DeviceBuffer<u32> = f.device.zeroed(3000).unwrap();
    for i in 0..3000u32 {
        kernel
            .launch()
            .value("at", &[i, i * 7 + 1])
            .buffer("sink", &sink)
            .workgroups(1)
            .submit()
            .unwrap();
    }
    let expected: Vec<u32> = (0..3000).map(|i| i * 7 + 1).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn threads_share_a_device(f: &Fixture) {
    let program = Arc::new(Program::new("inc.wgsl", INCREMENT).unwrap());
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let (device, program) = (f.device.clone(), Arc::clone(&program));
            scope.spawn(move || {
                let data = device.buffer(&[t; 33]).unwrap();
                for i in 0..50 {
                    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
                    let event = kernel
                        .launch()
                        .buffer("data", &data)
                        .invocations(33)
                        .submit()
                        .unwrap();
                    if i % 10 == 3 {
                        event.wait().unwrap();
                    }
                    if i % 10 == 7 {
                        assert_eq!(data.read().unwrap(), vec![t + i + 1; 33]);
                    }
                }
                assert_eq!(data.read().unwrap(), vec![t + 50; 33]);
            });
        }
    });
}
