//! Samples, gathers and comparisons, at spots away from where rounding decides between texels.
//!
//! Drivers place samples on a grid of 1/256 of a texel, and software ones blend 8-bit formats in 8
//! bits: the tolerances are of that size.

use crate::harness::{Gpu, Shared, unit, word};
use bytemuck::{Pod, Zeroable};
use tombolo_cpu::texel::{Detail, Sampler, Shape, Spot, TexelView};
use wgpu::{
    AddressMode, BufferUsages, CompareFunction, FilterMode, MipmapFilterMode, SamplerBorderColor,
    TextureFormat as T,
};

/// A request as kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Request {
    coordinate: [f32; 3],
    level: f32,
    x: [f32; 3],
    reference: f32,
    y: [f32; 3],
    index: i32,
}

impl Request {
    fn spot(&self, offset: [i32; 3]) -> Spot {
        Spot {
            coordinate: self.coordinate,
            array_index: self.index,
            offset,
        }
    }
}

const REQUEST: &str = "struct Request {
    coordinate: vec3<f32>, level: f32, x: vec3<f32>, reference: f32, y: vec3<f32>, index: i32,
}";

const ADDRESS: [AddressMode; 3] = [
    AddressMode::ClampToEdge,
    AddressMode::Repeat,
    AddressMode::MirrorRepeat,
];
const FILTERS: [FilterMode; 2] = [FilterMode::Nearest, FilterMode::Linear];

/// What the device makes of `expression`, a vec4<f32> of `t`, `s` and the request `r`.
fn ask(
    gpu: &Gpu,
    shared: &Shared,
    types: [&str; 2],
    sampler: &Sampler,
    expression: &str,
    requests: &[Request],
) -> Vec<[u32; 4]> {
    let source = format!(
        "{REQUEST}
         @group(0) @binding(0) var t: {};
         @group(0) @binding(1) var s: {};
         @group(0) @binding(2) var<storage, read> requests: array<Request>;
         @group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             if (id.x >= arrayLength(&requests)) {{ return; }}
             let r = requests[id.x];
             out[id.x] = bitcast<vec4<u32>>({expression});
         }}",
        types[0], types[1]
    );
    let input = gpu.buffer(bytemuck::cast_slice(requests), BufferUsages::STORAGE);
    let poison = vec![0xa5u8; requests.len() * 16];
    let out = gpu.buffer(&poison, BufferUsages::STORAGE | BufferUsages::COPY_SRC);
    let bound = shared.bound();
    let made = gpu.device.create_sampler(&wgpu::SamplerDescriptor {
        label: None,
        address_mode_u: sampler.address[0],
        address_mode_v: sampler.address[1],
        address_mode_w: sampler.address[2],
        mag_filter: sampler.magnify,
        min_filter: sampler.minify,
        mipmap_filter: sampler.mipmap,
        lod_min_clamp: sampler.level_range[0],
        lod_max_clamp: sampler.level_range[1],
        compare: sampler.compare,
        anisotropy_clamp: sampler.anisotropy,
        border_color: sampler
            .address
            .contains(&AddressMode::ClampToBorder)
            .then_some(sampler.border),
    });
    let resources = [
        wgpu::BindingResource::TextureView(&bound),
        wgpu::BindingResource::Sampler(&made),
        input.as_entire_binding(),
        out.as_entire_binding(),
    ];
    gpu.run(&source, requests.len() as u32, &resources);
    bytemuck::pod_collect_to_vec(&gpu.read(&out))
}

/// Fails unless the driver's floats are those of `here` but for `tolerance`.
fn compare(
    what: &str,
    theirs: &[[u32; 4]],
    requests: &[Request],
    tolerance: f32,
    here: impl Fn(&Request) -> [f32; 4],
) {
    assert_eq!(theirs.len(), requests.len());
    for (theirs, request) in theirs.iter().zip(requests) {
        let (theirs, ours) = (theirs.map(f32::from_bits), here(request));
        let off = (0..4)
            .map(|n| (theirs[n] - ours[n]).abs())
            .fold(0.0, f32::max);
        assert!(
            off <= tolerance,
            "{what}: {theirs:?}, here {ours:?}, for {request:?}"
        );
    }
}

