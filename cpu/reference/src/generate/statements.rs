//! Statements and blocks.

use super::ast::*;
use super::print::APPROXIMATE;
use super::scope::{Generator, Named, NamedKind, Signature};

/// How deep expressions of statements are.
pub(super) const DEPTH: u32 = 3;
/// How deep blocks are nested.
const NESTING: u32 = 4;

/// Atomic functions by the cell that knows them: applied in any order they leave the same.
pub const CELL_FUNCTIONS: [&str; 8] = [
    "atomicAdd",
    "atomicMax",
    "atomicMin",
    "atomicOr",
    "atomicAnd",
    "atomicXor",
    "atomicSub",
    "atomicAdd",
];

impl Generator {
    /// Statements in a scope of their own. Barriers in it count for what follows.
    fn block(&mut self, count: u32) -> Block {
        let mut shared = Vec::new();
        let block = self.within(
            |_| {},
            |generator| {
                let block = generator.statements(count);
                shared.clone_from(&generator.scope.shared);
                block
            },
        );
        self.scope.shared = shared;
        block
    }

    /// Statements in the current scope, and at their end the mixing of what they declared.
    pub fn statements(&mut self, count: u32) -> Block {
        let before = self.scope.named.len();
        let mut block = Vec::new();
        for _ in 0..count {
            if !self.spend(1.0) {
                break;
            }
            self.statement(&mut block);
            if matches!(
                block.last(),
                Some(Statement::Break | Statement::Continue | Statement::Return(_))
            ) {
                return block;
            }
        }
        let declared: Vec<Named> = self.scope.named[before..].to_vec();
        for named in declared
            .iter()
            .filter(|named| named.kind == NamedKind::Variable)
        {
            if let Some(word) = self.word_of(named) {
                block.push(Statement::Mix(word));
            }
        }
        block
    }

    /// A word that depends on a variable.
    fn word_of(&mut self, named: &Named) -> Option<Expression> {
        let wanted = [Type::U32, Type::I32, Type::BOOL, Type::F32];
        for ty in wanted {
            let before = std::mem::take(&mut self.scope.named);
            self.scope.named = vec![named.clone()];
            let place = self.place(&ty, 0);
            self.scope.named = before;
            if let Some(place) = place {
                return Some(self.as_word(Expression::load(place)));
            }
        }
        None
    }

    /// A value as a word.
    pub fn as_word(&mut self, value: Expression) -> Expression {
        match value.ty {
            Type::Scalar(ScalarType::U32) => value,
            Type::Scalar(ScalarType::F32) if self.options.rounding => {
                // NaN have many forms, and zeros two.
                let zero = Expression::new(Type::F32, ExpressionKind::Literal("0.0f".to_owned()));
                let sum = Expression::binary(Type::F32, "+", value.clone(), zero);
                let bits = Expression::call(Type::U32, "bitcast<u32>", vec![sum]);
                let nan = Expression::binary(Type::BOOL, "!=", value.clone(), value);
                Expression::call(
                    Type::U32,
                    "select",
                    vec![bits, Expression::word(0x7fc0_0000), nan],
                )
            }
            Type::Scalar(ScalarType::F32) => {
                let four = Expression::new(Type::F32, ExpressionKind::Literal("4.0f".to_owned()));
                let value = self.fit(value);
                let scaled = Expression::binary(Type::F32, "*", value, four);
                let integer = Expression::call(Type::I32, "i32", vec![scaled]);
                Expression::call(Type::U32, "u32", vec![integer])
            }
            _ => Expression::call(Type::U32, "u32", vec![value]),
        }
    }

