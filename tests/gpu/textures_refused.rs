//! Textures that cannot be, and what cannot be done with textures: each refusal says what it is about and what to do.

use pollster::block_on;

use crate::cases;
use crate::harness::Fixture;
use crate::launches::kernel;
use tombolo::buffers::{MemoryError, ReadError};
use tombolo::device::ExecutionError;
use tombolo::launch::LaunchError;
use tombolo::textures::{TextureDimension, TextureError, TextureOptions};
use tombolo::wgpu::{self, TextureFormat, TextureUsages};
use tombolo::{Device, DeviceTexture};

cases![
    texels_of_another_size_are_refused,
    sizes_beyond_a_limit_are_refused,
    formats_without_single_texels_are_refused,
    formats_are_refused_as_wgpu_refuses_them,
    regions_beyond_a_texture_are_refused,
    other_numbers_of_values_are_refused,
    lost_devices_are_reported,
    textures_of_other_devices_are_refused,
    textures_unlike_the_declaration_are_refused,
    textures_written_and_read_at_once_are_refused,
];

fn refused<T: bytemuck::Pod>(device: &Device, options: &TextureOptions) -> TextureError {
    device.texture::<T>(options).expect_err("a texture")
}

fn texels_of_another_size_are_refused(f: &Fixture) {
    let options = TextureOptions::d2([4, 4], TextureFormat::Rgba8Unorm);
    let error = refused::<u8>(&f.device, &options);
    assert!(
        matches!(
            error,
            TextureError::TexelSize {
                format: TextureFormat::Rgba8Unorm,
                texel_bytes: 4,
                element: "u8",
                element_bytes: 1,
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("Rgba8Unorm") && text.contains("[u8; 4]"),
        "{text}"
    );
    let error = refused::<()>(&f.device, &options);
    assert!(matches!(
        error,
        TextureError::TexelSize {
            element_bytes: 0,
            ..
        }
    ));
    let options = TextureOptions::d1(4, TextureFormat::Rgba32Float);
    let error = refused::<f32>(&f.device, &options);
    assert!(matches!(
        error,
        TextureError::TexelSize {
            texel_bytes: 16,
            ..
        }
    ));
}

fn sizes_beyond_a_limit_are_refused(f: &Fixture) {
    let limits = f.device.raw().limits();
    let format = TextureFormat::R8Uint;
    let [d1, d2, d3, layers] = [
        limits.max_texture_dimension_1d,
        limits.max_texture_dimension_2d,
        limits.max_texture_dimension_3d,
        limits.max_texture_array_layers,
    ];
    let mut flat = TextureOptions::d1(4, format);
    flat.size = [4, 2, 1];
    let cases = [
        (
            TextureOptions::d1(d1 + 1, format),
            "width",
            "max_texture_dimension_1d",
            d1,
        ),
        (
            TextureOptions::d2([1, d2 + 1], format),
            "height",
            "max_texture_dimension_2d",
            d2,
        ),
        (
            TextureOptions::d2([u32::MAX, 1], format),
            "width",
            "max_texture_dimension_2d",
            d2,
        ),
        (
            TextureOptions::d3([1, 1, d3 + 1], format),
            "depth",
            "max_texture_dimension_3d",
            d3,
        ),
        (
            TextureOptions::d2_array([1, 1], layers + 1, format),
            "number of layers",
            "max_texture_array_layers",
            layers,
        ),
    ];
    let error = refused::<u8>(&f.device, &flat);
    let is_flat = matches!(&error, TextureError::Flat { axis: "height", .. });
    assert!(is_flat && error.to_string().contains("1D"), "{error}");
    for (options, wanted_axis, wanted_name, wanted) in cases {
        let error = refused::<u8>(&f.device, &options);
        let text = error.to_string();
        match error {
            TextureError::TooLarge {
                axis, name, limit, ..
            } => {
                assert_eq!((axis, name, limit), (wanted_axis, wanted_name, wanted));
            }
            other => panic!("{other}"),
        }
        assert!(
            text.contains(wanted_name) && text.contains(f.device.name()),
            "{text}"
        );
    }
    // At the limit.
    let texture = f
        .device
        .texture::<u8>(&TextureOptions::d1(d1, format))
        .unwrap();
    texture.write(&vec![3; d1 as usize]).unwrap();
    assert_eq!(texture.read_region(([d1 - 1], [1])).unwrap(), [3]);
    for size in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
        let error = refused::<u8>(&f.device, &TextureOptions::d3(size, format));
        assert!(
            matches!(
                error,
                TextureError::Empty {
                    dimension: TextureDimension::D3,
                    ..
                }
            ),
            "{error}"
        );
    }
}

fn formats_without_single_texels_are_refused(f: &Fixture) {
    for format in [
        TextureFormat::Bc1RgbaUnorm,
        TextureFormat::Depth32Float,
        TextureFormat::NV12,
    ] {
        let error = refused::<u32>(&f.device, &TextureOptions::d2([4, 4], format));
        let text = error.to_string();
        assert!(matches!(error, TextureError::Format { .. }), "{text}");
        assert!(text.contains(&format!("{format:?}")), "{text}");
    }
    // wgpu gives the feature to devices that ask for it alone.
    let error = refused::<[u16; 4]>(
        &f.device,
        &TextureOptions::d2([4, 4], TextureFormat::Rgba16Unorm),
    );
    let text = error.to_string();
    assert!(matches!(error, TextureError::FormatUse { .. }), "{text}");
    assert!(text.contains("TEXTURE_FORMAT_16BIT_NORM"), "{text}");
    let unused = TextureOptions::d1(4, TextureFormat::R32Uint).sampled(false);
    let error = refused::<u32>(&f.device, &unused);
    assert!(matches!(error, TextureError::Unused { .. }), "{error}");
}

/// Makes a texture whose texels have so many bytes.
fn make(device: &Device, options: &TextureOptions) -> Result<(), TextureError> {
    match options.format.block_copy_size(None) {
        Some(1) => device.texture::<u8>(options).map(drop),
        Some(2) => device.texture::<u16>(options).map(drop),
        Some(4) => device.texture::<u32>(options).map(drop),
        Some(8) => device.texture::<u64>(options).map(drop),
        Some(16) => device.texture::<u128>(options).map(drop),
        other => panic!("{other:?}"),
    }
}

fn formats_are_refused_as_wgpu_refuses_them(f: &Fixture) {
    use TextureFormat as T;
    let formats = [
        T::R8Unorm,
        T::R8Snorm,
        T::R8Uint,
        T::R16Float,
        T::Rg8Unorm,
        T::R32Uint,
        T::R32Sint,
        T::R32Float,
        T::Rgba8Unorm,
        T::Rgba8UnormSrgb,
        T::Rgba8Snorm,
        T::Bgra8Unorm,
        T::Rgb9e5Ufloat,
        T::Rgb10a2Unorm,
        T::Rg11b10Ufloat,
        T::Rg32Float,
        T::Rgba16Float,
        T::Rgba16Uint,
        T::Rgba32Float,
        T::Rgba32Uint,
    ];
    let mut refused = 0;
    for (format, storage) in formats
        .into_iter()
        .flat_map(|format| [(format, false), (format, true)])
    {
        let device = f.device.raw();
        let mut usage =
            TextureUsages::COPY_SRC | TextureUsages::COPY_DST | TextureUsages::TEXTURE_BINDING;
        usage.set(TextureUsages::STORAGE_BINDING, storage);
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let _texture = device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d {
                width: 4,
                height: 4,
                depth_or_array_layers: 1,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format,
            usage,
            view_formats: &[],
        });
        let answer = block_on(scope.pop());
        let options = TextureOptions::d2([4, 4], format).storage(storage);
        match (make(&f.device, &options), answer) {
            (Ok(()), None) => {}
            (Err(TextureError::FormatUse { usage, device, .. }), Some(_)) => {
                assert_eq!(
                    (usage, device.as_str()),
                    ("storage textures", f.device.name())
                );
                refused += 1;
            }
            (found, wgpu) => panic!("{format:?} {storage}: {found:?}, wgpu: {wgpu:?}"),
        }
    }
    assert!(refused > 0, "no format is refused here");
}

