//! Textures of the runtime: texels that come back as they were written, kernels that load and store them, and the order of
//! transfers and launches. Expected texels are computed in Rust.

use std::fmt::Debug;

use bytemuck::Pod;
use pollster::block_on;

use crate::cases;
use crate::harness::Fixture;
use crate::launches::kernel;
use tombolo::DeviceTexture;
use tombolo::textures::{TextureDimension, TextureError, TextureOptions, TextureRegion};
use tombolo::wgpu::TextureFormat;

cases![
    texels_come_back_as_written,
    regions_touch_their_texels_alone,
    texels_are_read_into_memory_of_the_program,
    large_textures_go_by_bands,
    large_writes_keep_their_place_behind_recorded_work,
    reads_are_awaited,
    kernels_load_and_store_in_every_dimension,
    formats_convert_what_is_loaded_and_stored,
    transfers_and_launches_keep_their_order,
];

pub fn make<T: Pod>(f: &Fixture, options: TextureOptions) -> DeviceTexture<T> {
    f.device.texture(&options).unwrap()
}

/// Numbers that repeat in no row, slice or band.
pub fn noise(seed: u32) -> impl Iterator<Item = u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    })
}

/// Shapes of which no row is a multiple of 64 texels or of 256 bytes.
fn shapes(format: TextureFormat) -> [TextureOptions; 7] {
    [
        TextureOptions::d1(37, format),
        TextureOptions::d1(1, format),
        TextureOptions::d2([65, 7], format),
        TextureOptions::d2([1, 9], format),
        TextureOptions::d2_array([13, 5], 3, format),
        TextureOptions::d2_array([67, 3], 1, format),
        TextureOptions::d3([9, 4, 6], format),
    ]
}

/// A texture as an array.
struct Model<T> {
    size: [u32; 3],
    texels: Vec<T>,
}

impl<T: Pod> Model<T> {
    fn new([width, height, depth]: [u32; 3], value: T) -> Self {
        Self {
            size: [width, height, depth],
            texels: vec![value; (width * height * depth) as usize],
        }
    }

    /// The places of the texels of a region, in order.
    fn places(&self, region: TextureRegion) -> Vec<usize> {
        let [width, height, _] = self.size;
        let ([x, y, z], [w, h, d]) = (region.origin, region.extent);
        let mut places = Vec::new();
        for z in z..z + d {
            for y in y..y + h {
                places.extend((x..x + w).map(|x| ((z * height + y) * width + x) as usize));
            }
        }
        places
    }
}

fn come_back<T: Pod + PartialEq + Debug>(f: &Fixture, format: TextureFormat, of: fn(u32) -> T) {
    for (seed, options) in shapes(format).into_iter().enumerate() {
        let texture: DeviceTexture<T> = make(f, options.clone());
        let count = options.size.iter().product::<u32>() as usize;
        assert_eq!(
            texture.read().unwrap(),
            vec![T::zeroed(); count],
            "{options:?}"
        );
        let poison = of(0xdead_beef);
        texture.fill(poison).unwrap();
        assert_eq!(texture.read().unwrap(), vec![poison; count], "{options:?}");
        let texels: Vec<T> = noise(seed as u32).map(of).take(count).collect();
        texture.write(&texels).unwrap();
        assert_eq!(texture.read().unwrap(), texels, "{options:?}");
        assert_eq!(
            (texture.size(), texture.format(), texture.dimension()),
            (options.size, format, options.dimension)
        );
    }
}

fn texels_come_back_as_written(f: &Fixture) {
    come_back::<u8>(f, TextureFormat::R8Uint, |word| word as u8);
    come_back::<[u8; 4]>(f, TextureFormat::Rgba8Unorm, u32::to_le_bytes);
    come_back::<f32>(f, TextureFormat::R32Float, |word| word as f32);
    come_back::<u32>(f, TextureFormat::R32Uint, |word| word);
    come_back::<[u16; 4]>(f, TextureFormat::Rgba16Uint, |word| {
        [0, 1, 2, 3].map(|channel| (word >> (4 * channel)) as u16)
    });
    come_back::<[f32; 4]>(f, TextureFormat::Rgba32Float, |word| {
        [1.0, -2.0, 0.5, 3.0].map(|factor| factor * word as f32)
    });
}

