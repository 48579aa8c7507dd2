//! Floating-point expressions that are exact, however they are computed.
//!
//! Every expression knows a bound of its magnitude and how many binary places it has. An operation
//! whose result could need more digits than are safe gets its operands clamped first.

use super::ast::*;
use super::print::type_name;
use super::scope::Generator;

/// Values of at most this magnitude can be multiplied, and a few products added.
pub const FACTOR: f64 = 16.0;

fn both(a: &Expression, b: &Expression) -> Exactness {
    let (a, b) = (exactness(a), exactness(b));
    Exactness {
        bound: a.bound.max(b.bound),
        fraction: a.fraction.max(b.fraction),
    }
}

fn exactness(expression: &Expression) -> Exactness {
    expression.exactness.unwrap_or(Exactness::STORED)
}

/// A literal: a multiple of a quarter.
fn literal(value: f64) -> Expression {
    let known = Exactness {
        bound: value.abs(),
        fraction: if value.fract() == 0.0 { 0 } else { 2 },
    };
    let text = if value < 0.0 {
        format!("({value:?}f)")
    } else {
        format!("{value:?}f")
    };
    Expression::new(Type::F32, ExpressionKind::Literal(text)).known(known)
}

impl Generator {
    pub fn float_literal(&mut self) -> Expression {
        literal(f64::from(self.rng.i32(-64..=64)) / 4.0)
    }

    /// The same value for each component of a type.
    fn splat(ty: &Type, value: f64) -> Expression {
        match ty {
            Type::Vector(..) => {
                let known = Exactness {
                    bound: value.abs(),
                    fraction: 2,
                };
                Expression::call(ty.clone(), type_name(ty, &[]), vec![literal(value)]).known(known)
            }
            _ => literal(value),
        }
    }

    /// Makes a value keep to what variables keep to.
    pub fn fit(&mut self, value: Expression) -> Expression {
        match value.exactness {
            Some(known) if !self.options.rounding && !known.within(Exactness::STORED) => {
                self.clamped(value, Exactness::STORED)
            }
            _ => value,
        }
    }

    /// Clamps a value, and drops binary places that are too many.
    fn clamped(&mut self, value: Expression, to: Exactness) -> Expression {
        let (ty, known) = (value.ty.clone(), exactness(&value));
        if self.options.rounding || known.within(to) {
            return value;
        }
        if let Type::Matrix(columns, rows) = ty {
            // A function of the program's frame, which has the matrix in a variable.
            let name = if to.bound == FACTOR { "narrow" } else { "fit" };
            return Expression::call(ty, format!("{name}_mat{columns}x{rows}"), vec![value])
                .known(to);
        }
        let mut value = value;
        if known.fraction > to.fraction {
            let scale = 2f64.powi(to.fraction as i32);
            let scaled = Expression::binary(ty.clone(), "*", value, literal(scale));
            let whole = Expression::call(ty.clone(), "floor", vec![scaled]);
            value = Expression::binary(ty.clone(), "*", whole, literal(1.0 / scale));
        }
        let (low, high) = (Self::splat(&ty, -to.bound), Self::splat(&ty, to.bound));
        Expression::call(ty, "clamp", vec![value, low, high]).known(to)
    }

    /// A value small enough to be a factor.
    fn factor(&mut self, ty: &Type, depth: u32) -> Expression {
        let value = match ty {
            Type::Matrix(..) => self.leaf(ty),
            _ => self.expression(ty, depth),
        };
        self.clamped(
            value,
            Exactness {
                bound: FACTOR,
                fraction: 2,
            },
        )
    }

    /// An operand that leaves room for a sum.
    fn term(&mut self, ty: &Type, depth: u32) -> Expression {
        let value = match ty {
            Type::Matrix(..) => self.leaf(ty),
            _ => self.expression(ty, depth),
        };
        match exactness(&value) {
            known if known.bound <= 4096.0 && known.fraction <= 6 => value,
            _ => self.fit(value),
        }
    }

    /// A floating-point scalar, vector or matrix.
    pub fn float(&mut self, ty: &Type, depth: u32) -> Expression {
        let value = match ty {
            Type::Matrix(columns, rows) => self.matrix(*columns, *rows, depth),
            _ => self.scalar_or_vector(ty, depth),
        };
        match value.exactness {
            Some(known) if !self.options.rounding && !known.is_safe() => self.fit(value),
            _ => value,
        }
    }

