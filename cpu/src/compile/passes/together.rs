//! Loops around operations of subgroups count their passes: invocations take part in an operation together by coming
//! there in the same passes of all loops. See [`subgroup`](crate::compile::subgroup).

use smallvec::SmallVec;

use crate::compile::ir::{
    Binary, Block, Def, Op, Program, Scope, Statement, Type, Value, Variable, visit,
};

/// Gives each loop with an operation inside a counting variable, and tells operations of the loops around them.
pub(super) fn count_passes(program: &mut Program) {
    if visit::has_subgroups(&program.body) {
        let mut body = std::mem::take(&mut program.body);
        let mut counting = Counting {
            program,
            open: Vec::new(),
        };
        counting.block(&mut body);
        program.body = body;
    }
}

struct Counting<'a> {
    program: &'a mut Program,
    /// The loops around, outermost first
    open: Vec<(Scope, Variable)>,
}

impl Counting<'_> {
    fn value(&mut self, op: Op) -> Value {
        let ty = Type::I32;
        self.program.values.push(Def { ty, op })
    }

    fn block(&mut self, block: &mut Block) {
        let mut out = Block::with_capacity(block.len());
        for mut statement in std::mem::take(block) {
            match &mut statement {
                Statement::Subgroup(operation) => {
                    let mut passes = SmallVec::new();
                    for (scope, counter) in self.open.clone() {
                        let count = self.value(Op::Get(counter));
                        out.push(Statement::Let(count));
                        passes.push((scope, count));
                    }
                    operation.passes = passes;
                }
                Statement::Loop {
                    scope,
                    body,
                    continuing,
                    ..
                } if visit::has_subgroups(body) || visit::has_subgroups(continuing) => {
                    let counter = self.program.variables.push(Type::I32);
                    let zero = self.value(Op::Const(0));
                    out.push(Statement::Set(counter, zero));
                    self.open.push((*scope, counter));
                    self.block(body);
                    self.block(continuing);
                    self.open.pop();
                    let (count, one) = (self.value(Op::Get(counter)), self.value(Op::Const(1)));
                    let next = self.value(Op::Binary(Binary::Add, count, one));
                    // At the beginning of the body, so that `continuing` is in the pass of the body before, and an
                    // operation there comes before the operations of the following body.
                    let counts = [
                        Statement::Let(count),
                        Statement::Let(next),
                        Statement::Set(counter, next),
                    ];
                    body.splice(0..0, counts);
                }
                other => visit::blocks_mut(other, |block| self.block(block)),
            }
            out.push(statement);
        }
        *block = out;
    }
}
