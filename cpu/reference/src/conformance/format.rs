//! Floating-point formats: their limits, neighbours and units in the last place.
//!
//! Values of every format are held as `f64`, which represents all of them.

use half::f16;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    F16,
    F32,
    F64,
}

impl Format {
    /// The format of a floating-point type; `None` for other types.
    pub fn of(ty: naga::Scalar) -> Option<Format> {
        match (ty.kind, ty.width) {
            (naga::ScalarKind::Float, 2) => Some(Format::F16),
            (naga::ScalarKind::Float, 4) => Some(Format::F32),
            (naga::ScalarKind::Float, 8) => Some(Format::F64),
            _ => None,
        }
    }

    /// The exponent bias: 127 for `f32`.
    pub fn bias(self) -> i32 {
        match self {
            Format::F16 => 15,
            Format::F32 => 127,
            Format::F64 => 1023,
        }
    }

    /// The largest finite value.
    pub fn max(self) -> f64 {
        match self {
            Format::F16 => f16::MAX.to_f64(),
            Format::F32 => f32::MAX.into(),
            Format::F64 => f64::MAX,
        }
    }

    /// The smallest positive normal value.
    pub fn min_normal(self) -> f64 {
        match self {
            Format::F16 => f16::MIN_POSITIVE.to_f64(),
            Format::F32 => f32::MIN_POSITIVE.into(),
            Format::F64 => f64::MIN_POSITIVE,
        }
    }

    /// True for values that may be flushed to zero.
    pub fn is_subnormal(self, value: f64) -> bool {
        value != 0.0 && value.abs() < self.min_normal()
    }

    /// The largest value of the format that is not above `value`. Below the finite range, `-inf`.
    pub fn down(self, value: f64) -> f64 {
        let nearest = self.nearest(value);
        if nearest > value {
            self.below(nearest)
        } else {
            nearest
        }
    }

    /// The smallest value of the format that is not below `value`. Above the finite range, `inf`.
    pub fn up(self, value: f64) -> f64 {
        -self.down(-value)
    }

    fn nearest(self, value: f64) -> f64 {
        match self {
            Format::F16 => crate::value::nearest_f16(value).to_f64(),
            Format::F32 => (value as f32).into(),
            Format::F64 => value,
        }
    }

    /// The value of the format next below `value`, which is one of the format.
    pub fn below(self, value: f64) -> f64 {
        match self {
            Format::F16 => f16_below(f16::from_f64(value)).to_f64(),
            Format::F32 => (value as f32).next_down().into(),
            Format::F64 => value.next_down(),
        }
    }

    /// The value of the format next above `value`, which is one of the format.
    pub fn above(self, value: f64) -> f64 {
        -self.below(-value)
    }

    /// The unit in the last place as WGSL defines it: the least distance of two finite values with
    /// `value` between them.
    pub fn ulp(self, value: f64) -> f64 {
        let value = value.abs();
        let max = self.max();
        if value >= max {
            return max - self.below(max);
        }
        let (below, above) = (self.down(value), self.up(value));
        if below == above {
            // A value of the format: the smaller of the two distances, which is that below.
            return if value == 0.0 {
                self.above(0.0)
            } else {
                value - self.below(value)
            };
        }
        above - below
    }
}

fn f16_below(value: f16) -> f16 {
    let bits = value.to_bits();
    if value.is_nan() || value == f16::NEG_INFINITY {
        return value;
    }
    f16::from_bits(match bits {
        0x0000 | 0x8000 => 0x8001,
        _ if bits & 0x8000 != 0 => bits + 1,
        _ => bits - 1,
    })
}
