//! Scopes and loops, and the ways out of them.

use cranelift_codegen::entity::EntitySet;
use smallvec::SmallVec;

use super::{Flow, Simplifier, known::Known};
use crate::compile::ir::{Block, Scope, Statement, Variable, visit};

/// Notes on a scope while its body is read.
pub(super) struct Open {
    /// The written scope: each pass of an unrolled loop has scopes of its own
    new: Scope,
    mark: usize,
    /// Variables changed on a way out
    changed: EntitySet<Variable>,
    /// Whether there was a way out
    left: bool,
}

impl Simplifier<'_> {
    /// Begins a scope. Returns the scope written in its place, and the mark for taking knowledge back.
    fn open_scope(&mut self, scope: Scope) -> (Scope, usize) {
        let mark = self.known.mark();
        let new = self.b.scope();
        self.scopes.insert(
            scope,
            Open {
                new,
                mark,
                changed: EntitySet::new(),
                left: false,
            },
        );
        (new, mark)
    }

    pub(super) fn scope(&mut self, scope: Scope, body: &Block) -> Flow {
        let (new, mark) = self.open_scope(scope);
        self.b.open();
        let mut flow = self.block(body);
        let mut body = self.b.close();
        if matches!(body.last(), Some(Statement::Exit(exit)) if *exit == new) {
            body.pop();
            flow = Flow::Falls;
        }
        strip(&mut body, &Statement::Exit(new));
        let left = leaves(&body, new);
        if flow == Flow::Leaves {
            self.known.undo(mark);
        } else if let Some(open) = self.scopes.get_mut(&scope)
            && open.left
        {
            // Invocations that left before know nothing of later assignments.
            open.changed.extend(self.known.changed(mark));
        }
        self.close_scope(scope);
        if left {
            self.b.push(Statement::Scope { scope: new, body });
            return Flow::Falls;
        }
        // Without a way out in its midst, a scope is no more than its statements. A stripped exit fell through.
        let stripped = !ends_by_leaving(&body);
        for statement in body {
            self.b.push(statement);
        }
        if stripped { Flow::Falls } else { flow }
    }

    /// Forgets variables assigned on ways out of a scope.
    fn close_scope(&mut self, scope: Scope) {
        if let Some(open) = self.scopes.remove(&scope) {
            for variable in open.changed.iter() {
                self.known.set(variable, None);
            }
        }
    }

    pub(super) fn leave(&mut self, scope: Scope, statement: &Statement) -> Flow {
        if self.leave_unrolled(scope, statement) {
            return Flow::Leaves;
        }
        // Programs are verified: every scope to leave is open.
        if let Some(open) = self.scopes.get_mut(&scope) {
            open.left = true;
            open.changed.extend(self.known.changed(open.mark));
            self.b.push(match statement {
                Statement::Continue(_) => Statement::Continue(open.new),
                _ => Statement::Exit(open.new),
            });
        }
        Flow::Leaves
    }

    pub(super) fn repeat(&mut self, scope: Scope, body: &Block, continuing: &Block) -> Flow {
        if let Some(flow) = self.unroll(scope, body, continuing) {
            return flow;
        }
        let mut assigned = Vec::new();
        visit::assigned(body, &mut |variable| assigned.push(variable));
        visit::assigned(continuing, &mut |variable| assigned.push(variable));
        let forget = |known: &mut Known| {
            for &variable in &assigned {
                if known.get(variable).is_some() {
                    known.set(variable, None);
                }
            }
        };
        let starts = self.constants(&assigned);
        forget(&mut self.known);
        let (new, mark) = self.open_scope(scope);
        self.b.open();
        self.block(body);
        let mut body = self.b.close();
        strip(&mut body, &Statement::Continue(new));
        let continues = visit::any(
            &body,
            &mut |s| matches!(s, Statement::Continue(c) if *c == new),
        );
        if continues {
            // Invocations that continued before have not computed the values read behind that point.
            self.known.undo(mark);
        } else {
            forget(&mut self.known);
        }
        self.b.open();
        self.block(continuing);
        let mut continuing = self.b.close();
        self.known.undo(mark);
        self.close_scope(scope);
        if !continues && ends_by_leaving(&body) {
            continuing.clear();
        }
        let left = leaves(&body, new) || leaves(&continuing, new);
        self.b.push(Statement::Loop {
            scope: new,
            starts,
            body,
            continuing,
        });
        if left { Flow::Falls } else { Flow::Leaves }
    }

    /// The variables among `assigned` holding a constant here.
    fn constants(&self, assigned: &[Variable]) -> SmallVec<[(Variable, u64); 2]> {
        let mut constants = SmallVec::new();
        for &variable in assigned {
            let value = self.known.get(variable);
            if let Some(bits) = value.and_then(|value| self.b.program.constant(value))
                && !constants.contains(&(variable, bits))
            {
                constants.push((variable, bits));
            }
        }
        constants
    }
}
/// Removes statements at the end of a block, and of branches at its end, if control goes to the next place anyway.
fn strip(block: &mut Block, leaving: &Statement) {
    let same = |statement: &Statement| match (statement, leaving) {
        (Statement::Exit(a), Statement::Exit(b))
        | (Statement::Continue(a), Statement::Continue(b)) => a == b,
        _ => false,
    };
    if block.last().is_some_and(same) {
        block.pop();
    }
    match block.last_mut() {
        Some(Statement::If { accept, reject, .. }) => {
            strip(accept, leaving);
            strip(reject, leaving);
        }
        Some(Statement::Switch { cases, default, .. }) => {
            for case in cases {
                strip(&mut case.body, leaving);
            }
            strip(default, leaving);
        }
        Some(Statement::Scope { body, .. }) => strip(body, leaving),
        _ => {}
    }
}

/// Whether a block has a way out of a scope.
fn leaves(block: &Block, scope: Scope) -> bool {
    visit::any(
        block,
        &mut |statement| matches!(statement, Statement::Exit(exit) if *exit == scope),
    )
}

/// Whether the end of a block cannot be reached.
fn ends_by_leaving(block: &Block) -> bool {
    match block.last() {
        Some(Statement::Exit(_) | Statement::Continue(_)) => true,
        Some(Statement::If { accept, reject, .. }) => {
            ends_by_leaving(accept) && ends_by_leaving(reject)
        }
        Some(Statement::Switch { cases, default, .. }) => {
            ends_by_leaving(default) && cases.iter().all(|case| ends_by_leaving(&case.body))
        }
        Some(Statement::Scope { scope, body }) => ends_by_leaving(body) && !leaves(body, *scope),
        Some(Statement::Loop {
            scope,
            body,
            continuing,
            ..
        }) => !leaves(body, *scope) && !leaves(continuing, *scope),
        _ => false,
    }
}
