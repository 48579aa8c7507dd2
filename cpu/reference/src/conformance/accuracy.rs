//! WGSL's accuracy table: which results each operator and built-in function may have on floating-point
//! scalars and vectors (<https://www.w3.org/TR/WGSL/#floating-point-accuracy>).
//!
//! Nothing here is shared with [`crate::operate`]: two independent readings of the specification
//! watch each other.

use naga::{BinaryOperator, MathFunction};

use super::expected::Expected;
use super::format::Format;
use super::interval::{Interval, dot};
use crate::value::Scalar;

use Interval::{Anything, Between};

/// The format of the first operand, and all operands as numbers; `None` unless all are floating-point.
fn operands(scalars: &[Scalar]) -> Option<(Format, naga::Scalar, Vec<f64>)> {
    let ty = scalars.first()?.ty();
    let values: Option<Vec<f64>> = scalars.iter().map(|scalar| scalar.float()).collect();
    Some((Format::of(ty)?, ty, values?))
}

/// A value, and zero where it may be flushed.
fn flushes(format: Format, value: f64) -> Vec<f64> {
    if format.is_subnormal(value) {
        vec![value, 0.0]
    } else {
        vec![value]
    }
}

/// What an arithmetic operator may give.
pub fn arithmetic(operator: BinaryOperator, a: Scalar, b: Scalar) -> Expected {
    let Some((format, _, values)) = operands(&[a, b]) else {
        return Expected::Anything;
    };
    let (x, y) = (
        Interval::operand(format, values[0]),
        Interval::operand(format, values[1]),
    );
    match operator {
        BinaryOperator::Add => x.add(format, y),
        BinaryOperator::Subtract => x.sub(format, y),
        BinaryOperator::Multiply => x.mul(format, y),
        BinaryOperator::Divide => x.div(format, y),
        BinaryOperator::Modulo => {
            let whole = x.div(format, y).integer(f64::trunc);
            x.sub(format, y.mul(format, whole))
        }
        _ => Anything,
    }
    .into()
}

/// What a comparison may give: the correct result for the operands or what they are flushed to.
pub fn comparison(operator: BinaryOperator, a: Scalar, b: Scalar) -> Expected {
    let Some((format, _, values)) = operands(&[a, b]) else {
        return Expected::Anything;
    };
    if values.iter().any(|value| !value.is_finite()) {
        return Expected::Anything;
    }
    let mut results = Vec::new();
    for x in flushes(format, values[0]) {
        for y in flushes(format, values[1]) {
            results.push(Scalar::Bool(match operator {
                BinaryOperator::Equal => x == y,
                BinaryOperator::NotEqual => x != y,
                BinaryOperator::Less => x < y,
                BinaryOperator::LessEqual => x <= y,
                BinaryOperator::Greater => x > y,
                BinaryOperator::GreaterEqual => x >= y,
                _ => return Expected::Anything,
            }));
        }
    }
    Expected::OneOf(results)
}

