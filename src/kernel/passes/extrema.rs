//! `atomicMin` and `atomicMax` as loops of `atomicCompareExchangeWeak`, for drivers whose own are no single steps.
//!
//! SwiftShader makes each of a load and a store, behind a lock taken only by the other minima and maxima: an addition
//! or a store of another invocation in between is undone. With sixteen threads a fifth of the additions were lost
//! beside maxima of the same word.
//!
//! Operations on words are rewritten, in every address space that has atomics; SwiftShader has none of 64 bits. The
//! word from before is kept in a variable of the function from the end of the loop to the use.

use std::collections::HashMap;

use naga::{
    Arena, AtomicFunction, Block, Expression, Function, Handle, LocalVariable, MathFunction,
    Module, PredeclaredType, Range, Scalar, Span, Statement, Type, TypeInner, UniqueArena,
};

use super::blocks::{each_statement, rebuild};
use super::insert::insert;
use super::type_of;

/// The scalars with such operations.
const SCALARS: [Scalar; 2] = [Scalar::U32, Scalar::I32];

type Value = Handle<Expression>;

/// The types of the results of a scalar's operations.
#[derive(Clone, Copy)]
struct Types {
    word: Handle<Type>,
    /// Of a comparison with exchange.
    outcome: Handle<Type>,
}

/// Rewrites the operations of all functions; whether there were any.
pub(crate) fn run(module: &mut Module) -> bool {
    let functions = module.functions.iter().map(|(_, function)| function);
    let entries = module.entry_points.iter().map(|point| &point.function);
    if !functions
        .chain(entries)
        .any(|one| has_any(one, &module.types))
    {
        return false;
    }
    let types = SCALARS.map(|scalar| Types {
        word: type_of(module, TypeInner::Scalar(scalar)),
        outcome: module
            .generate_predeclared_type(PredeclaredType::AtomicCompareExchangeWeakResult(scalar)),
    });
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    let entries = module.entry_points.iter_mut();
    for function in functions.chain(entries.map(|point| &mut point.function)) {
        if has_any(function, &module.types) {
            rewrite(function, types);
        }
    }
    true
}

/// An operation.
struct Extremum {
    pointer: Value,
    function: MathFunction,
    value: Value,
    result: Value,
    /// The type of all of them.
    word: Handle<Type>,
}

impl Extremum {
    fn of(statement: &Statement, expressions: &Arena<Expression>) -> Option<Self> {
        let Statement::Atomic {
            pointer,
            fun,
            value,
            result: Some(result),
        } = *statement
        else {
            return None;
        };
        let function = match fun {
            AtomicFunction::Min => MathFunction::Min,
            AtomicFunction::Max => MathFunction::Max,
            _ => return None,
        };
        let Expression::AtomicResult { ty: word, .. } = expressions[result] else {
            return None;
        };
        Some(Self {
            pointer,
            function,
            value,
            result,
            word,
        })
    }
}

fn has_any(function: &Function, types: &UniqueArena<Type>) -> bool {
    let mut found = false;
    each_statement(&function.body, &mut |statement| {
        found |= Extremum::of(statement, &function.expressions).is_some_and(
            |one| matches!(types[one.word].inner, TypeInner::Scalar(scalar) if SCALARS.contains(&scalar)),
        );
    });
    found
}

fn rewrite(function: &mut Function, types: [Types; SCALARS.len()]) {
    let old = types.map(|one| {
        let variable = LocalVariable {
            name: Some("tombolo_before".into()),
            ty: one.word,
            init: None,
        };
        function.local_variables.append(variable, Span::UNDEFINED)
    });
    // An expression may use earlier ones alone, and a result has its place already.
    let old = insert(function, old.map(Expression::LocalVariable), |_, _, _| {});
    let known = types.iter().zip(old);
    let known = known
        .map(|(types, old)| (types.word, (types.outcome, old)))
        .collect();
    let mut body = std::mem::take(&mut function.body);
    loops(&mut body, &mut function.expressions, &known);
    function.body = body;
}

/// Replaces the operations in a block. `known` has for each word the type of an exchange's outcome, and the pointer of
/// the variable for the word from before.
fn loops(
    block: &mut Block,
    expressions: &mut Arena<Expression>,
    known: &HashMap<Handle<Type>, (Handle<Type>, Value)>,
) {
    rebuild(block, &mut |statement, span, block| {
        let one = Extremum::of(&statement, expressions);
        let Some((one, (outcome, old))) = one.and_then(|one| {
            let types = known.get(&one.word).copied();
            types.map(|types| (one, types))
        }) else {
            return block.push(statement, span);
        };
        block.push(
            exchange_until_done(&one, (outcome, old), expressions, span),
            span,
        );
        expressions[one.result] = Expression::Load { pointer: old };
        block.push(
            Statement::Emit(Range::new_from_bounds(one.result, one.result)),
            span,
        );
    });
}

/// The loop: loads the word, and puts the smaller or the larger in place, unless the word has changed meanwhile.
fn exchange_until_done(
    one: &Extremum,
    (outcome, old): (Handle<Type>, Value),
    expressions: &mut Arena<Expression>,
    span: Span,
) -> Statement {
    let mut body = Block::new();
    let emitted = |expression, body: &mut Block, expressions: &mut Arena<Expression>| {
        let value = expressions.append(expression, span);
        body.push(Statement::Emit(Range::new_from_bounds(value, value)), span);
        value
    };
    let pointer = one.pointer;
    let before = emitted(Expression::Load { pointer }, &mut body, expressions);
    let kept = Statement::Store {
        pointer: old,
        value: before,
    };
    body.push(kept, span);
    let after = Expression::Math {
        fun: one.function,
        arg: before,
        arg1: Some(one.value),
        arg2: None,
        arg3: None,
    };
    let after = emitted(after, &mut body, expressions);
    let exchanged = Expression::AtomicResult {
        ty: outcome,
        comparison: true,
    };
    let result = expressions.append(exchanged, span);
    let exchange = Statement::Atomic {
        pointer,
        fun: AtomicFunction::Exchange {
            compare: Some(before),
        },
        value: after,
        result: Some(result),
    };
    body.push(exchange, span);
    let is_done = Expression::AccessIndex {
        base: result,
        index: 1,
    };
    let condition = emitted(is_done, &mut body, expressions);
    let leave = Statement::If {
        condition,
        accept: Block::from_vec(vec![Statement::Break]),
        reject: Block::new(),
    };
    body.push(leave, span);
    Statement::Loop {
        body,
        continuing: Block::new(),
        break_if: None,
    }
}
