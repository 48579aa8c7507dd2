//! Sampling against a reference in binary64 that sums weighted texels over the whole texture.

use super::super::{At, Detail, OutOfBounds, Sampler, Shape, Spot, TexelView};
use super::{Texture, unit, word};
use proptest::prelude::*;
use wgpu_types::{
    AddressMode, CompareFunction, FilterMode, MipmapFilterMode, SamplerBorderColor,
    TextureFormat as T,
};

const ADDRESS: [AddressMode; 4] = [
    AddressMode::ClampToEdge,
    AddressMode::Repeat,
    AddressMode::MirrorRepeat,
    AddressMode::ClampToBorder,
];

/// Fills each texel with numbers of its own.
fn fill(texture: &Texture) {
    let view = texture.view();
    let mut seed = 1;
    for level in 0..view.num_levels() {
        let [width, height, depth] = view.dimensions(level);
        for layer in 0..texture.layers {
            for n in 0..width * height * depth {
                let coordinate = [n % width, n / width % height, n / width / height];
                let value = std::array::from_fn(|_| {
                    seed += 1;
                    (unit(seed) as f32).to_bits()
                });
                view.store(
                    At {
                        coordinate,
                        layer,
                        level,
                        sample: 0,
                    },
                    value,
                );
            }
        }
    }
}

/// The weight of texel `texel` for a sample at `position` (in texels) on one axis, by going over all
/// the periods of the address mode.
fn weight(mode: AddressMode, filter: FilterMode, position: f64, size: u32, texel: u32) -> f64 {
    let n = f64::from(size);
    let one = |index: i64| match filter {
        FilterMode::Nearest => f64::from(u8::from(position.floor() == index as f64)),
        FilterMode::Linear => (1.0 - (position - 0.5 - index as f64).abs()).max(0.0),
    };
    let reach = (position.abs() / n) as i64 + 3;
    let count = i64::from(size);
    let texel = i64::from(texel);
    match mode {
        AddressMode::ClampToBorder => one(texel),
        AddressMode::ClampToEdge => {
            let ends = (1..=reach * count + 1).map(|beyond| {
                let low = if texel == 0 { one(-beyond) } else { 0.0 };
                let high = if texel == count - 1 {
                    one(texel + beyond)
                } else {
                    0.0
                };
                low + high
            });
            one(texel) + ends.sum::<f64>()
        }
        AddressMode::Repeat => (-reach..=reach)
            .map(|period| one(texel + period * count))
            .sum(),
        AddressMode::MirrorRepeat => (-reach..=reach)
            .map(|period| one(texel + 2 * period * count) + one(2 * period * count - 1 - texel))
            .sum(),
    }
}

/// A sample of one level, in binary64, with whatever weight is missing on the border's value.
fn reference_level(
    view: &TexelView,
    sampler: &Sampler,
    filter: FilterMode,
    spot: &Spot,
    level: u32,
) -> [f64; 4] {
    let extent = view.dimensions(level);
    let axes = view.shape.axes();
    let mut sum = [0.0; 4];
    let mut total = 0.0;
    for n in 0..extent.iter().product::<u32>() {
        let coordinate = [
            n % extent[0],
            n / extent[0] % extent[1],
            n / extent[0] / extent[1],
        ];
        let part = |axis: usize| {
            let position = f64::from(spot.coordinate[axis]) * f64::from(extent[axis])
                + f64::from(spot.offset[axis]);
            weight(
                sampler.address[axis],
                filter,
                position,
                extent[axis],
                coordinate[axis],
            )
        };
        let weight = (0..axes).map(part).product::<f64>();
        let layer = (spot.array_index.max(0) as u32).min(view.layers - 1);
        let layer = if view.shape.is_array() { layer } else { 0 };
        let texel = view.load(
            At {
                coordinate,
                layer,
                level,
                sample: 0,
            },
            OutOfBounds::Zero,
        );
        for channel in 0..4 {
            sum[channel] += weight * f64::from(f32::from_bits(texel[channel]));
        }
        total += weight;
    }
    let border = match sampler.border {
        SamplerBorderColor::OpaqueBlack => [0.0, 0.0, 0.0, 1.0],
        SamplerBorderColor::OpaqueWhite => [1.0; 4],
        _ => [0.0; 4],
    };
    std::array::from_fn(|channel| sum[channel] + (1.0 - total) * border[channel])
}