fn words(f: &Fixture, options: TextureOptions) -> DeviceTexture<u32> {
    f.device.texture(&options).unwrap()
}

fn regions_beyond_a_texture_are_refused(f: &Fixture) {
    let texture = words(f, TextureOptions::d3([4, 3, 2], TextureFormat::R32Uint));
    texture.fill(8).unwrap();
    for (origin, extent) in [
        ([1, 0, 0], [4, 1, 1]),
        ([0, 3, 0], [1, 1, 1]),
        ([0, 0, 1], [1, 1, 2]),
        ([5, 0, 0], [0, 0, 0]),
        ([u32::MAX, 0, 0], [2, 1, 1]),
        ([0, 0, 0], [u32::MAX; 3]),
    ] {
        let region = (origin, extent);
        let errors = [
            ("write", texture.write_region(region, &[0; 4]).unwrap_err()),
            ("read", texture.read_region(region).unwrap_err()),
            ("read", texture.read_back(region).unwrap_err()),
            ("fill", texture.fill_region(region, 0).unwrap_err()),
        ];
        for (command, error) in errors {
            assert!(
                matches!(error, TextureError::OutOfRange { what, size: [4, 3, 2], .. } if what == command),
                "{error}"
            );
        }
    }
    assert_eq!(texture.read().unwrap(), [8; 24]);
}

