//! Gathers and comparisons.

use crate::ask::{ADDRESS, FILTERS, Questions, filtered, halves, requests};
use crate::harness::{Gpu, Shared};
use crate::support::random::{unit, word};
use tombolo_cpu::texel::{Detail, Sampler, Shape};
use wgpu::{AddressMode, CompareFunction, TextureFormat as T};

pub fn gathers_agree(gpu: &Gpu) {
    let table = [
        (Shape::D2, 1, "texture_2d<f32>", "r.coordinate.xy"),
        (
            Shape::D2Array,
            4,
            "texture_2d_array<f32>",
            "r.coordinate.xy, r.index",
        ),
    ];
    let extent = [6, 3, 1];
    for (shape, layers, texture, place) in table {
        let questions = Questions {
            gpu,
            shared: &halves(gpu, shape, extent, layers, 1),
            texture,
            requests: &requests(2000, extent),
        };
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
            let what = format!("{shape:?}, {mode:?}, {component}");
            questions.compare(&what, &sampler, &expression, 1e-6, |view, request| {
                let gathered = view.gather(&sampler, &request.spot(offset), component);
                gathered.map(f32::from_bits)
            });
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
        let questions = Questions {
            gpu,
            shared: &shared,
            texture: &format!("texture_2d<{scalar}>"),
            requests: &requests(1000, [7, 7, 1]),
        };
        let sampler = Sampler {
            address: [AddressMode::Repeat; 3],
            ..Sampler::default()
        };
        for component in [0, 1, 3] {
            let expression = format!("textureGather({component}, t, s, r.coordinate.xy)");
            let theirs = questions.ask(&sampler, &expression);
            for (theirs, request) in theirs.into_iter().zip(questions.requests) {
                let spot = request.spot([0; 3]);
                let ours = shared.view().gather(&sampler, &spot, component);
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
    let questions = Questions {
        gpu,
        shared: &shared,
        texture: "texture_depth_2d",
        requests: &requests,
    };
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
            compare: Some(function),
            ..filtered(filter, AddressMode::MirrorRepeat)
        };
        let what = format!("{function:?}, {filter:?}");
        let expression = "vec4(textureSampleCompareLevel(t, s, r.coordinate.xy, r.reference))";
        questions.compare(&what, &sampler, expression, 0.012, |view, request| {
            let spot = request.spot([0; 3]);
            [view.sample_compare(&sampler, &spot, Detail::Level(0.0), request.reference); 4]
        });
        let what = format!("gather, {function:?}");
        let expression = "textureGatherCompare(t, s, r.coordinate.xy, r.reference)";
        questions.compare(&what, &sampler, expression, 0.0, |view, request| {
            view.gather_compare(&sampler, &request.spot([0; 3]), request.reference)
        });
    }
}