    fn scalar_or_vector(&mut self, ty: &Type, depth: u32) -> Expression {
        let below = depth - 1;
        match self.rng.u32(0..18) {
            0..=2 => {
                let (a, b) = (self.term(ty, below), self.term(ty, below));
                let operator = self.pick(&["+", "-"]);
                sum(ty, operator, a, b)
            }
            3 | 4 => {
                let (a, b) = (self.factor(ty, below), self.factor(ty, below));
                let known = product(&a, &b);
                Expression::binary(ty.clone(), "*", a, b).known(known)
            }
            5 => {
                let operand = self.expression(ty, below);
                let known = exactness(&operand);
                Expression::new(ty.clone(), ExpressionKind::Unary("-", Box::new(operand)))
                    .known(known)
            }
            6 | 7 => self.function_of_one(ty, below),
            8 => {
                let (a, b) = (self.expression(ty, below), self.expression(ty, below));
                let known = both(&a, &b);
                let function = self.pick(&["min", "max"]);
                Expression::call(ty.clone(), function, vec![a, b]).known(known)
            }
            9 => {
                let (a, b) = (self.expression(ty, below), self.expression(ty, below));
                Expression::call(ty.clone(), "step", vec![a, b]).known(Exactness {
                    bound: 1.0,
                    fraction: 0,
                })
            }
            10 => {
                let (a, b, c) = (
                    self.factor(ty, below),
                    self.factor(ty, below),
                    self.term(ty, below),
                );
                let known = total(product(&a, &b), exactness(&c));
                Expression::call(ty.clone(), "fma", vec![a, b, c]).known(known)
            }
            11 => self.blend(ty, below),
            12 => self.from_integer(ty, below),
            13 => self.selected(ty, depth),
            14 if self.options.rounding => self.rounded(ty, below),
            14 => self.split(ty, below),
            _ => match ty {
                Type::Vector(size, _) => self.float_vector(*size, depth),
                _ => self.float_scalar(depth),
            },
        }
    }

    fn function_of_one(&mut self, ty: &Type, depth: u32) -> Expression {
        let operand = self.expression(ty, depth);
        let known = exactness(&operand);
        let whole = Exactness {
            bound: known.bound + 1.0,
            fraction: 0,
        };
        let (name, result) = self.pick(&[
            ("abs", known),
            ("floor", whole),
            ("ceil", whole),
            ("trunc", whole),
            ("round", whole),
            (
                "fract",
                Exactness {
                    bound: 1.0,
                    ..known
                },
            ),
            (
                "sign",
                Exactness {
                    bound: 1.0,
                    fraction: 0,
                },
            ),
            (
                "saturate",
                Exactness {
                    bound: 1.0,
                    ..known
                },
            ),
        ]);
        Expression::call(ty.clone(), name, vec![operand]).known(result)
    }

    /// `mix` by quarters, or `clamp`.
    fn blend(&mut self, ty: &Type, depth: u32) -> Expression {
        let (a, b) = (self.factor(ty, depth), self.factor(ty, depth));
        let known = both(&a, &b);
        if self.rng.bool() {
            let ratio = self.pick(&[0.0, 0.25, 0.5, 0.75, 1.0]);
            let ratio = if self.rng.bool() {
                Self::splat(ty, ratio)
            } else {
                literal(ratio)
            };
            let known = Exactness {
                bound: 2.0 * known.bound,
                fraction: known.fraction + 2,
            };
            return Expression::call(ty.clone(), "mix", vec![a, b, ratio]).known(known);
        }
        // Where the bounds are the wrong way round, WGSL allows two results.
        let low = Expression::call(ty.clone(), "min", vec![a.clone(), b.clone()]);
        let high = Expression::call(ty.clone(), "max", vec![a, b]);
        let value = self.expression(ty, depth);
        let known = Exactness {
            bound: known.bound,
            fraction: known.fraction.max(exactness(&value).fraction),
        };
        Expression::call(ty.clone(), "clamp", vec![value, low, high]).known(known)
    }