    fn statement(&mut self, block: &mut Block) {
        if self.options.subgroups && self.one_in(8) {
            return self.subgroup_operation(block);
        }
        let nested = self.scope.depth < NESTING;
        match self.rng.u32(0..40) {
            0..=6 => self.declaration(block),
            7..=15 => self.assignment(block),
            16..=18 if nested => block.push(self.branch()),
            19 | 20 if nested => block.push(self.switch()),
            21..=25 if nested => self.repetition(block),
            26 => self.leave(block),
            27 | 28 => self.call_statement(block),
            29 => {
                let cell = self.rng.u32(0..CELL_FUNCTIONS.len() as u32);
                let value = self.expression(&Type::U32, DEPTH);
                block.push(Statement::Atomic {
                    function: CELL_FUNCTIONS[cell as usize],
                    cell,
                    value,
                });
            }
            30 if nested => {
                let count = self.rng.u32(1..4);
                let nested = self.block(count);
                block.push(Statement::Nested(nested));
            }
            31 if self.scope.built_ins && !self.options.rounding => block.push(self.approximate()),
            32..=34 if self.scope.together => self.meeting(block),
            35 | 36 => {
                let ty = Type::Scalar(self.scalar_type());
                let value = self.expression(&ty, DEPTH);
                let word = self.as_word(value);
                block.push(Statement::Mix(word));
            }
            _ => self.shared_store(block),
        }
    }

    fn declaration(&mut self, block: &mut Block) {
        let ty = self.value_type();
        if self.one_in(8)
            && let Some(place) = self.place_where(&ty, 1, |kind| kind != NamedKind::Alias)
            && !place.is_component()
        {
            let name = self.fresh("p");
            self.scope.named.push(Named {
                name: name.clone(),
                ty: place.ty.clone(),
                kind: NamedKind::Alias,
            });
            block.push(Statement::LetPointer { name, place });
            return;
        }
        if self.one_in(3) {
            let value = self.stored(&ty, DEPTH);
            self.name_value(value, block);
            return;
        }
        let value = if self.one_in(4) {
            None
        } else {
            Some(self.stored(&ty, DEPTH))
        };
        let name = self.fresh("v");
        self.scope.named.push(Named {
            name: name.clone(),
            ty: ty.clone(),
            kind: NamedKind::Variable,
        });
        block.push(Statement::Var { name, ty, value });
    }

    pub(super) fn assignment(&mut self, block: &mut Block) {
        let ty = if self.one_in(4) {
            self.value_type()
        } else {
            Type::Scalar(self.scalar_type())
        };
        let Some(place) = self.place(&ty, 1) else {
            return self.declaration(block);
        };
        let operators: &[&str] = match &ty {
            Type::Scalar(ScalarType::I32 | ScalarType::U32)
            | Type::Vector(_, ScalarType::I32 | ScalarType::U32) => {
                &["+", "-", "*", "/", "%", "&", "|", "^"]
            }
            _ => &[],
        };
        if !operators.is_empty() && self.one_in(3) {
            let operator = operators[self.rng.usize(0..operators.len())];
            let value = self.expression(&ty, DEPTH);
            block.push(Statement::Compound {
                place,
                operator,
                value,
            });
            return;
        }
        let value = self.stored(&ty, DEPTH);
        block.push(Statement::Assign { place, value });
    }

    fn branch(&mut self) -> Statement {
        // Among those who are together the condition has to be the same, or they part.
        let uniform = self.scope.together && self.one_in(3);
        let condition = match uniform {
            true => {
                let (a, b) = (self.uniform_word(1), self.uniform_word(1));
                let operator = self.pick(&["<", "!=", ">=", "=="]);
                Expression::binary(Type::BOOL, operator, a, b)
            }
            false => self.expression(&Type::BOOL, DEPTH),
        };
        let arm = |generator: &mut Generator, count: u32| {
            generator.within(
                |scope| scope.together &= uniform,
                |generator| generator.met(uniform, |generator| generator.statements(count)),
            )
        };
        let count = self.rng.u32(1..4);
        let accept = arm(self, count);
        let count = if self.rng.bool() {
            self.rng.u32(1..4)
        } else {
            0
        };
        let reject = if count > 0 {
            arm(self, count)
        } else {
            Vec::new()
        };
        Statement::If {
            condition,
            accept,
            reject,
        }
    }

