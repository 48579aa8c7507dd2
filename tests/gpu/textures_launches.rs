//! Textures in launches: how long they stay, what failed launches leave in them, and every way in which they are given.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::kernel;
use crate::textures::{make, noise};
use tombolo::device::ExecutionError;
use tombolo::textures::{TextureError, TextureOptions};
use tombolo::wgpu::TextureFormat;
use tombolo::{DeviceBuffer, DeviceTexture, Launch, buffers::ReadError};

cases![
    textures_stay_until_their_launches_have_ended,
    bind_groups_of_textures_are_kept_as_long_as_textures,
    failures_stay_in_a_texture_until_it_is_written,
    views_and_textures_are_given_alike,
    handlers_load_textures,
];

const SUM: &str = "
    @group(0) @binding(0) var image: texture_2d<u32>;
    @group(0) @binding(1) var<storage, read_write> sums: array<u32>;
    @group(0) @binding(2) var<uniform> slot: u32;
    @compute @workgroup_size(1) fn main() {
        let size = textureDimensions(image);
        var sum = 0u;
        for (var y = 0u; y < size.y; y++) {
            for (var x = 0u; x < size.x; x++) { sum += textureLoad(image, vec2(x, y), 0).x; }
        }
        sums[slot] = sum;
    }";

fn sum(f: &Fixture, sums: &DeviceBuffer<u32>) -> Launch {
    let launch = kernel(f, SUM).launch().buffer("sums", sums);
    launch.workgroups(1)
}

fn textures_stay_until_their_launches_have_ended(f: &Fixture) {
    let sums = f.device.buffer(&[0xdead_beefu32; 24]).unwrap();
    let mut expected = Vec::new();
    for slot in 0..24u32 {
        let options = TextureOptions::d2([9, 5 + slot], TextureFormat::R32Uint);
        let texture: DeviceTexture<u32> = make(f, options);
        let texels: Vec<u32> = noise(slot).take(9 * (5 + slot) as usize).collect();
        texture.write(&texels).unwrap();
        expected.push(
            texels
                .iter()
                .fold(0u32, |sum, texel| sum.wrapping_add(*texel)),
        );
        sum(f, &sums)
            .texture("image", &texture)
            .value("slot", &slot)
            .submit()
            .unwrap();
    }
    assert_eq!(sums.read().unwrap(), expected);
}

fn bind_groups_of_textures_are_kept_as_long_as_textures(f: &Fixture) {
    let sums = f.device.buffer(&[0u32]).unwrap();
    let texture: DeviceTexture<u32> = make(f, TextureOptions::d2([3, 3], TextureFormat::R32Uint));
    texture.fill(5).unwrap();
    let counts = || f.device.cache_statistics().bind_groups;
    let launch = || {
        let mut launch = sum(f, &sums)
            .texture("image", &texture)
            .value("slot", &0u32);
        launch.submit().unwrap().wait().unwrap();
    };
    launch();
    let before = counts();
    launch();
    launch();
    let after = counts();
    assert_eq!(
        (after.misses, after.entries),
        (before.misses, before.entries)
    );
    assert!(after.hits >= before.hits + 2, "{before:?} {after:?}");
    drop(texture);
    assert_eq!(counts().entries, before.entries - 1);
    assert_eq!(sums.read().unwrap(), [45]);
}

