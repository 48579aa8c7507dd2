//! The variables still needed at each barrier, and at each place where lanes go on after taking no part in something.
//!
//! *How it works.* Blocks are read from their ends. The variables live at the end of a scope are taken there by `Exit`;
//! a loop is read until the variables live at its start stay the same.

use std::collections::HashMap;

use cranelift_codegen::entity::EntitySet;

use crate::compile::ir::{Block, Op, Program, Scope, Statement, Variable};

/// Variables whose content is still read.
pub(crate) type Live = EntitySet<Variable>;

/// The live variables at places of a program.
#[derive(Default)]
pub(crate) struct Lives {
    /// Behind each barrier and each operation of a subgroup, by its number
    pub(crate) barriers: HashMap<u32, Live>,
    /// At the end of each scope and loop
    pub(crate) ends: HashMap<Scope, Live>,
    /// Before each loop
    pub(crate) starts: HashMap<Scope, Live>,
    /// Where each loop continues
    pub(crate) continues: HashMap<Scope, Live>,
    /// For each arm of a branch or a switch, in the order of the text: the variables live behind the statement or at
    /// the start of a later arm. The key is the statement's address.
    pub(crate) beside: HashMap<*const Statement, Vec<Live>>,
}

/// The live variables at the places of a program named by [`Lives`].
pub(crate) fn lives(program: &Program) -> Lives {
    let mut liveness = Liveness {
        program,
        lives: Lives::default(),
    };
    liveness.block(&program.body, Live::new());
    liveness.lives
}

struct Liveness<'a> {
    program: &'a Program,
    lives: Lives,
}

impl Liveness<'_> {
    /// The variables live before a block, given the variables live behind the block.
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
            Statement::If { accept, reject, .. } => self.arms(statement, &[accept, reject], live),
            Statement::Switch { cases, default, .. } => {
                let mut arms: Vec<_> = cases.iter().map(|case| &case.body).collect();
                arms.push(default);
                self.arms(statement, &arms, live)
            }
            Statement::Scope { scope, body } => {
                self.lives.ends.insert(*scope, live.clone());
                self.block(body, live)
            }
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => {
                self.lives.ends.insert(*scope, live);
                let mut start = Live::new();
                loop {
                    let again = self.block(continuing, start.clone());
                    self.lives.continues.insert(*scope, again.clone());
                    let before = self.block(body, again);
                    if before == start {
                        self.lives.starts.insert(*scope, start.clone());
                        return start;
                    }
                    start = before;
                }
            }
            Statement::Exit(scope) => self.lives.ends.get(scope).cloned().unwrap_or_default(),
            Statement::Continue(scope) => {
                self.lives.continues.get(scope).cloned().unwrap_or_default()
            }
            Statement::Barrier(barrier) => {
                self.lives.barriers.insert(barrier.number, live.clone());
                live
            }
            Statement::Subgroup(operation) => {
                self.lives.barriers.insert(operation.number, live.clone());
                live
            }
            Statement::Load { .. }
            | Statement::Store { .. }
            | Statement::Atomic(_)
            | Statement::Call(_) => live,
        }
    }

    /// The variables live before alternative arms.
    fn arms(&mut self, statement: &Statement, arms: &[&Block], behind: Live) -> Live {
        let starts: Vec<_> = arms
            .iter()
            .map(|arm| self.block(arm, behind.clone()))
            .collect();
        let mut beside = Vec::with_capacity(arms.len());
        let mut later = behind;
        for start in starts.iter().rev() {
            beside.push(later.clone());
            join(&mut later, start);
        }
        beside.reverse();
        self.lives.beside.insert(statement, beside);
        // One of the arms is run, so variables live behind all arms are live at a start or assigned.
        let mut before = Live::new();
        for start in &starts {
            join(&mut before, start);
        }
        before
    }
}

fn join(live: &mut Live, other: &Live) {
    live.extend(other.iter());
}