    /// Runs a part in which all are together between two barriers, so that what is readable inside does
    /// not depend on what was outside.
    pub(super) fn met(
        &mut self,
        together: bool,
        part: impl FnOnce(&mut Generator) -> Block,
    ) -> Block {
        if !together || self.scope.shared.is_empty() {
            return part(self);
        }
        let modes: Vec<bool> = self
            .scope
            .shared
            .iter()
            .map(|array| array.readable)
            .collect();
        let mut block = vec![Statement::Barrier(Barrier::Both)];
        self.choose_modes(true, true);
        block.extend(part(self));
        if !matches!(
            block.last(),
            Some(Statement::Break | Statement::Continue | Statement::Return(_))
        ) {
            block.push(Statement::Barrier(Barrier::Both));
        }
        // Outside, each array goes on as it was.
        for (array, readable) in self.scope.shared.iter_mut().zip(modes) {
            array.readable = readable;
        }
        block
    }

    fn switch(&mut self) -> Statement {
        let selector = if self.rng.bool() {
            Type::U32
        } else {
            Type::I32
        };
        let value = self.expression(&selector, DEPTH - 1);
        let literal = if selector == Type::I32 { "7i" } else { "7u" };
        let mask = Expression::new(
            selector.clone(),
            ExpressionKind::Literal(literal.to_owned()),
        );
        let selector = Expression::binary(selector, "&", value, mask);
        let mut free: Vec<u32> = (0..8).collect();
        self.rng.shuffle(&mut free);
        let count = self.rng.usize(0..4);
        let inside = |scope: &mut super::scope::Scope| {
            scope.together = false;
            scope.breakable = true;
        };
        let mut cases = Vec::new();
        for _ in 0..count {
            let values: Vec<u32> = (0..self.rng.usize(1..3))
                .filter_map(|_| free.pop())
                .collect();
            let statements = self.rng.u32(1..3);
            cases.push((
                values,
                self.within(inside, |generator| generator.statements(statements)),
            ));
        }
        let statements = self.rng.u32(0..3);
        let default = self.within(inside, |generator| generator.statements(statements));
        let default_at = self.rng.usize(0..=cases.len());
        Statement::Switch {
            selector,
            cases,
            default,
            default_at,
        }
    }

    fn leave(&mut self, block: &mut Block) {
        let mut ways = Vec::new();
        if self.scope.breakable {
            ways.push(Statement::Break);
        }
        if self.scope.continuable {
            ways.push(Statement::Continue);
        }
        if self.scope.depth > 0
            && let Some(returned) = self.scope.returns.clone()
        {
            let value = returned.map(|ty| self.stored(&ty, DEPTH - 1));
            ways.push(Statement::Return(value));
        }
        match ways.is_empty() {
            true => self.assignment(block),
            false => {
                let way = self.pick(&ways);
                // Behind a condition, so that what follows is not dead.
                let condition = self.expression(&Type::BOOL, DEPTH - 1);
                block.push(Statement::If {
                    condition,
                    accept: vec![way],
                    reject: Vec::new(),
                });
            }
        }
    }

    fn call_statement(&mut self, block: &mut Block) {
        let here: Vec<Signature> = self
            .signatures
            .iter()
            .filter(|signature| !signature.together || self.scope.together)
            .cloned()
            .collect();
        if here.is_empty() {
            return self.assignment(block);
        }
        let signature = self.pick(&here);
        let Some(arguments) = self.arguments(&signature, 2) else {
            return self.assignment(block);
        };
        if signature.together {
            // Its barriers end what was readable before.
            self.choose_modes(true, true);
        }
        match signature.result {
            Some(ty) => {
                let exactness = (ty.scalar() == Some(ScalarType::F32)).then_some(Exactness::STORED);
                let kind = ExpressionKind::Call(signature.name, arguments);
                let value = Expression {
                    ty,
                    exactness,
                    kind,
                };
                self.name_value(value, block);
            }
            None => block.push(Statement::Call {
                name: signature.name,
                arguments,
            }),
        }
    }

