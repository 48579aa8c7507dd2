//! Branches with short and pure sides are written as selections: both sides are computed.
//!
//! *How it works.* The values of both sides move before the branch, and each variable assigned by a side is assigned
//! once, with the value of the side chosen by the condition. The rest is straight-line code: nothing to predict,
//! nothing to mask where invocations run side by side, and conditions of `&&` and `||` become operations on booleans.
//!
//! Sides that touch memory, call, leave or wait stay branches, and so do sides at a greater cost than a branch.

use std::collections::HashMap;

use crate::compile::ir::{Binary, Block, Conversion, Op, Program, Statement, Type, Unary, Value};

use super::Simplifier;

/// The greatest cost of both sides together, in operations of a cycle or so.
const MAX_COST: u32 = 8;

/// The most variables assigned by the sides: each is a selection.
const MAX_ASSIGNED: usize = 4;

impl Simplifier<'_> {
    /// Writes a branch as selections. Returns whether selections are worth while; nothing is written otherwise.
    pub(super) fn flatten(&mut self, condition: Value, accept: &Block, reject: &Block) -> bool {
        let sides = [accept, reject];
        let mut cost = 0;
        let mut assigned = Vec::new();
        for statement in sides.into_iter().flatten() {
            match statement {
                Statement::Let(value) => cost += self.cost(*value),
                Statement::Set(variable, _) => assigned.push(*variable),
                _ => return false,
            }
        }
        assigned.sort_unstable();
        assigned.dedup();
        if cost > MAX_COST || assigned.len() > MAX_ASSIGNED {
            return false;
        }
        for side in sides {
            self.compute(side);
        }
        // No assignment is written before all values are computed: sides read the variables as before the branch.
        let held: Vec<_> = assigned
            .iter()
            .map(|&variable| {
                let [accepted, rejected] = sides.map(|side| {
                    let last = side.iter().rev().find_map(|statement| match statement {
                        Statement::Set(set, value) if *set == variable => Some(*value),
                        _ => None,
                    });
                    last.unwrap_or_else(|| self.get(variable))
                });
                self.b.select(condition, accepted, rejected)
            })
            .collect();
        for (variable, value) in assigned.into_iter().zip(held) {
            if self.known.get(variable) != Some(value) {
                self.b.set(variable, value);
                self.known.set(variable, value);
            }
        }
        true
    }

    /// Writes the values computed by a side, before any assignment.
    fn compute(&mut self, side: &Block) {
        let mut assigned = HashMap::new();
        for statement in side {
            match statement {
                Statement::Set(variable, value) => _ = assigned.insert(*variable, *value),
                Statement::Let(value) => {
                    let def = &mut self.b.program.values[*value];
                    // A side reading its own assignments reads the assigned values.
                    if let Op::Get(variable) = def.op
                        && let Some(&held) = assigned.get(&variable)
                    {
                        def.op = Op::Convert(Conversion::Bits, held);
                    }
                    self.b.push(statement.clone());
                }
                _ => {}
            }
        }
    }

    /// The cost of computing a value although nobody may need the value.
    fn cost(&self, value: Value) -> u32 {
        cost(&self.b.program, value).unwrap_or(MAX_COST + 1)
    }
}

/// Cycles of an operation, about. `None` if there are many.
fn cost(program: &Program, value: Value) -> Option<u32> {
    let def = program.values[value];
    if !matches!(def.ty, Type::Bool | Type::I32 | Type::F32) {
        return None;
    }
    match def.op {
        Op::Get(_) | Op::Const(_) | Op::Builtin(_) => Some(0),
        Op::Unary(Unary::Negate | Unary::Abs | Unary::Not, _) | Op::Compare(..) => Some(1),
        Op::Select { .. } => Some(2),
        Op::Convert(Conversion::Bits, _) => Some(0),
        Op::Convert(Conversion::SignedToFloat, _) => Some(1),
        Op::Binary(op, _, b) => match op {
            Binary::DivF | Binary::DivS | Binary::DivU | Binary::RemS | Binary::RemU => None,
            // Lanes of a vector shift by one amount only.
            Binary::Shl | Binary::ShrU | Binary::ShrS => program.constant(b).map(|_| 1),
            Binary::Mul | Binary::MinF | Binary::MaxF => Some(2),
            _ => Some(1),
        },
        _ => None,
    }
}
