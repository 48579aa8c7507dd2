//! The passes: each rewrites a `naga::Module` in place and returns its findings.
//!
//! A pass needs no adapter. A pass expects a module with resolved overrides, and leaves a module that validates, can be
//! written by `naga::back::wgsl`, and has spans into the user's file: statements keep their spans, and an added
//! statement borrows the cause's span.
//!
//! [`pointers`] comes first, and before validation: the validator would refuse the functions without a body replaced by
//! this pass. The pass takes modules with unresolved overrides.
//!
//! [`spans`] runs on the module right after parsing: the helpers made there are ordinary functions to all others.
//!
//! `print` comes even before, since calls of `print` fit no function yet; the arguments to store may follow pointers.
//! The prologue is added once the size of the work-group is known.
//!
//! [`spill`] comes when the variables of the runtime are in place, and before the guards: the guards see the loops of
//! the pass.
//!
//! [`part_arguments`] is for Vulkan alone, and comes last.
//!
//! [`blocks`] has the walks of passes through statements, and [`code`] the builders of new bodies of functions.
//!
//! [`extrema`] comes last of the loop-adding passes: the loops of its own need no guard. [`folding`] comes behind
//! [`extrema`]: other passes add variables, too.
//!
//! Where both are wanted, [`loop_guard`] runs before [`grid`], to see the user's functions by the
//! user's names.

pub(in crate::kernel) mod blocks;
mod code;
pub(crate) mod extrema;
pub(crate) mod folding;
pub mod globals;
pub mod grid;
mod insert;
pub mod loop_guard;
pub(crate) mod nesting;
pub(crate) mod part_arguments;
pub mod pointers;
pub(crate) mod print;
mod range;
pub(crate) mod span_checks;
pub(crate) mod spans;
pub(crate) mod spill;
pub mod status;
mod transplant;
mod trip_count;
pub(crate) mod turns;

#[cfg(test)]
mod tests_extrema;
#[cfg(test)]
mod tests_folding;
#[cfg(test)]
mod tests_grid;
#[cfg(test)]
mod tests_loop_guard;
#[cfg(test)]
mod tests_support;
#[cfg(test)]
mod tests_trip_count;

use std::collections::{BTreeSet, HashSet};

use blocks::each_statement;
use naga::front::Typifier;
use naga::proc::{ResolveContext, ResolveError};
use naga::{
    AddressSpace, Block, Expression, Function, GlobalVariable, Handle, MemoryDecorations, Module,
    Span, Statement, Type, TypeInner,
};
pub(crate) use trip_count::every_loop_ends;

/// A name unused at module scope: `wanted`, or `wanted` with the first free number.
pub(crate) fn unique_name(module: &Module, wanted: &str) -> String {
    let taken: HashSet<&str> = (module.global_variables.iter())
        .filter_map(|(_, v)| v.name.as_deref())
        .chain(
            module
                .functions
                .iter()
                .filter_map(|(_, f)| f.name.as_deref()),
        )
        .chain(
            module
                .constants
                .iter()
                .filter_map(|(_, c)| c.name.as_deref()),
        )
        .chain(
            module
                .overrides
                .iter()
                .filter_map(|(_, o)| o.name.as_deref()),
        )
        .chain(module.types.iter().filter_map(|(_, t)| t.name.as_deref()))
        .chain(module.entry_points.iter().map(|e| e.name.as_str()))
        .collect();
    let mut name = wanted.to_owned();
    let mut number = 1u32;
    while taken.contains(name.as_str()) {
        name = format!("{wanted}_{number}");
        number += 1;
    }
    name
}

/// A variable in private space.
fn private_variable(name: String, ty: Handle<Type>) -> GlobalVariable {
    GlobalVariable {
        name: Some(name),
        space: AddressSpace::Private,
        binding: None,
        ty,
        init: None,
        memory_decorations: MemoryDecorations::empty(),
    }
}

/// The handle of the unnamed type `inner`, added where missing in the module.
pub(crate) fn type_of(module: &mut Module, inner: TypeInner) -> Handle<Type> {
    module
        .types
        .insert(Type { name: None, inner }, Span::UNDEFINED)
}

/// Appends `expressions` to `function` in order, each made from the handle of the previous one, and
/// returns the last handle with the `Emit` of all.
///
/// None may be of a kind evaluated by naga without an `Emit` (literals, variables, arguments).
pub(crate) fn emit_chain(
    function: &mut naga::Arena<Expression>,
    span: Span,
    start: Handle<Expression>,
    steps: &[&dyn Fn(Handle<Expression>) -> Expression],
) -> (Handle<Expression>, Statement) {
    let before = function.len();
    let last = (steps.iter()).fold(start, |from, step| function.append(step(from), span));
    (last, Statement::Emit(function.range_from(before)))
}

/// Puts `statements` before everything in the body of `function`.
pub(crate) fn prepend(function: &mut Function, statements: Vec<Statement>, span: Span) {
    let mut block = Block::with_capacity(statements.len());
    for statement in statements {
        block.push(statement, span);
    }
    function.body.splice(0..0, block);
}

/// The functions called by `entry`, directly or not, callees first.
pub(crate) fn reachable(module: &Module, entry: &Function) -> BTreeSet<Handle<Function>> {
    let mut found = BTreeSet::new();
    let mut todo = vec![entry];
    while let Some(function) = todo.pop() {
        each_statement(&function.body, &mut |statement| {
            if let Statement::Call { function, .. } = *statement
                && found.insert(function)
            {
                todo.push(&module.functions[function]);
            }
        });
    }
    found
}

/// The types of a function's expressions, or the first expression without a type and why.
pub(crate) fn typified(
    function: &Function,
    context: &ResolveContext<'_>,
) -> Result<Typifier, (Handle<Expression>, ResolveError)> {
    let mut typifier = Typifier::new();
    let expressions = &function.expressions;
    let Some((last, _)) = expressions.iter().next_back() else {
        return Ok(typifier);
    };
    // All at once: naga begins at the first expression on each request.
    if typifier.grow(last, expressions, context).is_ok() {
        return Ok(typifier);
    }
    for (handle, _) in expressions.iter() {
        typifier
            .grow(handle, expressions, context)
            .map_err(|error| (handle, error))?;
    }
    Ok(typifier)
}

/// The statement that runs `accept` where `condition` holds.
pub(crate) fn only_if(condition: Handle<Expression>, accept: Block) -> Statement {
    Statement::If {
        condition,
        accept,
        reject: Block::new(),
    }
}
