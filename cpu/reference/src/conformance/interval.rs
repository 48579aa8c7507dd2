//! Intervals of values that WGSL allows a computation to give.
//!
//! An interval holds every result of an operation whose operands may be anywhere in theirs: rounded up
//! or down, with subnormals flushed or kept, within the error that the accuracy table grants. A
//! computation that overflows, divides by zero or leaves its domain may give anything at all (WGSL's
//! finite math assumption), and so may everything that is computed from it.

use super::format::Format;

/// The results that a floating-point computation may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Finite bounds, both included.
    Between(f64, f64),
    /// Any value of the type.
    Anything,
}

use Interval::{Anything, Between};

impl Interval {
    /// The value of an operand: itself, or zero if it is subnormal.
    pub fn operand(format: Format, value: f64) -> Interval {
        if value.is_finite() {
            Interval::hull(format, value, value)
        } else {
            Anything
        }
    }

    /// A constant of a kernel's text, which lies between two values of the format.
    pub fn constant(format: Format, value: f64) -> Interval {
        Interval::rounded(format, value, value)
    }

    /// From `low` to `high`, and with subnormals zero as well. Anything where either is not finite.
    fn hull(format: Format, low: f64, high: f64) -> Interval {
        if !(low >= -format.max() && high <= format.max()) {
            return Anything;
        }
        let low = if low > 0.0 && format.is_subnormal(low) {
            0.0
        } else {
            low
        };
        let high = if high < 0.0 && format.is_subnormal(high) {
            0.0
        } else {
            high
        };
        Between(low, high)
    }

    /// Correctly rounded results between two exact ones.
    fn rounded(format: Format, low: f64, high: f64) -> Interval {
        Interval::hull(format, format.down(low), format.up(high))
    }

    /// Results within an absolute error of an exact one.
    pub fn absolute(format: Format, exact: f64, error: f64) -> Interval {
        // The exact result was computed in `f64`; its own error is covered by one part in 2^50.
        let error = error + exact.abs() * 2f64.powi(-50);
        Interval::hull(format, exact - error, exact + error)
    }

    /// Results within a number of units in the last place of an exact one.
    pub fn within_ulp(format: Format, exact: f64, ulp: f64) -> Interval {
        if exact.abs() > format.max() {
            Anything
        } else {
            Interval::absolute(format, exact, ulp * format.ulp(exact))
        }
    }

    /// The smallest interval that holds both.
    pub fn or(self, other: Interval) -> Interval {
        match (self, other) {
            (Between(a, b), Between(c, d)) => Between(a.min(c), b.max(d)),
            _ => Anything,
        }
    }

    /// True if `value`, one of the format, is allowed. Zeros have no sign here.
    pub fn contains(self, value: f64) -> bool {
        match self {
            Between(low, high) => low <= value && value <= high,
            Anything => true,
        }
    }

    /// Applies a function of one value at both ends. The function must be monotonous in between.
    pub fn map(self, function: impl Fn(f64) -> Interval) -> Interval {
        match self {
            Between(low, high) => function(low).or(function(high)),
            Anything => Anything,
        }
    }

    /// Applies a function of two values at all corners. The function must be monotonous in between.
    pub fn zip(self, other: Interval, function: impl Fn(f64, f64) -> Interval) -> Interval {
        self.map(|a| other.map(|b| function(a, b)))
    }

    /// The sum.
    pub fn add(self, format: Format, other: Interval) -> Interval {
        self.zip(other, |a, b| {
            let (sum, rest) = two_sum(a, b);
            let low = if rest < 0.0 { sum.next_down() } else { sum };
            let high = if rest > 0.0 { sum.next_up() } else { sum };
            Interval::rounded(format, low, high)
        })
    }

    /// The difference.
    pub fn sub(self, format: Format, other: Interval) -> Interval {
        self.add(format, other.neg())
    }

    /// The negation, which is exact.
    pub fn neg(self) -> Interval {
        match self {
            Between(low, high) => Between(-high, -low),
            Anything => Anything,
        }
    }

    /// The product. For `f64` it is computed with an error that one neighbour covers.
    pub fn mul(self, format: Format, other: Interval) -> Interval {
        self.zip(other, |a, b| match format {
            Format::F64 if a != 0.0 && b != 0.0 => {
                Interval::rounded(format, (a * b).next_down(), (a * b).next_up())
            }
            _ => Interval::rounded(format, a * b, a * b),
        })
    }

    /// The quotient: 2.5 units in the last place, for divisors whose reciprocal is normal.
    pub fn div(self, format: Format, other: Interval) -> Interval {
        let limit = 2f64.powi(format.bias() - 1);
        match other {
            Between(low, high) if low <= 0.0 && high >= 0.0 => Anything,
            Between(low, high)
                if low.abs().min(high.abs()) < 1.0 / limit || low.abs().max(high.abs()) > limit =>
            {
                Anything
            }
            _ => self.zip(other, |a, b| Interval::within_ulp(format, a / b, 2.5)),
        }
    }

