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
    slices_apart_are_read_and_written_in_one_launch,
    slices_with_common_bytes_are_refused,
    uniforms_and_counts_lie_beside_what_is_written,
    seventy_slices_of_one_buffer,
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

/// `sink = a + b` with slices of `data` that begin at the given elements, as the CPU computes it.
fn add_slices(data: &mut [u32], [a, b, sink]: [usize; 3], len: usize) {
    let sums: Vec<u32> = (0..len)
        .map(|i| data[a + i].wrapping_add(data[b + i]))
        .collect();
    data[sink..sink + len].copy_from_slice(&sums);
}

fn slices_apart_are_read_and_written_in_one_launch(f: &Fixture) {
    let kernel = kernel(f, COPY);
    let step = (f.device.capabilities().storage_offset_alignment / 4) as usize;
    let len = step.min(50);
    let mut expected: Vec<u32> = (0..8 * step as u32).map(|i| i * i + 7).collect();
    let data = f.device.buffer(&expected).unwrap();
    let slice = |start: usize| data.slice(start as u64..(start + len) as u64);
    // At places that adapters bind, at others, one beside the next, and with `a` and `b` in common.
    for [a, b, sink] in [
        [0, step, 2 * step],
        [2 * step, 0, 5 * step],
        [1, step + 3, 3 * step + 2],
        [4 * step, 4 * step + len, 4 * step + 2 * len],
        [6 * step, 6 * step, 7 * step],
    ] {
        let mut launch = kernel
            .launch()
            .buffer("a", slice(a))
            .buffer("b", slice(b))
            .buffer("sink", slice(sink))
            .invocations(len as u32);
        for _ in 0..2 {
            launch.submit().unwrap().wait().unwrap();
            add_slices(&mut expected, [a, b, sink], len);
            assert_eq!(data.read().unwrap(), expected, "{a} {b} {sink}");
        }
        // The launch follows a slice that comes to lie elsewhere.
        let other = f.device.buffer(&vec![11u32; len]).unwrap();
        launch.set_buffer("b", &other).unwrap();
        launch.submit().unwrap().wait().unwrap();
        for i in 0..len {
            expected[sink + i] = expected[a + i] + 11;
        }
        assert_eq!(data.read().unwrap(), expected, "{a} elsewhere {sink}");
    }
}

fn slices_with_common_bytes_are_refused(f: &Fixture) {
    let kernel = kernel(f, COPY);
    let values: Vec<u32> = (0..400).collect();
    let data = f.device.buffer(&values).unwrap();
    let apart = f.device.buffer(&values).unwrap();
    for (b, sink) in [(0, 0), (0, 49), (49, 0), (10, 20), (128, 129), (64, 64)] {
        let mut launch = kernel
            .launch()
            .buffer("a", &apart)
            .buffer("b", data.slice(b..b + 50))
            .buffer("sink", data.slice(sink..sink + 50))
            .invocations(50);
        for error in [launch.check().unwrap_err(), launch.submit().unwrap_err()] {
            assert!(
                matches!(&error, LaunchError::Aliased { first, second, .. } if first == "b" && second == "sink"),
                "{b} {sink}: {error}"
            );
        }
    }
    assert_eq!(data.read().unwrap(), values);
}

fn uniforms_and_counts_lie_beside_what_is_written(f: &Fixture) {
    let program = Program::new(
        "scale.wgsl",
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @group(0) @binding(1) var<uniform> factor: vec4<u32>;
         @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
            data[id.x] = data[id.x] * factor.y + 1u;
         }",
    );
    let kernel = (f.device)
        .kernel(&program.unwrap(), "main", &Constants::new())
        .unwrap();
    let mut expected: Vec<u32> = (0..600).collect();
    expected[256..260].copy_from_slice(&[0, 3, 0, 0]);
    expected[262..265].copy_from_slice(&[5, 1, 1]);
    let data = f.device.buffer(&expected).unwrap();
    let (factor, counts) = (data.slice(256..260), data.slice(260..270));
    for start in [0usize, 64, 300, 1] {
        let own = data.slice(start as u64..start as u64 + 100);
        let event = kernel
            .launch()
            .buffer("data", own)
            .buffer("factor", &factor)
            .indirect(&counts, 8)
            .submit();
        event.unwrap().wait().unwrap();
        for value in &mut expected[start..start + 5] {
            *value = *value * 3 + 1;
        }
        assert_eq!(data.read().unwrap(), expected, "{start}");
    }
    // Bytes in common with the uniform, and with the counts.
    let refused = |own: std::ops::Range<u64>, at: u64| {
        let launch = kernel.launch().buffer("data", data.slice(own));
        let launch = launch.buffer("factor", &factor);
        let launch = launch.indirect(data.slice(at..at + 3), 0);
        { launch }.submit().unwrap_err()
    };
    for (own, at) in [
        (200..257, 262),
        (259..300, 500),
        (256..260, 0),
        (0..100, 97),
    ] {
        let error = refused(own.clone(), at);
        assert!(
            matches!(error, LaunchError::Aliased { .. }),
            "{own:?}: {error}"
        );
    }
}

fn seventy_slices_of_one_buffer(f: &Fixture) {
    // More than a variant of a kernel can name, and more than some adapters bind. The last is written.
    const READ: usize = 69;
    let mut source = String::new();
    let mut body = "var sum = 0u;\n".to_string();
    for i in 0..READ {
        source += &format!("@group(0) @binding({i}) var<storage, read> b{i}: array<u32>;\n");
        body += &format!("sum = sum * 3u + b{i}[id.x];\n");
    }
    source += &format!(
        "@group(0) @binding({READ}) var<storage, read_write> sink: array<u32>;
         @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            {body} sink[id.x] = sum;
         }}"
    );
    let program = Program::new("seventy.wgsl", source).unwrap();
    let kernel = (f.device)
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let step = (f.device.capabilities().storage_offset_alignment / 4) as usize;
    let mut expected: Vec<u32> = (0..(READ + 1) * step).map(|i| (i * 7) as u32).collect();
    let data = f.device.buffer(&expected).unwrap();
    let slice = |i: usize| data.slice((i * step) as u64..(i * step + 4) as u64);
    let mut launch = kernel.launch().buffer("sink", slice(READ)).invocations(4);
    for i in 0..READ {
        launch = launch.buffer(&format!("b{i}"), slice(i));
    }
    launch.submit().unwrap().wait().unwrap();
    for k in 0..4 {
        let sum = (0..READ).fold(0u32, |sum, i| {
            sum.wrapping_mul(3).wrapping_add(expected[i * step + k])
        });
        expected[READ * step + k] = sum;
    }
    assert_eq!(data.read().unwrap(), expected);
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
