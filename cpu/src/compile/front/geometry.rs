//! Functions of whole vectors and matrices.

use naga::{Expression as E, Handle, MathFunction as F, TypeInner};

use super::{Front, Node, scalars};
use crate::compile::{
    error::{Result, internal},
    ir::{Binary, Comparison, Unary, Value},
};

impl Front<'_> {
    /// The result of a function that does not work component by component; `None` for any other function.
    pub(super) fn whole(
        &mut self,
        function: F,
        first: Handle<E>,
        arguments: &[Option<Handle<E>>; 4],
    ) -> Result<Option<Node>> {
        let a = self.values(first)?;
        let second = |front: &mut Self| match arguments[1] {
            Some(argument) => front.values(argument),
            None => Err(internal("a function with too few arguments")),
        };
        Ok(Some(match function {
            F::Dot => {
                let b = second(self)?;
                scalars([self.dot(&a, &b)])
            }
            F::Length => scalars([self.length_of(&a)]),
            F::Distance => {
                let b = second(self)?;
                let difference: Vec<_> = a
                    .iter()
                    .zip(b.iter())
                    .map(|(&a, &b)| self.b.sub(a, b))
                    .collect();
                scalars([self.length_of(&difference)])
            }
            F::Normalize => {
                let length = self.length_of(&a);
                self.map(&a, |front, value| {
                    front.b.binary(Binary::DivF, value, length)
                })
            }
            F::Cross => {
                let b = second(self)?;
                self.cross(&a, &b)
            }
            F::Reflect => {
                let normal = second(self)?;
                let ty = self.b.program.ty(a[0]);
                let dot = self.dot(&normal, &a);
                let two = self.float(ty, 2.0);
                let factor = self.b.mul(two, dot);
                self.minus_scaled(&a, factor, &normal)
            }
            F::Refract => {
                let normal = second(self)?;
                let ratio = arguments[2].ok_or_else(|| internal("refract without a ratio"))?;
                let ratio = self.scalar(ratio)?;
                self.refract(&a, &normal, ratio)
            }
            F::FaceForward => {
                let incident = second(self)?;
                let reference =
                    arguments[2].ok_or_else(|| internal("faceForward without a reference"))?;
                let reference = self.values(reference)?;
                let dot = self.dot(&incident, &reference);
                let ty = self.b.program.ty(dot);
                let zero = self.float(ty, 0.0);
                let faces = self.b.compare(Comparison::LtF, dot, zero);
                self.map(&a, |front, value| {
                    let turned = front.b.unary(Unary::Negate, value);
                    front.b.select(faces, value, turned)
                })
            }
            F::Outer => {
                let b = second(self)?;
                let mut columns = Vec::new();
                for &b in b.iter() {
                    for &a in a.iter() {
                        columns.push(self.b.mul(a, b));
                    }
                }
                scalars(columns)
            }
            F::Transpose => {
                let rows = self.rows(first)?;
                let columns = a.len() / rows;
                let mut result = Vec::with_capacity(a.len());
                for row in 0..rows {
                    result.extend((0..columns).map(|column| a[column * rows + row]));
                }
                scalars(result)
            }
            F::Determinant => {
                let rows = self.rows(first)?;
                scalars([self.determinant(&a, rows)])
            }
            F::Inverse => {
                let rows = self.rows(first)?;
                self.inverse(&a, rows)
            }
            _ => return Ok(None),
        }))
    }

    fn rows(&self, matrix: Handle<E>) -> Result<usize> {
        match *self.layouts.inner(self.type_of(matrix)?) {
            TypeInner::Matrix { rows, .. } => Ok(rows as usize),
            ref other => Err(internal(format!("a matrix was expected, not {other:?}"))),
        }
    }

    fn dot(&mut self, a: &[Value], b: &[Value]) -> Value {
        let terms: Vec<_> = a.iter().copied().zip(b.iter().copied()).collect();
        self.sum_of_products(&terms)
    }

    /// The length of a vector; the magnitude of a scalar.
    fn length_of(&mut self, values: &[Value]) -> Value {
        if let &[value] = values {
            return self.b.unary(Unary::Abs, value);
        }
        let square = self.dot(values, values);
        self.b.unary(Unary::Sqrt, square)
    }

    fn cross(&mut self, a: &[Value], b: &[Value]) -> Node {
        let component = |axis: usize| ((axis + 1) % 3, (axis + 2) % 3);
        let mut result = Vec::with_capacity(3);
        for axis in 0..3 {
            let (j, k) = component(axis);
            let left = self.b.mul(a[j], b[k]);
            let right = self.b.mul(a[k], b[j]);
            result.push(self.b.sub(left, right));
        }
        scalars(result)
    }

    /// `a - factor b`
    fn minus_scaled(&mut self, a: &[Value], factor: Value, b: &[Value]) -> Node {
        let mut result = Vec::with_capacity(a.len());
        for (&a, &b) in a.iter().zip(b) {
            let scaled = self.b.mul(factor, b);
            result.push(self.b.sub(a, scaled));
        }
        scalars(result)
    }

    /// The refraction vector of WGSL: zero where all light is reflected.
    fn refract(&mut self, incident: &[Value], normal: &[Value], ratio: Value) -> Node {
        let ty = self.b.program.ty(ratio);
        let (zero, one) = (self.float(ty, 0.0), self.float(ty, 1.0));
        let cosine = self.dot(normal, incident);
        let square = self.b.mul(cosine, cosine);
        let sine = self.b.sub(one, square);
        let ratio_square = self.b.mul(ratio, ratio);
        let bent = self.b.mul(ratio_square, sine);
        let k = self.b.sub(one, bent);
        let root = self.b.unary(Unary::Sqrt, k);
        let along = self.b.mul(ratio, cosine);
        let factor = self.b.add(along, root);
        let total = self.b.compare(Comparison::LtF, k, zero);
        let mut result = Vec::with_capacity(incident.len());
        for (&incident, &normal) in incident.iter().zip(normal) {
            let kept = self.b.mul(ratio, incident);
            let lost = self.b.mul(factor, normal);
            let refracted = self.b.sub(kept, lost);
            result.push(self.b.select(total, zero, refracted));
        }
        scalars(result)
    }

    /// The determinant of a square matrix in columns, by the first column.
    fn determinant(&mut self, matrix: &[Value], size: usize) -> Value {
        if size == 1 {
            return matrix[0];
        }
        let mut sum: Option<Value> = None;
        for row in 0..size {
            let minor = minor(matrix, size, 0, row);
            let minor = self.determinant(&minor, size - 1);
            let term = self.b.mul(matrix[row], minor);
            sum = Some(match sum {
                None => term,
                Some(sum) if row % 2 == 1 => self.b.sub(sum, term),
                Some(sum) => self.b.add(sum, term),
            });
        }
        sum.unwrap_or(matrix[0])
    }

    /// The adjugate divided by the determinant.
    fn inverse(&mut self, matrix: &[Value], size: usize) -> Node {
        let determinant = self.determinant(matrix, size);
        let mut result = Vec::with_capacity(matrix.len());
        for column in 0..size {
            for row in 0..size {
                let minor = minor(matrix, size, row, column);
                let minor = self.determinant(&minor, size - 1);
                let cofactor = if (row + column) % 2 == 1 {
                    self.b.unary(Unary::Negate, minor)
                } else {
                    minor
                };
                result.push(self.b.binary(Binary::DivF, cofactor, determinant));
            }
        }
        scalars(result)
    }
}

/// A matrix without a column and a row.
fn minor(matrix: &[Value], size: usize, column: usize, row: usize) -> Vec<Value> {
    (0..size * size)
        .filter(|at| at / size != column && at % size != row)
        .map(|at| matrix[at])
        .collect()
}