/// Functions whose result is one of the format for operands of the format: each way of flushing gives
/// one result.
fn exact(
    function: MathFunction,
    format: Format,
    ty: naga::Scalar,
    values: &[f64],
) -> Option<Expected> {
    use MathFunction as Mf;
    if values.iter().any(|value| !value.is_finite()) {
        return Some(Expected::Anything);
    }
    let mut choices: Vec<Vec<f64>> = vec![Vec::new()];
    for value in values {
        let flushed = flushes(format, *value);
        choices = choices
            .iter()
            .flat_map(|choice| {
                flushed
                    .iter()
                    .map(move |value| [&choice[..], &[*value]].concat())
            })
            .collect();
    }
    let mut results = Vec::new();
    for choice in &choices {
        match (function, &choice[..]) {
            (Mf::Abs, [x]) => results.push(x.abs()),
            (Mf::Ceil, [x]) => results.push(x.ceil()),
            (Mf::Floor, [x]) => results.push(x.floor()),
            (Mf::Trunc, [x]) => results.push(x.trunc()),
            (Mf::Round, [x]) => results.push(x.round_ties_even()),
            (Mf::Sign, [x]) => results.push(if *x > 0.0 {
                1.0
            } else if *x < 0.0 {
                -1.0
            } else {
                0.0
            }),
            (Mf::Saturate, [x]) => results.push(x.clamp(0.0, 1.0)),
            (Mf::Min, [x, y]) => results.push(x.min(*y)),
            (Mf::Max, [x, y]) => results.push(x.max(*y)),
            (Mf::Step, [edge, x]) => results.push(f64::from(u8::from(edge <= x))),
            (Mf::Clamp, [x, low, high]) => {
                results.push(x.max(*low).min(*high));
                let mut sorted = [*x, *low, *high];
                sorted.sort_by(f64::total_cmp);
                results.push(sorted[1]);
            }
            _ => return None,
        }
    }
    if matches!(function, Mf::Min | Mf::Max)
        && values.iter().all(|value| format.is_subnormal(*value))
    {
        results.extend(values);
    }
    if function == Mf::Clamp && format.is_subnormal(values[0]) {
        // min and max of subnormals may be either.
        results.extend(values.iter().filter(|value| format.is_subnormal(**value)));
    }
    Some(Expected::exact_float(ty, results))
}

/// What a component-wise built-in function may give for scalars of one floating-point type.
pub fn component_wise(function: MathFunction, scalars: &[Scalar]) -> Expected {
    let Some((format, ty, values)) = operands(scalars) else {
        return Expected::Anything;
    };
    if let Some(expected) = exact(function, format, ty, &values) {
        return expected;
    }
    let intervals: Vec<Interval> = values
        .iter()
        .map(|value| Interval::operand(format, *value))
        .collect();
    match intervals[..] {
        [x] => one(function, format, x),
        [x, y] => two(function, format, x, y),
        [x, y, z] => three(function, format, x, y, z),
        _ => Anything,
    }
    .into()
}

fn one(function: MathFunction, format: Format, x: Interval) -> Interval {
    use MathFunction as Mf;
    let number = |value: f64| Interval::constant(format, value);
    let half = format == Format::F16;
    match function {
        Mf::Sin => x.sine(format, libm::sin),
        Mf::Cos => x.sine(format, libm::cos),
        Mf::Tan => one(Mf::Sin, format, x).div(format, one(Mf::Cos, format, x)),
        Mf::Asin | Mf::Acos => {
            let cosine = number(1.0).sub(format, x.mul(format, x)).sqrt(format);
            let (inherited, function, error): (_, fn(f64) -> f64, _) = match function {
                Mf::Asin => (
                    x.atan2(format, cosine),
                    libm::asin,
                    if half { 3.91e-3 } else { 6.81e-5 },
                ),
                _ => (
                    cosine.atan2(format, x),
                    libm::acos,
                    if half { 3.91e-3 } else { 6.77e-5 },
                ),
            };
            let absolute = x.map(|x| match x.abs() <= 1.0 {
                true => Interval::absolute(format, function(x), error),
                false => Anything,
            });
            inherited.or(absolute)
        }
        Mf::Atan => {
            x.map(|x| Interval::within_ulp(format, libm::atan(x), if half { 5.0 } else { 4096.0 }))
        }
        Mf::Sinh | Mf::Cosh => {
            let (up, down) = (one(Mf::Exp, format, x), one(Mf::Exp, format, x.neg()));
            let both = if function == Mf::Sinh {
                up.sub(format, down)
            } else {
                up.add(format, down)
            };
            both.mul(format, number(0.5))
        }
        Mf::Tanh => {
            let inherited = one(Mf::Sinh, format, x).div(format, one(Mf::Cosh, format, x));
            inherited.or(x.map(|x| Interval::absolute(format, libm::tanh(x), 1.0e-5)))
        }
        Mf::Asinh => {
            let root = x.mul(format, x).add(format, number(1.0)).sqrt(format);
            one(Mf::Log, format, x.add(format, root))
        }
        Mf::Acosh => {
            let root = x.mul(format, x).sub(format, number(1.0)).sqrt(format);
            one(Mf::Log, format, x.add(format, root))
        }
        Mf::Atanh => {
            let ratio = number(1.0)
                .add(format, x)
                .div(format, number(1.0).sub(format, x));
            one(Mf::Log, format, ratio).mul(format, number(0.5))
        }
        Mf::Exp => x.exp(format, libm::exp),
        Mf::Exp2 => x.exp(format, libm::exp2),
        Mf::Log => x.log(format, libm::log),
        Mf::Log2 => x.log(format, libm::log2),
        Mf::Sqrt => x.sqrt(format),
        Mf::InverseSqrt => x.inverse_sqrt(format),
        Mf::Radians => x.mul(format, number(0.017453292519943295474)),
        Mf::Degrees => x.mul(format, number(57.295779513082322865)),
        Mf::Fract => x.sub(format, x.integer(f64::floor)),
        Mf::QuantizeToF16 => quantized(x),
        _ => Anything,
    }
}

