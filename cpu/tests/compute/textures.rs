//! Textures: copies, loads, stores, questions, atomics. How texels are sampled is tested beside the drivers.

use crate::{harness::Cpu, kernel};

const SIZE: wgpu::Extent3d = wgpu::Extent3d {
    width: 7,
    height: 5,
    depth_or_array_layers: 3,
};

fn texture(cpu: &Cpu, format: wgpu::TextureFormat, levels: u32) -> wgpu::Texture {
    cpu.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: SIZE,
        mip_level_count: levels,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: wgpu::TextureUsages::TEXTURE_BINDING
            | wgpu::TextureUsages::STORAGE_BINDING
            | wgpu::TextureUsages::COPY_SRC
            | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

/// Runs a kernel with resources at bindings 0, 1, … of group 0.
fn run(cpu: &Cpu, source: &str, groups: [u32; 3], resources: &[wgpu::BindingResource]) {
    let pipeline = cpu.pipeline(source);
    let group = kernel::bind(&cpu.device, &pipeline, resources.iter().cloned());
    cpu.dispatch(&pipeline, &group, groups);
}

#[test]
fn what_is_written_to_a_texture_is_copied_loaded_and_stored() {
    let cpu = Cpu::new();
    let from = texture(&cpu, wgpu::TextureFormat::R32Uint, 1);
    let to = texture(&cpu, wgpu::TextureFormat::R32Uint, 1);
    let texels: Vec<u32> = (100..100 + 7 * 5 * 3).collect();
    cpu.queue.write_texture(
        from.as_image_copy(),
        bytemuck::cast_slice(&texels),
        wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(4 * 7),
            rows_per_image: Some(5),
        },
        SIZE,
    );
    let view = |texture: &wgpu::Texture| {
        texture.create_view(&wgpu::TextureViewDescriptor {
            dimension: Some(wgpu::TextureViewDimension::D2Array),
            ..Default::default()
        })
    };
    let (source, target) = (view(&from), view(&to));
    run(
        &cpu,
        "@group(0) @binding(0) var source: texture_2d_array<u32>;
         @group(0) @binding(1) var target_: texture_storage_2d_array<r32uint, write>;
         @compute @workgroup_size(4, 4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             let at = vec2<i32>(id.xy);
             let texel = textureLoad(source, at, id.z, 0).x;
             // Beyond the edges nothing is stored.
             textureStore(target_, at, id.z, vec4<u32>(2u * texel + 1u));
         }",
        [3, 3, 3],
        &[
            wgpu::BindingResource::TextureView(&source),
            wgpu::BindingResource::TextureView(&target),
        ],
    );
    // Rows of 256 bytes, of which the buffer needs no more than there are.
    let staging = cpu.buffer(&vec![0; 256 * 5 * 3]);
    let mut encoder = cpu.device.create_command_encoder(&Default::default());
    encoder.copy_texture_to_buffer(
        to.as_image_copy(),
        wgpu::TexelCopyBufferInfo {
            buffer: &staging,
            layout: wgpu::TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(256),
                rows_per_image: Some(5),
            },
        },
        SIZE,
    );
    cpu.queue.submit([encoder.finish()]);
    let words = cpu.read::<u32>(&staging);
    for (row, texels) in texels.chunks(7).enumerate() {
        let expected: Vec<u32> = texels.iter().map(|texel| 2 * texel + 1).collect();
        assert_eq!(words[64 * row..64 * row + 7], expected, "row {row}");
    }
}

#[test]
fn levels_and_layers_are_counted_and_texels_out_of_bounds_are_zero() {
    let cpu = Cpu::new();
    let texture = texture(&cpu, wgpu::TextureFormat::Rgba8Unorm, 3);
    let view = texture.create_view(&wgpu::TextureViewDescriptor {
        dimension: Some(wgpu::TextureViewDimension::D2Array),
        base_mip_level: 1,
        base_array_layer: 1,
        ..Default::default()
    });
    let out = cpu.buffer(&[0xff; 48]);
    run(
        &cpu,
        "@group(0) @binding(0) var image: texture_2d_array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         fn levels(some: texture_2d_array<f32>) -> u32 { return textureNumLevels(some); }
         @compute @workgroup_size(1) fn main() {
             let size = textureDimensions(image);
             let last = textureDimensions(image, 1);
             out[0] = size.x; out[1] = size.y; out[2] = last.x; out[3] = last.y;
             out[4] = levels(image); out[5] = textureNumLayers(image);
             out[6] = bitcast<u32>(textureLoad(image, vec2<i32>(-1, 0), 0, 0).w);
             out[7] = bitcast<u32>(textureLoad(image, vec2<i32>(0, 0), 0, 5).w);
             out[8] = bitcast<u32>(textureLoad(image, vec2<i32>(0, 0), 2, 0).w);
             out[9] = bitcast<u32>(textureLoad(image, vec2<i32>(0, 0), 1, 0).w);
         }",
        [1, 1, 1],
        &[
            wgpu::BindingResource::TextureView(&view),
            out.as_entire_binding(),
        ],
    );
    assert_eq!(
        cpu.read::<u32>(&out)[..10],
        [3, 2, 1, 1, 2, 2, 0, 0, 0, 0],
        "textures begin as zeros"
    );
}

#[test]
fn texels_are_changed_by_atomic_operations() {
    let cpu = Cpu::new();
    let texture = cpu.device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d {
            width: 4,
            height: 1,
            depth_or_array_layers: 1,
        },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::R32Uint,
        usage: wgpu::TextureUsages::STORAGE_ATOMIC
            | wgpu::TextureUsages::STORAGE_BINDING
            | wgpu::TextureUsages::TEXTURE_BINDING,
        view_formats: &[],
    });
    let view = texture.create_view(&Default::default());
    let out = cpu.buffer(&[0; 16]);
    run(
        &cpu,
        "@group(0) @binding(0) var image: texture_storage_2d<r32uint, atomic>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             textureAtomicAdd(image, vec2<u32>(0u, 0u), 1u);
             textureAtomicMax(image, vec2<u32>(1u, 0u), id.x);
             textureAtomicOr(image, vec2<u32>(2u, 0u), 1u << (id.x & 7u));
             textureAtomicAdd(image, vec2<u32>(4u, 0u), 1u);
         }",
        [10, 1, 1],
        &[wgpu::BindingResource::TextureView(&view)],
    );
    run(
        &cpu,
        "@group(0) @binding(0) var image: texture_2d<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
             out[i] = textureLoad(image, vec2<u32>(i, 0u), 0).x;
         }",
        [1, 1, 1],
        &[
            wgpu::BindingResource::TextureView(&view),
            out.as_entire_binding(),
        ],
    );
    assert_eq!(cpu.read::<u32>(&out), [640, 639, 255, 0]);
}