/// A texture of 16-bit floats in [0, 1).
fn halves(gpu: &Gpu, shape: Shape, extent: [u32; 3], layers: u32, levels: u32) -> Shared {
    let mut seed = 77;
    Shared::new(
        gpu,
        T::Rgba16Float,
        shape,
        extent,
        layers,
        levels,
        |count| {
            let numbers = (0..count / 2).flat_map(|_| {
                seed += 1;
                half::f16::from_f64(unit(seed)).to_le_bytes()
            });
            numbers.collect()
        },
    )
}

/// A coordinate in −1.5..2.5 that is not near the border of a texel of this axis nor, for linear
/// filters, near where the first of two texels changes.
fn coordinate(seed: u64, size: u32) -> f32 {
    let texels = (unit(seed) * 4.0 - 1.5) * f64::from(size);
    let half = (texels * 2.0).floor() / 2.0;
    let inside = 0.05 + 0.4 * unit(!seed);
    ((half + inside) / f64::from(size)) as f32
}

fn requests(count: u64, extent: [u32; 3]) -> Vec<Request> {
    let one = |n: u64| Request {
        coordinate: [0, 1, 2].map(|axis| coordinate(8 * n + axis as u64, extent[axis])),
        index: (word(n) % 6) as i32 - 1,
        ..Request::zeroed()
    };
    (0..count).map(one).collect()
}

/// The nearest filter is exact; the linear one is placed on the driver's grid.
fn tolerance(filter: FilterMode) -> f32 {
    match filter {
        FilterMode::Nearest => 1e-6,
        FilterMode::Linear => 0.012,
    }
}

pub fn samples_of_two_dimensions_agree(gpu: &Gpu) {
    let shared = halves(gpu, Shape::D2, [8, 5, 1], 1, 1);
    let requests = requests(3000, [8, 5, 1]);
    for (u, v, filter) in ADDRESS
        .into_iter()
        .flat_map(|u| ADDRESS.map(|v| (u, v)))
        .flat_map(|(u, v)| FILTERS.map(|filter| (u, v, filter)))
    {
        let sampler = Sampler {
            address: [u, v, AddressMode::ClampToEdge],
            magnify: filter,
            minify: filter,
            ..Sampler::default()
        };
        let types = ["texture_2d<f32>", "sampler"];
        for offset in [[0, 0, 0], [-3, 2, 0]] {
            let expression = format!(
                "textureSampleLevel(t, s, r.coordinate.xy, 0.0, vec2({}, {}))",
                offset[0], offset[1]
            );
            let theirs = ask(gpu, &shared, types, &sampler, &expression, &requests);
            let what = format!("{u:?}, {v:?}, {filter:?}, {offset:?}");
            compare(&what, &theirs, &requests, tolerance(filter), |request| {
                shared
                    .view()
                    .sample(&sampler, &request.spot(offset), Detail::Level(0.0))
            });
        }
    }
}

pub fn samples_of_other_shapes_agree(gpu: &Gpu) {
    let table = [
        (Shape::D1, [9, 1, 1], 1, "texture_1d<f32>", "r.coordinate.x"),
        (
            Shape::D2Array,
            [4, 6, 1],
            4,
            "texture_2d_array<f32>",
            "r.coordinate.xy, r.index",
        ),
        (Shape::D3, [4, 3, 5], 1, "texture_3d<f32>", "r.coordinate"),
    ];
    for (shape, extent, layers, texture, place) in table {
        let shared = halves(gpu, shape, extent, layers, 1);
        let requests = requests(3000, extent);
        for (mode, filter) in ADDRESS
            .into_iter()
            .flat_map(|m| FILTERS.map(|filter| (m, filter)))
        {
            let sampler = Sampler {
                address: [mode; 3],
                magnify: filter,
                minify: filter,
                ..Sampler::default()
            };
            let expression = format!("textureSampleLevel(t, s, {place}, 0.0)");
            let theirs = ask(
                gpu,
                &shared,
                [texture, "sampler"],
                &sampler,
                &expression,
                &requests,
            );
            let what = format!("{shape:?}, {mode:?}, {filter:?}");
            compare(&what, &theirs, &requests, tolerance(filter), |request| {
                shared
                    .view()
                    .sample(&sampler, &request.spot([0; 3]), Detail::Level(0.0))
            });
        }
    }
}

