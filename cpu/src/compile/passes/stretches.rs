//! Where barriers divide a program: into *stretches*, which each invocation of a work-group may run from end to end before
//! the next one begins.

use std::collections::HashSet;

use crate::compile::ir::{Block, Scope, Statement, visit};

/// The statements that a stretch cannot go on over.
pub(crate) struct Dividing {
    /// Scopes and loops with a barrier inside: who leaves or continues one goes somewhere else among the stretches
    scopes: HashSet<Scope>,
}

impl Dividing {
    pub(crate) fn of(body: &Block) -> Self {
        let mut scopes = HashSet::new();
        visit::statements(body, &mut |statement| {
            if let Statement::Scope { scope, .. } | Statement::Loop { scope, .. } = statement
                && has_barrier(statement)
            {
                scopes.insert(*scope);
            }
        });
        Self { scopes }
    }

    /// Whether a statement is a barrier, leaves a construct with a barrier, or has such a statement inside.
    pub(crate) fn divides(&self, statement: &Statement) -> bool {
        let mut divides = match statement {
            Statement::Barrier(barrier) => barrier.waits,
            Statement::Exit(scope) | Statement::Continue(scope) => self.scopes.contains(scope),
            _ => false,
        };
        visit::blocks(statement, |block| {
            divides = divides || block.iter().any(|statement| self.divides(statement));
        });
        divides
    }
}

fn has_barrier(statement: &Statement) -> bool {
    let mut found = false;
    visit::blocks(statement, |block| {
        found = found || visit::has_barrier(block)
    });
    found
}
