//! Values, assignments and loads that nobody needs go, and so do stores to memory without readers.

use cranelift_codegen::entity::EntitySet;

use crate::compile::{
    ir::{Access, Base, Block, Op, Program, Slot, Statement, Value, Variable, visit},
    subgroup::Function,
};

/// Removes statements without an effect that anybody sees.
pub(crate) fn prune(mut program: Program) -> Program {
    let mut needed = Needed {
        program: &program,
        values: EntitySet::new(),
        variables: EntitySet::new(),
        slots: EntitySet::new(),
        grown: false,
    };
    // Needed values make more values needed; each round reads the program once, and few rounds are necessary, since
    // most definitions stand before the uses of their values.
    loop {
        needed.grown = false;
        needed.block(&program.body);
        if !needed.grown {
            break;
        }
    }
    let Needed {
        values,
        variables,
        slots,
        ..
    } = needed;
    let body = std::mem::take(&mut program.body);
    let sweeper = Sweeper {
        values,
        variables,
        slots,
    };
    program.body = sweeper.block(body);
    program
}

struct Needed<'a> {
    program: &'a Program,
    values: EntitySet<Value>,
    variables: EntitySet<Variable>,
    slots: EntitySet<Slot>,
    grown: bool,
}

impl Needed<'_> {
    fn value(&mut self, value: Value) {
        self.grown |= self.values.insert(value);
    }

    /// Reads a block from its end, so that most uses are seen before the definitions.
    fn block(&mut self, block: &Block) {
        for statement in block.iter().rev() {
            let mut inner = Vec::new();
            visit::blocks(statement, |block| inner.push(block));
            for block in inner.into_iter().rev() {
                self.block(block);
            }
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let needed = match statement {
            Statement::Let(value) => {
                let needed = self.values.contains(*value);
                if needed && let Op::Get(variable) = self.program.values[*value].op {
                    self.grown |= self.variables.insert(variable);
                }
                needed
            }
            Statement::Set(variable, _) => self.variables.contains(*variable),
            Statement::Load {
                place,
                leaves,
                access,
            } => {
                let needed = *access == Access::Atomic
                    || leaves.iter().any(|leaf| self.values.contains(leaf.value));
                if needed && let Base::Slot(slot) = place.base {
                    self.grown |= self.slots.insert(slot);
                }
                needed
            }
            Statement::Store { place, .. } => match place.base {
                Base::Slot(slot) => self.slots.contains(slot),
                _ => true,
            },
            Statement::Call(call) => {
                !call.function.is_pure()
                    || call
                        .results
                        .iter()
                        .any(|&result| self.values.contains(result))
            }
            Statement::Subgroup(operation) => {
                let used = |&result: &Value| self.values.contains(result);
                operation.function == Function::Barrier || operation.results.iter().any(used)
            }
            _ => true,
        };
        if needed {
            visit::uses(self.program, statement, |value| self.value(value));
        }
    }
}

struct Sweeper {
    values: EntitySet<Value>,
    variables: EntitySet<Variable>,
    slots: EntitySet<Slot>,
}

impl Sweeper {
    fn block(&self, block: Block) -> Block {
        block
            .into_iter()
            .filter_map(|statement| self.statement(statement))
            .collect()
    }

    fn statement(&self, statement: Statement) -> Option<Statement> {
        Some(match statement {
            Statement::Let(value) if !self.values.contains(value) => return None,
            Statement::Set(variable, _) if !self.variables.contains(variable) => return None,
            Statement::Load {
                place,
                mut leaves,
                access: Access::Plain,
            } => {
                leaves.retain(|leaf| self.values.contains(leaf.value));
                if leaves.is_empty() {
                    return None;
                }
                Statement::Load {
                    place,
                    leaves,
                    access: Access::Plain,
                }
            }
            Statement::Store { ref place, .. } if matches!(place.base, Base::Slot(slot) if !self.slots.contains(slot)) =>
            {
                return None;
            }
            Statement::Call(ref call)
                if call.function.is_pure()
                    && !call
                        .results
                        .iter()
                        .any(|&result| self.values.contains(result)) =>
            {
                return None;
            }
            Statement::Subgroup(ref operation)
                if operation.function != Function::Barrier
                    && !(operation.results.iter()).any(|&result| self.values.contains(result)) =>
            {
                return None;
            }
            mut other => {
                visit::blocks_mut(&mut other, |block| {
                    *block = self.block(std::mem::take(block));
                });
                if is_hollow(&other) {
                    return None;
                }
                other
            }
        })
    }
}

/// Whether a statement does nothing but choose between empty blocks. A loop without a body may go on for ever.
fn is_hollow(statement: &Statement) -> bool {
    let mut hollow = matches!(
        statement,
        Statement::If { .. } | Statement::Switch { .. } | Statement::Scope { .. }
    );
    visit::blocks(statement, |block| hollow &= block.is_empty());
    hollow
}
