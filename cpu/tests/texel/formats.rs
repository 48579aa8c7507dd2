//! Loads and stores of every format that the device has.

use crate::harness::{Gpu, Shared, unit, word};
use tombolo_cpu::texel::{At, Format, Kind, OutOfBounds, Shape};
use wgpu::{BufferUsages, TextureFormat as T, TextureUsages};

/// All formats that kernels can load from and hosts can write to.
const FORMATS: &[T] = &[
    T::R8Unorm,
    T::R8Snorm,
    T::R8Uint,
    T::R8Sint,
    T::R16Uint,
    T::R16Sint,
    T::R16Unorm,
    T::R16Snorm,
    T::R16Float,
    T::Rg8Unorm,
    T::Rg8Snorm,
    T::Rg8Uint,
    T::Rg8Sint,
    T::R32Uint,
    T::R32Sint,
    T::R32Float,
    T::Rg16Uint,
    T::Rg16Sint,
    T::Rg16Unorm,
    T::Rg16Snorm,
    T::Rg16Float,
    T::Rgba8Unorm,
    T::Rgba8UnormSrgb,
    T::Rgba8Snorm,
    T::Rgba8Uint,
    T::Rgba8Sint,
    T::Bgra8Unorm,
    T::Bgra8UnormSrgb,
    T::Rgb9e5Ufloat,
    T::Rgb10a2Uint,
    T::Rgb10a2Unorm,
    T::Rg11b10Ufloat,
    T::Rg32Uint,
    T::Rg32Sint,
    T::Rg32Float,
    T::Rgba16Uint,
    T::Rgba16Sint,
    T::Rgba16Unorm,
    T::Rgba16Snorm,
    T::Rgba16Float,
    T::Rgba32Uint,
    T::Rgba32Sint,
    T::Rgba32Float,
    T::Depth16Unorm,
];

fn scalar(kind: Kind) -> &'static str {
    match kind {
        Kind::Uint | Kind::Uint64 => "u32",
        Kind::Sint => "i32",
        Kind::Float | Kind::Depth => "f32",
    }
}

/// Whether two values of a channel are the same but for `tolerance`, relative to the greater of 1 and
/// the value.
fn close(kind: Kind, value: u32, expected: u32, tolerance: f32) -> bool {
    if !matches!(kind, Kind::Float | Kind::Depth) {
        return value == expected;
    }
    let (value, expected) = (f32::from_bits(value), f32::from_bits(expected));
    value == expected
        || value.is_nan() && expected.is_nan()
        || (value - expected).abs() <= tolerance * expected.abs()
}