/// `quantizeToF16`: rounded to `f16` and back; subnormals of `f16` may be flushed.
fn quantized(x: Interval) -> Interval {
    let small = Format::F16;
    x.map(|x| {
        let (low, high) = (small.down(x), small.up(x));
        match low >= -small.max() && high <= small.max() {
            true if small.is_subnormal(low) || small.is_subnormal(high) => {
                Between(low.min(0.0), high.max(0.0))
            }
            true => Between(low, high),
            false => Anything,
        }
    })
}

fn two(function: MathFunction, format: Format, x: Interval, y: Interval) -> Interval {
    match function {
        MathFunction::Atan2 => x.atan2(format, y),
        MathFunction::Pow => y
            .mul(format, x.log(format, libm::log2))
            .exp(format, libm::exp2),
        _ => Anything,
    }
}

fn three(
    function: MathFunction,
    format: Format,
    x: Interval,
    y: Interval,
    z: Interval,
) -> Interval {
    let number = |value: f64| Interval::constant(format, value);
    match function {
        MathFunction::Fma => x.mul(format, y).add(format, z),
        MathFunction::Mix => x
            .mul(format, number(1.0).sub(format, z))
            .add(format, y.mul(format, z)),
        MathFunction::SmoothStep => {
            let t = z
                .sub(format, x)
                .div(format, y.sub(format, x))
                .clamp(0.0, 1.0);
            let slope = number(3.0).sub(format, number(2.0).mul(format, t));
            t.mul(format, t).mul(format, slope)
        }
        _ => Anything,
    }
}

/// `ldexp`: correctly rounded; zero where the exponent of the power of two is not a normal one.
pub fn ldexp(value: Scalar, exponent: Scalar) -> Expected {
    let (Some((format, _, values)), Some(exponent)) = (operands(&[value]), exponent.integer())
    else {
        return Expected::Anything;
    };
    if exponent > i128::from(format.bias() + 1) || !values[0].is_finite() {
        return Expected::Anything;
    }
    let exact = libm::ldexp(values[0], exponent.max(-1000) as i32);
    let interval = Interval::absolute(format, exact, 0.0);
    let rounded = match interval {
        Between(..) => Between(format.down(exact), format.up(exact)),
        Anything => return Expected::Anything,
    };
    let may_vanish = exponent + i128::from(format.bias()) <= 0
        || format.is_subnormal(values[0])
        || format.is_subnormal(exact);
    if may_vanish {
        rounded.or(Between(0.0, 0.0)).into()
    } else {
        rounded.into()
    }
}

/// `frexp`: fraction and exponent of zero and normal numbers.
pub fn frexp(value: Scalar) -> [Expected; 2] {
    match operands(&[value]) {
        Some((format, ty, values)) if values[0].is_finite() && !format.is_subnormal(values[0]) => {
            let (fraction, exponent) = libm::frexp(values[0]);
            [
                Expected::exact_float(ty, [fraction]),
                Expected::Exactly(Scalar::I32(exponent)),
            ]
        }
        _ => [Expected::Anything, Expected::Anything],
    }
}

