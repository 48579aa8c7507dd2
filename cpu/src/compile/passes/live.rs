//! Which variables are still needed at each barrier.
//!
//! *How it works.* Blocks are read from their ends. What is live at the end of a scope is what `Exit` takes there; a loop
//! is read until what is live at its start stays the same.

use std::collections::HashMap;

use cranelift_codegen::entity::EntitySet;

use crate::compile::ir::{Block, Op, Program, Scope, Statement, Variable};

/// Variables that hold something that is still read.
pub(crate) type Live = EntitySet<Variable>;

/// What is live behind each barrier, by its number.
pub(crate) fn at_barriers(program: &Program) -> HashMap<u32, Live> {
    let mut liveness = Liveness {
        program,
        ends: HashMap::new(),
        continues: HashMap::new(),
        barriers: HashMap::new(),
    };
    liveness.block(&program.body, Live::new());
    liveness.barriers
}

struct Liveness<'a> {
    program: &'a Program,
    /// What is live at the end of each open scope
    ends: HashMap<Scope, Live>,
    /// What is live where each open loop continues
    continues: HashMap<Scope, Live>,
    barriers: HashMap<u32, Live>,
}

impl Liveness<'_> {
    /// What is live before a block, given what is live behind it.
    fn block(&mut self, block: &Block, mut live: Live) -> Live {
        for statement in block.iter().rev() {
            live = self.statement(statement, live);
        }
        live
    }

    fn statement(&mut self, statement: &Statement, mut live: Live) -> Live {
        match statement {
            Statement::Let(value) => {
                if let Op::Get(variable) = self.program.values[*value].op {
                    live.insert(variable);
                }
                live
            }
            Statement::Set(variable, _) => {
                live.remove(*variable);
                live
            }
            Statement::If { accept, reject, .. } => {
                let mut before = self.block(accept, live.clone());
                join(&mut before, &self.block(reject, live));
                before
            }
            Statement::Switch { cases, default, .. } => {
                let mut before = self.block(default, live.clone());
                for case in cases {
                    join(&mut before, &self.block(&case.body, live.clone()));
                }
                before
            }
            Statement::Scope { scope, body } => {
                self.ends.insert(*scope, live.clone());
                self.block(body, live)
            }
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => {
                self.ends.insert(*scope, live);
                let mut start = Live::new();
                loop {
                    let again = self.block(continuing, start.clone());
                    self.continues.insert(*scope, again.clone());
                    let before = self.block(body, again);
                    if before == start {
                        return start;
                    }
                    start = before;
                }
            }
            Statement::Exit(scope) => self.ends.get(scope).cloned().unwrap_or_default(),
            Statement::Continue(scope) => self.continues.get(scope).cloned().unwrap_or_default(),
            Statement::Barrier(barrier) => {
                self.barriers.insert(barrier.number, live.clone());
                live
            }
            Statement::Load { .. }
            | Statement::Store { .. }
            | Statement::Atomic(_)
            | Statement::Call(_) => live,
        }
    }
}

fn join(live: &mut Live, other: &Live) {
    live.extend(other.iter());
}
