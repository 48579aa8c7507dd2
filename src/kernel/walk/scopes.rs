//! The names that a function declares, by scope.

use std::collections::{BTreeSet, HashMap};

/// A name declared within a function.
pub(super) struct Local<'a> {
    pub(super) name: &'a str,
    /// For constants: the module-scope declarations that the initializer mentions.
    pub(super) constant: Option<BTreeSet<usize>>,
}

/// The names declared within a function, and the meaning of each at the current token.
pub(super) struct Scopes<'a> {
    /// The names that each open block declares.
    open: Vec<Vec<&'a str>>,
    /// Per name: the declarations that are in scope, the innermost last.
    locals: HashMap<&'a str, Vec<Option<BTreeSet<usize>>>>,
}

impl Default for Scopes<'_> {
    /// A single open scope.
    fn default() -> Self {
        Self {
            open: vec![Vec::new()],
            locals: HashMap::new(),
        }
    }
}

impl<'a> Scopes<'a> {
    pub(super) fn begin(&mut self) {
        self.open.push(Vec::new());
    }

    pub(super) fn end(&mut self) {
        for name in self.open.pop().unwrap_or_default() {
            if let Some(known) = self.locals.get_mut(name) {
                known.pop();
            }
        }
    }

    /// The depth of the innermost scope.
    pub(super) fn innermost(&self) -> Option<usize> {
        self.open.len().checked_sub(1)
    }

    /// Declares a name in the scope of that depth; a closing bracket too many leaves no scope for the declaration.
    pub(super) fn declare(&mut self, depth: usize, local: Local<'a>) {
        if let Some(scope) = self.open.get_mut(depth) {
            scope.push(local.name);
            self.locals
                .entry(local.name)
                .or_default()
                .push(local.constant);
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Option<BTreeSet<usize>>> {
        self.locals.get(name)?.last()
    }
}
