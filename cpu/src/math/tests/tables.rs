//! The tables at the heads of the files: errors on a sample, numbers of operations.
//!
//! The example `exhaustive` measures the errors over all arguments; a sample must stay below.

use super::super::catalogue::{
    BINARY, UNARY, binary, binary_reference, error_in_ulp, unary, unary_reference,
};
use super::super::{Cost, F, Scalar32, double};
use super::{floats, word};

/// Heads of the files, with their tables.
const HEADS: &[&str] = &[
    include_str!("../common.rs"),
    include_str!("../exponential.rs"),
    include_str!("../hyperbolic.rs"),
    include_str!("../inverse.rs"),
    include_str!("../logarithm.rs"),
    include_str!("../trigonometric.rs"),
];

/// Operations, wide operations and the largest error that the documentation gives for a function.
fn documented(name: &str) -> (u32, u32, f64) {
    let start = format!("//! | `{name}` |");
    let row = HEADS
        .iter()
        .flat_map(|head| head.lines())
        .find(|line| line.starts_with(&start));
    let row = row.unwrap_or_else(|| panic!("no table has a row for {name}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let number = |text: &str| {
        text.parse::<f64>()
            .unwrap_or_else(|_| panic!("{text:?} in {row:?}"))
    };
    (
        number(cells[2]) as u32,
        number(cells[3]) as u32,
        number(cells[4]),
    )
}

#[track_caller]
fn check(name: &str, worst: f64, at: impl std::fmt::Debug, cost: &Cost) {
    let (operations, wide, error) = documented(name);
    assert!(
        worst <= error,
        "{name}: an error of {worst} ULP at {at:?}, documented {error}"
    );
    assert_eq!(
        (cost.operations(), cost.wide_operations()),
        (operations, wide),
        "cost of {name}"
    );
    assert!(
        error <= 3.0,
        "{name}: {error} ULP is more than this library means to have"
    );
}

#[test]
fn functions_of_one_argument_keep_to_their_tables() {
    for name in UNARY
        .iter()
        .filter(|name| !["floor", "ceil", "trunc", "round"].contains(name))
    {
        let value = unary(name).unwrap();
        let exact = unary_reference(name).unwrap();
        let (mut worst, mut at) = (0.0, 0.0);
        for x in floats(200_000) {
            let error = error_in_ulp(value(F::new(&Scalar32, x)).raw(), exact(f64::from(x)));
            if error > worst {
                (worst, at) = (error, x);
            }
        }
        let cost = Cost::default();
        let _: F<Cost> = unary(name).unwrap()(F::new(&cost, ()));
        check(name, worst, at, &cost);
    }
}

#[test]
fn functions_of_two_arguments_keep_to_their_tables() {
    let edges: Vec<f32> = [
        0.0, 1e-45, 1e-38, 0.5, 0.99999994, 1.0, 1.0000001, 2.0, 3.0, 127.0, 1e30,
    ]
    .into_iter()
    .chain([f32::MAX, f32::INFINITY])
    .flat_map(|x| [x, -x])
    .chain([f32::NAN])
    .collect();
    let grid = edges
        .iter()
        .flat_map(|&x| edges.iter().map(move |&y| (x, y)));
    let random = (0..400_000u64).map(|index| {
        let (one, two) = (word(2 * index), word(2 * index + 1));
        let x = f32::from_bits(one as u32);
        let scale = [1.0, 1e-3, 30.0, 1e3][index as usize % 4];
        let near = ((two >> 40) as f32 / 8_388_608.0 - 1.0) * scale;
        if index % 3 == 0 {
            (x, f32::from_bits(two as u32))
        } else {
            (x * 0.5, near)
        }
    });
    // Pairs outside of the domain that WGSL gives to `pow`.
    let defined = |name: &str, x: f32, y: f32| {
        name != "pow"
            || !(x.is_sign_negative() || x == 1.0 && !y.is_finite() || y == 0.0 || x.is_nan())
    };
    let pairs: Vec<(f32, f32)> = grid.chain(random).collect();
    for name in BINARY {
        let value = binary(name).unwrap();
        let exact = binary_reference(name).unwrap();
        let (mut worst, mut at) = (0.0, (0.0, 0.0));
        for &(x, y) in pairs.iter().filter(|&&(x, y)| defined(name, x, y)) {
            let value = value(F::new(&Scalar32, x), F::new(&Scalar32, y)).raw();
            let exact = exact(f64::from(x), f64::from(y));
            let error = error_in_ulp(value, exact);
            if error > worst {
                (worst, at) = (error, (x, y));
            }
            if exact == 0.0 && *name == "atan2" {
                assert_eq!(
                    value.is_sign_negative(),
                    exact.is_sign_negative(),
                    "{name}({x}, {y})"
                );
            }
        }
        let cost = Cost::default();
        let _: F<Cost> = binary(name).unwrap()(F::new(&cost, ()), F::new(&cost, ()));
        check(name, worst, at, &cost);
    }
}

#[test]
fn pow_outside_of_its_domain_is_what_its_documentation_says() {
    let pow = |x, y| super::super::logarithm::pow(super::f(x), super::f(y)).raw();
    assert!(pow(-2.0, 2.0).is_nan());
    assert!(pow(-0.5, f32::INFINITY).is_nan());
    for x in [-1.0, 0.0, 1.0, f32::INFINITY, f32::NAN] {
        assert_eq!(pow(x, 0.0), 1.0);
    }
}

#[test]
fn results_are_exact_where_users_expect_it() {
    use super::super::{exponential::exp2, inverse::atan, logarithm::log2, trigonometric::cos};
    use super::f;
    for exponent in -149..=127 {
        let power = 2f64.powi(exponent) as f32;
        assert_eq!(exp2(f(exponent as f32)).raw(), power);
        assert_eq!(log2(f(power)).raw(), exponent as f32);
    }
    assert_eq!(cos(f(0.0)).raw(), 1.0);
    assert_eq!(atan(f(f32::INFINITY)).raw(), std::f32::consts::FRAC_PI_2);
}

#[test]
fn calls_of_f64_are_the_functions_they_are_named_for() {
    type Pair = (double::Unary, fn(f64) -> f64);
    let table: [Pair; 16] = [
        (double::Unary::Sin, f64::sin),
        (double::Unary::Cos, f64::cos),
        (double::Unary::Tan, f64::tan),
        (double::Unary::Asin, f64::asin),
        (double::Unary::Acos, f64::acos),
        (double::Unary::Atan, f64::atan),
        (double::Unary::Sinh, f64::sinh),
        (double::Unary::Cosh, f64::cosh),
        (double::Unary::Tanh, f64::tanh),
        (double::Unary::Asinh, f64::asinh),
        (double::Unary::Acosh, f64::acosh),
        (double::Unary::Atanh, f64::atanh),
        (double::Unary::Exp, f64::exp),
        (double::Unary::Exp2, f64::exp2),
        (double::Unary::Log, f64::ln),
        (double::Unary::Log2, f64::log2),
    ];
    assert_eq!(double::Unary::ALL.len(), table.len());
    let close = |a: f64, b: f64| {
        a.is_nan() && b.is_nan() || a == b || (a - b).abs() <= 1e-15 * b.abs().max(1.0)
    };
    for (function, expected) in table {
        for x in [-2.5, -0.7, -0.1, 0.0, 0.3, 0.9, 1.7, 3.0] {
            let value = function.function()(x);
            assert!(
                close(value, expected(x)),
                "{}({x}) = {value}",
                function.name()
            );
        }
    }
    for (x, y) in [(0.5, 2.0), (1.5, -3.0), (2.0, 0.25)] {
        assert!(close(double::Binary::Atan2.function()(x, y), x.atan2(y)));
        assert!(close(double::Binary::Pow.function()(x, y), x.powf(y)));
    }
    assert!(double::Binary::Pow.function()(-2.0, 2.0).is_nan());
    let mut names: Vec<_> = double::Unary::ALL.iter().map(|f| f.name()).collect();
    names.extend(double::Binary::ALL.iter().map(|f| f.name()));
    names.extend(super::super::Rare::ALL.iter().map(|f| f.name()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 21, "each call has a symbol of its own");
}
