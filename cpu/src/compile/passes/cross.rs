//! Values needed on the other side of a barrier, or of an operation of a subgroup, become variables, to be put aside
//! while other lanes run.
//!
//! *How it works.* The program is read in order, and every stretch between barriers is an *epoch*. A value used in
//! another epoch than its own is computed again there if few operations on constants and built-in values suffice.
//! Otherwise a variable carries the value: assigned where the value is defined, read before each statement of another
//! epoch. Statements divided by barriers ([`stretches`](super::stretches)) begin and end epochs too: there, the loop
//! over invocations may end.

use std::collections::HashMap;

use cranelift_codegen::entity::SecondaryMap;

use super::stretches::Dividing;
use crate::compile::ir::{Block, Def, Op, Program, Statement, Value, Variable, visit};

/// The most operations to do again rather than put a value aside.
const MAX_REPEATED: u32 = 4;

/// Makes a program free of values living across barriers, and numbers the barriers.
pub(crate) fn carry_over_barriers(mut program: Program) -> Program {
    if !visit::has_meeting(&program.body) {
        return program;
    }
    let body = std::mem::take(&mut program.body);
    let mut crossing = Crossing {
        dividing: Dividing::of(&body),
        program,
        epochs: SecondaryMap::new(),
        epoch: 0,
        last_epoch: 0,
        carried: HashMap::new(),
        barriers: 0,
    };
    let mut body = crossing.block(body);
    crossing.assign(&mut body);
    let mut program = crossing.program;
    program.body = body;
    program
}

struct Crossing {
    program: Program,
    dividing: Dividing,
    /// Where each value is defined
    epochs: SecondaryMap<Value, u32>,
    epoch: u32,
    last_epoch: u32,
    /// The variables carrying values
    carried: HashMap<Value, Variable>,
    barriers: u32,
}

