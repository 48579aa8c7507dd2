//! Slots become variables where every access says at compile time which scalars are meant.

use std::collections::{HashMap, HashSet};

use super::Slots;
use crate::compile::ir::{
    Base, Block, Leaf, Op, Place, Program, Slot, Statement, Type, Variable, visit,
};

/// The most scalars of a slot to become variables: registers are few, and every variable costs time to compile.
const MAX_VARIABLES: usize = 256;

/// Whether [`promote`] would change a program.
pub(crate) fn can_promote(program: &Program) -> bool {
    !promotable(program).is_empty()
}

/// The slots remaining in memory.
pub(super) fn used(program: &Program) -> Slots {
    let mut used = Slots::new();
    visit::statements(&program.body, &mut |statement| {
        if let Statement::Load { place, .. } | Statement::Store { place, .. } = statement
            && let Base::Slot(slot) = place.base
        {
            used.insert(slot);
        }
    });
    used
}

/// Makes variables of slots without need for memory.
pub(crate) fn promote(mut program: Program) -> Program {
    let slots = promotable(&program);
    if slots.is_empty() {
        return program;
    }
    let body = std::mem::take(&mut program.body);
    let mut promoter = Promoter {
        program,
        slots,
        variables: HashMap::new(),
    };
    let body = promoter.block(body);
    let mut program = promoter.program;
    for &slot in &promoter.slots {
        program.slots[slot] = 0;
    }
    program.body = body;
    program
}

/// The slots whose accesses have no index, and touch few scalars.
fn promotable(program: &Program) -> Slots {
    let mut scalars: HashMap<Slot, HashSet<u32>> = HashMap::new();
    let mut indexed = HashSet::new();
    visit::statements(&program.body, &mut |statement| {
        let (place, leaves) = match statement {
            Statement::Load { place, leaves, .. } | Statement::Store { place, leaves, .. } => {
                (place, leaves.as_slice())
            }
            Statement::Atomic(atomic) => (&atomic.place, [].as_slice()),
            _ => return,
        };
        let Base::Slot(slot) = place.base else { return };
        if !place.steps.is_empty() {
            indexed.insert(slot);
        }
        let offsets = leaves.iter().map(|leaf| place.offset + leaf.offset);
        scalars.entry(slot).or_default().extend(offsets);
    });
    scalars
        .into_iter()
        .filter(|(slot, scalars)| !indexed.contains(slot) && scalars.len() <= MAX_VARIABLES)
        .map(|(slot, _)| slot)
        .collect()
}

struct Promoter {
    program: Program,
    slots: Slots,
    variables: HashMap<(Slot, u32), Variable>,
}

impl Promoter {
    fn variable(&mut self, place: &Place, leaf: &Leaf) -> Option<Variable> {
        let Base::Slot(slot) = place.base else {
            return None;
        };
        let ty: Type = self.program.ty(leaf.value);
        let variables = &mut self.program.variables;
        self.slots.contains(&slot).then(|| {
            *self
                .variables
                .entry((slot, place.offset + leaf.offset))
                .or_insert_with(|| variables.push(ty))
        })
    }

    fn block(&mut self, block: Block) -> Block {
        let mut out = Block::with_capacity(block.len());
        for statement in block {
            self.statement(statement, &mut out);
        }
        out
    }

    fn statement(&mut self, statement: Statement, out: &mut Block) {
        match statement {
            Statement::Load {
                place,
                leaves,
                access,
            } => {
                if !self.is_promoted(&place) {
                    out.push(Statement::Load {
                        place,
                        leaves,
                        access,
                    });
                    return;
                }
                for leaf in &leaves {
                    if let Some(variable) = self.variable(&place, leaf) {
                        self.program.values[leaf.value].op = Op::Get(variable);
                        out.push(Statement::Let(leaf.value));
                    }
                }
            }
            Statement::Store {
                place,
                leaves,
                access,
            } => {
                if !self.is_promoted(&place) {
                    out.push(Statement::Store {
                        place,
                        leaves,
                        access,
                    });
                    return;
                }
                for leaf in &leaves {
                    if let Some(variable) = self.variable(&place, leaf) {
                        out.push(Statement::Set(variable, leaf.value));
                    }
                }
            }
            mut other => {
                visit::blocks_mut(&mut other, |block| {
                    *block = self.block(std::mem::take(block));
                });
                out.push(other);
            }
        }
    }

    fn is_promoted(&self, place: &Place) -> bool {
        matches!(place.base, Base::Slot(slot) if self.slots.contains(&slot))
    }
}
