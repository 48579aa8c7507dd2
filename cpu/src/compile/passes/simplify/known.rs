//! What variables hold at a point of the walk.

use std::collections::HashMap;

use cranelift_codegen::entity::{SecondaryMap, packed_option::PackedOption};

use crate::compile::ir::{Value, Variable};

/// What is known of variables that were changed.
pub(super) type Changes = HashMap<Variable, PackedOption<Value>>;

/// What variables hold at a point.
#[derive(Default)]
pub(super) struct Known {
    values: SecondaryMap<Variable, PackedOption<Value>>,
    /// Changes, with what was known before
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

    /// The variables changed since a mark; one that was changed several times comes as often.
    pub(super) fn changed(&self, mark: usize) -> impl Iterator<Item = Variable> {
        self.log[mark..].iter().map(|&(variable, _)| variable)
    }

    /// The variables changed since a mark, and what is known of them now.
    pub(super) fn changes(&self, mark: usize) -> Changes {
        self.changed(mark)
            .map(|variable| (variable, self.values[variable]))
            .collect()
    }

    /// Returns to what was known at a mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for (variable, before) in self.log.drain(mark..).rev() {
            self.values[variable] = before;
        }
    }
}