    /// A small integer as a floating-point number.
    fn from_integer(&mut self, ty: &Type, depth: u32) -> Expression {
        let (from, mask) = match ty {
            Type::Vector(size, _) => {
                let from = Type::Vector(*size, self.pick(&[ScalarType::I32, ScalarType::U32]));
                let one = if from.scalar() == Some(ScalarType::I32) {
                    "127i"
                } else {
                    "127u"
                };
                let one = Expression::new(Type::U32, ExpressionKind::Literal(one.to_owned()));
                let mask = Expression::call(from.clone(), type_name(&from, &[]), vec![one]);
                (from, mask)
            }
            _ => {
                let from = self.pick(&[Type::I32, Type::U32]);
                let text = if from == Type::I32 { "127i" } else { "127u" };
                let mask = Expression::new(from.clone(), ExpressionKind::Literal(text.to_owned()));
                (from, mask)
            }
        };
        let integer = self.expression(&from, depth);
        let small = Expression::binary(from, "&", integer, mask);
        Expression::call(ty.clone(), type_name(ty, &[]), vec![small]).known(Exactness {
            bound: 127.0,
            fraction: 0,
        })
    }

    /// A part of what `modf` gives, or a value through `ldexp` or `quantizeToF16`.
    fn split(&mut self, ty: &Type, depth: u32) -> Expression {
        let operand = self.factor(ty, depth);
        let known = exactness(&operand);
        match self.rng.u32(0..4) {
            0 => {
                let call = Expression::call(ty.clone(), "modf", vec![operand]);
                let kind = ExpressionKind::Member(Box::new(call), "whole".to_owned());
                Expression::new(ty.clone(), kind).known(Exactness {
                    fraction: 0,
                    ..known
                })
            }
            1 => {
                let call = Expression::call(ty.clone(), "modf", vec![operand]);
                let kind = ExpressionKind::Member(Box::new(call), "fract".to_owned());
                Expression::new(ty.clone(), kind).known(Exactness {
                    bound: 1.0,
                    ..known
                })
            }
            2 => {
                let exponent = self.rng.i32(-2..=2);
                let exponents = match ty {
                    Type::Vector(size, _) => format!("vec{size}<i32>({exponent}i)"),
                    _ => format!("{exponent}i"),
                };
                let exponents = Expression::new(Type::I32, ExpressionKind::Literal(exponents));
                let known = Exactness {
                    bound: 4.0 * known.bound,
                    fraction: known.fraction + 2,
                };
                Expression::call(ty.clone(), "ldexp", vec![operand, exponents]).known(known)
            }
            _ => Expression::call(ty.clone(), "quantizeToF16", vec![operand]).known(known),
        }
    }

    /// What rounds: for implementations that round alike.
    fn rounded(&mut self, ty: &Type, depth: u32) -> Expression {
        let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
        match self.rng.u32(0..3) {
            0 => Expression::binary(ty.clone(), "/", a, b),
            1 => Expression::call(ty.clone(), "sqrt", vec![a]),
            _ => Expression::binary(ty.clone(), "*", a, b),
        }
    }

    fn float_scalar(&mut self, depth: u32) -> Expression {
        let below = depth - 1;
        let size = self.rng.u8(2..=4);
        let vector = Type::Vector(size, ScalarType::F32);
        match self.rng.u32(0..3) {
            0 => {
                let (a, b) = (self.factor(&vector, below), self.factor(&vector, below));
                let one = product(&a, &b);
                let known = Exactness {
                    bound: f64::from(size) * one.bound,
                    ..one
                };
                Expression::call(Type::F32, "dot", vec![a, b]).known(known)
            }
            1 => {
                let value = self.expression(&vector, below);
                let known = exactness(&value);
                let component = ["x", "g", "z", "a"][self.rng.usize(0..usize::from(size))];
                Expression::new(
                    Type::F32,
                    ExpressionKind::Member(Box::new(value), component.to_owned()),
                )
                .known(known)
            }
            _ => self.float_literal(),
        }
    }