/// Directions whose place on their face is none where rounding decides; near a corner of the cube
/// drivers differ.
fn directions(count: u64, size: u32) -> Vec<Request> {
    let mut found = Vec::new();
    let mut seed = 0;
    while (found.len() as u64) < count {
        seed += 1;
        let face = word(seed) % 6;
        let place = [0, 1].map(|axis| {
            let texels = unit(4 * seed + axis) * f64::from(size);
            let half = (texels * 2.0).floor() / 2.0 + 0.05 + 0.4 * unit(4 * seed + 2 + axis);
            half / f64::from(size) * 2.0 - 1.0
        });
        let edge = 1.0 - 1.0 / f64::from(size);
        if place.iter().all(|part| part.abs() > edge) {
            continue;
        }
        let sign = if face.is_multiple_of(2) { 1.0 } else { -1.0 };
        let mut direction = [sign; 3];
        let axes = [[1, 2], [0, 2], [0, 1]][face as usize / 2];
        for (axis, part) in axes.into_iter().zip(place) {
            direction[axis] = part;
        }
        let length = 0.5 + unit(!seed) * 4.0;
        found.push(Request {
            coordinate: direction.map(|part| (part * length) as f32),
            index: (word(!seed) % 4) as i32 - 1,
            ..Request::zeroed()
        });
    }
    found
}

pub fn cubes_agree_away_from_their_corners(gpu: &Gpu) {
    let table = [
        (Shape::Cube, 6, "texture_cube<f32>", "r.coordinate"),
        (
            Shape::CubeArray,
            12,
            "texture_cube_array<f32>",
            "r.coordinate, r.index",
        ),
    ];
    for (shape, layers, texture, place) in table {
        let shared = halves(gpu, shape, [4, 4, 1], layers, 1);
        let requests = directions(4000, 4);
        for filter in FILTERS {
            let sampler = Sampler {
                magnify: filter,
                minify: filter,
                ..Sampler::default()
            };
            let expression = format!("textureSampleLevel(t, s, {place}, 0.0)");
            let theirs = ask(
                gpu,
                &shared,
                [texture, "sampler"],
                &sampler,
                &expression,
                &requests,
            );
            compare(
                &format!("{shape:?}, {filter:?}"),
                &theirs,
                &requests,
                tolerance(filter),
                |request| {
                    shared
                        .view()
                        .sample(&sampler, &request.spot([0; 3]), Detail::Level(0.0))
                },
            );
        }
    }
}

pub fn levels_of_detail_agree(gpu: &Gpu) {
    let shared = halves(gpu, Shape::D2, [32, 16, 1], 1, 5);
    let mut requests = requests(4000, [32, 16, 1]);
    for (n, request) in requests.iter_mut().enumerate() {
        // Levels halfway between two, and whole ones, are where rounding decides.
        let steps = (unit(n as u64) * 14.0 - 2.0).floor();
        request.level = (steps * 0.5 + 0.05 + 0.4 * unit(!(n as u64))) as f32;
        // The middle of a texel of the smallest level that is nearest here is none of another's edge.
        request.coordinate = [0, 1, 2].map(|axis| coordinate((3 * n + axis) as u64, 512 >> axis));
    }
    let mipmaps = [MipmapFilterMode::Nearest, MipmapFilterMode::Linear];
    for (mipmap, minify, range) in mipmaps
        .into_iter()
        .flat_map(|mipmap| FILTERS.map(|minify| (mipmap, minify)))
        .flat_map(|(mipmap, minify)| {
            [[0.0, 32.0], [1.25, 2.75]].map(|range| (mipmap, minify, range))
        })
    {
        let sampler = Sampler {
            address: [AddressMode::Repeat; 3],
            magnify: FilterMode::Linear,
            minify,
            mipmap,
            level_range: range,
            ..Sampler::default()
        };
        let expression = "textureSampleLevel(t, s, r.coordinate.xy, r.level)";
        let types = ["texture_2d<f32>", "sampler"];
        let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
        let what = format!("{mipmap:?}, {minify:?}, {range:?}");
        compare(&what, &theirs, &requests, 0.02, |request| {
            shared.view().sample(
                &sampler,
                &request.spot([0; 3]),
                Detail::Level(request.level),
            )
        });
    }
}

