//! Samples of all shapes, levels and borders.

use crate::ask::{
    ADDRESS, FILTERS, Questions, Request, coordinate, filtered, halves, requests, tolerance,
};
use crate::harness::Gpu;
use crate::support::random::{unit, word};
use bytemuck::Zeroable;
use tombolo_cpu::texel::{Detail, Sampler, Shape};
use wgpu::{AddressMode, FilterMode, MipmapFilterMode, SamplerBorderColor};

pub fn samples_of_two_dimensions_agree(gpu: &Gpu) {
    let questions = Questions {
        gpu,
        shared: &halves(gpu, Shape::D2, [8, 5, 1], 1, 1),
        texture: "texture_2d<f32>",
        requests: &requests(3000, [8, 5, 1]),
    };
    for (u, v, filter) in ADDRESS
        .into_iter()
        .flat_map(|u| ADDRESS.map(|v| (u, v)))
        .flat_map(|(u, v)| FILTERS.map(|filter| (u, v, filter)))
    {
        let sampler = Sampler {
            address: [u, v, AddressMode::ClampToEdge],
            ..filtered(filter, u)
        };
        for offset in [[0, 0, 0], [-3, 2, 0]] {
            let [right, down, _] = offset;
            let expression =
                format!("textureSampleLevel(t, s, r.coordinate.xy, 0.0, vec2({right}, {down}))");
            let what = format!("{u:?}, {v:?}, {filter:?}, {offset:?}");
            questions.compare_base_level(&what, &sampler, &expression, offset);
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
        let questions = Questions {
            gpu,
            shared: &halves(gpu, shape, extent, layers, 1),
            texture,
            requests: &requests(3000, extent),
        };
        compare_modes(&questions, place, &ADDRESS);
    }
}

/// Compares samples of the base level at `place` with every filter and these modes.
fn compare_modes(questions: &Questions, place: &str, modes: &[AddressMode]) {
    let expression = format!("textureSampleLevel(t, s, {place}, 0.0)");
    for &mode in modes {
        for filter in FILTERS {
            let what = format!("{}, {mode:?}, {filter:?}", questions.texture);
            questions.compare_base_level(&what, &filtered(filter, mode), &expression, [0; 3]);
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
        let questions = Questions {
            gpu,
            shared: &halves(gpu, shape, [4, 4, 1], layers, 1),
            texture,
            requests: &directions(4000, 4),
        };
        compare_modes(&questions, place, &[Sampler::default().address[0]]);
    }
}

pub fn levels_of_detail_agree(gpu: &Gpu) {
    let mut requests = requests(4000, [32, 16, 1]);
    for (n, request) in requests.iter_mut().enumerate() {
        // Levels halfway between two, and whole ones, are where rounding decides.
        let steps = (unit(n as u64) * 14.0 - 2.0).floor();
        request.level = (steps * 0.5 + 0.05 + 0.4 * unit(!(n as u64))) as f32;
        // The middle of a texel of the smallest level that is nearest here is none of another's edge.
        request.coordinate = [0, 1, 2].map(|axis| coordinate((3 * n + axis) as u64, 512 >> axis));
    }
    let questions = Questions {
        gpu,
        shared: &halves(gpu, Shape::D2, [32, 16, 1], 1, 5),
        texture: "texture_2d<f32>",
        requests: &requests,
    };
    let mipmaps = [MipmapFilterMode::Nearest, MipmapFilterMode::Linear];
    for (mipmap, minify, range) in mipmaps
        .into_iter()
        .flat_map(|mipmap| FILTERS.map(|minify| (mipmap, minify)))
        .flat_map(|(mipmap, minify)| {
            [[0.0, 32.0], [1.25, 2.75]].map(|range| (mipmap, minify, range))
        })
    {
        let sampler = Sampler {
            magnify: FilterMode::Linear,
            mipmap,
            level_range: range,
            ..filtered(minify, AddressMode::Repeat)
        };
        let expression = "textureSampleLevel(t, s, r.coordinate.xy, r.level)";
        let what = format!("{mipmap:?}, {minify:?}, {range:?}");
        questions.compare(&what, &sampler, expression, 0.02, |view, request| {
            let detail = Detail::Level(request.level);
            view.sample(&sampler, &request.spot([0; 3]), detail)
        });
    }
}

pub fn gradients_agree(gpu: &Gpu) {
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
    let questions = Questions {
        gpu,
        shared: &halves(gpu, Shape::D2, [64, 64, 1], 1, 7),
        texture: "texture_2d<f32>",
        requests: &requests,
    };
    let sampler = filtered(FilterMode::Linear, AddressMode::Repeat);
    let expression = "textureSampleGrad(t, s, r.coordinate.xy, r.x.xy, r.y.xy)";
    questions.compare("gradients", &sampler, expression, 0.02, |view, request| {
        let detail = Detail::Gradient {
            x: request.x,
            y: request.y,
        };
        view.sample(&sampler, &request.spot([0; 3]), detail)
    });
}

pub fn base_clamp_to_edge_agrees(gpu: &Gpu) {
    let questions = Questions {
        gpu,
        shared: &halves(gpu, Shape::D2, [8, 4, 1], 1, 2),
        texture: "texture_2d<f32>",
        requests: &requests(2000, [8, 4, 1]),
    };
    for filter in FILTERS {
        let sampler = filtered(filter, AddressMode::Repeat);
        let expression = "textureSampleBaseClampToEdge(t, s, r.coordinate.xy)";
        questions.compare(
            &format!("{filter:?}"),
            &sampler,
            expression,
            tolerance(filter),
            |view, request| {
                let [x, y, _] = request.coordinate;
                view.sample_base_clamp_to_edge(&sampler, [x, y])
            },
        );
    }
}

pub fn borders_agree(gpu: &Gpu) {
    let needed = wgpu::Features::ADDRESS_MODE_CLAMP_TO_BORDER;
    if !gpu.device.features().contains(needed) {
        return;
    }
    let questions = Questions {
        gpu,
        shared: &halves(gpu, Shape::D2, [6, 4, 1], 1, 1),
        texture: "texture_2d<f32>",
        requests: &requests(2000, [6, 4, 1]),
    };
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
            border,
            ..filtered(filter, AddressMode::Repeat)
        };
        let expression = "textureSampleLevel(t, s, r.coordinate.xy, 0.0)";
        let what = format!("{border:?}, {filter:?}");
        questions.compare_base_level(&what, &sampler, expression, [0; 3]);
    }
}