pub fn loads_decode_every_format(gpu: &Gpu) {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for &name in FORMATS {
        if !gpu.allows(
            name,
            TextureUsages::TEXTURE_BINDING | TextureUsages::COPY_DST,
            false,
        ) {
            // Depths are drawn, which this adapter does not do.
            let drawn = gpu.is_own() && name.is_depth_stencil_format();
            assert!(
                drawn || !name.required_features().is_empty(),
                "WebGPU guarantees {name:?}"
            );
            continue;
        }
        tried += 1;
        let mut seed = tried << 32;
        // Each byte and each pair of bytes comes by.
        let shared = Shared::new(gpu, name, Shape::D2, [256, 64, 1], 1, 1, |count| {
            (0..count)
                .map(|_| {
                    seed += 1;
                    word(seed) as u8
                })
                .collect()
        });
        let view = shared.view();
        let kind = view.format.kind();
        let (kind_name, texture) = match kind {
            Kind::Depth => ("f32", "texture_depth_2d".to_owned()),
            _ => (scalar(kind), format!("texture_2d<{}>", scalar(kind))),
        };
        let load = match kind {
            Kind::Depth => "vec4(textureLoad(t, at, 0), 0.0, 0.0, 1.0)",
            _ => "textureLoad(t, at, 0)",
        };
        let source = format!(
            "@group(0) @binding(0) var t: {texture};
             @group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                 let at = vec2(id.x % 256u, id.x / 256u);
                 let texel: vec4<{kind_name}> = {load};
                 out[id.x] = bitcast<vec4<u32>>(texel);
             }}"
        );
        let out = gpu.buffer(
            &[0xa5; 256 * 64 * 16],
            BufferUsages::STORAGE | BufferUsages::COPY_SRC,
        );
        let bound = shared.bound();
        let resources = [
            wgpu::BindingResource::TextureView(&bound),
            out.as_entire_binding(),
        ];
        gpu.run(&source, 256 * 64, &resources);
        let values: Vec<[u32; 4]> = bytemuck::pod_collect_to_vec(&gpu.read(&out));
        // sRGB may be off by what a driver's table leaves; the rest by the last place.
        let tolerance = if name.is_srgb() { 2e-3 } else { 3e-7 };
        for (n, value) in (0..).zip(values) {
            let at = At {
                coordinate: [n % 256, n / 256, 0],
                ..At::default()
            };
            let expected = view.load(at, OutOfBounds::Zero);
            let right = (0..4).all(|c| {
                let [a, b] = [value[c], expected[c]].map(f32::from_bits);
                let in_table = name.is_srgb() && !gpu.is_own() && (a - b).abs() <= 2e-3;
                close(kind, value[c], expected[c], tolerance) || in_table
            });
            if !right {
                let floats = (value.map(f32::from_bits), expected.map(f32::from_bits));
                wrong.push(format!(
                    "{name:?} at {n}: {value:x?}, here {expected:x?} ({floats:?})"
                ));
                break;
            }
        }
    }
    assert!(tried >= 30, "{tried} formats");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The formats of WGSL's storage textures, with their names there.
const STORAGE: &[(T, &str)] = &[
    (T::R8Unorm, "r8unorm"),
    (T::R8Snorm, "r8snorm"),
    (T::R8Uint, "r8uint"),
    (T::R8Sint, "r8sint"),
    (T::R16Unorm, "r16unorm"),
    (T::R16Snorm, "r16snorm"),
    (T::R16Uint, "r16uint"),
    (T::R16Sint, "r16sint"),
    (T::R16Float, "r16float"),
    (T::Rg8Unorm, "rg8unorm"),
    (T::Rg8Snorm, "rg8snorm"),
    (T::Rg8Uint, "rg8uint"),
    (T::Rg8Sint, "rg8sint"),
    (T::R32Uint, "r32uint"),
    (T::R32Sint, "r32sint"),
    (T::R32Float, "r32float"),
    (T::Rg16Unorm, "rg16unorm"),
    (T::Rg16Snorm, "rg16snorm"),
    (T::Rg16Uint, "rg16uint"),
    (T::Rg16Sint, "rg16sint"),
    (T::Rg16Float, "rg16float"),
    (T::Rgba8Unorm, "rgba8unorm"),
    (T::Rgba8Snorm, "rgba8snorm"),
    (T::Rgba8Uint, "rgba8uint"),
    (T::Rgba8Sint, "rgba8sint"),
    (T::Bgra8Unorm, "bgra8unorm"),
    (T::Rgb10a2Uint, "rgb10a2uint"),
    (T::Rgb10a2Unorm, "rgb10a2unorm"),
    (T::Rg11b10Ufloat, "rg11b10ufloat"),
    (T::Rg32Uint, "rg32uint"),
    (T::Rg32Sint, "rg32sint"),
    (T::Rg32Float, "rg32float"),
    (T::Rgba16Unorm, "rgba16unorm"),
    (T::Rgba16Snorm, "rgba16snorm"),
    (T::Rgba16Uint, "rgba16uint"),
    (T::Rgba16Sint, "rgba16sint"),
    (T::Rgba16Float, "rgba16float"),
    (T::Rgba32Uint, "rgba32uint"),
    (T::Rgba32Sint, "rgba32sint"),
    (T::Rgba32Float, "rgba32float"),
];

