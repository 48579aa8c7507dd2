//! Walks through the statements of functions, as nested by naga: blocks, branches, switches and loops have blocks
//! inside.
//!
//! | walk | for passes that |
//! | --- | --- |
//! | [`each_statement`] | look at all statements |
//! | [`each_statement_mut`] | change statements where they stand |
//! | [`rebuild`] | put others in front of statements, behind them or in their place |
//! | [`inner`], [`inner_mut`] | carry something from a statement to those inside, or leave blocks out |
//!
//! Statements come in the order of the text; the `continuing` block of a loop comes behind the body.

use naga::{Block, Span, Statement};

/// A block directly inside a statement.
pub(in crate::kernel) struct Inner<B> {
    pub block: B,
    /// Whether the block is a loop's `continuing`, without any way to return.
    pub is_continuing: bool,
}

impl<B> Inner<B> {
    fn of(block: B) -> Self {
        Self {
            block,
            is_continuing: false,
        }
    }

    fn of_loop(body: B, continuing: B) -> Vec<Self> {
        let continuing = Self {
            block: continuing,
            is_continuing: true,
        };
        vec![Self::of(body), continuing]
    }
}

/// The blocks directly inside a statement.
pub(in crate::kernel) fn inner(statement: &Statement) -> Vec<Inner<&Block>> {
    match statement {
        Statement::Block(block) => vec![Inner::of(block)],
        Statement::If { accept, reject, .. } => vec![Inner::of(accept), Inner::of(reject)],
        Statement::Switch { cases, .. } => cases.iter().map(|case| Inner::of(&case.body)).collect(),
        Statement::Loop {
            body, continuing, ..
        } => Inner::of_loop(body, continuing),
        _ => Vec::new(),
    }
}

/// As [`inner`], to be changed.
pub(in crate::kernel) fn inner_mut(statement: &mut Statement) -> Vec<Inner<&mut Block>> {
    match statement {
        Statement::Block(block) => vec![Inner::of(block)],
        Statement::If { accept, reject, .. } => vec![Inner::of(accept), Inner::of(reject)],
        Statement::Switch { cases, .. } => (cases.iter_mut())
            .map(|case| Inner::of(&mut case.body))
            .collect(),
        Statement::Loop {
            body, continuing, ..
        } => Inner::of_loop(body, continuing),
        _ => Vec::new(),
    }
}

/// Calls `visit` for every statement of `block` and of the blocks inside, a statement before its inner statements.
pub(in crate::kernel) fn each_statement<'b>(
    block: &'b Block,
    visit: &mut dyn FnMut(&'b Statement),
) {
    for statement in block {
        crate::kernel::work::count(1);
        visit(statement);
        for one in inner(statement) {
            each_statement(one.block, visit);
        }
    }
}

/// As [`each_statement`], with statements and their spans to be changed; the walk goes on through the changed
/// statement. Ends with the first error of `visit`.
pub(in crate::kernel) fn each_statement_mut<E>(
    block: &mut Block,
    visit: &mut dyn FnMut(&mut Statement, &mut Span) -> Result<(), E>,
) -> Result<(), E> {
    for (statement, span) in block.span_iter_mut() {
        crate::kernel::work::count(1);
        visit(statement, span.unwrap_or(&mut Span::UNDEFINED.clone()))?;
        for one in inner_mut(statement) {
            each_statement_mut(one.block, visit)?;
        }
    }
    Ok(())
}

/// Builds `block` and the blocks inside anew: `put` gets each statement, behind the statements inside, and the block to
/// push the statement or replacements to.
pub(in crate::kernel) fn rebuild(
    block: &mut Block,
    put: &mut dyn FnMut(Statement, Span, &mut Block),
) {
    let old = std::mem::take(block);
    *block = Block::with_capacity(old.len());
    for (mut statement, span) in old.span_into_iter() {
        crate::kernel::work::count(1);
        for one in inner_mut(&mut statement) {
            rebuild(one.block, put);
        }
        put(statement, span, block);
    }
}

#[cfg(test)]
mod tests;