fn reference(view: &TexelView, sampler: &Sampler, spot: &Spot, lambda: f32) -> [f64; 4] {
    let lambda = lambda.clamp(sampler.level_range[0], sampler.level_range[1]);
    let filter = if lambda > 0.0 {
        sampler.minify
    } else {
        sampler.magnify
    };
    let last = f64::from(view.num_levels() - 1);
    let level = f64::from(lambda).clamp(0.0, last);
    let at = |level: f64| reference_level(view, sampler, filter, spot, level as u32);
    match sampler.mipmap {
        MipmapFilterMode::Nearest => at((level - 0.5).ceil().max(0.0)),
        MipmapFilterMode::Linear => {
            let (low, high) = (at(level.floor()), at(level.ceil()));
            std::array::from_fn(|n| low[n] + (high[n] - low[n]) * level.fract())
        }
    }
}

fn filter() -> impl Strategy<Value = FilterMode> {
    prop_oneof![Just(FilterMode::Nearest), Just(FilterMode::Linear)]
}

fn samplers() -> impl Strategy<Value = Sampler> {
    let mipmap = prop_oneof![
        Just(MipmapFilterMode::Nearest),
        Just(MipmapFilterMode::Linear)
    ];
    let border = prop_oneof![
        Just(SamplerBorderColor::TransparentBlack),
        Just(SamplerBorderColor::OpaqueBlack),
        Just(SamplerBorderColor::OpaqueWhite)
    ];
    let address = prop::array::uniform3(0..4usize);
    let range = (-1f32..1.0, 1f32..4.0);
    (filter(), filter(), mipmap, border, address, range).prop_map(
        |(magnify, minify, mipmap, border, address, (low, high))| Sampler {
            address: address.map(|n| ADDRESS[n]),
            magnify,
            minify,
            mipmap,
            level_range: [low.max(0.0), high],
            compare: None,
            anisotropy: 1,
            border,
        },
    )
}