/// `modf`: the fraction and the whole part.
pub fn modf(value: Scalar) -> [Expected; 2] {
    match operands(&[value]) {
        Some((format, ty, values)) if values[0].is_finite() => {
            let whole = values[0].trunc();
            let fractions = flushes(format, values[0])
                .into_iter()
                .map(|value| value - value.trunc());
            [
                Expected::exact_float(ty, fractions),
                Expected::exact_float(ty, [whole]),
            ]
        }
        _ => [Expected::Anything, Expected::Anything],
    }
}

fn intervals(format: Format, scalars: &[Scalar]) -> Vec<Interval> {
    let value = |scalar: &Scalar| {
        scalar
            .float()
            .map_or(Anything, |value| Interval::operand(format, value))
    };
    scalars.iter().map(value).collect()
}

/// What a geometric function of vectors may give, by components of the result.
pub fn geometric(function: MathFunction, arguments: &[&[Scalar]]) -> Vec<Expected> {
    use MathFunction as Mf;
    let Some(format) = arguments
        .first()
        .and_then(|first| Format::of(first.first()?.ty()))
    else {
        return Vec::new();
    };
    let arguments: Vec<Vec<Interval>> = arguments
        .iter()
        .map(|scalars| intervals(format, scalars))
        .collect();
    let difference = |a: &[Interval], b: &[Interval]| -> Vec<Interval> {
        a.iter().zip(b).map(|(a, b)| a.sub(format, *b)).collect()
    };
    let results = match (function, &arguments[..]) {
        (Mf::Dot, [a, b]) => vec![dot(format, a, b)],
        (Mf::Length, [a]) => vec![length(format, a)],
        (Mf::Distance, [a, b]) => vec![length(format, &difference(a, b))],
        (Mf::Normalize, [a]) => a
            .iter()
            .map(|component| component.div(format, length(format, a)))
            .collect(),
        (Mf::Cross, [a, b]) => [(1, 2), (2, 0), (0, 1)]
            .iter()
            .map(|&(i, j)| a[i].mul(format, b[j]).sub(format, a[j].mul(format, b[i])))
            .collect(),
        (Mf::FaceForward, [a, b, c]) => {
            let facing = dot(format, b, c);
            a.iter().map(|a| choose(facing, *a, a.neg())).collect()
        }
        (Mf::Reflect, [a, b]) => {
            let twice = Interval::constant(format, 2.0).mul(format, dot(format, a, b));
            a.iter()
                .zip(b)
                .map(|(a, b)| a.sub(format, twice.mul(format, *b)))
                .collect()
        }
        (Mf::Refract, [a, b, ratio]) => refract(format, a, b, ratio[0]),
        _ => return Vec::new(),
    };
    results.into_iter().map(Expected::from).collect()
}

/// The absolute value of a scalar: `sqrt(x * x)` is allowed, too.
fn length(format: Format, components: &[Interval]) -> Interval {
    super::interval::length(format, components)
}

/// `a` where `facing` is negative, `b` where it is not, either where it may be both.
fn choose(facing: Interval, a: Interval, b: Interval) -> Interval {
    match facing {
        Between(_, high) if high < 0.0 => a,
        Between(low, _) if low >= 0.0 => b,
        _ => a.or(b),
    }
}

fn refract(format: Format, a: &[Interval], b: &[Interval], ratio: Interval) -> Vec<Interval> {
    let one = Interval::constant(format, 1.0);
    let along = dot(format, b, a);
    let sine = one.sub(format, along.mul(format, along));
    let k = one.sub(format, ratio.mul(format, ratio).mul(format, sine));
    let factor = ratio.mul(format, along).add(format, k.sqrt(format));
    let zero = Between(0.0, 0.0);
    let refracted = a
        .iter()
        .zip(b)
        .map(|(a, b)| ratio.mul(format, *a).sub(format, factor.mul(format, *b)));
    refracted
        .map(|refracted| choose(k, zero, refracted))
        .collect()
}
