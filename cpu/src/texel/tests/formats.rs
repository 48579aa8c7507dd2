//! Every stored value of 8- and 16-bit channels, and encoding against a search for the nearest.

use super::super::format::{Format, Kind, UnsupportedFormat};
use super::super::packed;
use super::{unit, word};
use wgpu_types::{AstcBlock, AstcChannel, TextureAspect, TextureFormat as T, TextureSampleType};

#[path = "../../../tests/support/formats.rs"]
mod written;

/// All formats that kernels can touch: those with contents that hosts cannot write as well.
fn formats() -> impl Iterator<Item = T> {
    let others = [T::R64Uint, T::Stencil8, T::Depth24Plus, T::Depth32Float];
    written::LOADED.iter().copied().chain(others)
}

fn format(format: T) -> Format {
    Format::new(format, TextureAspect::All).unwrap()
}

#[test]
fn every_format_has_the_size_and_kind_that_wgpu_gives_it() {
    for name in formats() {
        let format = format(name);
        // wgpu keeps the layout of Depth24Plus to the backend.
        let bytes = name.block_copy_size(None).unwrap_or(4);
        assert_eq!(format.bytes(), bytes, "{name:?}");
        let kind = match name.sample_type(None, None) {
            Some(TextureSampleType::Float { .. }) => Kind::Float,
            Some(TextureSampleType::Depth) => Kind::Depth,
            Some(TextureSampleType::Sint) => Kind::Sint,
            Some(TextureSampleType::Uint) if name == T::R64Uint => Kind::Uint64,
            Some(TextureSampleType::Uint) => Kind::Uint,
            None => panic!("{name:?} has several aspects"),
        };
        assert_eq!(format.kind(), kind, "{name:?}");
    }
}

#[test]
fn aspects_choose_planes_and_the_rest_is_refused_by_name() {
    let of = |format, aspect| Format::new(format, aspect);
    let plain = |name| Ok(format(name));
    assert_eq!(
        of(T::Depth24PlusStencil8, TextureAspect::DepthOnly),
        plain(T::Depth24Plus)
    );
    assert_eq!(
        of(T::Depth32FloatStencil8, TextureAspect::StencilOnly),
        plain(T::Stencil8)
    );
    assert_eq!(of(T::NV12, TextureAspect::Plane1), plain(T::Rg8Unorm));
    assert_eq!(of(T::P010, TextureAspect::Plane0), plain(T::R16Unorm));
    for name in [
        T::Depth24PlusStencil8,
        T::Depth32FloatStencil8,
        T::NV12,
        T::P010,
    ] {
        let refused = UnsupportedFormat::Aspect(name, TextureAspect::All);
        assert_eq!(of(name, TextureAspect::All), Err(refused));
    }
    let astc = T::Astc {
        block: AstcBlock::B4x4,
        channel: AstcChannel::Unorm,
    };
    for name in [
        T::Bc1RgbaUnorm,
        T::Bc7RgbaUnormSrgb,
        T::Etc2Rgb8Unorm,
        T::EacR11Snorm,
        astc,
    ] {
        let refused = UnsupportedFormat::Compressed(name);
        assert_eq!(of(name, TextureAspect::All), Err(refused));
        assert!(refused.to_string().contains("Rgba8Unorm"), "{refused}");
    }
}

/// What a channel of `bits` bits means, in binary64; the words of integers are sign-extended.
fn meaning(name: T, bits: u32, stored: u32) -> f64 {
    let text = format!("{name:?}");
    let signed = ((stored << (32 - bits)) as i32) >> (32 - bits);
    let largest = f64::from((1u64 << bits) as u32 - 1);
    if text.contains("Srgb") {
        let encoded = f64::from(stored) / 255.0;
        if encoded <= 0.04045 {
            encoded / 12.92
        } else {
            ((encoded + 0.055) / 1.055).powf(2.4)
        }
    } else if text.contains("Unorm") {
        f64::from(stored) / largest
    } else if text.contains("Snorm") {
        (f64::from(signed) / (largest / 2.0).floor()).max(-1.0)
    } else if text.contains("Float") {
        half::f16::from_bits(stored as u16).to_f64()
    } else if text.contains("Sint") {
        signed.into()
    } else {
        stored.into()
    }
}

/// The formats whose channels have 8 or 16 bits, with the width and the number of channels.
fn narrow() -> impl Iterator<Item = (T, u32, usize)> {
    formats().filter_map(|name| {
        let text = format!("{name:?}");
        let bits = if text.contains("10") {
            0
        } else if text.contains("16") {
            16
        } else {
            8
        };
        let channels = usize::from(name.components());
        (bits * channels as u32 == name.block_copy_size(None)? * 8)
            .then_some((name, bits, channels))
    })
}

