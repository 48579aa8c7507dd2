//! The rows of the table, by what they are about.

mod atomics;
mod builtins;
mod conversions;
mod floats;
mod integers;
mod layouts;
mod logic;
mod matrices;
mod packing;
mod subgroups;
mod vectors;

use naga::{BinaryOperator as Op, Scalar as Type};

use super::expected::Expected;
use super::inputs;
use super::row::{Case, Mismatch, Operation, Row, ValueType, scalar_name};
use crate::value::{Scalar, Value};

/// All rows.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(floats::rows());
    rows.extend(integers::rows());
    rows.extend(conversions::rows());
    rows.extend(logic::rows());
    rows.extend(vectors::rows());
    rows.extend(matrices::rows());
    rows.extend(packing::rows());
    rows.extend(atomics::rows());
    rows.extend(subgroups::rows());
    rows.extend(layouts::rows());
    rows.extend(builtins::rows());
    rows
}

const FLOATS: [Type; 3] = [Type::F32, Type::F16, Type::F64];
const INTEGERS: [Type; 4] = [Type::I32, Type::U32, Type::I64, Type::U64];

/// The arithmetic operators and the comparisons, which all numbers have.
const OPERATORS: [(&str, Op); 11] = [
    ("+", Op::Add),
    ("-", Op::Subtract),
    ("*", Op::Multiply),
    ("/", Op::Divide),
    ("%", Op::Modulo),
    ("==", Op::Equal),
    ("!=", Op::NotEqual),
    ("<", Op::Less),
    ("<=", Op::LessEqual),
    (">", Op::Greater),
    (">=", Op::GreaterEqual),
];

/// True for operators whose result is a boolean.
fn is_comparison(operator: Op) -> bool {
    matches!(
        operator,
        Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual
    )
}

/// A function that works on each component alone.
struct ComponentWise<'a> {
    /// Without type and width.
    name: &'a str,
    operands: &'a [Type],
    result: Type,
    expression: &'a str,
    /// Operands that are scalars even where the others are vectors.
    always_scalar: &'a [usize],
    expected: &'a dyn Fn(&[Scalar]) -> Expected,
    /// What IEEE 754 gives, where it defines the function.
    ieee: &'a dyn Fn(&[Scalar]) -> Option<Scalar>,
}

impl ComponentWise<'_> {
    /// One row for each width, all over the same operands.
    fn rows(&self) -> Vec<Row> {
        let drawn = if self.operands.len() == 1 { 400 } else { 600 };
        let ty = self
            .operands
            .iter()
            .map(|ty| scalar_name(*ty))
            .collect::<Vec<_>>()
            .join(" ");
        let combinations =
            inputs::combinations(&format!("{} {ty}", self.name), self.operands, drawn);
        (1..=4)
            .map(|width| {
                let operands = self.operands.iter().enumerate().map(|(index, ty)| {
                    ValueType::wide(
                        *ty,
                        if self.always_scalar.contains(&index) {
                            1
                        } else {
                            width
                        },
                    )
                });
                let cases = combinations
                    .chunks(width.into())
                    .map(|chunk| self.case(chunk, width.into()));
                Operation {
                    name: format!("{} {ty} x{width}", self.name),
                    operands: operands.collect(),
                    result: ValueType::wide(self.result, width),
                    expression: self.expression.to_owned(),
                    cases: cases.collect(),
                }
                .row()
            })
            .collect()
    }

    /// An infix operator on two operands of a type.
    fn operator_rows(
        symbol: &str,
        operator: Op,
        ty: Type,
        expected: &dyn Fn(&[Scalar]) -> Expected,
        ieee: &dyn Fn(&[Scalar]) -> Option<Scalar>,
    ) -> Vec<Row> {
        ComponentWise {
            name: symbol,
            operands: &[ty, ty],
            result: if is_comparison(operator) {
                Type::BOOL
            } else {
                ty
            },
            expression: &format!("a0 {symbol} a1"),
            always_scalar: &[],
            expected,
            ieee,
        }
        .rows()
    }

    /// A built-in function whose `count` operands and result have a type.
    fn function_rows(
        name: &str,
        count: usize,
        ty: Type,
        expected: &dyn Fn(&[Scalar]) -> Expected,
        ieee: &dyn Fn(&[Scalar]) -> Option<Scalar>,
    ) -> Vec<Row> {
        let arguments: Vec<String> = (0..count).map(|index| format!("a{index}")).collect();
        ComponentWise {
            name,
            operands: &vec![ty; count],
            result: ty,
            expression: &format!("{name}({})", arguments.join(", ")),
            always_scalar: &[],
            expected,
            ieee,
        }
        .rows()
    }

    /// Combinations side by side, as the components of one case.
    fn case(&self, chunk: &[Vec<Scalar>], width: usize) -> Case {
        let lane = |lane: usize| &chunk[lane % chunk.len()];
        let scalar_from_first = |operand: usize, at: usize| {
            if self.always_scalar.contains(&operand) {
                lane(0)[operand]
            } else {
                lane(at)[operand]
            }
        };
        let operands = (0..self.operands.len()).map(|operand| {
            let count = if self.always_scalar.contains(&operand) {
                1
            } else {
                width
            };
            (0..count)
                .map(|at| scalar_from_first(operand, at))
                .collect()
        });
        let of_lane = |at: usize| -> Vec<Scalar> {
            (0..self.operands.len())
                .map(|operand| scalar_from_first(operand, at))
                .collect()
        };
        Case {
            operands: operands.collect(),
            expected: (0..width).map(|at| (self.expected)(&of_lane(at))).collect(),
            ieee: (0..width).map(|at| (self.ieee)(&of_lane(at))).collect(),
        }
    }
}

/// A row whose first buffer must hold given words; `None` for words that nothing is said about.
fn fixed(name: &str, text: &str, buffers: Vec<Vec<u8>>, expected: Vec<Option<u32>>) -> Row {
    Row::new(name, text, buffers, move |buffers, _| {
        let mut wrong = Vec::new();
        for (index, (got, expected)) in words(&buffers[0]).iter().zip(&expected).enumerate() {
            if let Some(expected) = expected
                && expected != got
            {
                wrong.push(Mismatch {
                    case: format!("word {index}"),
                    got: format!("{got:#x}"),
                    expected: format!("{expected:#x}"),
                });
            }
        }
        wrong
    })
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// Nothing that IEEE 754 defines.
fn no_ieee(_: &[Scalar]) -> Option<Scalar> {
    None
}

/// A result that is exact for all types but those of floating point.
fn exactly(result: Option<Scalar>) -> Expected {
    result.map_or(Expected::Anything, Expected::Exactly)
}

/// Values of scalars.
fn values(scalars: &[Scalar]) -> Vec<Value> {
    scalars
        .iter()
        .map(|scalar| Value::Scalar(*scalar))
        .collect()
}

/// The scalar that a built-in function gives for scalars.
fn math(function: naga::MathFunction, scalars: &[Scalar]) -> Option<Scalar> {
    let values = values(scalars);
    crate::operate::math(function, &values.iter().collect::<Vec<_>>())?.scalar()
}

/// The scalar that an operator gives for two scalars.
fn binary(operator: naga::BinaryOperator, scalars: &[Scalar]) -> Option<Scalar> {
    let &[a, b] = scalars else {
        return None;
    };
    crate::operate::binary(operator, &a.into(), &b.into())?.scalar()
}