fn regions_touch_their_texels_alone(f: &Fixture) {
    const POISON: u32 = 0xabad_cafe;
    let format = TextureFormat::R32Uint;
    for options in shapes(format) {
        let [width, height, depth] = options.size;
        let texture: DeviceTexture<u32> = make(f, options.clone());
        let mut model = Model::new(options.size, POISON);
        texture.fill(POISON).unwrap();
        let (w, h, d) = (width.div_ceil(2), height.div_ceil(2), depth.div_ceil(2));
        let regions = [
            TextureRegion::new([width - w, height - h, depth - d], [w, h, d]),
            TextureRegion::new([0, 0, 0], [w, 1, 1]),
            TextureRegion::new([width - 1, height - 1, depth - 1], [1, 1, 1]),
            TextureRegion::new([0, height - h, 0], [width, h, 1]),
            TextureRegion::new([0, 0, depth - d], [width, height, d]),
            TextureRegion::new([width, 0, depth], [0, height, 0]),
            texture.region(),
        ];
        let mut words = noise(height);
        for region in regions {
            let places = model.places(region);
            assert_eq!(region.texels(), places.len() as u64);
            let texels: Vec<u32> = words.by_ref().take(places.len()).collect();
            for (place, texel) in places.iter().zip(&texels) {
                model.texels[*place] = *texel;
            }
            texture.write_region(region, &texels).unwrap();
            assert_eq!(texture.read_region(region).unwrap(), texels, "{region:?}");
            assert_eq!(texture.read().unwrap(), model.texels, "{region:?}");
        }
        for region in regions {
            let value = words.next().unwrap();
            for place in model.places(region) {
                model.texels[place] = value;
            }
            texture.fill_region(region, value).unwrap();
            assert_eq!(texture.read().unwrap(), model.texels, "{region:?}");
            let places = model.places(regions[0]);
            let part: Vec<u32> = places.iter().map(|place| model.texels[*place]).collect();
            assert_eq!(texture.read_region(regions[0]).unwrap(), part);
        }
    }
    let texture: DeviceTexture<u32> = make(f, TextureOptions::d2([8, 8], format));
    texture.write_region(([3, 4], [2, 1]), &[5, 6]).unwrap();
    assert_eq!(texture.read_region(([2, 4], [3, 1])).unwrap(), [0, 5, 6]);
    let texture: DeviceTexture<u32> = make(f, TextureOptions::d1(8, format));
    texture.write_region(([3], [2]), &[5, 6]).unwrap();
    assert_eq!(texture.read_region(([2], [3])).unwrap(), [0, 5, 6]);
}

/// Textures that need several staging buffers of 4 MiB: rows of one slice, and several slices at once.
fn large() -> [TextureOptions; 2] {
    let format = TextureFormat::R32Uint;
    [
        TextureOptions::d2([1030, 2050], format),
        TextureOptions::d3([100, 130, 90], format),
    ]
}

fn texels_are_read_into_memory_of_the_program(f: &Fixture) {
    const POISON: u32 = 0xabad_cafe;
    for options in shapes(TextureFormat::R32Uint) {
        let [width, height, depth] = options.size;
        let texture: DeviceTexture<u32> = make(f, options.clone());
        let mut model = Model::new(options.size, 0);
        let count = model.texels.len();
        model.texels = noise(width).take(count).collect();
        texture.write(&model.texels).unwrap();
        let mut values = vec![POISON; count];
        texture.read_into(&mut values).unwrap();
        assert_eq!(values, model.texels, "{options:?}");
        let region = TextureRegion::new(
            [width / 2, height / 2, depth / 2],
            [width - width / 2, height - height / 2, depth - depth / 2],
        );
        let places = model.places(region);
        let expected: Vec<u32> = places.iter().map(|place| model.texels[*place]).collect();
        // In the midst of memory, and nothing beside.
        let mut values = vec![POISON; expected.len() + 2];
        let end = expected.len() + 1;
        texture
            .read_region_into(region, &mut values[1..end])
            .unwrap();
        assert_eq!(values[1..end], expected, "{options:?}");
        assert_eq!([values[0], values[end]], [POISON; 2], "{options:?}");
        texture.read_region_into(([0; 3], [0; 3]), &mut []).unwrap();
        for len in [expected.len() - 1, expected.len() + 1] {
            let mut values = vec![POISON; len];
            let error = texture.read_region_into(region, &mut values).unwrap_err();
            assert!(
                matches!(error, TextureError::Count { what: "read", values, .. } if values == len as u64),
                "{error}"
            );
            assert!(values.iter().all(|value| *value == POISON));
        }
        let outside = ([width, 0, 0], [1, 1, 1]);
        let error = texture
            .read_region_into(outside, &mut [POISON])
            .unwrap_err();
        assert!(matches!(error, TextureError::OutOfRange { .. }), "{error}");
    }
    for options in large() {
        let texture: DeviceTexture<u32> = make(f, options.clone());
        let count = options.size.iter().product::<u32>() as usize;
        let model: Vec<u32> = noise(3).take(count).collect();
        texture.write(&model).unwrap();
        let mut values = vec![POISON; count];
        texture.read_into(&mut values).unwrap();
        assert!(values == model, "{options:?}");
    }
}