#[test]
fn every_stored_value_decodes_to_its_meaning_and_back() {
    assert_eq!(narrow().count(), 32);
    for (name, bits, channels) in narrow() {
        let format = format(name);
        let one = if matches!(format.kind(), Kind::Float | Kind::Depth) {
            1f32.to_bits()
        } else {
            1
        };
        for stored in 0..1u32 << bits {
            for place in 0..channels {
                // The channel under test among others that are zero.
                let start = bits * place as u32;
                let mut texel = [0; 4];
                texel[(start / 32) as usize] = stored << (start % 32);
                let value = format.decode(texel);
                let swapped = name == T::Bgra8Unorm || name == T::Bgra8UnormSrgb;
                let channel = if swapped && place != 3 {
                    2 - place
                } else {
                    place
                };
                let linear = if channel == 3 && name.is_srgb() {
                    T::Rgba8Unorm
                } else {
                    name
                };
                let expected = meaning(linear, bits, stored);
                let of = (name, place, stored);
                match format.kind() {
                    Kind::Float | Kind::Depth => {
                        let value = f32::from_bits(value[channel]);
                        let same = value.to_bits() == (expected as f32).to_bits();
                        assert!(
                            same || value.is_nan() && expected.is_nan(),
                            "{of:?}: {value}"
                        );
                    }
                    Kind::Sint => assert_eq!(f64::from(value[channel] as i32), expected, "{of:?}"),
                    _ => assert_eq!(f64::from(value[channel]), expected, "{of:?}"),
                }
                for missing in channels..4 {
                    assert_eq!(value[missing], if missing == 3 { one } else { 0 }, "{of:?}");
                }
                let again = format.encode(value);
                let least_snorm =
                    stored == 1 << (bits - 1) && format!("{name:?}").contains("Snorm");
                if least_snorm || expected.is_nan() {
                    // Two texels mean −1, and NaN has many forms: the value is the same.
                    let once_more = format.decode(again);
                    assert!(once_more == value || expected.is_nan(), "{of:?}");
                } else {
                    assert_eq!(again, texel, "{of:?}");
                }
            }
        }
    }
}

#[test]
fn encoding_finds_the_nearest_stored_value() {
    let numbers = (0..60_000u64).map(|index| match index % 3 {
        0 => (unit(index) * 2.4 - 1.2) as f32,
        1 => f32::from_bits(word(index) as u32),
        _ => (unit(index) * 140_000.0 - 70_000.0) as f32,
    });
    let numbers: Vec<f32> = numbers
        .chain([
            f32::INFINITY,
            -f32::INFINITY,
            f32::MAX,
            f32::MIN,
            0.5,
            1.5 / 255.0,
        ])
        .collect();
    for (name, bits, _) in narrow().filter(|(name, ..)| name.components() == 1) {
        let format = format(name);
        if !matches!(format.kind(), Kind::Float | Kind::Depth) || name == T::R16Float {
            continue;
        }
        for &x in numbers.iter().filter(|x| !x.is_nan()) {
            let stored = format.encode([x.to_bits(), 0, 0, 0])[0];
            assert!(stored >> bits == 0);
            let low = if format!("{name:?}").contains("Snorm") {
                -1.0
            } else {
                0.0
            };
            let exact = f64::from(x).clamp(low, 1.0);
            let off = |stored: u32| (meaning(name, bits, stored) - exact).abs();
            let mask = (1 << bits) - 1;
            let around = [stored.wrapping_sub(1) & mask, stored.wrapping_add(1) & mask];
            for other in around {
                assert!(
                    off(stored) <= off(other) + 1e-12,
                    "{name:?} stores {x} as {stored}"
                );
            }
        }
        let nan = format.encode([f32::NAN.to_bits(), 0, 0, 0])[0];
        assert_eq!(nan, 0, "{name:?}");
    }
}

