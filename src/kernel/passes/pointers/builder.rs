//! Builds the new body of a function: an arena of expressions that only grows, with the `Emit`
//! statements kept in step, and a few short cuts for the arithmetic of addresses.

use std::collections::{HashMap, HashSet};

use naga::{
    Arena, BinaryOperator, Block, Expression, Handle, Literal, LocalVariable, Scalar, ScalarKind,
    Span, Statement, Type, UniqueArena,
};

use super::check::Cause;
use super::heap::{Heap, is_not_emitted, vector_size, vector_type};
use super::visit::operands;

pub(super) type Value = Handle<Expression>;

/// A function in the making.
pub(super) struct Builder<'a> {
    pub types: &'a mut UniqueArena<Type>,
    pub heap: &'a Heap,
    pub expressions: Arena<Expression>,
    pub locals: Arena<LocalVariable>,
    /// The place in the user's file that new expressions and statements are made for.
    pub span: Span,
    out: Block,
    /// Length of the arena when the first expression was added that has no `Emit` yet.
    pending: Option<usize>,
    literals: HashMap<u32, Value>,
    variables: HashMap<Handle<naga::GlobalVariable>, Value>,
    /// Sums of a value and a constant, for each open block: an outer block's are in scope in an inner one.
    sums: Vec<HashMap<(Value, u32), Value>>,
    /// Reported conditions, for each open block: those found to hold.
    reported: Vec<HashSet<Value>>,
    /// Words of the heap's uniform, as far as loaded by the function at its start.
    pub info_words: HashMap<u32, Value>,
    /// Per condition, the meaning of its failure.
    pub causes: HashMap<Value, Cause>,
    /// Variables in which checked mode notes the function's first fault: code (0 for none), low and high word of
    /// the address.
    pub notes: Option<[Value; 3]>,
    /// For a range of a size in `info_words`, where values of so many bytes do not fit any more.
    pub limits: HashMap<(Value, u32), Value>,
}

impl<'a> Builder<'a> {
    pub fn new(
        types: &'a mut UniqueArena<Type>,
        heap: &'a Heap,
        locals: Arena<LocalVariable>,
    ) -> Self {
        Self {
            types,
            heap,
            expressions: Arena::new(),
            locals,
            span: Span::UNDEFINED,
            out: Block::new(),
            pending: None,
            literals: HashMap::new(),
            variables: HashMap::new(),
            sums: vec![HashMap::new()],
            reported: vec![HashSet::new()],
            info_words: HashMap::new(),
            causes: HashMap::new(),
            notes: None,
            limits: HashMap::new(),
        }
    }

    /// Adds an expression, to be emitted before the next statement where needed.
    pub fn add(&mut self, expression: Expression) -> Value {
        if is_not_emitted(&expression) {
            self.flush();
        } else {
            self.pending.get_or_insert(self.expressions.len());
        }
        self.expressions.append(expression, self.span)
    }

    /// Adds an expression that is never emitted: part of the initializer of a variable.
    pub fn add_constant(&mut self, expression: Expression) -> Value {
        self.flush();
        self.expressions.append(expression, self.span)
    }

    fn flush(&mut self) {
        if let Some(start) = self.pending.take() {
            let range = self.expressions.range_from(start);
            self.out.push(Statement::Emit(range), self.span);
        }
    }

    /// Adds a statement.
    pub fn push(&mut self, statement: Statement) {
        self.flush();
        self.out.push(statement, self.span);
    }

    /// Begins a block inside the one at hand, which is returned and waits.
    pub fn open(&mut self) -> Block {
        self.flush();
        self.sums.push(HashMap::new());
        self.reported.push(HashSet::new());
        std::mem::take(&mut self.out)
    }

    /// Ends the block begun by [`open`](Self::open), and goes on with the block around.
    pub fn close(&mut self, outer: Block) -> Block {
        self.flush();
        self.sums.pop();
        self.reported.pop();
        std::mem::replace(&mut self.out, outer)
    }

    /// Goes on with the statements of `block`.
    pub fn append(&mut self, mut block: Block) {
        self.flush();
        self.out.append(&mut block);
    }

    /// Notes that `condition` is about to be reported; `false` if already done in this block or around this block.
    pub fn first_report(&mut self, condition: Value) -> bool {
        if self.reported.iter().any(|r| r.contains(&condition)) {
            return false;
        }
        (self.reported.last_mut()).is_some_and(|reported| reported.insert(condition))
    }

    /// Ends the function.
    pub fn finish(mut self) -> (Arena<Expression>, Arena<LocalVariable>, Block) {
        self.flush();
        (self.expressions, self.locals, self.out)
    }

    /// `if condition { accept }`
    pub fn when(&mut self, condition: Value, accept: impl FnOnce(&mut Self)) {
        let outer = self.open();
        accept(self);
        let accept = self.close(outer);
        self.push(Statement::If {
            condition,
            accept,
            reject: Block::new(),
        });
    }

    /// A copy of a constant expression of the module.
    pub fn copied(&mut self, globals: &Arena<Expression>, handle: Value) -> Value {
        let mut copy = globals[handle].clone();
        let replaced: Result<(), std::convert::Infallible> = operands(&mut copy, &mut |operand| {
            *operand = self.copied(globals, *operand);
            Ok(())
        });
        replaced.unwrap_or_default();
        self.add(copy)
    }