pub fn gradients_agree(gpu: &Gpu) {
    let shared = halves(gpu, Shape::D2, [64, 64, 1], 1, 7);
    let mut requests = requests(2000, [512, 512, 1]);
    for (n, request) in requests.iter_mut().enumerate() {
        // Gradients along one axis of a quarter above a power of 2: drivers take shortcuts for length and logarithm.
        let level = (word(n as u64) % 6) as i32;
        let length = (2f64.powi(level) * 1.25 / 64.0) as f32;
        request.x = if n % 2 == 0 {
            [length, 0.0, 0.0]
        } else {
            [0.0, length / 2.0, 0.0]
        };
        request.y = if n % 2 == 0 {
            [0.0, length / 2.0, 0.0]
        } else {
            [-length, 0.0, 0.0]
        };
    }
    let sampler = Sampler {
        address: [AddressMode::Repeat; 3],
        magnify: FilterMode::Linear,
        minify: FilterMode::Linear,
        ..Sampler::default()
    };
    let expression = "textureSampleGrad(t, s, r.coordinate.xy, r.x.xy, r.y.xy)";
    let types = ["texture_2d<f32>", "sampler"];
    let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
    compare("gradients", &theirs, &requests, 0.02, |request| {
        let detail = Detail::Gradient {
            x: request.x,
            y: request.y,
        };
        shared
            .view()
            .sample(&sampler, &request.spot([0; 3]), detail)
    });
}

pub fn gathers_agree(gpu: &Gpu) {
    let table = [
        (
            Shape::D2,
            [6, 3, 1],
            1,
            "texture_2d<f32>",
            "r.coordinate.xy",
        ),
        (
            Shape::D2Array,
            [6, 3, 1],
            4,
            "texture_2d_array<f32>",
            "r.coordinate.xy, r.index",
        ),
    ];
    for (shape, extent, layers, texture, place) in table {
        let shared = halves(gpu, shape, extent, layers, 1);
        let requests = requests(2000, extent);
        for (mode, component) in ADDRESS
            .into_iter()
            .flat_map(|m| [0, 1, 2, 3].map(|c| (m, c)))
        {
            let sampler = Sampler {
                address: [mode; 3],
                ..Sampler::default()
            };
            let offset = [component as i32 - 2, 1, 0];
            let expression = format!(
                "textureGather({component}, t, s, {place}, vec2({}, 1))",
                offset[0]
            );
            let theirs = ask(
                gpu,
                &shared,
                [texture, "sampler"],
                &sampler,
                &expression,
                &requests,
            );
            compare(
                &format!("{shape:?}, {mode:?}, {component}"),
                &theirs,
                &requests,
                1e-6,
                |request| {
                    let spot = request.spot(offset);
                    shared
                        .view()
                        .gather(&sampler, &spot, component)
                        .map(f32::from_bits)
                },
            );
        }
    }
}

pub fn gathers_of_integers_agree(gpu: &Gpu) {
    for (format, scalar) in [
        (T::Rg16Uint, "u32"),
        (T::R8Sint, "i32"),
        (T::Rgba32Uint, "u32"),
    ] {
        let mut seed = 5;
        let shared = Shared::new(gpu, format, Shape::D2, [7, 7, 1], 1, 1, |count| {
            (0..count)
                .map(|_| {
                    seed += 1;
                    word(seed) as u8
                })
                .collect()
        });
        let requests = requests(1000, [7, 7, 1]);
        let sampler = Sampler {
            address: [AddressMode::Repeat; 3],
            ..Sampler::default()
        };
        for component in [0, 1, 3] {
            let texture = format!("texture_2d<{scalar}>");
            let expression = format!("textureGather({component}, t, s, r.coordinate.xy)");
            let theirs = ask(
                gpu,
                &shared,
                [&texture, "sampler"],
                &sampler,
                &expression,
                &requests,
            );
            for (theirs, request) in theirs.into_iter().zip(&requests) {
                let ours = shared
                    .view()
                    .gather(&sampler, &request.spot([0; 3]), component);
                assert_eq!(theirs, ours, "{format:?}, {component}, {request:?}");
            }
        }
    }
}

