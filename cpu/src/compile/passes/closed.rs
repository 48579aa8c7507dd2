//! Values that a loop leaves behind are assigned on the way out of the loop.
//!
//! *How it works.* A variable assigned in a loop and read behind the loop is replaced inside by a variable of the
//! loop's own. The own one is assigned from the outer one before the loop, and the outer one from the own one at each
//! way out: the loop-closed form that compilers of vectors use.
//!
//! With one lane, both are the same register. Where lanes leave a loop one after the other, the assignments of each
//! pass need not be kept apart for lanes that have left: only assignments on the ways out are. A counter of such a loop
//! stays common to all lanes.
//!
//! Loops with barriers stay unchanged: lanes leave such loops together, and variables living across barriers cost memory.

use std::collections::HashMap;

use super::live::{self, Lives};
use crate::compile::ir::{Block, Def, Op, Program, Scope, Statement, Value, Variable, visit};

/// Gives each loop variables of its own for the variables read behind the loop. Returns whether there was any.
pub(crate) fn close_loops(program: &mut Program) -> bool {
    let lives = live::lives(program);
    let variables = program.variables.len();
    let body = std::mem::take(&mut program.body);
    let mut closer = Closer {
        program,
        lives,
        open: Vec::new(),
    };
    let body = closer.block(body);
    program.body = body;
    program.variables.len() > variables
}

/// A scope or a loop around a statement.
struct Open {
    scope: Scope,
    /// The variables of the loop's own, by those of the program
    own: HashMap<Variable, Variable>,
}

struct Closer<'a> {
    program: &'a mut Program,
    lives: Lives,
    /// Innermost last
    open: Vec<Open>,
}

impl Closer<'_> {
    /// The stand-in for a variable inside the outermost `depth` constructs.
    fn at(&self, variable: Variable, depth: usize) -> Variable {
        let mut open = self.open[..depth].iter().rev();
        let own = open.find_map(|open| open.own.get(&variable));
        own.copied().unwrap_or(variable)
    }

    fn here(&self, variable: Variable) -> Variable {
        self.at(variable, self.open.len())
    }

    fn read(&mut self, variable: Variable, out: &mut Block) -> Value {
        let ty = self.program.variables[variable];
        let op = Op::Get(variable);
        let value = self.program.values.push(Def { ty, op });
        out.push(Statement::Let(value));
        value
    }

    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for statement in block {
            let statement = self.statement(statement, &mut out);
            out.push(statement);
        }
        out
    }

    /// A statement for another one. Statements that must come before are written.
    fn statement(&mut self, statement: Statement, out: &mut Block) -> Statement {
        match statement {
            Statement::Let(value) => {
                if let Op::Get(variable) = self.program.values[value].op {
                    self.program.values[value].op = Op::Get(self.here(variable));
                }
                Statement::Let(value)
            }
            Statement::Set(variable, value) => Statement::Set(self.here(variable), value),
            Statement::Exit(scope) => {
                self.leave(scope, false, out);
                Statement::Exit(scope)
            }
            Statement::Continue(scope) => {
                self.leave(scope, true, out);
                Statement::Continue(scope)
            }
            Statement::Scope { scope, body } => {
                let own = HashMap::new();
                self.open.push(Open { scope, own });
                let body = self.block(body);
                self.open.pop();
                Statement::Scope { scope, body }
            }
            Statement::Loop {
                scope,
                starts,
                body,
                continuing,
            } => {
                let own = self.own(scope, [&body, &continuing], out);
                self.open.push(Open { scope, own });
                let starts = starts
                    .into_iter()
                    .map(|(variable, bits)| (self.here(variable), bits))
                    .collect();
                let body = self.block(body);
                let continuing = self.block(continuing);
                self.open.pop();
                Statement::Loop {
                    scope,
                    starts,
                    body,
                    continuing,
                }
            }
            mut other => {
                visit::blocks_mut(&mut other, |block| {
                    *block = self.block(std::mem::take(block));
                });
                other
            }
        }
    }

    /// Makes variables for a loop, and assigns the variables before the loop.
    fn own(
        &mut self,
        scope: Scope,
        blocks: [&Block; 2],
        out: &mut Block,
    ) -> HashMap<Variable, Variable> {
        let mut own = HashMap::new();
        if blocks.into_iter().any(visit::has_meeting) {
            return own;
        }
        let mut assigned = Vec::new();
        for block in blocks {
            visit::assigned(block, &mut |variable| assigned.push(variable));
        }
        assigned.sort_unstable();
        assigned.dedup();
        let lives = |live: &HashMap<Scope, live::Live>, variable| {
            live.get(&scope).is_some_and(|live| live.contains(variable))
        };
        assigned.retain(|&variable| lives(&self.lives.ends, variable));
        for variable in assigned {
            let ty = self.program.variables[variable];
            let new = self.program.variables.push(ty);
            own.insert(variable, new);
            if lives(&self.lives.starts, variable) {
                let value = self.read(self.here(variable), out);
                out.push(Statement::Set(new, value));
            }
        }
        own
    }

    /// Assigns the variables of the place gone to, on the way out of loops.
    fn leave(&mut self, scope: Scope, continues: bool, out: &mut Block) {
        let Some(target) = self.open.iter().position(|open| open.scope == scope) else {
            return;
        };
        // A continued loop is not left.
        let (depth, live) = match continues {
            true => (target + 1, &self.lives.continues),
            false => (target, &self.lives.ends),
        };
        let Some(live) = live.get(&scope) else { return };
        let left = self.open[depth..].iter().flat_map(|open| open.own.keys());
        let mut left: Vec<Variable> = left.copied().filter(|&v| live.contains(v)).collect();
        left.sort_unstable();
        left.dedup();
        for variable in left {
            let value = self.read(self.here(variable), out);
            let outer = self.at(variable, depth);
            out.push(Statement::Set(outer, value));
        }
    }
}
