//! Expressions of every type but those of floating point.

use super::ast::*;
use super::print::{scalar_name, type_name};
use super::scope::{Generator, Named, NamedKind, Signature};

/// Literals that find faults.
const WORDS: [u32; 12] = [
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    32,
    255,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];

impl Generator {
    /// An expression of a type.
    pub fn expression(&mut self, ty: &Type, depth: u32) -> Expression {
        if depth == 0 {
            return self.leaf(ty);
        }
        if self.one_in(4)
            && let Some(known) = self.known(ty, depth)
        {
            return known;
        }
        if self.one_in(12)
            && let Some(call) = self.call(ty, depth)
        {
            return call;
        }
        match ty {
            Type::Scalar(ScalarType::F32) | Type::Vector(_, ScalarType::F32) | Type::Matrix(..) => {
                self.float(ty, depth)
            }
            Type::Scalar(ScalarType::Bool) => self.boolean(depth),
            Type::Scalar(scalar) => self.integer(*scalar, depth),
            Type::Vector(size, scalar) => self.vector(*size, *scalar, depth),
            Type::Array(..) | Type::Structure(_) => self.composite(ty, depth),
        }
    }

    /// A value with a name, or one from memory; `None` if there is none of the type.
    fn known(&mut self, ty: &Type, depth: u32) -> Option<Expression> {
        if self.one_in(4)
            && let Some(place) = self.shared_element(ty, depth.min(1))
        {
            return Some(Expression::load(place));
        }
        let names: Vec<String> = self
            .scope
            .named
            .iter()
            .filter(|named| named.kind == NamedKind::Value && named.ty == *ty)
            .map(|named| named.name.clone())
            .collect();
        if !names.is_empty() && self.one_in(2) {
            let name = self.pick(&names);
            return Some(Expression::name(ty.clone(), name));
        }
        self.place(ty, depth.min(1)).map(Expression::load)
    }

    /// An expression without operands of its own.
    pub fn leaf(&mut self, ty: &Type) -> Expression {
        if !self.one_in(4)
            && let Some(known) = self.known(ty, 0)
        {
            return known;
        }
        match ty {
            Type::Scalar(ScalarType::U32) => self.word(),
            Type::Scalar(ScalarType::I32) => {
                let value = self.pick(&WORDS) as i32;
                let text = match value {
                    i32::MIN => "i32(-2147483648)".to_owned(),
                    ..0 => format!("({value}i)"),
                    _ => format!("{value}i"),
                };
                Expression::new(Type::I32, ExpressionKind::Literal(text))
            }
            Type::Scalar(ScalarType::Bool) => {
                let text = if self.rng.bool() { "true" } else { "false" };
                Expression::new(Type::BOOL, ExpressionKind::Literal(text.to_owned()))
            }
            Type::Scalar(ScalarType::F32) => self.float_literal(),
            Type::Vector(_, ScalarType::F32) | Type::Matrix(..) => self.float_composite(ty, 0),
            _ => self.composite(ty, 0),
        }
    }

    /// A word: a literal, a word of the input, or who the invocation is.
    pub fn word(&mut self) -> Expression {
        match self.rng.u32(0..8) {
            0..=2 => Expression::word(self.rng.u32(0..16)),
            3 => Expression::word(self.pick(&WORDS)),
            4 | 5 if self.scope.built_ins => {
                let name = self.pick(&["lid", "gid.x", "wid.x"]);
                Expression::name(Type::U32, name)
            }
            _ => {
                let index = Expression::word(self.rng.u32(0..64));
                Expression::load(Place {
                    root: "in_words".to_owned(),
                    through_pointer: false,
                    path: vec![Step::Index {
                        index: Box::new(index),
                        length: 64,
                    }],
                    ty: Type::U32,
                })
            }
        }
    }

    /// A word that is the same for the whole work-group.
    pub fn uniform_word(&mut self, depth: u32) -> Expression {
        if depth > 0 && self.one_in(2) {
            let (left, right) = (self.uniform_word(depth - 1), self.uniform_word(depth - 1));
            let operator = self.pick(&["+", "*", "^", "&", "-"]);
            return Expression::binary(Type::U32, operator, left, right);
        }
        let names = self.scope.uniform.clone();
        match self.rng.u32(0..4) {
            0 | 1 if !names.is_empty() => {
                let name = self.pick(&names);
                Expression::name(Type::U32, name)
            }
            2 if self.scope.built_ins => Expression::name(Type::U32, "wid.x"),
            _ => Expression::word(self.rng.u32(0..8)),
        }
    }