    /// Rounded to an integer, towards zero or below, which is exact.
    pub fn integer(self, round: impl Fn(f64) -> f64) -> Interval {
        match self {
            Between(low, high) => Between(round(low), round(high)),
            Anything => Anything,
        }
    }

    /// `min(max(x, low), high)` for numbers.
    pub fn clamp(self, low: f64, high: f64) -> Interval {
        self.integer(|value| value.clamp(low, high))
    }

    /// `inverseSqrt`.
    pub fn inverse_sqrt(self, format: Format) -> Interval {
        self.map(|x| {
            if x > 0.0 {
                Interval::within_ulp(format, 1.0 / libm::sqrt(x), 2.0)
            } else {
                Anything
            }
        })
    }

    /// `sqrt`: what `1 / inverseSqrt(x)` may give.
    pub fn sqrt(self, format: Format) -> Interval {
        Interval::constant(format, 1.0).div(format, self.inverse_sqrt(format))
    }

    /// `exp` or `exp2`: `3 + 2 * |x|` units in the last place, one and the same for `f16`.
    pub fn exp(self, format: Format, function: impl Fn(f64) -> f64) -> Interval {
        let base = if format == Format::F16 { 1.0 } else { 3.0 };
        self.map(|x| Interval::within_ulp(format, function(x), base + 2.0 * x.abs()))
    }

    /// `log` or `log2`: an absolute error around 1, three units in the last place elsewhere.
    pub fn log(self, format: Format, function: impl Fn(f64) -> f64) -> Interval {
        let near_one = if format == Format::F16 {
            2f64.powi(-7)
        } else {
            2f64.powi(-21)
        };
        self.map(|x| match x {
            _ if x <= 0.0 => Anything,
            _ if (0.5..=2.0).contains(&x) => Interval::absolute(format, function(x), near_one),
            _ => Interval::within_ulp(format, function(x), 3.0),
        })
    }

    /// `sin` or `cos`: an absolute error between −π and π, anything elsewhere.
    pub fn sine(self, format: Format, function: impl Fn(f64) -> f64) -> Interval {
        let error = if format == Format::F16 {
            2f64.powi(-7)
        } else {
            2f64.powi(-11)
        };
        self.map(|x| match x.abs() <= core::f64::consts::PI {
            true => Interval::absolute(format, function(x), error),
            false => Anything,
        })
    }

    /// `atan2`: 4096 units in the last place where both operands are far from zero; 5 for `f16`.
    pub fn atan2(self, format: Format, x: Interval) -> Interval {
        let limit = 2f64.powi(format.bias() - 1);
        if let (Between(y_low, y_high), Between(x_low, x_high)) = (self, x) {
            let y_is_normal = y_low.signum() == y_high.signum()
                && y_low.abs().min(y_high.abs()) >= format.min_normal();
            let x_is_usual = x_low.signum() == x_high.signum()
                && x_low.abs().min(x_high.abs()) >= 1.0 / limit
                && x_low.abs().max(x_high.abs()) <= limit;
            if y_is_normal && x_is_usual {
                let ulp = if format == Format::F16 { 5.0 } else { 4096.0 };
                return self.zip(x, |y, x| {
                    Interval::within_ulp(format, libm::atan2(y, x), ulp)
                });
            }
        }
        Anything
    }
}

/// A sum, and what its rounding lost, exactly (Knuth's TwoSum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

/// A sum in whatever order an implementation may take: each operand in turn, or in pairs.
pub fn sum_any_order(format: Format, terms: &[Interval]) -> Interval {
    let mut result: Option<Interval> = None;
    let mut consider = |sum: Interval| result = Some(result.map_or(sum, |known| known.or(sum)));
    for order in permutations(terms.len()) {
        let in_order: Vec<Interval> = order.iter().map(|index| terms[*index]).collect();
        if let [a, b, c, d] = in_order[..] {
            consider(a.add(format, b).add(format, c.add(format, d)));
        }
        let mut sum = in_order.iter().copied();
        if let Some(first) = sum.next() {
            consider(sum.fold(first, |sum, term| sum.add(format, term)));
        }
    }
    result.unwrap_or(Between(0.0, 0.0))
}

/// All orders of the numbers below `count`.
pub fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1) {
        for place in 0..count {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            all.push(longer);
        }
    }
    all
}

/// `dot`.
pub fn dot(format: Format, a: &[Interval], b: &[Interval]) -> Interval {
    let products: Vec<Interval> = a.iter().zip(b).map(|(a, b)| a.mul(format, *b)).collect();
    sum_any_order(format, &products)
}

/// `length` of a vector.
pub fn length(format: Format, components: &[Interval]) -> Interval {
    dot(format, components, components).sqrt(format)
}