    /// Gives a value a name that later statements may use.
    pub(super) fn name_value(&mut self, value: Expression, block: &mut Block) {
        let name = self.fresh("c");
        self.scope.named.push(Named {
            name: name.clone(),
            ty: value.ty.clone(),
            kind: NamedKind::Value,
        });
        block.push(Statement::Let { name, value });
    }

    /// A barrier, behind which shared arrays may be read that were written before, or a uniform load.
    pub(super) fn meeting(&mut self, block: &mut Block) {
        if self.one_in(4) && self.scope.built_ins {
            let value = self.expression(&Type::U32, 2);
            let writer = self.rng.u32(0..self.workgroup_size);
            let name = self.fresh("u");
            block.push(Statement::UniformLoad {
                name: name.clone(),
                writer,
                value,
            });
            self.scope.uniform.push(name.clone());
            self.scope.named.push(Named {
                name,
                ty: Type::U32,
                kind: NamedKind::Value,
            });
            return;
        }
        let barrier = self.pick(&[
            Barrier::WorkGroup,
            Barrier::WorkGroup,
            Barrier::Storage,
            Barrier::Both,
        ]);
        block.push(Statement::Barrier(barrier));
        self.choose_modes(barrier != Barrier::Storage, barrier != Barrier::WorkGroup);
    }

    /// Behind a barrier: which shared arrays may be read by all, and which be written.
    pub fn choose_modes(&mut self, workgroup: bool, storage: bool) {
        for index in 0..self.scope.shared.len() {
            let readable = self.rng.bool();
            let array = &mut self.scope.shared[index];
            if if array.storage { storage } else { workgroup } {
                array.readable = readable;
            }
        }
    }

    fn shared_store(&mut self, block: &mut Block) {
        let Some((place, array)) = self.own_element(1) else {
            return self.assignment(block);
        };
        let value = self.stored(&array.element, DEPTH);
        block.push(Statement::Assign { place, value });
    }

    /// A function that WGSL allows an error, of exact operands where its error is small.
    fn approximate(&mut self) -> Statement {
        let mut operand = || {
            let value = self.expression(&Type::F32, 2);
            // The sum with zero keeps naga from evaluating constants, which it cannot of every function.
            format!("({} + zero_f)", super::print::expression(&self.fit(value)))
        };
        let (x, y) = (operand(), operand());
        let forms = [
            format!("sqrt(abs({x}) + 1.0f)"),
            format!("inverseSqrt(abs({x}) + 0.5f)"),
            format!("sin(clamp({x}, -3.0f, 3.0f))"),
            format!("cos(clamp({x}, -3.0f, 3.0f))"),
            format!("exp2(clamp({x}, -6.0f, 6.0f))"),
            format!("exp(clamp({x}, -4.0f, 4.0f))"),
            format!("log2(abs({x}) + 1.5f)"),
            format!("log(abs({x}) + 2.5f)"),
            format!("atan({x})"),
            format!("atan2({x}, abs({y}) + 1.0f)"),
            format!("asin(clamp({x}, -0.9f, 0.9f))"),
            format!("tanh(clamp({x}, -4.0f, 4.0f))"),
            format!("{x} / (abs({y}) + 1.0f)"),
            format!("length(vec3<f32>({x}, {y}, 1.0f))"),
            format!("normalize(vec2<f32>({x}, abs({y}) + 1.0f)).x"),
            format!("pow(abs({x}) + 1.0f, clamp({y}, -1.5f, 1.5f))"),
            format!("smoothstep(-16.0f, 16.0f, {x})"),
            format!("mix({x}, {y}, 0.3f)"),
            format!("distance({x}, {y})"),
            format!("degrees({x}) * 0.01f"),
        ];
        let text = self.pick(&forms);
        let slot = self.rng.u32(0..APPROXIMATE);
        let value = Expression::new(Type::F32, ExpressionKind::Literal(text));
        Statement::Approximate { slot, value }
    }
}