fn failures_stay_in_a_texture_until_it_is_written(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var image: texture_storage_2d<r32uint, write>;
         @group(0) @binding(1) var<uniform> value: u32;
         @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            assert(value != 0u, \"none\");
            textureStore(image, id.xy, vec4(value, 0u, 0u, 0u));
         }",
    );
    let options = TextureOptions::d2([4, 2], TextureFormat::R32Uint).storage(true);
    let texture: DeviceTexture<u32> = make(f, options);
    let fail = || {
        let launch = kernel.launch().texture("image", &texture);
        let _event = launch
            .value("value", &0u32)
            .invocations([4, 2])
            .submit()
            .unwrap();
    };
    let failure = || match texture.read() {
        Err(TextureError::Read(ReadError::Execution(error))) => error,
        other => panic!("{other:?}"),
    };
    fail();
    assert!(matches!(*failure(), ExecutionError::Assertion { .. }));
    // Of a part of the texture nothing is known either.
    texture.write_region(([0, 0], [1, 1]), &[1]).unwrap();
    assert!(matches!(*failure(), ExecutionError::Assertion { .. }));
    let read = texture.read_back(texture.region()).unwrap();
    assert!(matches!(read.wait(), Err(ReadError::Execution(_))));
    // A launch that works on the texels has failed with them.
    let sums = f.device.buffer(&[0u32]).unwrap();
    let reads = || {
        let mut launch = sum(f, &sums)
            .texture("image", &texture)
            .value("slot", &0u32);
        launch.submit().unwrap();
        sums.read()
    };
    match reads() {
        Err(ReadError::Execution(error)) => {
            assert!(
                matches!(*error, ExecutionError::Inherited { .. }),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    sums.fill(0, ..).unwrap();
    texture.write(&[3; 8]).unwrap();
    assert_eq!(texture.read().unwrap(), [3; 8]);
    assert_eq!(reads().unwrap(), [24]);
    fail();
    texture.fill(9).unwrap();
    assert_eq!(texture.read().unwrap(), [9; 8]);
    fail();
    texture.clear_error();
    texture.read().unwrap();
}

fn views_and_textures_are_given_alike(f: &Fixture) {
    let sums = f.device.buffer(&[0u32]).unwrap();
    let format = TextureFormat::R32Uint;
    let textures = [1u32, 2].map(|value| {
        let texture: DeviceTexture<u32> = make(f, TextureOptions::d2([4, 4], format));
        texture.fill(value).unwrap();
        texture
    });
    f.device.flush().unwrap();
    let view = textures[0].raw().create_view(&Default::default());
    let mut launch = sum(f, &sums).texture("image", &view).value("slot", &0u32);
    let check = |launch: &mut Launch, expected: u32| {
        sums.fill(!0, ..).unwrap();
        launch.submit().unwrap();
        assert_eq!(sums.read().unwrap(), [expected]);
    };
    check(&mut launch, 16);
    launch.set_texture("image", &textures[1]).unwrap();
    check(&mut launch, 32);
    launch.set_texture("image", textures[0].view()).unwrap();
    check(&mut launch, 16);
    let text = format!("{:?}", textures[0]);
    for part in ["DeviceTexture", "[4, 4, 1]", "R32Uint", "u32"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(textures[0].clone().read().unwrap(), [1; 16]);
    assert_eq!(textures[0].device().name(), f.device.name());
}

fn handlers_load_textures(f: &Fixture) {
    let program = tombolo::Program::new(
        "texel.wgsl",
        "@group(0) @binding(0) var image: texture_2d<u32>;
         fn texel(x: u32, y: u32) -> u32 { return textureLoad(image, vec2(x, y), 0).x; }",
    )
    .unwrap();
    let texture: DeviceTexture<u32> = make(f, TextureOptions::d2([3, 2], TextureFormat::R32Uint));
    texture.write(&[10, 11, 12, 13, 14, 15]).unwrap();
    let server = tombolo::PersistentKernel::builder(&f.device, &program)
        .handler("texel")
        .texture("image", &texture)
        .start()
        .unwrap();
    let texel = server.function::<(u32, u32), u32>("texel").unwrap();
    let minute = std::time::Duration::from_secs(60);
    assert_eq!(texel.call_timeout(&(2, 0), minute).unwrap(), 12);
    // Written between two calls.
    texture.write_region(([2, 0], [1, 1]), &[99]).unwrap();
    assert_eq!(texel.call_timeout(&(2, 0), minute).unwrap(), 99);
    assert_eq!(texel.call_timeout(&(1, 1), minute).unwrap(), 14);
}
