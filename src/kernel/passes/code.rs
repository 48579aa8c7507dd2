//! The new body of a function in the making: an arena of expressions that only grows, with the `Emit` statements kept in
//! step, and short cuts for what every builder makes.

use std::collections::HashMap;

use naga::{
    Arena, BinaryOperator, Block, Expression, Handle, Literal, LocalVariable, Scalar, ScalarKind,
    Span, Statement,
};

use super::pointers::is_not_emitted;
use super::pointers::visit::operands;

pub(super) type Value = Handle<Expression>;

/// Expressions and variables of a function, and the statements of the block at hand.
pub(super) struct Code {
    pub expressions: Arena<Expression>,
    pub locals: Arena<LocalVariable>,
    /// The place in the user's file that new expressions and statements are made for.
    pub span: Span,
    pub out: Block,
    /// Length of the arena when the first expression was added that has no `Emit` yet.
    pending: Option<usize>,
    literals: HashMap<u32, Value>,
}

impl Code {
    /// A function with nothing in it but `locals`.
    pub fn new(locals: Arena<LocalVariable>) -> Self {
        Self {
            expressions: Arena::new(),
            locals,
            span: Span::UNDEFINED,
            out: Block::new(),
            pending: None,
            literals: HashMap::new(),
        }
    }

    /// Emits what was added and is not emitted yet.
    pub fn flush(&mut self) {
        if let Some(start) = self.pending.take() {
            let range = self.expressions.range_from(start);
            self.out.push(Statement::Emit(range), self.span);
        }
    }

    /// Begins a block inside the one at hand, which is returned and waits.
    pub fn open(&mut self) -> Block {
        self.flush();
        std::mem::take(&mut self.out)
    }

    /// Ends the block begun by [`open`](Self::open), and goes on with the block around.
    pub fn close(&mut self, outer: Block) -> Block {
        self.flush();
        std::mem::replace(&mut self.out, outer)
    }

    /// Ends the function.
    pub fn finish(mut self) -> (Arena<Expression>, Arena<LocalVariable>, Block) {
        self.flush();
        (self.expressions, self.locals, self.out)
    }
}

/// A builder of a function: what all of them can make.
pub(super) trait Emitter {
    /// The function in the making.
    fn code(&mut self) -> &mut Code;

    /// Adds an expression, to be emitted before the next statement where needed.
    fn add(&mut self, expression: Expression) -> Value {
        let code = self.code();
        if is_not_emitted(&expression) {
            code.flush();
        } else {
            code.pending.get_or_insert(code.expressions.len());
        }
        code.expressions.append(expression, code.span)
    }

    /// Adds an expression that is never emitted: part of the initializer of a variable.
    fn add_constant(&mut self, expression: Expression) -> Value {
        let code = self.code();
        code.flush();
        code.expressions.append(expression, code.span)
    }

    /// Adds a statement.
    fn push(&mut self, statement: Statement) {
        let code = self.code();
        code.flush();
        code.out.push(statement, code.span);
    }

    fn word(&mut self, value: u32) -> Value {
        if let Some(literal) = self.code().literals.get(&value) {
            return *literal;
        }
        let literal = self.add(Expression::Literal(Literal::U32(value)));
        self.code().literals.insert(value, literal);
        literal
    }

    /// A new variable of the function; returns its pointer.
    fn local(&mut self, ty: Handle<naga::Type>) -> Value {
        let variable = LocalVariable {
            name: None,
            ty,
            init: None,
        };
        let code = self.code();
        let variable = code.locals.append(variable, code.span);
        self.add(Expression::LocalVariable(variable))
    }

    fn load(&mut self, pointer: Value) -> Value {
        self.add(Expression::Load { pointer })
    }

    fn store(&mut self, pointer: Value, value: Value) {
        self.push(Statement::Store { pointer, value });
    }

    fn member(&mut self, base: Value, index: u32) -> Value {
        self.add(Expression::AccessIndex { base, index })
    }

    fn element(&mut self, base: Value, index: Value) -> Value {
        self.add(Expression::Access { base, index })
    }

    fn binary(&mut self, op: BinaryOperator, left: Value, right: Value) -> Value {
        self.add(Expression::Binary { op, left, right })
    }

    /// `left op right` with a constant.
    fn with(&mut self, op: BinaryOperator, left: Value, right: u32) -> Value {
        let right = self.word(right);
        self.binary(op, left, right)
    }

    /// `value * constant`. Compilers make shifts of products by powers of two where shifts are faster. SwiftShader makes
    /// neither of the other, and shifts the invocations of a vector one by one.
    fn times(&mut self, value: Value, constant: u32) -> Value {
        match constant {
            1 => value,
            _ => self.with(BinaryOperator::Multiply, value, constant),
        }
    }

    /// The bits of `expr` (a scalar or a vector of 32-bit components) as another kind.
    fn bits(&mut self, expr: Value, from: ScalarKind, kind: ScalarKind) -> Value {
        if from == kind {
            return expr;
        }
        self.add(Expression::As {
            expr,
            kind,
            convert: None,
        })
    }

    fn convert(&mut self, expr: Value, to: Scalar) -> Value {
        self.add(Expression::As {
            expr,
            kind: to.kind,
            convert: Some(to.width),
        })
    }

    fn select(&mut self, condition: Value, accept: Value, reject: Value) -> Value {
        self.add(Expression::Select {
            condition,
            accept,
            reject,
        })
    }

    /// A copy of a constant expression of another arena, never emitted. Constants of the module are named, so the copy
    /// refers to them.
    fn copied_constant(&mut self, from: &Arena<Expression>, handle: Value) -> Value {
        let mut copy = from[handle].clone();
        let copied: Result<(), std::convert::Infallible> = operands(&mut copy, &mut |operand| {
            *operand = self.copied_constant(from, *operand);
            Ok(())
        });
        copied.unwrap_or_default();
        self.add_constant(copy)
    }
}
