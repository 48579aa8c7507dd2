//! Packing of vectors into one `u32`, unpacking, and dot products of packed vectors.

use half::f16;
use naga::MathFunction;

use crate::value::{Scalar, Value, Vector};

/// The packing and unpacking functions; `None` for other functions and for arguments that do not fit.
pub fn packing(function: MathFunction, first: &Value, second: Option<&Value>) -> Option<Value> {
    use MathFunction as Mf;
    let packed = || match first.scalar()? {
        Scalar::U32(packed) => Some(packed),
        _ => None,
    };
    match function {
        Mf::Pack4x8snorm => pack(first, 8, |value| normalized(value, -1.0, 127.0)),
        Mf::Pack4x8unorm => pack(first, 8, |value| normalized(value, 0.0, 255.0)),
        Mf::Pack2x16snorm => pack(first, 16, |value| normalized(value, -1.0, 32767.0)),
        Mf::Pack2x16unorm => pack(first, 16, |value| normalized(value, 0.0, 65535.0)),
        Mf::Pack2x16float => pack(first, 16, |value| match value {
            Scalar::F32(value) => Some(f16::from_f32(value).to_bits().into()),
            _ => None,
        }),
        Mf::Pack4xI8 | Mf::Pack4xU8 => pack(first, 8, |value| Some(value.integer()? as u32)),
        Mf::Pack4xI8Clamp => pack(first, 8, |value| {
            Some(value.integer()?.clamp(-128, 127) as u32)
        }),
        Mf::Pack4xU8Clamp => pack(
            first,
            8,
            |value| Some(value.integer()?.clamp(0, 255) as u32),
        ),
        Mf::Unpack4x8snorm => unpack(packed()?, 8, |field| {
            Scalar::F32((field as u8 as i8 as f32 / 127.0).max(-1.0))
        }),
        Mf::Unpack4x8unorm => unpack(packed()?, 8, |field| Scalar::F32(field as f32 / 255.0)),
        Mf::Unpack2x16snorm => unpack(packed()?, 16, |field| {
            Scalar::F32((field as u16 as i16 as f32 / 32767.0).max(-1.0))
        }),
        Mf::Unpack2x16unorm => unpack(packed()?, 16, |field| Scalar::F32(field as f32 / 65535.0)),
        Mf::Unpack2x16float => unpack(packed()?, 16, |field| {
            Scalar::F32(f16::from_bits(field as u16).to_f32())
        }),
        Mf::Unpack4xI8 => unpack(packed()?, 8, |field| {
            Scalar::I32((field as u8 as i8).into())
        }),
        Mf::Unpack4xU8 => unpack(packed()?, 8, Scalar::U32),
        Mf::Dot4I8Packed | Mf::Dot4U8Packed => {
            let Scalar::U32(second) = second?.scalar()? else {
                return None;
            };
            let signed = function == Mf::Dot4I8Packed;
            let element = |packed: u32, index: u32| {
                let byte = (packed >> (8 * index)) as u8;
                if signed {
                    i64::from(byte as i8)
                } else {
                    i64::from(byte)
                }
            };
            let first = packed()?;
            let sum: i64 = (0..4)
                .map(|index| element(first, index) * element(second, index))
                .sum();
            Some(Value::Scalar(if signed {
                Scalar::I32(sum as i32)
            } else {
                Scalar::U32(sum as u32)
            }))
        }
        _ => None,
    }
}

/// `floor(0.5 + scale × clamp(value, low, 1))`, computed in `f64`, where nothing is rounded.
fn normalized(value: Scalar, low: f64, scale: f64) -> Option<u32> {
    let Scalar::F32(value) = value else {
        return None;
    };
    let clamped = if value.is_nan() {
        0.0
    } else {
        f64::from(value).clamp(low, 1.0)
    };
    Some((0.5 + scale * clamped).floor() as i32 as u32)
}

fn pack(vector: &Value, bits: u32, field: impl Fn(Scalar) -> Option<u32>) -> Option<Value> {
    let mask = (1 << bits) - 1;
    let components = vector.vector()?;
    let mut packed = 0;
    for (index, component) in components.components().iter().enumerate() {
        packed |= (field(*component)? & mask) << (bits * index as u32);
    }
    Some(Scalar::U32(packed).into())
}

fn unpack(packed: u32, bits: u32, value: impl Fn(u32) -> Scalar) -> Option<Value> {
    let mask = (1 << bits) - 1;
    let fields: Vec<Scalar> = (0..32 / bits)
        .map(|index| value(packed >> (bits * index) & mask))
        .collect();
    Vector::new(&fields).map(Value::Vector)
}