    pub fn word(&mut self, value: u32) -> Value {
        if let Some(literal) = self.literals.get(&value) {
            return *literal;
        }
        let literal = self.add(Expression::Literal(Literal::U32(value)));
        self.literals.insert(value, literal);
        literal
    }

    pub fn global(&mut self, variable: Handle<naga::GlobalVariable>) -> Value {
        if let Some(value) = self.variables.get(&variable) {
            return *value;
        }
        let value = self.add(Expression::GlobalVariable(variable));
        self.variables.insert(variable, value);
        value
    }

    /// A new variable of the function; returns its pointer.
    pub fn local(&mut self, ty: Handle<Type>) -> Value {
        let variable = LocalVariable {
            name: None,
            ty,
            init: None,
        };
        let variable = self.locals.append(variable, self.span);
        self.add(Expression::LocalVariable(variable))
    }

    pub fn load(&mut self, pointer: Value) -> Value {
        self.add(Expression::Load { pointer })
    }

    pub fn store(&mut self, pointer: Value, value: Value) {
        self.push(Statement::Store { pointer, value });
    }

    pub fn member(&mut self, base: Value, index: u32) -> Value {
        self.add(Expression::AccessIndex { base, index })
    }

    pub fn element(&mut self, base: Value, index: Value) -> Value {
        self.add(Expression::Access { base, index })
    }

    pub fn binary(&mut self, op: BinaryOperator, left: Value, right: Value) -> Value {
        self.add(Expression::Binary { op, left, right })
    }

    /// `left op right` with a constant.
    pub fn with(&mut self, op: BinaryOperator, left: Value, right: u32) -> Value {
        let right = self.word(right);
        self.binary(op, left, right)
    }

    /// `value + constant`; made once in a block.
    pub fn plus(&mut self, value: Value, constant: u32) -> Value {
        if constant == 0 {
            return value;
        }
        let key = (value, constant);
        if let Some(sum) = self.sums.iter().rev().find_map(|sums| sums.get(&key)) {
            return *sum;
        }
        let sum = self.with(BinaryOperator::Add, value, constant);
        if let Some(sums) = self.sums.last_mut() {
            sums.insert(key, sum);
        }
        sum
    }

    /// `value * constant`
    pub fn times(&mut self, value: Value, constant: u32) -> Value {
        match constant {
            1 => value,
            c if c.is_power_of_two() => {
                self.with(BinaryOperator::ShiftLeft, value, c.trailing_zeros())
            }
            c => self.with(BinaryOperator::Multiply, value, c),
        }
    }

    /// `value / constant`
    pub fn divided(&mut self, value: Value, constant: u32) -> Value {
        match constant {
            0 | 1 => value,
            c if c.is_power_of_two() => self.shifted(value, c.trailing_zeros()),
            c => self.with(BinaryOperator::Divide, value, c),
        }
    }

    /// `value >> bits`
    pub fn shifted(&mut self, value: Value, bits: u32) -> Value {
        match bits {
            0 => value,
            bits => self.with(BinaryOperator::ShiftRight, value, bits),
        }
    }

    pub fn select(&mut self, condition: Value, accept: Value, reject: Value) -> Value {
        self.add(Expression::Select {
            condition,
            accept,
            reject,
        })
    }

    /// The bits of `value` (a scalar or a vector of 32-bit components) as another kind.
    pub fn bits(&mut self, expr: Value, from: ScalarKind, kind: ScalarKind) -> Value {
        if from == kind {
            return expr;
        }
        self.add(Expression::As {
            expr,
            kind,
            convert: None,
        })
    }

    pub fn convert(&mut self, expr: Value, to: Scalar) -> Value {
        self.add(Expression::As {
            expr,
            kind: to.kind,
            convert: Some(to.width),
        })
    }

    /// The type of a vector, or of a scalar for a count of 1.
    pub fn vector_type(&mut self, count: u32, scalar: Scalar) -> Handle<Type> {
        vector_type(self.types, count, scalar)
    }

    pub fn compose(&mut self, ty: Handle<Type>, components: Vec<Value>) -> Value {
        self.add(Expression::Compose { ty, components })
    }

    /// `vec2<u32>(low, high)`
    pub fn pair(&mut self, low: Value, high: Value) -> Value {
        self.compose(self.heap.types.vec2, vec![low, high])
    }

    /// Components `first..first + count` of a vector with `of` components.
    pub fn part(&mut self, vector: Value, of: u32, first: u32, count: u32) -> Value {
        use naga::SwizzleComponent as C;
        if count == of {
            return vector;
        }
        let Some(size) = vector_size(count) else {
            return self.member(vector, first);
        };
        let component = |i: u32| match first + i {
            0 => C::X,
            1 => C::Y,
            2 => C::Z,
            _ => C::W,
        };
        self.add(Expression::Swizzle {
            size,
            vector,
            pattern: [component(0), component(1), component(2), component(3)],
        })
    }

    /// The zero of a type.
    pub fn zero(&mut self, ty: Handle<Type>) -> Value {
        self.add(Expression::ZeroValue(ty))
    }
}
