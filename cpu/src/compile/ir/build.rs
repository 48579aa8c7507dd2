//! Appending to a program: constants are shared, and operations on constants never come to be.

use std::collections::HashMap;

use super::{
    Binary, Block, Builtin, Comparison, Conversion, Def, Op, Place, Program, Scope, Statement,
    Type, Unary, Value, Variable,
    fold::{self, Folded},
};

/// A program growing at the end of an innermost open block.
pub(crate) struct Builder {
    pub(crate) program: Program,
    constants: HashMap<(Type, u64), Value>,
    builtins: HashMap<Builtin, Value>,
    open: Vec<Block>,
}

impl Builder {
    /// A builder for `program`, with a body started anew. Values of the program stay valid.
    pub(crate) fn new(program: Program) -> Self {
        Self {
            program,
            constants: HashMap::new(),
            builtins: HashMap::new(),
            open: vec![Block::new()],
        }
    }

    /// The program, with the appended statements as its body.
    pub(crate) fn finish(mut self) -> Program {
        debug_assert_eq!(self.open.len(), 1, "a block was opened and not closed");
        self.program.body = self.open.pop().unwrap_or_default();
        self.program
    }

    pub(crate) fn push(&mut self, statement: Statement) {
        if let Some(block) = self.open.last_mut() {
            block.push(statement);
        }
    }

    pub(crate) fn open(&mut self) {
        self.open.push(Block::new());
    }

    /// Ends the innermost block, for the caller to put into a statement.
    pub(crate) fn close(&mut self) -> Block {
        self.open.pop().unwrap_or_default()
    }

    /// How many blocks are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Statements of the innermost block, for undoing with [`Self::rewind`].
    pub(crate) fn statements(&self) -> usize {
        self.open.last().map_or(0, Vec::len)
    }

    /// Removes the statements of the innermost block behind the first `statements`.
    pub(crate) fn rewind(&mut self, statements: usize) {
        if let Some(block) = self.open.last_mut() {
            block.truncate(statements);
        }
    }

    /// Whether the innermost block ends by leaving.
    pub(crate) fn is_left(&self) -> bool {
        matches!(
            self.open.last().and_then(|block| block.last()),
            Some(Statement::Exit(_) | Statement::Continue(_))
        )
    }

    pub(crate) fn constant(&mut self, ty: Type, bits: u64) -> Value {
        let def = fold::constant(ty, bits);
        let Op::Const(bits) = def.op else {
            unreachable!("`fold::constant` makes constants")
        };
        *self
            .constants
            .entry((ty, bits))
            .or_insert_with(|| self.program.values.push(def))
    }

    pub(crate) fn u32(&mut self, value: u32) -> Value {
        self.constant(Type::I32, value.into())
    }

    pub(crate) fn f32(&mut self, value: f32) -> Value {
        self.constant(Type::F32, value.to_bits().into())
    }

    /// A constant of any float type.
    pub(crate) fn float(&mut self, ty: Type, value: f64) -> Value {
        let bits = match ty {
            Type::F64 => value.to_bits(),
            Type::F16 => fold::round_to_half(value as f32).to_bits().into(),
            _ => (value as f32).to_bits().into(),
        };
        self.constant(ty, bits)
    }

    /// A constant of any integer type.
    pub(crate) fn integer(&mut self, ty: Type, value: i64) -> Value {
        self.constant(ty, value as u64)
    }

    pub(crate) fn builtin(&mut self, builtin: Builtin) -> Value {
        *self.builtins.entry(builtin).or_insert_with(|| {
            self.program.values.push(Def {
                ty: Type::I32,
                op: Op::Builtin(builtin),
            })
        })
    }

    /// A value for a statement to define.
    pub(crate) fn result(&mut self, ty: Type) -> Value {
        self.program.values.push(Def { ty, op: Op::Result })
    }

    /// Computes an operation here, unless the operation comes down to an existing value.
    pub(crate) fn op(&mut self, ty: Type, op: Op) -> Value {
        match fold::fold(&self.program, op, ty) {
            Some(Folded::Constant(bits)) => return self.constant(ty, bits),
            Some(Folded::Same(value)) => return value,
            None => {}
        }
        if let Op::Binary(Binary::Mul, a, b) = op
            && let Some(doubled) = self.doubled(ty, a, b)
        {
            return self.op(ty, Op::Binary(Binary::Add, doubled, doubled));
        }
        match op {
            Op::Const(bits) => self.constant(ty, bits),
            Op::Builtin(builtin) => self.builtin(builtin),
            _ => {
                let value = self.program.values.push(Def { ty, op });
                self.push(Statement::Let(value));
                value
            }
        }
    }

