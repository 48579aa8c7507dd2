//! The values of variables at a point of the walk.

use std::collections::HashMap;

use cranelift_codegen::entity::{SecondaryMap, packed_option::PackedOption};

use crate::compile::ir::{Value, Variable};

/// Knowledge of changed variables.
pub(super) type Changes = HashMap<Variable, PackedOption<Value>>;

/// The values of variables at a point.
#[derive(Default)]
pub(super) struct Known {
    values: SecondaryMap<Variable, PackedOption<Value>>,
    /// Changes, with the knowledge before each
    log: Vec<(Variable, PackedOption<Value>)>,
}

impl Known {
    pub(super) fn get(&self, variable: Variable) -> Option<Value> {
        self.values[variable].expand()
    }

    pub(super) fn set(&mut self, variable: Variable, value: impl Into<PackedOption<Value>>) {
        let value = value.into();
        let before = std::mem::replace(&mut self.values[variable], value);
        self.log.push((variable, before));
    }

    /// A place in the log, to compare with or to return to.
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    /// The variables changed since a mark; a variable changed several times comes as often.
    pub(super) fn changed(&self, mark: usize) -> impl Iterator<Item = Variable> {
        self.log[mark..].iter().map(|&(variable, _)| variable)
    }

    /// The variables changed since a mark, and the present knowledge of them.
    pub(super) fn changes(&self, mark: usize) -> Changes {
        self.changed(mark)
            .map(|variable| (variable, self.values[variable]))
            .collect()
    }

    /// Returns to the knowledge at a mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for (variable, before) in self.log.drain(mark..).rev() {
            self.values[variable] = before;
        }
    }
}
