//! Matrices: construction, arithmetic, `transpose` and `determinant`.

use naga::Scalar as Type;

use crate::conformance::expected::Expected;
use crate::conformance::format::Format;
use crate::conformance::inputs::Draw;
use crate::conformance::interval::{Interval, dot};
use crate::conformance::row::{Case, Operation, Row, Shape, ValueType, scalar_name};
use crate::value::Scalar;

fn matrix(scalar: Type, columns: u8, rows: u8) -> ValueType {
    ValueType {
        scalar,
        shape: Shape::Matrix(columns, rows),
    }
}

/// An expression over matrices, and what it gives for scalars by column.
struct Form<'a> {
    name: String,
    expression: &'a str,
    operands: Vec<ValueType>,
    result: ValueType,
    expected: &'a dyn Fn(&[Vec<Interval>]) -> Vec<Interval>,
}

impl Form<'_> {
    fn row(self) -> Row {
        let ty = self.result.scalar;
        let mut draw = Draw::new(&self.name);
        let cases = (0..128).map(|case| {
            let mut scalar = || {
                match case % 4 {
                    // Small integers, whose products and sums are exact.
                    0 => Scalar::rounded(ty, draw.below(9) as f64 - 4.0),
                    1 => Scalar::rounded(ty, draw.between(-10.0, 10.0)),
                    _ => Some(draw.scalar(ty)),
                }
                .unwrap_or(Scalar::F32(0.0))
            };
            let operands: Vec<Vec<Scalar>> = self
                .operands
                .iter()
                .map(|operand| (0..operand.scalars()).map(|_| scalar()).collect())
                .collect();
            let format = Format::of(ty).unwrap_or(Format::F32);
            let interval = |scalar: &Scalar| {
                scalar
                    .float()
                    .map_or(Interval::Anything, |value| Interval::operand(format, value))
            };
            let intervals: Vec<Vec<Interval>> = operands
                .iter()
                .map(|operand| operand.iter().map(interval).collect())
                .collect();
            let expected = (self.expected)(&intervals)
                .into_iter()
                .map(Expected::from)
                .collect();
            Case {
                operands,
                expected,
                ieee: None,
            }
        });
        Operation {
            name: format!("{} {}", self.name, scalar_name(ty)),
            operands: self.operands.clone(),
            result: self.result,
            expression: self.expression.to_owned(),
            cases: cases.collect(),
        }
        .row()
    }
}

pub fn rows() -> Vec<Row> {
    let mut all = Vec::new();
    for ty in [Type::F32, Type::F16, Type::F64] {
        let format = Format::of(ty).unwrap_or(Format::F32);
        for columns in 2..=4 {
            for rows in 2..=4 {
                all.extend(shape_rows(ty, format, columns, rows));
            }
            // WGSL sets no bound for determinants; those of small integers are exact all the same.
            if ty != Type::F64 {
                all.push(determinant_row(ty, columns));
            }
        }
    }
    all
}

