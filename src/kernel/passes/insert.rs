//! New expressions among others. An expression may use earlier expressions alone, so the expressions behind a new one move.

use std::convert::Infallible;

use naga::{Arena, Block, Expression, Function, Handle, Range, Span, Statement};

use super::blocks::each_statement_mut;
use super::pointers::visit::{operands, used_by};

type Value = Handle<Expression>;

/// Where an expression is now.
#[derive(Clone, Copy)]
struct Place {
    value: Value,
    /// The first expression put right in front, or else the expression.
    begin: Value,
}

/// Puts expressions in front of all others, and hands each old expression to `rewrite`, with a function that puts further
/// expressions right in front, to be evaluated at the same place. Returns the handles of the first expressions.
pub(super) fn insert<const N: usize>(
    function: &mut Function,
    first: [Expression; N],
    mut rewrite: impl FnMut(&mut Expression, [Value; N], &mut dyn FnMut(Expression) -> Value),
) -> [Value; N] {
    let mut moved = Arena::new();
    let first = first.map(|one| moved.append(one, Span::UNDEFINED));
    let mut places: Vec<Place> = Vec::with_capacity(function.expressions.len());
    for (handle, expression) in function.expressions.iter() {
        let mut expression = expression.clone();
        let _: Result<(), Infallible> = operands(&mut expression, &mut |value| {
            *value = places[value.index()].value;
            Ok(())
        });
        let span = function.expressions.get_span(handle);
        let mut begin = None;
        rewrite(&mut expression, first, &mut |new| {
            let new = moved.append(new, span);
            begin.get_or_insert(new);
            new
        });
        let value = moved.append(expression, span);
        let begin = begin.unwrap_or(value);
        places.push(Place { value, begin });
    }
    function.expressions = moved;
    for (_, variable) in function.local_variables.iter_mut() {
        if let Some(init) = &mut variable.init {
            *init = places[init.index()].value;
        }
    }
    let names = std::mem::take(&mut function.named_expressions);
    let names = names.into_iter();
    function.named_expressions = names
        .map(|(value, name)| (places[value.index()].value, name))
        .collect();
    follow(&mut function.body, &places);
    first
}

/// Has a block name expressions by their new places.
fn follow(block: &mut Block, places: &[Place]) {
    let go = |value: &mut Value| -> Result<(), Infallible> {
        *value = places[value.index()].value;
        Ok(())
    };
    let _ = each_statement_mut(block, &mut |statement, _| {
        if let Statement::Emit(range) = statement
            && let Some((first, last)) = range.first_and_last()
        {
            let (first, last) = (places[first.index()].begin, places[last.index()].value);
            *range = Range::new_from_bounds(first, last);
        }
        used_by(statement, &mut { go }, &mut { go })
    });
}