    /// The value that a product of floats has twice: a sum has the same bits, and needs no constant.
    fn doubled(&self, ty: Type, a: Value, b: Value) -> Option<Value> {
        let two = match ty {
            Type::F32 => u64::from(2f32.to_bits()),
            Type::F64 => 2f64.to_bits(),
            _ => return None,
        };
        let is_two = |value| self.program.constant(value) == Some(two);
        match (is_two(a), is_two(b)) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            _ => None,
        }
    }

    pub(crate) fn unary(&mut self, op: Unary, a: Value) -> Value {
        let ty = self.program.ty(a);
        self.op(ty, Op::Unary(op, a))
    }

    pub(crate) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let ty = self.program.ty(a);
        self.op(ty, Op::Binary(op, a, b))
    }

    pub(crate) fn add(&mut self, a: Value, b: Value) -> Value {
        self.binary(Binary::Add, a, b)
    }

    pub(crate) fn sub(&mut self, a: Value, b: Value) -> Value {
        self.binary(Binary::Sub, a, b)
    }

    pub(crate) fn mul(&mut self, a: Value, b: Value) -> Value {
        self.binary(Binary::Mul, a, b)
    }

    pub(crate) fn compare(&mut self, op: Comparison, a: Value, b: Value) -> Value {
        self.op(Type::Bool, Op::Compare(op, a, b))
    }

    /// Selects by a condition. A selection of partly known booleans is an operation on them.
    pub(crate) fn select(&mut self, condition: Value, accept: Value, reject: Value) -> Value {
        let ty = self.program.ty(accept);
        let known = [accept, reject].map(|value| self.program.constant(value));
        match (ty, known) {
            (Type::Bool, [Some(1), Some(0)]) => return condition,
            (Type::Bool, [Some(0), Some(1)]) => return self.unary(Unary::Not, condition),
            (Type::Bool, [_, Some(0)]) => return self.binary(Binary::And, condition, accept),
            (Type::Bool, [Some(1), _]) => return self.binary(Binary::Or, condition, reject),
            (Type::Bool, [Some(0), _]) => {
                let not = self.unary(Unary::Not, condition);
                return self.binary(Binary::And, not, reject);
            }
            (Type::Bool, [_, Some(1)]) => {
                let not = self.unary(Unary::Not, condition);
                return self.binary(Binary::Or, not, accept);
            }
            _ => {}
        }
        self.op(
            ty,
            Op::Select {
                condition,
                accept,
                reject,
            },
        )
    }

    pub(crate) fn convert(&mut self, op: Conversion, ty: Type, a: Value) -> Value {
        self.op(ty, Op::Convert(op, a))
    }

    pub(crate) fn multiply_add(&mut self, a: Value, b: Value, c: Value) -> Value {
        let ty = self.program.ty(a);
        self.op(ty, Op::MultiplyAdd(a, b, c))
    }

    pub(crate) fn variable(&mut self, ty: Type) -> Variable {
        self.program.variables.push(ty)
    }

    pub(crate) fn get(&mut self, variable: Variable) -> Value {
        let ty = self.program.variables[variable];
        self.op(ty, Op::Get(variable))
    }

    pub(crate) fn set(&mut self, variable: Variable, value: Value) {
        self.push(Statement::Set(variable, value));
    }

    pub(crate) fn scope(&mut self) -> Scope {
        self.program.new_scope()
    }

    /// Loads scalars at `offsets` from a place.
    pub(crate) fn load(
        &mut self,
        place: Place,
        scalars: impl IntoIterator<Item = (u32, Type)>,
        access: super::Access,
    ) -> Vec<Value> {
        let leaves: smallvec::SmallVec<[super::Leaf; 4]> = scalars
            .into_iter()
            .map(|(offset, ty)| super::Leaf {
                offset,
                value: self.result(ty),
            })
            .collect();
        let values = leaves.iter().map(|leaf| leaf.value).collect();
        self.push(Statement::Load {
            place,
            leaves,
            access,
        });
        values
    }
}