    fn boolean(&mut self, depth: u32) -> Expression {
        let kind = self.rng.u32(0..9);
        match kind {
            0..=3 => {
                let operand = self.pick(&[Type::U32, Type::I32, Type::F32]);
                let operator = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
                self.operator(&operand, operator, Type::BOOL, depth)
            }
            4 | 5 => {
                let operator = self.pick(&["&&", "||", "==", "!=", "&", "|"]);
                self.operator(&Type::BOOL, operator, Type::BOOL, depth)
            }
            6 => self.negated("!", &Type::BOOL, depth),
            7 => {
                let size = self.rng.u8(2..=4);
                let operand = self.expression(&Type::Vector(size, ScalarType::Bool), depth - 1);
                let function = self.pick(&["all", "any"]);
                Expression::call(Type::BOOL, function, vec![operand])
            }
            _ => self.selected(&Type::BOOL, depth),
        }
    }

    fn operator(
        &mut self,
        operands: &Type,
        operator: &'static str,
        result: Type,
        depth: u32,
    ) -> Expression {
        let (left, right) = (
            self.expression(operands, depth - 1),
            self.expression(operands, depth - 1),
        );
        Expression::binary(result, operator, left, right)
    }

    fn negated(&mut self, operator: &'static str, ty: &Type, depth: u32) -> Expression {
        let operand = Box::new(self.expression(ty, depth - 1));
        Expression::new(ty.clone(), ExpressionKind::Unary(operator, operand))
    }

    /// `select` between two values of a type.
    pub fn selected(&mut self, ty: &Type, depth: u32) -> Expression {
        let (reject, accept) = (
            self.expression(ty, depth - 1),
            self.expression(ty, depth - 1),
        );
        let condition = match ty {
            Type::Vector(size, _) if self.rng.bool() => Type::Vector(*size, ScalarType::Bool),
            _ => Type::BOOL,
        };
        let condition = self.expression(&condition, depth - 1);
        let exactness = match (accept.exactness, reject.exactness) {
            (Some(a), Some(b)) => Some(Exactness {
                bound: a.bound.max(b.bound),
                fraction: a.fraction.max(b.fraction),
            }),
            _ => None,
        };
        Expression {
            exactness,
            ..Expression::call(ty.clone(), "select", vec![reject, accept, condition])
        }
    }

    fn integer(&mut self, scalar: ScalarType, depth: u32) -> Expression {
        let ty = Type::Scalar(scalar);
        match self.rng.u32(0..20) {
            0..=8 => self.arithmetic(&ty, depth),
            9 => {
                let operator = if scalar == ScalarType::I32 && self.rng.bool() {
                    "-"
                } else {
                    "~"
                };
                self.negated(operator, &ty, depth)
            }
            10..=12 => self.integer_function(&ty, scalar, depth),
            13 => {
                let size = self.rng.u8(2..=4);
                let vector = self.expression(&Type::Vector(size, scalar), depth - 1);
                let component = ["x", "y", "z", "w"][self.rng.usize(0..usize::from(size))];
                Expression::new(
                    ty,
                    ExpressionKind::Member(Box::new(vector), component.to_owned()),
                )
            }
            14 => {
                let vector = Type::Vector(self.rng.u8(2..=4), scalar);
                let (a, b) = (
                    self.expression(&vector, depth - 1),
                    self.expression(&vector, depth - 1),
                );
                Expression::call(ty, "dot", vec![a, b])
            }
            15 if scalar == ScalarType::U32 => self.packed(depth),
            15..=17 => self.converted(scalar, depth),
            _ => self.selected(&ty, depth),
        }
    }

