//! Operators and component-wise built-in functions on floating-point numbers.

use naga::{MathFunction as Mf, Scalar as Type};

use super::{ComponentWise, FLOATS, OPERATORS, binary, is_comparison, math};
use crate::conformance::accuracy;
use crate::conformance::expected::Expected;
use crate::conformance::row::Row;
use crate::value::Scalar;

/// Functions by name, with their number of operands, and whether IEEE 754 or WGSL gives one result for
/// every operand.
const FUNCTIONS: [(&str, Mf, usize, bool); 38] = [
    ("abs", Mf::Abs, 1, true),
    ("acos", Mf::Acos, 1, false),
    ("acosh", Mf::Acosh, 1, false),
    ("asin", Mf::Asin, 1, false),
    ("asinh", Mf::Asinh, 1, false),
    ("atan", Mf::Atan, 1, false),
    ("atanh", Mf::Atanh, 1, false),
    ("ceil", Mf::Ceil, 1, true),
    ("cos", Mf::Cos, 1, false),
    ("cosh", Mf::Cosh, 1, false),
    ("degrees", Mf::Degrees, 1, false),
    ("exp", Mf::Exp, 1, false),
    ("exp2", Mf::Exp2, 1, false),
    ("floor", Mf::Floor, 1, true),
    ("fract", Mf::Fract, 1, true),
    ("inverseSqrt", Mf::InverseSqrt, 1, false),
    ("log", Mf::Log, 1, false),
    ("log2", Mf::Log2, 1, false),
    ("radians", Mf::Radians, 1, false),
    ("round", Mf::Round, 1, true),
    ("saturate", Mf::Saturate, 1, true),
    ("sign", Mf::Sign, 1, true),
    ("sin", Mf::Sin, 1, false),
    ("sinh", Mf::Sinh, 1, false),
    ("sqrt", Mf::Sqrt, 1, true),
    ("tan", Mf::Tan, 1, false),
    ("tanh", Mf::Tanh, 1, false),
    ("trunc", Mf::Trunc, 1, true),
    ("atan2", Mf::Atan2, 2, false),
    ("max", Mf::Max, 2, true),
    ("min", Mf::Min, 2, true),
    ("pow", Mf::Pow, 2, false),
    ("step", Mf::Step, 2, true),
    ("clamp", Mf::Clamp, 3, true),
    ("fma", Mf::Fma, 3, true),
    ("mix", Mf::Mix, 3, false),
    ("smoothstep", Mf::SmoothStep, 3, false),
    ("quantizeToF16", Mf::QuantizeToF16, 1, true),
];

/// Functions that have an `f64` form in every backend; the others are of 32 and 16 bits only.
fn has_double(function: Mf) -> bool {
    !matches!(
        function,
        Mf::Acos
            | Mf::Acosh
            | Mf::Asin
            | Mf::Asinh
            | Mf::Atan
            | Mf::Atan2
            | Mf::Atanh
            | Mf::Cos
            | Mf::Cosh
            | Mf::Degrees
            | Mf::Exp
            | Mf::Exp2
            | Mf::Log
            | Mf::Log2
            | Mf::Pow
            | Mf::Radians
            | Mf::Sin
            | Mf::Sinh
            | Mf::Tan
            | Mf::Tanh
            | Mf::QuantizeToF16
    )
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ty in FLOATS {
        for (symbol, operator) in OPERATORS {
            let expected = |scalars: &[Scalar]| match is_comparison(operator) {
                true => accuracy::comparison(operator, scalars[0], scalars[1]),
                false => accuracy::arithmetic(operator, scalars[0], scalars[1]),
            };
            let ieee = |scalars: &[Scalar]| binary(operator, scalars);
            rows.extend(ComponentWise::operator_rows(
                symbol, operator, ty, &expected, &ieee,
            ));
        }
        for (name, function, operands, defined) in FUNCTIONS {
            let other_type = ty == Type::F64 && !has_double(function)
                || ty != Type::F32 && function == Mf::QuantizeToF16;
            if other_type {
                continue;
            }
            let expected = |scalars: &[Scalar]| accuracy::component_wise(function, scalars);
            let ieee = |scalars: &[Scalar]| defined.then(|| math(function, scalars)).flatten();
            rows.extend(ComponentWise::function_rows(
                name, operands, ty, &expected, &ieee,
            ));
        }
        rows.extend(negation_rows(ty));
        if ty != Type::F64 {
            rows.extend(split_rows(ty));
        }
    }
    rows
}

fn negation_rows(ty: Type) -> Vec<Row> {
    ComponentWise {
        name: "negate",
        operands: &[ty],
        result: ty,
        expression: "-a0",
        always_scalar: &[],
        expected: &|scalars| match scalars[0].float() {
            Some(value) => Expected::exact_float(ty, [-value]),
            None => Expected::Anything,
        },
        ieee: &|scalars| {
            crate::operate::unary(naga::UnaryOperator::Negate, &scalars[0].into())?.scalar()
        },
    }
    .rows()
}

/// `ldexp`, and the members of what `frexp` and `modf` give.
fn split_rows(ty: Type) -> Vec<Row> {
    let part = |function: Mf, index: usize| {
        move |scalars: &[Scalar]| match crate::operate::math(function, &[&scalars[0].into()]) {
            Some(crate::value::Value::Composite(parts)) => parts.get(index)?.scalar(),
            _ => None,
        }
    };
    let one = |name: &str,
               expression: &str,
               result: Type,
               expected: &dyn Fn(&[Scalar]) -> Expected,
               ieee: &dyn Fn(&[Scalar]) -> Option<Scalar>| {
        ComponentWise {
            name,
            operands: &[ty],
            result,
            expression,
            always_scalar: &[],
            expected,
            ieee,
        }
        .rows()
    };
    // Exponents of subnormals, infinities and NaN are open.
    let normal = |scalars: &[Scalar]| !matches!(accuracy::frexp(scalars[0])[0], Expected::Anything);
    let frexp = |index: usize| move |scalars: &[Scalar]| accuracy::frexp(scalars[0])[index].clone();
    let modf = |index: usize| move |scalars: &[Scalar]| accuracy::modf(scalars[0])[index].clone();
    let frexp_ieee = |index: usize| {
        move |scalars: &[Scalar]| {
            if normal(scalars) {
                part(Mf::Frexp, index)(scalars)
            } else {
                None
            }
        }
    };
    let mut rows = Vec::new();
    rows.extend(one(
        "frexp.fract",
        "frexp(a0).fract",
        ty,
        &frexp(0),
        &frexp_ieee(0),
    ));
    rows.extend(one(
        "frexp.exp",
        "frexp(a0).exp",
        Type::I32,
        &frexp(1),
        &frexp_ieee(1),
    ));
    rows.extend(one(
        "modf.fract",
        "modf(a0).fract",
        ty,
        &modf(0),
        &part(Mf::Modf, 0),
    ));
    rows.extend(one(
        "modf.whole",
        "modf(a0).whole",
        ty,
        &modf(1),
        &part(Mf::Modf, 1),
    ));
    rows.extend(
        ComponentWise {
            name: "ldexp",
            operands: &[ty, Type::I32],
            result: ty,
            expression: "ldexp(a0, a1)",
            always_scalar: &[],
            expected: &|scalars| accuracy::ldexp(scalars[0], scalars[1]),
            ieee: &|scalars| math(Mf::Ldexp, scalars),
        }
        .rows(),
    );
    rows
}