impl Crossing {
    fn next_epoch(&mut self) {
        self.last_epoch += 1;
        self.epoch = self.last_epoch;
    }

    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for mut statement in block {
            self.replace_uses(&mut statement, &mut out);
            let epoch = self.epoch;
            visit::definitions(&statement, |value| self.epochs[value] = epoch);
            let statement = self.inside(statement);
            if let Statement::Subgroup(operation) = &statement {
                // The results of an operation are there behind the operation.
                for &result in &operation.results {
                    self.epochs[result] = self.epoch;
                }
            }
            out.push(statement);
        }
        out
    }

    /// Lets a statement use values of its own epoch only. Everything needed for these values is written before the statement.
    fn replace_uses(&mut self, statement: &mut Statement, out: &mut Block) {
        let mut program = std::mem::take(&mut self.program);
        visit::map_uses(&mut program, statement, |program, value| {
            if is_floating(program, value) || self.epochs[value] == self.epoch {
                return value;
            }
            if repeated(program, value, MAX_REPEATED).is_some() {
                return repeat(program, value, out);
            }
            let ty = program.ty(value);
            let variable = *self
                .carried
                .entry(value)
                .or_insert_with(|| program.variables.push(ty));
            let copy = program.values.push(Def {
                ty,
                op: Op::Get(variable),
            });
            out.push(Statement::Let(copy));
            copy
        });
        self.program = program;
    }

    fn inside(&mut self, statement: Statement) -> Statement {
        let divides = self.dividing.divides(&statement);
        if divides && !matches!(statement, Statement::Barrier(_)) {
            self.next_epoch();
        }
        match statement {
            Statement::Barrier(mut barrier) => {
                barrier.number = self.barriers;
                self.barriers += 1;
                if barrier.waits {
                    self.next_epoch();
                }
                Statement::Barrier(barrier)
            }
            Statement::Subgroup(mut operation) => {
                operation.number = self.barriers;
                self.barriers += 1;
                self.next_epoch();
                Statement::Subgroup(operation)
            }
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let crosses = divides || visit::has_meeting(&accept) || visit::has_meeting(&reject);
                let before = self.epoch;
                let accept = self.block(accept);
                self.epoch = before;
                let reject = self.block(reject);
                self.leave(before, crosses);
                Statement::If {
                    condition,
                    accept,
                    reject,
                }
            }
            Statement::Switch {
                selector,
                mut cases,
                default,
            } => {
                let mut crosses = divides || visit::has_meeting(&default);
                let before = self.epoch;
                for case in &mut cases {
                    crosses |= visit::has_meeting(&case.body);
                    self.epoch = before;
                    case.body = self.block(std::mem::take(&mut case.body));
                }
                self.epoch = before;
                let default = self.block(default);
                self.leave(before, crosses);
                Statement::Switch {
                    selector,
                    cases,
                    default,
                }
            }
            Statement::Loop {
                scope,
                starts,
                body,
                continuing,
            } => {
                let crosses =
                    divides || visit::has_meeting(&body) || visit::has_meeting(&continuing);
                let before = self.epoch;
                if crosses {
                    self.next_epoch();
                }
                let body = self.block(body);
                if crosses {
                    // `continue` comes here from any epoch of the body.
                    self.next_epoch();
                }
                let continuing = self.block(continuing);
                self.leave(before, crosses);
                Statement::Loop {
                    scope,
                    starts,
                    body,
                    continuing,
                }
            }
            Statement::Scope { scope, body } => {
                let crosses = divides || visit::has_meeting(&body);
                let before = self.epoch;
                let body = self.block(body);
                self.leave(before, crosses);
                Statement::Scope { scope, body }
            }
            other => other,
        }
    }

    /// Ends a construct begun in the epoch `before`.
    fn leave(&mut self, before: u32, crosses: bool) {
        if crosses {
            self.next_epoch();
        } else {
            self.epoch = before;
        }
    }

    /// Assigns the carrying variables, where the values are defined.
    fn assign(&self, block: &mut Block) {
        let mut out = Block::with_capacity(block.len());
        for mut statement in std::mem::take(block) {
            match &mut statement {
                Statement::If { accept, reject, .. } => {
                    self.assign(accept);
                    self.assign(reject);
                }
                Statement::Loop {
                    body, continuing, ..
                } => {
                    self.assign(body);
                    self.assign(continuing);
                }
                Statement::Scope { body, .. } => self.assign(body),
                Statement::Switch { cases, default, .. } => {
                    for case in cases {
                        self.assign(&mut case.body);
                    }
                    self.assign(default);
                }
                _ => {}
            }
            let mut sets = Vec::new();
            visit::definitions(&statement, |value| {
                if let Some(&variable) = self.carried.get(&value) {
                    sets.push(Statement::Set(variable, value));
                }
            });
            out.push(statement);
            out.extend(sets);
        }
        *block = out;
    }
}

/// Whether a value has no place of computation.
fn is_floating(program: &Program, value: Value) -> bool {
    matches!(program.values[value].op, Op::Const(_) | Op::Builtin(_))
}

/// How many operations make a value from constants and built-in values, if not more than `limit`.
fn repeated(program: &Program, value: Value, limit: u32) -> Option<u32> {
    let op = program.values[value].op;
    match op {
        Op::Const(_) | Op::Builtin(_) => return Some(0),
        Op::Get(_) | Op::Result | Op::Length(_) => return None,
        _ => {}
    }
    let mut rest = limit.checked_sub(1);
    visit::operands(&op, |operand| {
        rest = rest.and_then(|rest| Some(rest - repeated(program, operand, rest)?));
    });
    rest.map(|rest| limit - rest)
}

/// Computes a value again.
fn repeat(program: &mut Program, value: Value, out: &mut Block) -> Value {
    if is_floating(program, value) {
        return value;
    }
    let Def { ty, op } = program.values[value];
    let op = visit::map_operands(op, |operand| repeat(program, operand, out));
    let copy = program.values.push(Def { ty, op });
    out.push(Statement::Let(copy));
    copy
}