    /// Arithmetic on integers or vectors of them.
    fn arithmetic(&mut self, ty: &Type, depth: u32) -> Expression {
        let operator = self.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "+", "*"]);
        let left = self.expression(ty, depth - 1);
        if operator != "<<" && operator != ">>" {
            let right = self.expression(ty, depth - 1);
            return Expression::binary(ty.clone(), operator, left, right);
        }
        let amount = match ty {
            Type::Vector(size, _) => Type::Vector(*size, ScalarType::U32),
            _ => Type::U32,
        };
        let mut right = self.expression(&amount, depth - 1);
        if !self.options.wide_shifts {
            let mask = match &amount {
                Type::Vector(..) => Expression::call(
                    amount.clone(),
                    type_name(&amount, &[]),
                    vec![Expression::word(31)],
                ),
                _ => Expression::word(31),
            };
            right = Expression::binary(amount, "&", right, mask);
        }
        Expression::binary(ty.clone(), operator, left, right)
    }

    fn integer_function(&mut self, ty: &Type, scalar: ScalarType, depth: u32) -> Expression {
        let (name, count) = self.pick(&[
            ("min", 2),
            ("max", 2),
            ("clamp", 3),
            ("abs", 1),
            ("sign", 1),
            ("countOneBits", 1),
            ("countLeadingZeros", 1),
            ("countTrailingZeros", 1),
            ("firstLeadingBit", 1),
            ("firstTrailingBit", 1),
            ("reverseBits", 1),
            ("extractBits", 1),
            ("insertBits", 2),
        ]);
        let name = if name == "sign" && scalar == ScalarType::U32 {
            "abs"
        } else {
            name
        };
        let mut arguments: Vec<Expression> =
            (0..count).map(|_| self.expression(ty, depth - 1)).collect();
        if name.ends_with("tBits") && name != "reverseBits" {
            arguments.push(self.expression(&Type::U32, depth - 1));
            arguments.push(self.expression(&Type::U32, depth - 1));
        }
        Expression::call(ty.clone(), name, arguments)
    }

    /// Packed words, and functions on them.
    fn packed(&mut self, depth: u32) -> Expression {
        let (name, ty) = self.pick(&[
            ("pack4xU8", Type::Vector(4, ScalarType::U32)),
            ("pack4xI8", Type::Vector(4, ScalarType::I32)),
            ("pack4xI8Clamp", Type::Vector(4, ScalarType::I32)),
            ("dot4U8Packed", Type::U32),
        ]);
        let mut arguments = vec![self.expression(&ty, depth - 1)];
        if ty == Type::U32 {
            arguments.push(self.expression(&ty, depth - 1));
        }
        Expression::call(Type::U32, name, arguments)
    }

    /// A value of another type, converted or reinterpreted.
    fn converted(&mut self, to: ScalarType, depth: u32) -> Expression {
        let ty = Type::Scalar(to);
        let other = if to == ScalarType::U32 {
            ScalarType::I32
        } else {
            ScalarType::U32
        };
        match self.rng.u32(0..4) {
            0 => {
                let operand = self.expression(&Type::Scalar(other), depth - 1);
                Expression::call(ty, format!("bitcast<{}>", scalar_name(to)), vec![operand])
            }
            1 => {
                let operand = self.expression(&Type::Scalar(other), depth - 1);
                Expression::call(ty, scalar_name(to), vec![operand])
            }
            2 => {
                let operand = self.expression(&Type::BOOL, depth - 1);
                Expression::call(ty, scalar_name(to), vec![operand])
            }
            _ => {
                let operand = self.expression(&Type::F32, depth - 1);
                let operand = self.convertible(operand);
                Expression::call(ty, scalar_name(to), vec![operand])
            }
        }
    }

    fn vector(&mut self, size: u8, scalar: ScalarType, depth: u32) -> Expression {
        let ty = Type::Vector(size, scalar);
        match (self.rng.u32(0..10), scalar) {
            (0..=2, ScalarType::Bool) => {
                let operands = Type::Vector(
                    size,
                    self.pick(&[ScalarType::I32, ScalarType::U32, ScalarType::F32]),
                );
                let operator = self.pick(&["==", "!=", "<", ">="]);
                self.operator(&operands, operator, ty, depth)
            }
            (3, ScalarType::Bool) => self.negated("!", &ty, depth),
            (4, ScalarType::Bool) => {
                let operator = self.pick(&["&", "|", "==", "!="]);
                self.operator(&ty, operator, ty.clone(), depth)
            }
            (0..=3, _) => self.arithmetic(&ty, depth),
            (4, _) => self.integer_function(&ty, scalar, depth),
            (5 | 6, _) => self.swizzled(size, scalar, depth),
            (7, _) => self.selected(&ty, depth),
            _ => self.composite(&ty, depth),
        }
    }

    /// A swizzle of a vector of the same scalars.
    pub fn swizzled(&mut self, size: u8, scalar: ScalarType, depth: u32) -> Expression {
        let of = self.rng.u8(2..=4);
        let vector = self.expression(&Type::Vector(of, scalar), depth - 1);
        let letters = if self.rng.bool() { "xyzw" } else { "rgba" };
        let chosen: String = (0..size)
            .map(|_| {
                let index = self.rng.usize(0..usize::from(of));
                letters[index..index + 1].to_owned()
            })
            .collect();
        let exactness = vector.exactness;
        Expression {
            exactness,
            ..Expression::new(
                Type::Vector(size, scalar),
                ExpressionKind::Member(Box::new(vector), chosen),
            )
        }
    }

    /// A composite from its parts, or a vector with the same value everywhere.
    pub fn composite(&mut self, ty: &Type, depth: u32) -> Expression {
        let below = depth.saturating_sub(1);
        let parts: Vec<Expression> = match ty {
            Type::Vector(size, scalar) => {
                let count = if self.one_in(4) { 1 } else { *size };
                (0..count)
                    .map(|_| self.expression(&Type::Scalar(*scalar), below))
                    .collect()
            }
            Type::Array(element, length) => {
                // Parts of parts would grow without end.
                (0..*length)
                    .map(|_| self.stored(element, below.min(1)))
                    .collect()
            }
            Type::Structure(index) => {
                let members = self.structures[*index].members.clone();
                members
                    .iter()
                    .map(|(_, ty)| self.stored(ty, below.min(1)))
                    .collect()
            }
            _ => return self.expression(ty, depth),
        };
        let name = type_name(ty, &self.structures);
        Expression::call(ty.clone(), name, parts)
    }

    /// An expression whose value a variable may hold.
    pub fn stored(&mut self, ty: &Type, depth: u32) -> Expression {
        let value = self.expression(ty, depth);
        self.fit(value)
    }

    /// A call of a function with a result of the type, if there is one that may be called here.
    pub fn call(&mut self, ty: &Type, depth: u32) -> Option<Expression> {
        let fitting: Vec<Signature> = self
            .signatures
            .iter()
            .filter(|signature| signature.result.as_ref() == Some(ty) && !signature.together)
            .cloned()
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let signature = self.pick(&fitting);
        let arguments = self.arguments(&signature, depth)?;
        let exactness = (ty.scalar() == Some(ScalarType::F32)).then_some(Exactness::STORED);
        let kind = ExpressionKind::Call(signature.name, arguments);
        Some(Expression {
            ty: ty.clone(),
            exactness,
            kind,
        })
    }

    /// Arguments of a call, paid for; `None` if a pointer is missing or the call costs too much.
    pub fn arguments(&mut self, signature: &Signature, depth: u32) -> Option<Vec<Argument>> {
        let points_to_private = |named: &Named| named.kind == NamedKind::Pointer("private");
        if signature.uses_private && self.scope.named.iter().any(points_to_private)
            || !self.spend(signature.cost)
        {
            return None;
        }
        let mut taken = Vec::new();
        let mut arguments = Vec::new();
        for parameter in &signature.parameters {
            arguments.push(match parameter.pointer {
                None if matches!(parameter.name.as_str(), "lid" | "wid" | "gid") => {
                    Argument::Value(Expression::name(
                        parameter.ty.clone(),
                        parameter.name.clone(),
                    ))
                }
                None => Argument::Value(self.stored(&parameter.ty, depth.saturating_sub(1).min(2))),
                Some("private") if signature.uses_private => return None,
                Some(space) => {
                    let place = self.pointer_argument(parameter, space, &taken, 0)?;
                    taken.push(place.root.clone());
                    Argument::Pointer(place)
                }
            });
        }
        Some(arguments)
    }
}