fn shapes() -> impl Strategy<Value = (Shape, [u32; 3], u32)> {
    prop_oneof![
        (1..9u32).prop_map(|x| (Shape::D1, [x, 1, 1], 1)),
        (1..9u32, 1..9u32).prop_map(|(x, y)| (Shape::D2, [x, y, 1], 1)),
        (1..5u32, 1..5u32, 1..4u32).prop_map(|(x, y, n)| (Shape::D2Array, [x, y, 1], n)),
        (1..5u32, 1..5u32, 1..5u32).prop_map(|(x, y, z)| (Shape::D3, [x, y, z], 1)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn samples_match_the_sum_of_weighted_texels(
        (shape, extent, layers) in shapes(),
        sampler in samplers(),
        coordinate in prop::array::uniform3(-2.5f32..3.5),
        offset in prop::array::uniform3(-8..8i32),
        array_index in -2..5i32,
        lambda in -1f32..4.0,
    ) {
        let levels = if shape == Shape::D1 { 1 } else { 3 };
        let texture = Texture::new(T::Rgba32Float, shape, extent, layers, levels);
        fill(&texture);
        let view = texture.view();
        // Away from where rounding decides between two texels or two levels.
        let grid = |x: f32, step: f32| (x / step).floor() * step + step / 2.0;
        let coordinate = coordinate.map(|x| grid(x, 1.0 / 512.0));
        prop_assume!(coordinate.iter().enumerate().all(|(n, x)| {
            let texels = x * extent[n] as f32;
            (texels - texels.round()).abs() > 1e-3
        }));
        let lambda = grid(lambda, 1.0 / 64.0);
        let spot = Spot { coordinate, array_index, offset };
        let value = view.sample(&sampler, &spot, Detail::Level(lambda));
        let expected = reference(&view, &sampler, &spot, lambda);
        for channel in 0..4 {
            let off = (f64::from(value[channel]) - expected[channel]).abs();
            prop_assert!(off < 2e-5, "{value:?}, not {expected:?}");
        }
    }

    #[test]
    fn gathers_are_the_texels_of_the_linear_filter(
        (x, y) in (1..6u32, 1..6u32),
        sampler in samplers(),
        coordinate in prop::array::uniform2(-1.5f32..2.5),
        component in 0..4usize,
    ) {
        let texture = Texture::new(T::Rgba32Float, Shape::D2, [x, y, 1], 1, 1);
        fill(&texture);
        let view = texture.view();
        let spot = Spot { coordinate: [coordinate[0], coordinate[1], 0.0], ..Spot::default() };
        let texels = view.gather(&sampler, &spot, component).map(f32::from_bits).map(f64::from);
        let linear = Sampler { magnify: FilterMode::Linear, level_range: [0.0; 2], ..sampler };
        let expected = view.sample(&linear, &spot, Detail::Level(0.0))[component];
        let fraction = [0, 1].map(|axis| {
            let size = f64::from([x, y][axis]);
            let position = f64::from(coordinate[axis]) * size - 0.5;
            position - position.floor()
        });
        let [low_high, high_high, high_low, low_low] = texels;
        let low = low_low + (high_low - low_low) * fraction[0];
        let high = low_high + (high_high - low_high) * fraction[0];
        let blended = low + (high - low) * fraction[1];
        prop_assert!((blended - f64::from(expected)).abs() < 1e-4);
    }
}

#[test]
fn equal_texels_blend_to_themselves() {
    let texture = Texture::new(T::R32Float, Shape::D3, [4, 4, 4], 1, 3);
    let view = texture.view();
    for level in 0..3 {
        let size = view.dimensions(level)[0];
        for n in 0..size * size * size {
            let at = At {
                coordinate: [n % size, n / size % size, n / size / size],
                level,
                ..At::default()
            };
            view.store(at, [0.1f32.to_bits(), 0, 0, 0]);
        }
    }
    let sampler = Sampler {
        magnify: FilterMode::Linear,
        minify: FilterMode::Linear,
        mipmap: MipmapFilterMode::Linear,
        ..Sampler::default()
    };
    for index in 0..2000 {
        let spot = Spot {
            coordinate: std::array::from_fn(|n| unit(3 * index + n as u64) as f32),
            ..Spot::default()
        };
        let value = view.sample(&sampler, &spot, Detail::Level((unit(!index) * 3.0) as f32));
        assert_eq!(value, [0.1, 0.0, 0.0, 1.0]);
    }
}

#[test]
fn comparisons_happen_before_filtering() {
    let texture = Texture::new(T::Depth32Float, Shape::D2, [2, 1, 1], 1, 1);
    let view = texture.view();
    for (x, depth) in [(0, 0.25f32), (1, 0.75)] {
        view.store(
            At {
                coordinate: [x, 0, 0],
                ..At::default()
            },
            [depth.to_bits(), 0, 0, 0],
        );
    }
    let at = |x: f32| Spot {
        coordinate: [x, 0.5, 0.0],
        ..Spot::default()
    };
    let share = |function, filter, x, reference| {
        let sampler = Sampler {
            compare: Some(function),
            magnify: filter,
            ..Sampler::default()
        };
        view.sample_compare(&sampler, &at(x), Detail::Level(0.0), reference)
    };
    use CompareFunction as C;
    let table = [
        (C::Never, [0.0, 0.0]),
        (C::Less, [0.0, 1.0]),
        (C::Equal, [1.0, 0.0]),
        (C::LessEqual, [1.0, 1.0]),
        (C::Greater, [0.0, 0.0]),
        (C::NotEqual, [0.0, 1.0]),
        (C::GreaterEqual, [1.0, 0.0]),
        (C::Always, [1.0, 1.0]),
    ];
    for (function, expected) in table {
        assert_eq!(
            share(function, FilterMode::Nearest, 0.25, 0.25),
            expected[0],
            "{function:?}"
        );
        assert_eq!(
            share(function, FilterMode::Nearest, 0.75, 0.25),
            expected[1],
            "{function:?}"
        );
        let blended = expected[0] + (expected[1] - expected[0]) * 0.25;
        assert_eq!(
            share(function, FilterMode::Linear, 0.375, 0.25),
            blended,
            "{function:?}"
        );
        let sampler = Sampler {
            compare: Some(function),
            ..Sampler::default()
        };
        let four = view.gather_compare(&sampler, &at(0.5), 0.25);
        assert_eq!(
            four,
            [expected[0], expected[1], expected[1], expected[0]],
            "{function:?}"
        );
    }
    // Depth of 16 bits ends at 1, and references with it.
    let texture = Texture::new(T::Depth16Unorm, Shape::D2, [1, 1, 1], 1, 1);
    let view = texture.view();
    view.store(At::default(), [1f32.to_bits(), 0, 0, 0]);
    let sampler = Sampler {
        compare: Some(C::LessEqual),
        ..Sampler::default()
    };
    assert_eq!(
        view.sample_compare(&sampler, &at(0.5), Detail::Level(0.0), 1.5),
        1.0
    );
}

#[test]
fn gradients_give_the_logarithm_of_the_longer_one() {
    let texture = Texture::new(T::R32Float, Shape::D2, [64, 32, 1], 1, 6);
    let view = texture.view();
    for level in 0..6 {
        let [width, height, _] = view.dimensions(level);
        for n in 0..width * height {
            let at = At {
                coordinate: [n % width, n / width, 0],
                level,
                ..At::default()
            };
            view.store(at, [(level as f32).to_bits(), 0, 0, 0]);
        }
    }
    let linear = Sampler {
        magnify: FilterMode::Linear,
        minify: FilterMode::Linear,
        mipmap: MipmapFilterMode::Linear,
        ..Sampler::default()
    };
    let spot = Spot {
        coordinate: [0.4, 0.6, 0.0],
        ..Spot::default()
    };
    for index in 0..2000 {
        let change =
            |n: u64| ((unit(4 * index + n) - 0.5) * 2f64.powi((word(index) % 6) as i32 - 4)) as f32;
        let (x, y) = ([change(0), change(1), 0.0], [change(2), change(3), 0.0]);
        let length = |v: [f32; 3]| (f64::from(v[0]) * 64.0).hypot(f64::from(v[1]) * 32.0);
        let (longer, shorter) = (length(x).max(length(y)), length(x).min(length(y)));
        let level = |anisotropy: u16| {
            let sampler = Sampler {
                anisotropy,
                ..linear
            };
            f64::from(view.sample(&sampler, &spot, Detail::Gradient { x, y })[0])
        };
        assert!((level(1) - longer.log2().clamp(0.0, 5.0)).abs() < 1e-4);
        let stretch = (longer / shorter).clamp(1.0, 8.0);
        assert!((level(8) - (longer / stretch).log2().clamp(0.0, 5.0)).abs() < 1e-4);
    }
    let still = Detail::Gradient {
        x: [0.0; 3],
        y: [0.0; 3],
    };
    assert_eq!(
        view.sample(
            &Sampler {
                anisotropy: 16,
                ..linear
            },
            &spot,
            still
        )[0],
        0.0
    );
}

#[test]
fn anisotropic_samples_average_along_the_longer_gradient() {
    let texture = Texture::new(T::R32Float, Shape::D2, [64, 64, 1], 1, 1);
    let view = texture.view();
    for n in 0..64 * 64 {
        let at = At {
            coordinate: [n % 64, n / 64, 0],
            ..At::default()
        };
        view.store(at, [((n % 64) as f32).to_bits(), 0, 0, 0]);
    }
    let sampler = Sampler {
        anisotropy: 4,
        magnify: FilterMode::Linear,
        minify: FilterMode::Linear,
        ..Sampler::default()
    };
    let spot = Spot {
        coordinate: [0.5, 0.5, 0.0],
        ..Spot::default()
    };
    let detail = Detail::Gradient {
        x: [4.0 / 64.0, 0.0, 0.0],
        y: [0.0, 1.0 / 64.0, 0.0],
    };
    // A ramp averages to its middle.
    assert!((view.sample(&sampler, &spot, detail)[0] - 31.5).abs() < 1e-3);
    // Four samples at −0.3, −0.1, 0.1 and 0.3 of the gradient; at the edge two leave the texture.
    let spot = Spot {
        coordinate: [0.5 / 64.0, 0.5, 0.0],
        ..Spot::default()
    };
    assert!((view.sample(&sampler, &spot, detail)[0] - (0.4 + 1.2) / 4.0).abs() < 1e-3);
}

#[test]
fn base_clamp_to_edge_stays_half_a_texel_inside() {
    let texture = Texture::new(T::R32Float, Shape::D2, [4, 2, 1], 1, 2);
    fill(&texture);
    let view = texture.view();
    let sampler = Sampler {
        address: [AddressMode::Repeat; 3],
        magnify: FilterMode::Linear,
        ..Sampler::default()
    };
    let texel = |x, y| {
        let at = At {
            coordinate: [x, y, 0],
            ..At::default()
        };
        f32::from_bits(view.load(at, OutOfBounds::Zero)[0])
    };
    for (coordinate, x, y) in [
        ([-3.0, 0.0], 0, 0),
        ([7.0, 1.0], 3, 1),
        ([0.375, 5.0], 1, 1),
    ] {
        assert_eq!(
            view.sample_base_clamp_to_edge(&sampler, coordinate)[0],
            texel(x, y)
        );
    }
}

#[test]
fn cubes_blend_across_edges_and_corners() {
    let texture = Texture::new(T::R32Float, Shape::CubeArray, [2, 2, 1], 12, 1);
    let view = texture.view();
    for layer in 0..12 {
        for n in 0..4 {
            let at = At {
                coordinate: [n % 2, n / 2, 0],
                layer,
                ..At::default()
            };
            view.store(at, [(layer as f32).to_bits(), 0, 0, 0]);
        }
    }
    let sampler = Sampler {
        magnify: FilterMode::Linear,
        ..Sampler::default()
    };
    let sample = |direction: [f32; 3], cube: i32| {
        let spot = Spot {
            coordinate: direction,
            array_index: cube,
            ..Spot::default()
        };
        view.sample(&sampler, &spot, Detail::Level(0.0))[0]
    };
    // Middles of faces, edges between two, corners of three.
    assert_eq!(sample([1.0, 0.0, 0.0], 0), 0.0);
    assert_eq!(sample([0.0, 0.0, -2.0], 1), 11.0);
    assert_eq!(sample([1.0, 0.0, 1.0], 0), 2.0);
    assert_eq!(sample([-1.0, 1.0, 0.0], 0), 1.5);
    assert_eq!(sample([0.0, -3.0, 3.0], 7), 6.0 + 3.5);
    assert!((sample([1.0, 1.0, 1.0], 0) - 2.0).abs() < 1e-6);
    assert!((sample([-1.0, -1.0, -1.0], 0) - 3.0).abs() < 1e-6);
    let four = view.gather(
        &sampler,
        &Spot {
            coordinate: [1.0, 0.0, 0.99],
            ..Spot::default()
        },
        0,
    );
    let mut faces = four.map(f32::from_bits);
    faces.sort_by(f32::total_cmp);
    assert_eq!(faces, [0.0, 0.0, 4.0, 4.0]);
}

#[test]
fn coordinates_without_a_place_sample_something() {
    let texture = Texture::new(T::Rgba8Unorm, Shape::D2, [3, 5, 1], 1, 2);
    fill(&texture);
    let view = texture.view();
    let odd = [
        f32::NAN,
        f32::INFINITY,
        -f32::INFINITY,
        f32::MAX,
        -f32::MAX,
        1e-40,
    ];
    for (index, x) in odd.into_iter().enumerate() {
        for y in odd {
            for (mode, filter) in ADDRESS
                .iter()
                .flat_map(|m| [(m, FilterMode::Nearest), (m, FilterMode::Linear)])
            {
                let sampler = Sampler {
                    address: [*mode; 3],
                    magnify: filter,
                    minify: filter,
                    anisotropy: 16,
                    ..Sampler::default()
                };
                let spot = Spot {
                    coordinate: [x, y, 0.0],
                    array_index: i32::MIN,
                    offset: [i32::MAX, i32::MIN, 0],
                };
                let details = [
                    Detail::Level(odd[index]),
                    Detail::Gradient {
                        x: [x, y, 0.0],
                        y: [y, 1.0, 0.0],
                    },
                ];
                for detail in details {
                    let value = view.sample(&sampler, &spot, detail);
                    assert!(
                        value.iter().all(|part| (0.0..=1.0).contains(part)),
                        "{value:?}"
                    );
                }
                let _ = view.gather(&sampler, &spot, 7);
            }
        }
    }
}