#[test]
fn integers_saturate() {
    for (name, bits, channels) in narrow() {
        let format = format(name);
        for index in 0..2000 {
            let value: [u32; 4] =
                std::array::from_fn(|n| (word(4 * index + n as u64) >> (index % 40)) as u32);
            let again = format.decode(format.encode(value));
            for channel in 0..channels {
                match format.kind() {
                    Kind::Uint => assert_eq!(again[channel], value[channel].min((1 << bits) - 1)),
                    Kind::Sint => {
                        let half = 1i32 << (bits - 1);
                        let expected = (value[channel] as i32).clamp(-half, half - 1);
                        assert_eq!(again[channel] as i32, expected);
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn words_pass_unchanged() {
    for name in [
        T::R32Uint,
        T::Rg32Sint,
        T::Rgba32Float,
        T::Depth32Float,
        T::R64Uint,
    ] {
        let format = format(name);
        let texel: [u32; 4] = std::array::from_fn(|n| {
            let stored = (n as u32) * 4 < format.bytes();
            if stored { word(n as u64) as u32 } else { 0 }
        });
        assert_eq!(format.encode(format.decode(texel)), texel, "{name:?}");
    }
}

/// A float of 5 exponent bits and no sign, by its definition.
fn small_float(bits: u32, mantissa: u32) -> f64 {
    let (exponent, fraction) = (bits >> mantissa, f64::from(bits & ((1 << mantissa) - 1)));
    let steps = f64::from(1 << mantissa);
    match exponent {
        0 => fraction / steps * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / steps) * 2f64.powi(exponent as i32 - 15),
    }
}

#[test]
fn small_floats_match_their_definition_and_round_to_nearest() {
    for mantissa in [5, 6] {
        let infinity = 31 << mantissa;
        for bits in 0..32 << mantissa {
            let value = packed::decode_small_float(bits, mantissa);
            let expected = small_float(bits, mantissa);
            assert!(
                f64::from(value) == expected || value.is_nan() && expected.is_nan(),
                "{bits:#x}"
            );
            if bits < infinity {
                assert_eq!(packed::encode_small_float(value, mantissa), bits);
                assert_eq!(packed::encode_small_float(-value, mantissa), 0);
            }
            if bits + 1 >= infinity {
                continue;
            }
            // Around the middle between two neighbours.
            let middle = (expected + small_float(bits + 1, mantissa)) / 2.0;
            let middle = middle as f32;
            let below = f32::from_bits(middle.to_bits() - 1);
            let above = f32::from_bits(middle.to_bits() + 1);
            assert_eq!(
                packed::encode_small_float(below, mantissa),
                bits,
                "{bits:#x}"
            );
            assert_eq!(
                packed::encode_small_float(above, mantissa),
                bits + 1,
                "{bits:#x}"
            );
            assert_eq!(
                packed::encode_small_float(middle, mantissa),
                bits + (bits & 1),
                "{bits:#x}"
            );
        }
        assert_eq!(packed::encode_small_float(f32::MAX, mantissa), infinity - 1);
        assert_eq!(
            packed::encode_small_float(f32::INFINITY, mantissa),
            infinity
        );
        assert_eq!(packed::encode_small_float(f32::NEG_INFINITY, mantissa), 0);
        let nan = packed::encode_small_float(f32::NAN, mantissa);
        assert!(packed::decode_small_float(nan, mantissa).is_nan());
    }
}

#[test]
fn packed_words_hold_their_channels_where_the_format_says() {
    for index in 0..50_000 {
        let stored = word(index) as u32;
        let texel = [stored, 0, 0, 0];
        let value = format(T::Rgb10a2Uint).decode(texel);
        assert_eq!(
            value,
            [
                stored & 1023,
                stored >> 10 & 1023,
                stored >> 20 & 1023,
                stored >> 30
            ]
        );
        assert_eq!(format(T::Rgb10a2Uint).encode(value), texel);
        let unorm = format(T::Rgb10a2Unorm).decode(texel).map(f32::from_bits);
        for (channel, largest) in [1023.0, 1023.0, 1023.0, 3.0].into_iter().enumerate() {
            assert_eq!(unorm[channel], (f64::from(value[channel]) / largest) as f32);
        }
        assert_eq!(
            format(T::Rgb10a2Unorm).encode(unorm.map(f32::to_bits)),
            texel
        );
        let floats = format(T::Rg11b10Ufloat).decode(texel).map(f32::from_bits);
        let expected = [
            small_float(stored & 0x7ff, 6),
            small_float(stored >> 11 & 0x7ff, 6),
            small_float(stored >> 22, 5),
            1.0,
        ];
        for (value, expected) in floats.into_iter().zip(expected) {
            assert!(f64::from(value) == expected || value.is_nan() && expected.is_nan());
        }
        let shared = format(T::Rgb9e5Ufloat).decode(texel).map(f32::from_bits);
        let scale = 2f64.powi((stored >> 27) as i32 - 24);
        for (channel, shift) in [0, 9, 18].into_iter().enumerate() {
            assert_eq!(
                f64::from(shared[channel]),
                f64::from(stored >> shift & 511) * scale
            );
        }
        assert_eq!(shared[3], 1.0);
    }
    let saturated = format(T::Rgb10a2Uint).encode([5000, 1, 1023, 9]);
    assert_eq!(saturated[0], 1023 | 1 << 10 | 1023 << 20 | 3 << 30);
}

#[test]
fn shared_exponents_are_the_smallest_that_fit() {
    for index in 0..100_000u64 {
        let scale = 2f64.powi((word(index) % 44) as i32 - 26);
        let color: [f32; 3] =
            std::array::from_fn(|n| ((unit(3 * index + n as u64) * 1.25 - 0.25) * scale) as f32);
        let texel = packed::encode_rgb9e5(color);
        let value = packed::decode_rgb9e5(texel);
        let step = 2f64.powi((texel >> 27) as i32 - 24);
        for (value, color) in value.into_iter().zip(color) {
            let exact = f64::from(color).clamp(0.0, 65408.0);
            assert!(
                (f64::from(value) - exact).abs() <= step / 2.0,
                "{color} became {value}"
            );
        }
        // With half the step the largest channel would not fit.
        let largest = [0, 9, 18]
            .map(|shift| texel >> shift & 511)
            .into_iter()
            .max();
        assert!(
            texel >> 27 == 0 || largest >= Some(255),
            "{color:?} became {texel:#x}"
        );
    }
    assert_eq!(
        packed::decode_rgb9e5(packed::encode_rgb9e5([f32::INFINITY, f32::NAN, -1.0])),
        [65408.0, 0.0, 0.0]
    );
}
