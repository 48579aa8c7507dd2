//! Operands that find faults: the edges of each type, and many values in between.

use fastrand::Rng;

use super::format::Format;
use crate::operate::integer_range;
use crate::value::Scalar;

/// Seed of all inputs that are drawn: the table is the same at every run.
const SEED: u64 = 0x7065_6262_6c65;

/// Every edge of a type: of integers the ends, small numbers, powers of two and their neighbours; of
/// floating-point types also zeros, subnormals, infinities, NaN, ties of rounding, and the limits of
/// integer types and of smaller formats.
pub fn edges(ty: naga::Scalar) -> Vec<Scalar> {
    match ty.kind {
        naga::ScalarKind::Bool => vec![Scalar::Bool(false), Scalar::Bool(true)],
        naga::ScalarKind::Float => float_edges(ty),
        _ => integer_edges(ty),
    }
}

/// A few of the most telling edges, for functions of several operands.
pub fn few_edges(ty: naga::Scalar) -> Vec<Scalar> {
    let Some(format) = Format::of(ty) else {
        let Some((low, high)) = integer_range(ty) else {
            return edges(ty);
        };
        let values = [
            0,
            1,
            -1,
            2,
            7,
            -8,
            31,
            32,
            low,
            low + 1,
            high,
            high - 1,
            0x5555_5555,
        ];
        return values
            .iter()
            .filter_map(|value| Scalar::wrapped(ty, *value))
            .collect();
    };
    let (small, max) = (format.min_normal(), format.max());
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.75,
        100.0,
        small,
        -small / 2.0,
        max,
        f64::INFINITY,
        f64::NAN,
    ];
    values
        .iter()
        .filter_map(|value| Scalar::rounded(ty, *value))
        .collect()
}

fn integer_edges(ty: naga::Scalar) -> Vec<Scalar> {
    let Some((low, high)) = integer_range(ty) else {
        return Vec::new();
    };
    let mut values: Vec<i128> = (-4..=17).chain([low, low + 1, high - 1, high]).collect();
    for power in (3..u32::from(ty.width) * 8).step_by(2) {
        values.extend([
            (1 << power) - 1,
            1 << power,
            (1 << power) + 1,
            -(1 << power),
        ]);
    }
    values.extend([
        0x5555_5555,
        0xaaaa_aaaa,
        0x0f0f_0f0f,
        0x1234_5678,
        0xdead_beef,
        0x7fff_8000,
    ]);
    let mut scalars: Vec<Scalar> = values
        .iter()
        .filter_map(|value| Scalar::wrapped(ty, *value))
        .collect();
    scalars.sort_by_key(|scalar| scalar.bits());
    scalars.dedup();
    scalars
}

fn float_edges(ty: naga::Scalar) -> Vec<Scalar> {
    let Some(format) = Format::of(ty) else {
        return Vec::new();
    };
    let (max, small) = (format.max(), format.min_normal());
    let mut values = vec![
        0.0,
        1.0,
        2.0,
        3.0,
        10.0,
        0.1,
        0.25,
        0.3,
        0.5,
        0.75,
        0.9,
        1.1,
        1.5,
        2.5,
        3.5,
        4.5,
        core::f64::consts::E,
        core::f64::consts::PI,
        core::f64::consts::FRAC_PI_2,
        core::f64::consts::FRAC_PI_4,
        core::f64::consts::LN_2,
        7.7,
        89.0,
        127.5,
        128.0,
        255.5,
        1023.0,
        2047.5,
        65504.0,
        65519.0,
        65536.0,
        8388607.5,
        16777216.0,
        2147483520.0,
        2147483648.0,
        4294967040.0,
        4294967296.0,
        9.223372036854775e18,
        1.8446744073709552e19,
        1.0e10,
        1.0e20,
        1.0e-5,
        1.0e-10,
        6.0e-8,
        6.103515625e-5,
        max,
        max / 2.0,
        max.sqrt(),
        small,
        small * 1.5,
        small / 2.0,
        small * 2.0,
        format.above(0.0),
        format.above(1.0),
        format.below(1.0),
        f64::INFINITY,
    ];
    values.extend(values.clone().iter().map(|value| -value));
    values.push(f64::NAN);
    let mut scalars: Vec<Scalar> = values
        .iter()
        .filter_map(|value| Scalar::rounded(ty, *value))
        .collect();
    scalars.sort_by_key(|scalar| scalar.bits());
    scalars.dedup();
    scalars
}

/// A source of operands between the edges.
pub struct Draw(Rng);

impl Draw {
    /// A source whose values depend on `name` alone.
    pub fn new(name: &str) -> Draw {
        let hash = name.bytes().fold(SEED, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Draw(Rng::with_seed(hash))
    }

    /// A scalar: of floating-point types as often of moderate size as of any.
    pub fn scalar(&mut self, ty: naga::Scalar) -> Scalar {
        let bits = match self.0.u32(0..4) {
            0 => self.0.u64(..) >> self.0.u32(0..64),
            _ => self.0.u64(..),
        };
        let moderate = match ty.kind {
            naga::ScalarKind::Float => match self.0.u32(0..4) {
                0 => None,
                1 => Scalar::rounded(ty, self.between(-1.0, 1.0)),
                2 => Scalar::rounded(ty, self.between(-10.0, 10.0)),
                _ => {
                    let exponent = self.between(-12.0, 12.0);
                    Scalar::rounded(
                        ty,
                        libm::exp2(exponent) * if self.0.bool() { 1.0 } else { -1.0 },
                    )
                }
            },
            _ => None,
        };
        moderate
            .or_else(|| Scalar::from_bits(ty, bits))
            .unwrap_or(Scalar::Bool(bits & 1 == 1))
    }

    /// A number of an interval.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.f64()
    }

    /// An index below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.usize(0..count)
    }
}

/// Combinations of operands of the given types: edges with edges, and `drawn` combinations more.
pub fn combinations(name: &str, types: &[naga::Scalar], drawn: usize) -> Vec<Vec<Scalar>> {
    let choices: Vec<Vec<Scalar>> = types
        .iter()
        .map(|ty| {
            if types.len() == 1 {
                edges(*ty)
            } else {
                few_edges(*ty)
            }
        })
        .collect();
    let mut all: Vec<Vec<Scalar>> = vec![Vec::new()];
    for choice in &choices {
        all = all
            .iter()
            .flat_map(|known| {
                choice
                    .iter()
                    .map(move |value| [&known[..], &[*value]].concat())
            })
            .collect();
    }
    let mut draw = Draw::new(name);
    if types.len() == 2 {
        // All edges meet some other edge.
        for value in edges(types[0]) {
            let others = edges(types[1]);
            all.push(vec![value, others[draw.below(others.len())]]);
        }
    }
    for _ in 0..drawn {
        all.push(types.iter().map(|ty| draw.scalar(*ty)).collect());
    }
    all
}