fn other_numbers_of_values_are_refused(f: &Fixture) {
    let texture = words(f, TextureOptions::d2([4, 3], TextureFormat::R32Uint));
    texture.fill(8).unwrap();
    for len in [0, 11, 13] {
        let error = texture.write(&vec![0; len]).unwrap_err();
        assert!(
            matches!(error, TextureError::Count { values, texels: 12, .. } if values == len as u64),
            "{error}"
        );
    }
    let error = texture.write_region(([1, 1], [2, 1]), &[0]).unwrap_err();
    assert!(
        matches!(error, TextureError::Count { texels: 2, .. }),
        "{error}"
    );
    assert_eq!(texture.read().unwrap(), [8; 12]);
}

fn lost_devices_are_reported(f: &Fixture) {
    let device = f.open(|_| {});
    let options = TextureOptions::d2([4, 3], TextureFormat::R32Uint);
    let texture = device.texture::<u32>(&options).unwrap();
    texture.fill(1).unwrap();
    assert_eq!(texture.read().unwrap(), [1; 12]);
    device.raw().destroy();
    let is_lost = |error: &ExecutionError| matches!(error, ExecutionError::DeviceLost { .. });
    let of_memory = |error: TextureError| match error {
        TextureError::Memory(MemoryError::Execution(error)) => assert!(is_lost(&error), "{error}"),
        TextureError::Read(
            ReadError::Memory(MemoryError::Execution(error)) | ReadError::Execution(error),
        ) => {
            assert!(is_lost(&error), "{error}");
        }
        other => panic!("{other:?}"),
    };
    of_memory(texture.read().unwrap_err());
    of_memory(device.texture::<u32>(&options).unwrap_err());
    of_memory(texture.write(&[0; 12]).unwrap_err());
    of_memory(texture.fill(0).unwrap_err());
}

const PAINT: &str = "
    @group(0) @binding(0) var image: texture_2d<u32>;
    @group(0) @binding(1) var painted: texture_storage_2d<r32uint, write>;
    @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        textureStore(painted, id.xy, textureLoad(image, id.xy, 0));
    }";

fn textures_of_other_devices_are_refused(f: &Fixture) {
    let other = f.open(|_| {});
    let options = TextureOptions::d2([4, 4], TextureFormat::R32Uint).storage(true);
    let (here, there) = (
        words(f, options.clone()),
        other.texture::<u32>(&options).unwrap(),
    );
    let mut launch = kernel(f, PAINT)
        .launch()
        .texture("image", &there)
        .texture("painted", &here)
        .invocations([4, 4]);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::OtherDevice { argument, .. } if argument == "image"),
        "{error}"
    );
    let image = words(f, options);
    image.fill(6).unwrap();
    launch.set_texture("image", &image).unwrap();
    launch.submit().unwrap();
    assert_eq!(here.read().unwrap(), [6; 16]);
}

