//! Loads and stores against a model that knows texels by their coordinates.

use super::super::{At, Format, Level, Memory, OutOfBounds, Shape, TexelView};
use super::{Texture, word};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use wgpu_types::{TextureAspect, TextureFormat as T};

#[test]
fn stores_and_loads_match_a_map_of_texels() {
    let cases = [
        (T::Rgba8Uint, Shape::D2Array, [5, 3, 1], 4, 3),
        (T::R8Uint, Shape::D2, [7, 2, 1], 1, 2),
        (T::Rg16Sint, Shape::D3, [3, 4, 5], 1, 3),
        (T::Rgba32Float, Shape::CubeArray, [4, 4, 1], 12, 3),
        (T::R16Uint, Shape::D1, [9, 1, 1], 1, 1),
        (T::Rg32Uint, Shape::Cube, [2, 2, 1], 6, 2),
    ];
    for (case, (format, shape, extent, layers, levels)) in cases.into_iter().enumerate() {
        let texture = Texture::new(format, shape, extent, layers, levels);
        let view = texture.view();
        let mut model = HashMap::new();
        let random = |index: u64, below: u32| word(index ^ (case as u64) << 32) as u32 % below;
        for step in 0..6000 {
            let seed = step * 16;
            let at = At {
                coordinate: std::array::from_fn(|n| {
                    let beyond = [u32::MAX, i32::MAX as u32][n % 2];
                    let odd = random(seed + n as u64 + 12, 20) == 0;
                    if odd {
                        beyond
                    } else {
                        random(seed + n as u64, extent[n] + 1)
                    }
                }),
                layer: random(seed + 4, layers + 2),
                level: random(seed + 5, levels + 2),
                sample: random(seed + 6, 20) / 19,
            };
            let exists = at.level < levels
                && (0..3).all(|n| at.coordinate[n] < (extent[n] >> at.level).max(1))
                && at.layer < layers
                && at.sample == 0;
            if random(seed + 7, 2) == 0 {
                // Small values: any format with these channels holds them.
                let value = [8, 9, 10, 11].map(|n| random(seed + n, 100));
                view.store(at, value);
                if exists {
                    model.insert(
                        (at.coordinate, at.layer, at.level),
                        view.format.complete(value),
                    );
                }
            } else if let Some(&expected) = model.get(&(at.coordinate, at.layer, at.level)) {
                if at.sample == 0 {
                    assert_eq!(view.load(at, OutOfBounds::Zero), expected, "{at:?}");
                    assert_eq!(view.load(at, OutOfBounds::Clamp), expected, "{at:?}");
                }
            } else if !exists {
                assert_eq!(view.load(at, OutOfBounds::Zero), [0; 4], "{at:?}");
                let level = at.level.min(levels - 1);
                let inside = At {
                    coordinate: std::array::from_fn(|n| {
                        at.coordinate[n].min((extent[n] >> level).max(1) - 1)
                    }),
                    layer: at.layer.min(layers - 1),
                    level,
                    sample: 0,
                };
                let clamped = view.load(at, OutOfBounds::Clamp);
                assert_eq!(clamped, view.load(inside, OutOfBounds::Zero), "{at:?}");
            }
        }
        assert!(model.len() > 8);
        for (&(coordinate, layer, level), &expected) in &model {
            let at = At {
                coordinate,
                layer,
                level,
                sample: 0,
            };
            assert_eq!(view.load(at, OutOfBounds::Zero), expected, "{at:?}");
        }
    }
}

#[test]
fn padding_is_left_alone() {
    let texture = Texture::new(T::R8Uint, Shape::D2, [3, 3, 1], 1, 1);
    let view = texture.view();
    for (x, y) in (0..5).flat_map(|y| (0..5).map(move |x| (x, y))) {
        view.store(
            At {
                coordinate: [x, y, 0],
                ..At::default()
            },
            [0; 4],
        );
    }
    let bytes: Vec<u8> = texture
        .words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect();
    let level = texture.levels[0];
    for (offset, byte) in bytes.into_iter().enumerate() {
        let texel = (0..3).any(|y| {
            let row = level.offset + y * level.row_stride;
            (row..row + 3).contains(&offset)
        });
        assert_eq!(byte, if texel { 0 } else { 255 }, "byte {offset}");
    }
}