fn large_textures_go_by_bands(f: &Fixture) {
    for options in large() {
        let texture: DeviceTexture<u32> = make(f, options.clone());
        let count = options.size.iter().product::<u32>() as usize;
        let model: Vec<u32> = noise(9).take(count).collect();
        // An idle device, whose batches are submitted one by one.
        f.device.finish().unwrap();
        texture.write(&model).unwrap();
        assert!(texture.read().unwrap() == model, "{options:?}");
        let read = texture.read_back(texture.region()).unwrap();
        assert!(read.wait().unwrap() == model, "{options:?}");
        texture.fill(7).unwrap();
        assert!(texture.read().unwrap() == vec![7; count], "{options:?}");
    }
}

const SCALE: &str = "
    @group(0) @binding(0) var image: texture_storage_2d<r32uint, read_write>;
    @compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if any(id.xy >= textureDimensions(image)) { return; }
        textureStore(image, id.xy, textureLoad(image, id.xy) * 3u + id.x + 1u);
    }";

/// What `SCALE` makes of texels.
fn scaled(texels: &[u32], width: u32) -> Vec<u32> {
    let xs = (0..width).cycle();
    let texels = texels.iter().zip(xs);
    texels
        .map(|(texel, x)| texel.wrapping_mul(3).wrapping_add(x + 1))
        .collect()
}

fn large_writes_keep_their_place_behind_recorded_work(f: &Fixture) {
    let [width, height] = [1030, 1200];
    let options = TextureOptions::d2([width, height], TextureFormat::R32Uint).storage(true);
    let texture: DeviceTexture<u32> = make(f, options);
    let mut launch = kernel(f, SCALE)
        .launch()
        .texture("image", &texture)
        .invocations([width, height]);
    let words = |seed| -> Vec<u32> { noise(seed).take((width * height) as usize).collect() };
    let (first, second) = (words(1), words(2));
    texture.write(&first).unwrap();
    launch.submit().unwrap();
    // Recorded work in front: staged as a whole.
    texture.write(&second).unwrap();
    launch.submit().unwrap();
    launch.submit().unwrap();
    let found = texture.read().unwrap();
    assert!(found == scaled(&scaled(&second, width), width));
}

fn reads_are_awaited(f: &Fixture) {
    let options = TextureOptions::d2_array([5, 3], 2, TextureFormat::R32Uint);
    let texture: DeviceTexture<u32> = make(f, options);
    let texels: Vec<u32> = noise(4).take(30).collect();
    texture.write(&texels).unwrap();
    let whole = texture.read_back(texture.region()).unwrap();
    let part = texture.read_back(([1, 2, 1], [3, 1, 1])).unwrap();
    let none = texture.read_back(([1, 2, 1], [0, 1, 1])).unwrap();
    texture.fill(0).unwrap();
    assert_eq!(block_on(part).unwrap(), texels[26..29]);
    assert_eq!(block_on(whole).unwrap(), texels);
    assert!(block_on(none).unwrap().is_empty());
}

/// Stores to each texel twice the texel on the other side of all dimensions, and a number of its place.
fn mirror(dimension: TextureDimension) -> String {
    let (form, at, to, last) = match dimension {
        TextureDimension::D1 => (
            "1d",
            "there.x",
            "id.x",
            "vec3u(textureDimensions(image), 1u, 1u)",
        ),
        TextureDimension::D2 => (
            "2d",
            "there.xy",
            "id.xy",
            "vec3u(textureDimensions(image), 1u)",
        ),
        TextureDimension::D3 => ("3d", "there", "id", "textureDimensions(image)"),
        _ => (
            "2d_array",
            "there.xy, there.z",
            "id.xy, id.z",
            "vec3u(textureDimensions(image), textureNumLayers(image))",
        ),
    };
    format!(
        "@group(0) @binding(0) var image: texture_{form}<u32>;
         @group(0) @binding(1) var painted: texture_storage_{form}<r32uint, write>;
         @compute @workgroup_size(4, 2, 1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let size = {last};
            if any(id >= size) {{ return; }}
            let there = size - 1u - id;
            let number = (id.z * size.y + id.y) * size.x + id.x;
            textureStore(painted, {to}, vec4(textureLoad(image, {at}, 0).x * 2u + number, 0u, 0u, 0u));
         }}"
    )
}

fn kernels_load_and_store_in_every_dimension(f: &Fixture) {
    for options in shapes(TextureFormat::R32Uint) {
        let image: DeviceTexture<u32> = make(f, options.clone());
        let painted: DeviceTexture<u32> = make(f, options.clone().sampled(false).storage(true));
        let count = options.size.iter().product::<u32>() as usize;
        let texels: Vec<u32> = noise(3).take(count).collect();
        painted.fill(0xdead_beef).unwrap();
        image.write(&texels).unwrap();
        kernel(f, &mirror(options.dimension))
            .launch()
            .texture("image", &image)
            .texture("painted", &painted)
            .invocations(options.size)
            .submit()
            .unwrap();
        let others = texels.iter().rev().zip(0..);
        let expected: Vec<u32> = others
            .map(|(texel, number)| texel.wrapping_mul(2).wrapping_add(number))
            .collect();
        assert_eq!(painted.read().unwrap(), expected, "{options:?}");
        assert_eq!(image.read().unwrap(), texels, "{options:?}");
    }
}

