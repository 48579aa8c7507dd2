//! Loads and stores of every format that the device has.

use crate::harness::{Gpu, Shared};
use crate::support::{
    formats::LOADED,
    random::{unit, word},
};
use tombolo_cpu::texel::{At, Format, Kind, OutOfBounds, Shape};
use wgpu::{BufferUsages, TextureFormat as T, TextureUsages};

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
    for &name in LOADED {
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

/// A format's name in WGSL, if storage textures can have it.
fn storage_name(format: T) -> Option<String> {
    let sampled = [
        T::Rgba8UnormSrgb,
        T::Bgra8UnormSrgb,
        T::Rgb9e5Ufloat,
        T::Depth16Unorm,
    ];
    (!sampled.contains(&format)).then(|| format!("{format:?}").to_lowercase())
}

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
    for &name in LOADED {
        let Some(wgsl) = storage_name(name) else {
            continue;
        };
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
