//! What a result may be.

use core::fmt;

use super::format::Format;
use super::interval::Interval;
use crate::value::Scalar;

/// The results that are right for one component of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// WGSL says nothing, or nothing that can be checked.
    Anything,
    /// This value. Zeros of either sign count as one, and so do all NaN.
    Exactly(Scalar),
    /// One of these values.
    OneOf(Vec<Scalar>),
    /// Values of a format, both bounds included.
    Between(f64, f64),
    /// Fields of a word, from the lowest bits up, each with the least and the greatest value.
    Fields {
        bits: u32,
        signed: bool,
        ranges: Vec<(i64, i64)>,
    },
}

impl Expected {
    /// True if a result is right.
    pub fn accepts(&self, got: Scalar) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Exactly(expected) => same(*expected, got),
            Expected::OneOf(all) => all.iter().any(|expected| same(*expected, got)),
            Expected::Between(low, high) => {
                got.float().is_some_and(|got| *low <= got && got <= *high)
            }
            Expected::Fields {
                bits,
                signed,
                ranges,
            } => ranges.iter().enumerate().all(|(index, (low, high))| {
                let field =
                    (got.bits() >> (index as u32 * bits)) as u32 & ((1u64 << bits) - 1) as u32;
                let unused = 32 - bits;
                let value = if *signed {
                    i64::from((field << unused) as i32 >> unused)
                } else {
                    field.into()
                };
                (*low..=*high).contains(&value)
            }),
        }
    }

    /// Results with the given values under every way in which subnormals may be flushed.
    pub fn exact_float(ty: naga::Scalar, values: impl IntoIterator<Item = f64>) -> Expected {
        let Some(format) = Format::of(ty) else {
            return Expected::Anything;
        };
        let mut all: Vec<Scalar> = Vec::new();
        for value in values {
            if !value.is_finite() {
                return Expected::Anything;
            }
            let flushed = format.is_subnormal(value).then_some(0.0);
            for value in [Some(value), flushed].into_iter().flatten() {
                all.extend(Scalar::rounded(ty, value));
            }
        }
        all.dedup();
        Expected::OneOf(all)
    }
}

impl From<Interval> for Expected {
    fn from(interval: Interval) -> Expected {
        match interval {
            Interval::Anything => Expected::Anything,
            Interval::Between(low, high) => Expected::Between(low, high),
        }
    }
}

/// Equal as values: NaN are alike, zeros have no sign.
pub fn same(a: Scalar, b: Scalar) -> bool {
    match (a.float(), b.float()) {
        (Some(x), Some(y)) => a.ty() == b.ty() && (x == y || x.is_nan() && y.is_nan()),
        _ => a == b,
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Anything => write!(formatter, "anything"),
            Expected::Exactly(value) => write!(formatter, "{value}"),
            Expected::OneOf(all) => write!(formatter, "one of {all:?}"),
            Expected::Between(low, high) => write!(formatter, "{low:e} to {high:e}"),
            Expected::Fields { bits, ranges, .. } => {
                write!(formatter, "fields of {bits} bits in {ranges:?}")
            }
        }
    }
}