    fn float_vector(&mut self, size: u8, depth: u32) -> Expression {
        let below = depth - 1;
        let ty = Type::Vector(size, ScalarType::F32);
        match self.rng.u32(0..6) {
            0 => {
                let other = self.rng.u8(2..=4);
                let matrix = self.factor(&Type::Matrix(other, size), below);
                let vector = self.factor(&Type::Vector(other, ScalarType::F32), below);
                let known = products(&matrix, &vector, other);
                Expression::binary(ty, "*", matrix, vector).known(known)
            }
            1 => {
                let other = self.rng.u8(2..=4);
                let matrix = self.factor(&Type::Matrix(size, other), below);
                let vector = self.factor(&Type::Vector(other, ScalarType::F32), below);
                let known = products(&matrix, &vector, other);
                Expression::binary(ty, "*", vector, matrix).known(known)
            }
            2 => {
                let (vector, scalar) = (self.factor(&ty, below), self.factor(&Type::F32, below));
                let known = product(&vector, &scalar);
                let (left, right) = if self.rng.bool() {
                    (vector, scalar)
                } else {
                    (scalar, vector)
                };
                Expression::binary(ty, "*", left, right).known(known)
            }
            3 if size == 3 => {
                let (a, b) = (self.factor(&ty, below), self.factor(&ty, below));
                let one = product(&a, &b);
                Expression::call(ty, "cross", vec![a, b]).known(Exactness {
                    bound: 2.0 * one.bound,
                    ..one
                })
            }
            4 => self.swizzled(size, ScalarType::F32, depth),
            _ => self.float_composite(&ty, depth),
        }
    }

    /// A vector or a matrix from its parts.
    pub fn float_composite(&mut self, ty: &Type, depth: u32) -> Expression {
        let below = depth.saturating_sub(1);
        let (count, part) = match ty {
            Type::Matrix(columns, rows) => (*columns, Type::Vector(*rows, ScalarType::F32)),
            Type::Vector(size, _) => (*size, Type::F32),
            _ => (1, Type::F32),
        };
        let parts: Vec<Expression> = (0..count).map(|_| self.expression(&part, below)).collect();
        let known = parts.iter().map(exactness).reduce(|a, b| Exactness {
            bound: a.bound.max(b.bound),
            fraction: a.fraction.max(b.fraction),
        });
        Expression {
            exactness: known,
            ..Expression::call(ty.clone(), type_name(ty, &[]), parts)
        }
    }

    fn matrix(&mut self, columns: u8, rows: u8, depth: u32) -> Expression {
        let below = depth - 1;
        let ty = Type::Matrix(columns, rows);
        match self.rng.u32(0..6) {
            0 => {
                let (a, b) = (self.term(&ty, below), self.term(&ty, below));
                let operator = self.pick(&["+", "-"]);
                sum(&ty, operator, a, b)
            }
            1 => {
                let (matrix, scalar) = (self.factor(&ty, below), self.factor(&Type::F32, below));
                let known = product(&matrix, &scalar);
                Expression::binary(ty, "*", matrix, scalar).known(known)
            }
            2 => {
                let inner = self.rng.u8(2..=4);
                let left = self.factor(&Type::Matrix(inner, rows), below);
                let right = self.factor(&Type::Matrix(columns, inner), below);
                let known = products(&left, &right, inner);
                Expression::binary(ty, "*", left, right).known(known)
            }
            3 => {
                let operand = self.expression(&Type::Matrix(rows, columns), below);
                let known = exactness(&operand);
                Expression::call(ty, "transpose", vec![operand]).known(known)
            }
            _ => self.float_composite(&ty, depth),
        }
    }

    /// A value that converts to an integer in a way that WGSL defines.
    pub fn convertible(&mut self, value: Expression) -> Expression {
        if !self.options.rounding {
            return value;
        }
        let large = Expression::call(Type::F32, "abs", vec![value.clone()]);
        let limit = Expression::new(Type::F32, ExpressionKind::Literal("1000000.0f".to_owned()));
        let moderate = Expression::binary(Type::BOOL, "<", large, limit);
        Expression::call(Type::F32, "select", vec![literal(0.0), value, moderate])
    }
}

fn total(a: Exactness, b: Exactness) -> Exactness {
    Exactness {
        bound: a.bound + b.bound,
        fraction: a.fraction.max(b.fraction),
    }
}

fn sum(ty: &Type, operator: &'static str, a: Expression, b: Expression) -> Expression {
    let known = total(exactness(&a), exactness(&b));
    Expression::binary(ty.clone(), operator, a, b).known(known)
}

fn product(a: &Expression, b: &Expression) -> Exactness {
    let (a, b) = (exactness(a), exactness(b));
    Exactness {
        bound: a.bound * b.bound,
        fraction: a.fraction + b.fraction,
    }
}

/// A sum of `count` products.
fn products(a: &Expression, b: &Expression, count: u8) -> Exactness {
    let one = product(a, b);
    Exactness {
        bound: f64::from(count) * one.bound,
        ..one
    }
}