fn shape_rows(ty: Type, format: Format, columns: u8, rows: u8) -> Vec<Row> {
    let shape = format!("mat{columns}x{rows}");
    let this = matrix(ty, columns, rows);
    let vector = |size: u8| ValueType::wide(ty, size);
    let r = usize::from(rows);
    let pairs = |operation: fn(Interval, Format, Interval) -> Interval| {
        move |m: &[Vec<Interval>]| -> Vec<Interval> {
            m[0].iter()
                .zip(&m[1])
                .map(|(a, b)| operation(*a, format, *b))
                .collect()
        }
    };
    let form = |name: &str,
                expression,
                operands: Vec<ValueType>,
                result,
                expected: &dyn Fn(&[Vec<Interval>]) -> Vec<Interval>| {
        Form {
            name: format!("{shape} {name}"),
            expression,
            operands,
            result,
            expected,
        }
        .row()
    };
    let mut all = vec![
        form(
            "+",
            "a0 + a1",
            vec![this, this],
            this,
            &pairs(Interval::add),
        ),
        form(
            "-",
            "a0 - a1",
            vec![this, this],
            this,
            &pairs(Interval::sub),
        ),
        form("* scalar", "a0 * a1", vec![this, vector(1)], this, &|m| {
            m[0].iter().map(|a| a.mul(format, m[1][0])).collect()
        }),
        form("scalar *", "a1 * a0", vec![this, vector(1)], this, &|m| {
            m[0].iter().map(|a| a.mul(format, m[1][0])).collect()
        }),
        form(
            "* vector",
            "a0 * a1",
            vec![this, vector(columns)],
            vector(rows),
            &|m| {
                (0..r)
                    .map(|row| dot(format, &row_of(&m[0], r, row), &m[1]))
                    .collect()
            },
        ),
        form(
            "vector *",
            "a1 * a0",
            vec![this, vector(rows)],
            vector(columns),
            &|m| {
                m[0].chunks(r)
                    .map(|column| dot(format, column, &m[1]))
                    .collect()
            },
        ),
        form(
            "transpose",
            "transpose(a0)",
            vec![this],
            matrix(ty, rows, columns),
            &|m| (0..r).flat_map(|row| row_of(&m[0], r, row)).collect(),
        ),
        form("column", "a0[1]", vec![this], vector(rows), &|m| {
            m[0][r..2 * r].to_vec()
        }),
    ];
    all.extend((2..=4).map(|other| product_row(ty, format, [columns, rows], other)));
    all
}

/// The product with a matrix of `other` columns, which has as many rows as the matrix on its left has columns.
fn product_row(ty: Type, format: Format, [columns, rows]: [u8; 2], other: u8) -> Row {
    let (c, r) = (usize::from(columns), usize::from(rows));
    Form {
        name: format!("mat{columns}x{rows} * mat{other}x{columns}"),
        expression: "a0 * a1",
        operands: vec![matrix(ty, columns, rows), matrix(ty, other, columns)],
        result: matrix(ty, other, rows),
        expected: &|m| {
            let column_of = |column: &[Interval]| -> Vec<Interval> {
                (0..r)
                    .map(|row| dot(format, &row_of(&m[0], r, row), column))
                    .collect()
            };
            m[1].chunks(c).flat_map(column_of).collect()
        },
    }
    .row()
}

/// A row of a matrix of `rows` rows.
fn row_of(matrix: &[Interval], rows: usize, row: usize) -> Vec<Interval> {
    matrix.iter().skip(row).step_by(rows).copied().collect()
}

fn determinant_row(ty: Type, size: u8) -> Row {
    let name = format!("determinant mat{size}x{size} {}", scalar_name(ty));
    let mut draw = Draw::new(&name);
    let n = usize::from(size);
    let cases = (0..64).map(|_| {
        let entries: Vec<i64> = (0..n * n).map(|_| draw.below(7) as i64 - 3).collect();
        let scalar = |value: i64| Scalar::rounded(ty, value as f64);
        let exact = scalar(determinant(&entries, n));
        Case {
            operands: vec![entries.iter().filter_map(|entry| scalar(*entry)).collect()],
            expected: vec![exact.map_or(Expected::Anything, Expected::Exactly)],
            ieee: None,
        }
    });
    Operation {
        cases: cases.collect(),
        name,
        operands: vec![matrix(ty, size, size)],
        result: ValueType::wide(ty, 1),
        expression: "determinant(a0)".to_owned(),
    }
    .row()
}

/// Of a matrix of integers by columns, by the sum over permutations.
fn determinant(entries: &[i64], size: usize) -> i64 {
    let orders = crate::conformance::interval::permutations(size);
    let signed = |order: &Vec<usize>| {
        let inversions = (0..size)
            .flat_map(|i| (i + 1..size).map(move |j| (i, j)))
            .filter(|(i, j)| order[*i] > order[*j])
            .count();
        let product: i64 = order
            .iter()
            .enumerate()
            .map(|(column, row)| entries[column * size + row])
            .product();
        if inversions % 2 == 0 {
            product
        } else {
            -product
        }
    };
    orders.iter().map(signed).sum()
}
