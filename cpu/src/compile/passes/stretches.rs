//! Where barriers divide a program: into *stretches*. Each invocation of a work-group may run a stretch from end to end
//! before the next invocation begins.

use std::collections::HashSet;

use crate::compile::ir::{Block, Scope, Statement, visit};

/// The statements that no stretch can go on over.
pub(crate) struct Dividing {
    /// Scopes and loops with a barrier inside, or with a way out of such a construct: leaving or continuing such a
    /// construct leads somewhere else among the stretches.
    scopes: HashSet<Scope>,
}

impl Dividing {
    pub(crate) fn of(body: &Block) -> Self {
        let mut dividing = Self {
            scopes: HashSet::new(),
        };
        // A way out of one construct divides every construct around the way out, and the ways out of these divide as well.
        loop {
            let mut found = Vec::new();
            visit::statements(body, &mut |statement| {
                if let Statement::Scope { scope, .. } | Statement::Loop { scope, .. } = statement
                    && !dividing.scopes.contains(scope)
                    && dividing.divides(statement)
                {
                    found.push(*scope);
                }
            });
            if found.is_empty() {
                return dividing;
            }
            dividing.scopes.extend(found);
        }
    }

    /// Whether a statement is a barrier, leaves or continues a dividing construct, or has such a statement inside.
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