#[test]
fn samples_are_planes_of_their_own() {
    let words: Vec<AtomicU64> = (0..8).map(AtomicU64::new).collect();
    let format = Format::new(T::R32Uint, TextureAspect::All).unwrap();
    let levels = [Level {
        offset: 0,
        extent: [2, 2, 1],
        row_stride: 8,
        slice_stride: 16,
    }];
    let view = TexelView {
        memory: Memory::new(&words),
        format,
        shape: Shape::D2,
        levels: &levels,
        layers: 1,
        samples: 4,
        sample_stride: 16,
    };
    for sample in 0..4 {
        let at = At {
            coordinate: [0, 1, 0],
            sample,
            ..At::default()
        };
        assert_eq!(view.load(at, OutOfBounds::Zero), [2 * sample + 1, 0, 0, 1]);
    }
    let beyond = At {
        sample: 4,
        ..At::default()
    };
    assert_eq!(view.load(beyond, OutOfBounds::Zero), [0; 4]);
    assert_eq!(view.num_samples(), 4);
}

#[test]
fn lying_descriptions_reach_no_memory_outside() {
    let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(7)).collect();
    for format in [
        T::R8Uint,
        T::R16Uint,
        T::R32Uint,
        T::Rg32Uint,
        T::Rgba32Uint,
        T::R64Uint,
    ] {
        let format = Format::new(format, TextureAspect::All).unwrap();
        for (offset, stride) in [
            (24, 16),
            (usize::MAX - 8, 8),
            (0, usize::MAX / 2),
            (1, 3),
            (32, 0),
        ] {
            let levels = [Level {
                offset,
                extent: [u32::MAX; 3],
                row_stride: stride,
                slice_stride: stride,
            }];
            let view = TexelView {
                memory: Memory::new(&words),
                format,
                shape: Shape::D3,
                levels: &levels,
                layers: u32::MAX,
                samples: u32::MAX,
                sample_stride: stride,
            };
            for index in [0, 1, 2, 100, u32::MAX - 1] {
                let at = At {
                    coordinate: [index; 3],
                    layer: index,
                    level: 0,
                    sample: index,
                };
                view.store(at, [1; 4]);
                let _ = view.load(at, OutOfBounds::Zero);
                let _ = view.load(at, OutOfBounds::Clamp);
                let _ = (view.atomic(at), view.atomic_u64(at));
            }
        }
    }
    let none = TexelView {
        memory: Memory::new(&[]),
        format: Format::new(T::R32Uint, TextureAspect::All).unwrap(),
        shape: Shape::D2,
        levels: &[],
        layers: 0,
        samples: 0,
        sample_stride: 0,
    };
    assert_eq!(none.load(At::default(), OutOfBounds::Clamp), [0; 4]);
    assert_eq!(none.dimensions(0), [0; 3]);
}

#[test]
fn atomics_see_the_texels_that_stores_write() {
    let texture = Texture::new(T::R32Uint, Shape::D2, [4, 4, 1], 1, 1);
    let view = texture.view();
    let at = At {
        coordinate: [2, 3, 0],
        ..At::default()
    };
    view.store(at, [40, 0, 0, 0]);
    view.atomic(at).unwrap().fetch_add(2, Ordering::Relaxed);
    assert_eq!(view.load(at, OutOfBounds::Zero)[0], 42);
    assert!(
        view.atomic(At {
            coordinate: [4, 0, 0],
            ..at
        })
        .is_none()
    );
    assert!(view.atomic_u64(at).is_none());
    let texture = Texture::new(T::R64Uint, Shape::D2, [4, 4, 1], 1, 1);
    let view = texture.view();
    view.store(at, [u32::MAX, 1, 0, 0]);
    view.atomic_u64(at).unwrap().fetch_add(1, Ordering::Relaxed);
    assert_eq!(view.load(at, OutOfBounds::Zero)[..2], [0, 2]);
    assert!(view.atomic(at).is_none());
}

#[test]
fn queries_count_levels_layers_and_cubes() {
    let texture = Texture::new(T::R8Unorm, Shape::CubeArray, [8, 8, 1], 18, 4);
    let view = texture.view();
    assert_eq!(
        (view.num_levels(), view.num_layers(), view.num_samples()),
        (4, 3, 1)
    );
    assert_eq!(
        (view.dimensions(1), view.dimensions(3)),
        ([4, 4, 1], [1, 1, 1])
    );
    let texture = Texture::new(T::R8Unorm, Shape::D2Array, [8, 4, 1], 5, 1);
    assert_eq!(texture.view().num_layers(), 5);
}