/// A value to store: in range for integers, within and a little beyond for the rest.
fn value(name: T, format: Format, index: u64) -> [u32; 4] {
    let bits = match name {
        T::Rgb10a2Uint => 2,
        _ => format.bytes() * 8 / u32::from(name.components()),
    };
    std::array::from_fn(|channel| {
        let random = word(4 * index + channel as u64);
        match format.kind() {
            Kind::Uint | Kind::Uint64 => (random >> (64 - bits)) as u32,
            Kind::Sint => ((random as i64) >> (64 - bits)) as u32,
            Kind::Float | Kind::Depth if bits == 32 => (unit(random) as f32).to_bits(),
            Kind::Float | Kind::Depth => ((unit(random) * 2.6 - 1.3) as f32).to_bits(),
        }
    })
}

pub fn stores_encode_every_storage_format(gpu: &Gpu) {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for &(name, wgsl) in STORAGE {
        if !gpu.allows(name, TextureUsages::STORAGE_BINDING, false) {
            continue;
        }
        tried += 1;
        let shared = Shared::new(gpu, name, Shape::D2, [256, 4, 1], 1, 1, |count| {
            vec![0; count]
        });
        let view = shared.view();
        let format = view.format;
        let kind = scalar(format.kind());
        let values: Vec<[u32; 4]> = (0..1024)
            .map(|n| value(name, format, n + (tried << 16)))
            .collect();
        let source = format!(
            "@group(0) @binding(0) var t: texture_storage_2d<{wgsl}, write>;
             @group(0) @binding(1) var<storage, read> values: array<vec4<u32>>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                 let at = vec2(id.x % 256u, id.x / 256u);
                 textureStore(t, at, bitcast<vec4<{kind}>>(values[id.x]));
             }}"
        );
        let input = gpu.buffer(bytemuck::cast_slice(&values), BufferUsages::STORAGE);
        let bound = shared.bound();
        let resources = [
            wgpu::BindingResource::TextureView(&bound),
            input.as_entire_binding(),
        ];
        gpu.run(&source, 1024, &resources);
        let size = format.bytes() as usize;
        let out = gpu.buffer(&vec![0; 1024 * size], BufferUsages::COPY_SRC);
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        encoder.copy_texture_to_buffer(
            shared.texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo {
                buffer: &out,
                layout: wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(256 * size as u32),
                    rows_per_image: Some(4),
                },
            },
            shared.texture.size(),
        );
        gpu.queue.submit([encoder.finish()]);
        let bytes = gpu.read(&out);
        for (n, value) in values.into_iter().enumerate() {
            let mut stored = [0u8; 16];
            stored[..size].copy_from_slice(&bytes[n * size..(n + 1) * size]);
            let stored: [u32; 4] = bytemuck::cast(stored);
            let expected = format.encode(value);
            // Rounding is the driver's: decoded values may differ by a step.
            let (theirs, ours) = (format.decode(stored), format.decode(expected));
            let step = match name {
                T::Rg11b10Ufloat => 1.0 / 32.0,
                T::Rgb10a2Unorm => 1.0 / 1000.0,
                _ if size == 4 * usize::from(name.components()) => 0.0,
                T::R16Float | T::Rg16Float | T::Rgba16Float => 1.0 / 1024.0,
                _ => 1.01 / (1u64 << (8 * size / usize::from(name.components()) - 1)) as f32,
            };
            let agree = (0..4).all(|c| match format.kind() {
                Kind::Float => {
                    let (theirs, ours) = (f32::from_bits(theirs[c]), f32::from_bits(ours[c]));
                    (theirs - ours).abs() <= step
                }
                _ => theirs[c] == ours[c],
            });
            if !agree {
                let floats = value.map(f32::from_bits);
                wrong.push(format!(
                    "{name:?} of {floats:?}: {stored:x?}, here {expected:x?}"
                ));
                break;
            }
        }
    }
    assert!(tried >= 16, "{tried} formats");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
