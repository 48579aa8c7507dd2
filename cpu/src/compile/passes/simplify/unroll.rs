//! Loops with a known number of passes are written out, pass by pass.
//!
//! *How it works.* A loop is tried: its body is written again and again, with the values of variables known, so that
//! the test ending the loop folds. The attempt is given up, and everything written removed, when the loop is left on an
//! unknown condition, when there is a barrier inside, or when the text becomes too long. Failed loops are not tried
//! again: a loop around knows less the second time.

use crate::compile::ir::{Base, Block, Scope, Statement, visit};

use super::{Flow, Simplifier};

/// The most written-out passes.
const MAX_PASSES: u32 = 128;

/// The most statements in place of a loop.
const MAX_STATEMENTS: u64 = 1024;

/// As [`MAX_STATEMENTS`], for loops over private arrays, whose elements become registers when all indices are known.
const MAX_STATEMENTS_WITH_ARRAYS: u64 = 8192;

/// The most statements in place of all unrolled loops of a kernel.
const MAX_TOTAL: u64 = 32768;

/// A loop in the course of unrolling.
pub(super) struct Attempt {
    scope: Scope,
    /// Open blocks when the attempt began: the loop can only be left from there
    depth: usize,
    /// The way that the present pass left the loop
    left: Option<Left>,
    /// The number of statements for giving up the attempt
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Exit,
    Continue,
}

impl Simplifier<'_> {
    /// Writes a loop out. `None` if unrolling is not possible or not worth while, with nothing written.
    pub(super) fn unroll(
        &mut self,
        scope: Scope,
        body: &Block,
        continuing: &Block,
    ) -> Option<Flow> {
        if self.hopeless.contains(&scope) || self.written > MAX_TOTAL {
            return None;
        }
        let mut arrays = Vec::new();
        for block in [body, continuing] {
            visit::statements(block, &mut |statement| {
                if let Statement::Load { place, .. } | Statement::Store { place, .. } = statement
                    && let Base::Slot(slot) = place.base
                    && !place.steps.is_empty()
                    && !self.memory.contains(&slot)
                {
                    arrays.push(slot);
                }
            });
        }
        let statements = if arrays.is_empty() {
            MAX_STATEMENTS
        } else {
            MAX_STATEMENTS_WITH_ARRAYS
        };
        let start = self.written;
        let long = self.long.len();
        let mark = self.known.mark();
        let before = self.b.statements();
        self.unrolling.push(Attempt {
            scope,
            depth: self.b.depth(),
            left: None,
            limit: start + statements,
        });
        let flow = self.passes(body, continuing);
        self.unrolling.pop();
        if flow.is_none() {
            self.abandoned = false;
            self.b.rewind(before);
            self.known.undo(mark);
            self.long.truncate(long);
            self.hopeless.insert(scope);
        } else if self.written - start > MAX_STATEMENTS {
            self.long.extend(arrays);
        }
        flow
    }

    /// Writes passes until a pass leaves the loop.
    fn passes(&mut self, body: &Block, continuing: &Block) -> Option<Flow> {
        for _ in 0..MAX_PASSES {
            for block in [body, continuing] {
                let flow = self.block(block);
                let attempt = self.unrolling.last_mut()?;
                if self.abandoned || self.written > attempt.limit {
                    return None;
                }
                match (flow, attempt.left.take()) {
                    (Flow::Leaves, Some(Left::Exit)) => return Some(Flow::Falls),
                    // A certain `return`: the loop is left for good.
                    (Flow::Leaves, None) => return Some(Flow::Leaves),
                    (Flow::Leaves, Some(Left::Continue)) | (Flow::Falls, _) => {}
                }
            }
        }
        None
    }

    /// Whether leaving or continuing a scope ends a pass of a loop in the course of unrolling.
    pub(super) fn leave_unrolled(&mut self, scope: Scope, statement: &Statement) -> bool {
        let depth = self.b.depth();
        let Some(attempt) = self.unrolling.iter_mut().find(|a| a.scope == scope) else {
            return false;
        };
        if attempt.depth == depth {
            attempt.left = Some(match statement {
                Statement::Continue(_) => Left::Continue,
                _ => Left::Exit,
            });
        } else {
            self.abandoned = true;
        }
        true
    }

    /// Gives up the attempts to unroll the loops around this point.
    pub(super) fn refuse_unrolling(&mut self) {
        self.abandoned |= !self.unrolling.is_empty();
    }
}