fn formats_convert_what_is_loaded_and_stored(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var bytes: texture_2d<f32>;
         @group(0) @binding(1) var nearest: sampler;
         @group(0) @binding(2) var swapped: texture_storage_2d<rgba8unorm, write>;
         @group(0) @binding(3) var floats: texture_storage_2d<rgba32float, write>;
         @group(0) @binding(4) var one: texture_storage_2d<r32float, write>;
         @compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let size = textureDimensions(bytes);
            if any(id.xy >= size) { return; }
            let at = (vec2f(id.xy) + 0.5) / vec2f(size);
            let texel = textureSampleLevel(bytes, nearest, at, 0.0);
            textureStore(swapped, id.xy, texel.bgra);
            textureStore(floats, id.xy, texel);
            textureStore(one, id.xy, vec4f(texel.g * 255.0 + f32(id.x)));
         }",
    );
    let size = [19, 11];
    let storage = |format| {
        TextureOptions::d2(size, format)
            .storage(true)
            .label("painted")
    };
    let bytes: DeviceTexture<[u8; 4]> =
        make(f, TextureOptions::d2(size, TextureFormat::Rgba8Unorm));
    let swapped: DeviceTexture<[u8; 4]> = make(f, storage(TextureFormat::Rgba8Unorm));
    let floats: DeviceTexture<[f32; 4]> = make(f, storage(TextureFormat::Rgba32Float));
    let one: DeviceTexture<f32> = make(f, storage(TextureFormat::R32Float));
    let texels: Vec<[u8; 4]> = noise(5).map(u32::to_le_bytes).take(19 * 11).collect();
    bytes.write(&texels).unwrap();
    swapped.fill([1; 4]).unwrap();
    floats.fill([-1.0; 4]).unwrap();
    one.fill(-1.0).unwrap();
    let sampler = f
        .device
        .raw()
        .create_sampler(&wgpu::SamplerDescriptor::default());
    kernel
        .launch()
        .texture("bytes", &bytes)
        .sampler("nearest", &sampler)
        .texture("swapped", &swapped)
        .texture("floats", &floats)
        .texture("one", &one)
        .invocations(size)
        .submit()
        .unwrap();
    let expected: Vec<[u8; 4]> = texels.iter().map(|&[r, g, b, a]| [b, g, r, a]).collect();
    assert_eq!(swapped.read().unwrap(), expected);
    for (found, texel) in floats.read().unwrap().iter().zip(&texels) {
        for (found, byte) in found.iter().zip(texel) {
            approx::assert_abs_diff_eq!(*found, f32::from(*byte) / 255.0, epsilon = 1e-4);
        }
    }
    for ((found, texel), x) in one.read().unwrap().iter().zip(&texels).zip((0..19).cycle()) {
        approx::assert_abs_diff_eq!(*found, f32::from(texel[1]) + x as f32, epsilon = 1e-2);
    }
}

fn transfers_and_launches_keep_their_order(f: &Fixture) {
    let size = [13, 7];
    let options = TextureOptions::d2(size, TextureFormat::R32Uint).storage(true);
    let texture: DeviceTexture<u32> = make(f, options);
    let mut launch = kernel(f, SCALE)
        .launch()
        .texture("image", &texture)
        .invocations(size);
    let mut model: Vec<u32> = Vec::new();
    let mut reads = Vec::new();
    for round in 0..12u32 {
        model = noise(round).take(13 * 7).collect();
        texture.write(&model).unwrap();
        launch.submit().unwrap();
        model = scaled(&model, 13);
        texture.write_region(([2, 3], [3, 1]), &[round; 3]).unwrap();
        model[41..44].fill(round);
        launch.submit().unwrap();
        model = scaled(&model, 13);
        if round % 3 == 0 {
            texture.fill_region(([0, 6], [13, 1]), round).unwrap();
            model[78..].fill(round);
        }
        reads.push((texture.read_back(texture.region()).unwrap(), model.clone()));
        if round % 4 == 3 {
            assert_eq!(texture.read().unwrap(), model, "{round}");
        }
    }
    for (round, (read, model)) in reads.into_iter().enumerate() {
        assert_eq!(read.wait().unwrap(), model, "{round}");
    }
    assert_eq!(texture.read().unwrap(), model);
}