pub fn comparisons_agree(gpu: &Gpu) {
    let mut seed = 9;
    let shared = Shared::new(gpu, T::Depth16Unorm, Shape::D2, [5, 5, 1], 1, 1, |count| {
        let depths = (0..count / 2).flat_map(|_| {
            seed += 1;
            (word(seed) as u16).to_le_bytes()
        });
        depths.collect()
    });
    let mut requests = requests(2000, [5, 5, 1]);
    for (n, request) in requests.iter_mut().enumerate() {
        request.reference = (unit(n as u64) * 1.2 - 0.1) as f32;
    }
    use CompareFunction as C;
    let functions = [
        C::Never,
        C::Less,
        C::LessEqual,
        C::Greater,
        C::GreaterEqual,
        C::NotEqual,
        C::Always,
    ];
    for (function, filter) in functions
        .into_iter()
        .flat_map(|f| FILTERS.map(|filter| (f, filter)))
    {
        let sampler = Sampler {
            address: [AddressMode::MirrorRepeat; 3],
            magnify: filter,
            minify: filter,
            compare: Some(function),
            ..Sampler::default()
        };
        let types = ["texture_depth_2d", "sampler_comparison"];
        let expression = "vec4(textureSampleCompareLevel(t, s, r.coordinate.xy, r.reference))";
        let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
        let view = shared.view();
        compare(
            &format!("{function:?}, {filter:?}"),
            &theirs,
            &requests,
            0.012,
            |request| {
                let spot = request.spot([0; 3]);
                [view.sample_compare(&sampler, &spot, Detail::Level(0.0), request.reference); 4]
            },
        );
        let expression = "textureGatherCompare(t, s, r.coordinate.xy, r.reference)";
        let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
        compare(
            &format!("gather, {function:?}"),
            &theirs,
            &requests,
            0.0,
            |request| view.gather_compare(&sampler, &request.spot([0; 3]), request.reference),
        );
    }
}

pub fn base_clamp_to_edge_agrees(gpu: &Gpu) {
    let shared = halves(gpu, Shape::D2, [8, 4, 1], 1, 2);
    let requests = requests(2000, [8, 4, 1]);
    for filter in FILTERS {
        let sampler = Sampler {
            address: [AddressMode::Repeat; 3],
            magnify: filter,
            minify: filter,
            ..Sampler::default()
        };
        let expression = "textureSampleBaseClampToEdge(t, s, r.coordinate.xy)";
        let types = ["texture_2d<f32>", "sampler"];
        let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
        let view: TexelView = shared.view();
        compare(
            &format!("{filter:?}"),
            &theirs,
            &requests,
            tolerance(filter),
            |request| {
                let [x, y, _] = request.coordinate;
                view.sample_base_clamp_to_edge(&sampler, [x, y])
            },
        );
    }
}

pub fn borders_agree(gpu: &Gpu) {
    if !gpu
        .device
        .features()
        .contains(wgpu::Features::ADDRESS_MODE_CLAMP_TO_BORDER)
    {
        return;
    }
    let shared = halves(gpu, Shape::D2, [6, 4, 1], 1, 1);
    let requests = requests(2000, [6, 4, 1]);
    let borders = [
        SamplerBorderColor::TransparentBlack,
        SamplerBorderColor::OpaqueBlack,
        SamplerBorderColor::OpaqueWhite,
    ];
    for (border, filter) in borders
        .into_iter()
        .flat_map(|b| FILTERS.map(|filter| (b, filter)))
    {
        let sampler = Sampler {
            address: [
                AddressMode::ClampToBorder,
                AddressMode::ClampToBorder,
                AddressMode::Repeat,
            ],
            magnify: filter,
            minify: filter,
            border,
            ..Sampler::default()
        };
        let expression = "textureSampleLevel(t, s, r.coordinate.xy, 0.0)";
        let types = ["texture_2d<f32>", "sampler"];
        let theirs = ask(gpu, &shared, types, &sampler, expression, &requests);
        compare(
            &format!("{border:?}, {filter:?}"),
            &theirs,
            &requests,
            tolerance(filter),
            |request| {
                shared
                    .view()
                    .sample(&sampler, &request.spot([0; 3]), Detail::Level(0.0))
            },
        );
    }
}