fn textures_unlike_the_declaration_are_refused(f: &Fixture) {
    let format = TextureFormat::R32Uint;
    let good = TextureOptions::d2([4, 4], format).storage(true);
    let (image, painted) = (words(f, good.clone()), words(f, good.clone()));
    image.fill(2).unwrap();
    let mut launch = kernel(f, PAINT)
        .launch()
        .texture("image", &image)
        .texture("painted", &painted)
        .invocations([4, 4]);
    let floats = |format| {
        f.device
            .texture::<f32>(&TextureOptions::d2([4, 4], format).storage(true))
            .unwrap()
    };
    let float = floats(TextureFormat::R32Float);
    let array = words(f, TextureOptions::d2_array([4, 4], 1, format).storage(true));
    let volume = words(f, TextureOptions::d3([4, 4, 4], format).storage(true));
    let sampled = words(f, TextureOptions::d2([4, 4], format));
    let storage = words(f, good.clone().sampled(false));
    let mut refuse = |argument: &str,
                      expected: &str,
                      given: tombolo::textures::TextureArgument,
                      words: &[&str]| {
        launch.set_texture(argument, given).unwrap();
        let error = launch.submit().unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(&error, LaunchError::TextureMismatch { argument: found, .. } if found == argument),
            "{text}"
        );
        for word in [expected].iter().chain(words) {
            assert!(text.contains(word), "{word}: {text}");
        }
        let right = if argument == "image" {
            &image
        } else {
            &painted
        };
        launch.set_texture(argument, right).unwrap();
        painted.fill(0).unwrap();
        launch.submit().unwrap();
        assert_eq!(painted.read().unwrap(), [2; 16]);
    };
    let load = "texture_2d<u32>";
    refuse("image", load, (&float).into(), &["R32Float"]);
    refuse("image", load, (&array).into(), &["2D array"]);
    refuse("image", load, (&volume).into(), &["3D"]);
    refuse(
        "image",
        load,
        (&storage).into(),
        &["TextureOptions::sampled"],
    );
    let store = "texture_storage_2d<r32uint, write>";
    refuse(
        "painted",
        store,
        (&float).into(),
        &["R32Float", "same format"],
    );
    refuse("painted", store, (&array).into(), &["2D array"]);
    refuse(
        "painted",
        store,
        (&sampled).into(),
        &["TextureOptions::storage"],
    );
}

fn textures_written_and_read_at_once_are_refused(f: &Fixture) {
    let options = TextureOptions::d2([4, 4], TextureFormat::R32Uint).storage(true);
    let (image, painted) = (words(f, options.clone()), words(f, options));
    image.fill(4).unwrap();
    let mut launch = kernel(f, PAINT)
        .launch()
        .texture("image", &image)
        .texture("painted", &image)
        .invocations([4, 4]);
    let error = launch.submit().unwrap_err();
    assert!(
        matches!(&error, LaunchError::Aliased { first, second, .. } if first == "image" && second == "painted"),
        "{error}"
    );
    launch.set_texture("painted", &painted).unwrap();
    launch.submit().unwrap();
    assert_eq!(painted.read().unwrap(), [4; 16]);
    // One texture may be read through several arguments, and stored to through several in the same way.
    let twice = "
        @group(0) @binding(0) var a: texture_2d<u32>;
        @group(0) @binding(1) var b: texture_2d<u32>;
        @group(0) @binding(2) var c: texture_storage_2d<r32uint, write>;
        @group(0) @binding(3) var d: texture_storage_2d<r32uint, write>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let sum = textureLoad(a, id.xy, 0).x + textureLoad(b, id.xy, 0).x;
            if id.x < 2u { textureStore(c, id.xy, vec4(sum, 0u, 0u, 0u)); }
            else { textureStore(d, id.xy, vec4(sum + 1u, 0u, 0u, 0u)); }
        }";
    painted.fill(0).unwrap();
    kernel(f, twice)
        .launch()
        .texture("a", &image)
        .texture("b", &image)
        .texture("c", &painted)
        .texture("d", &painted)
        .invocations([4, 4])
        .submit()
        .unwrap();
    let row = [8, 8, 9, 9];
    assert_eq!(painted.read().unwrap(), [row; 4].as_flattened());
}
