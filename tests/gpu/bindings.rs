//! How arguments are bound: slices, aliases, more than the adapter has bindings for, textures, immediates.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::{INCREMENT, kernel};
use tombolo::{Constants, DeviceBuffer, Launch, Program, launch::LaunchError};

cases![
    outside_and_empty_slices_are_refused,
    slices_bind_their_range,
    one_buffer_twice_is_refused_when_written,
    read_only_aliases_are_fine,
    more_storage_buffers_than_slots,
    textures_and_samplers_are_bound,
    immediates_are_set,
];

fn outside_and_empty_slices_are_refused(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(1000).unwrap();
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
    // Wherever it lies.
    let none: DeviceBuffer<u32> = f.device.zeroed(0).unwrap();
    let heap = f.context.heap().unwrap();
    let ptr = heap.alloc(1u32).unwrap();
    let launch = || kernel.launch().invocations(9);
    for mut launch in [
        launch().buffer("data", data.slice(3..3)),
        launch().buffer("data", data.slice(1000..)),
        launch().buffer("data", &none),
        launch().pointer("data", ptr, 0),
        launch().buffer("data", f.context.buffer::<u32>(0).unwrap()),
    ] {
        for error in [launch.check().unwrap_err(), launch.submit().unwrap_err()] {
            assert!(
                matches!(&error, LaunchError::EmptyArgument { argument, .. } if argument == "data"),
                "{error}"
            );
        }
    }
    heap.free(ptr).unwrap();
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
            let at = (vec2<f32>(id.xy) + 0.5) / 2.0;
            let c = textureSampleLevel(image, nearest, at, 0.0);
            sink[id.y * 2u + id.x] = c;
            sink[4u + id.y * 2u + id.x] = textureSampleLevel(image, nearest, at + 1.0, 0.0);
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
    let upload = |texture: &wgpu::Texture, pixels: &[u8; 16]| {
        f.device.raw_queue().write_texture(
            texture.as_image_copy(),
            pixels,
            wgpu::TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(8),
                rows_per_image: None,
            },
            texture.size(),
        );
    };
    upload(&image, &pixels);
    let sampler = device.create_sampler(&wgpu::SamplerDescriptor::default());
    let sink: DeviceBuffer<f32> = f.device.zeroed(32).unwrap();
    let view = image.create_view(&wgpu::TextureViewDescriptor::default());
    let mut launch = kernel
        .launch()
        .texture("image", &view)
        .sampler("nearest", &sampler)
        .texture(
            "painted",
            painted.create_view(&wgpu::TextureViewDescriptor::default()),
        )
        .buffer("sink", &sink)
        .invocations([2, 2]);
    // Inside the image, and beside it, where a sampler clamps to the last pixel or repeats the image.
    let check = |launch: &mut Launch, pixels: [u8; 16], beside: [u8; 16]| {
        sink.fill(-1.0, ..).unwrap();
        launch.submit().unwrap();
        let expected = pixels.iter().chain(&beside);
        for (found, byte) in sink.read().unwrap().iter().zip(expected) {
            approx::assert_abs_diff_eq!(*found, f32::from(*byte) / 255.0, epsilon = 1e-3);
        }
    };
    let last = |pixels: &[u8; 16]| std::array::from_fn(|i| pixels[12 + i % 4]);
    check(&mut launch, pixels, last(&pixels));
    check(&mut launch, pixels, last(&pixels));
    let other = texture(wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST);
    let reversed = std::array::from_fn(|i| pixels[15 - i]);
    upload(&other, &reversed);
    let view = other.create_view(&wgpu::TextureViewDescriptor::default());
    launch.set_texture("image", &view).unwrap();
    check(&mut launch, reversed, last(&reversed));
    let repeating = device.create_sampler(&wgpu::SamplerDescriptor {
        address_mode_u: wgpu::AddressMode::Repeat,
        address_mode_v: wgpu::AddressMode::Repeat,
        ..wgpu::SamplerDescriptor::default()
    });
    launch.set_sampler("nearest", &repeating).unwrap();
    check(&mut launch, reversed, reversed);
    assert!(matches!(
        launch.set_texture("nothing", &view),
        Err(LaunchError::UnknownArgument { .. })
    ));
    assert!(matches!(
        launch.set_sampler("nothing", &sampler),
        Err(LaunchError::UnknownArgument { .. })
    ));
    // What does not fit is refused when it is submitted, as it is of a launch in the making.
    launch.set_sampler("image", &sampler).unwrap();
    assert!(launch.submit().is_err());
    launch.set_texture("image", &view).unwrap();
    check(&mut launch, reversed, reversed);
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
