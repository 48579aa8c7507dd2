//! Turns of loops spent on calls by a group of lanes, counted by the group.
//!
//! lavapipe gives each group of eight lanes 65,535 turns for all loops. A lane's own count falls behind the group's
//! turns: lanes without a port pause while lanes with a port wait, and lanes of two branches wait branch after branch.
//! So the count is a word of the work-group's memory for each group of lanes (`shaders/rpc.wgsl`,
//! `tombolo_call_turn_rationed`). This pass gives the table its length, zeroes the words, and tells each invocation the
//! invocation's group. No barrier is needed: a group of lanes touches the group's own word alone.

use std::num::NonZeroU32;

use naga::{
    ArraySize, BinaryOperator, Expression, Literal, Module, Scalar, Span, Statement, Type,
    TypeInner,
};

use super::bind::named;
use super::padding_lanes::{GROUP, lane_index};
use crate::kernel::passes::prepend;

/// The tables, with the variables for the group of an invocation: of calls, and of page-awaiting kernels without calls.
const COUNTS: [(&str, &str); 2] = [
    ("tombolo_call_group_turns", "tombolo_call_group"),
    ("tombolo_system_group_turns", "tombolo_system_group"),
];

/// Prepares the count at an entry point waiting for the host. Returns whether there was a change.
pub(crate) fn share(module: &mut Module, entry: usize) -> bool {
    let size = module.entry_points[entry].workgroup_size;
    let lanes = size.iter().fold(1u32, |all, &n| all.saturating_mul(n));
    let mut counts = COUNTS.iter();
    let found = counts.find_map(|(turns, own)| named(module, turns).zip(named(module, own)));
    let Some((turns, own)) = found else {
        return false;
    };
    let Some(groups) = NonZeroU32::new(lanes.div_ceil(GROUP)) else {
        return false;
    };
    let span = Span::UNDEFINED;
    let base = module.types.insert(
        Type {
            name: None,
            inner: TypeInner::Atomic(Scalar::U32),
        },
        span,
    );
    let table = TypeInner::Array {
        base,
        size: ArraySize::Constant(groups),
        stride: 4,
    };
    let table = Type {
        name: None,
        inner: table,
    };
    module.global_variables[turns].ty = module.types.insert(table, span);

    let mut function = std::mem::take(&mut module.entry_points[entry].function);
    let (argument, member) = lane_index(module, &mut function.arguments);
    let e = &mut function.expressions;
    let argument = e.append(Expression::FunctionArgument(argument), span);
    let turns = e.append(Expression::GlobalVariable(turns), span);
    let own = e.append(Expression::GlobalVariable(own), span);
    let [size, zero] = [GROUP, 0].map(|n| e.append(Expression::Literal(Literal::U32(n)), span));
    let start = e.len();
    let lane = match member {
        Some(index) => e.append(
            Expression::AccessIndex {
                base: argument,
                index,
            },
            span,
        ),
        None => argument,
    };
    let group = Expression::Binary {
        op: BinaryOperator::Divide,
        left: lane,
        right: size,
    };
    let group = e.append(group, span);
    let word = Expression::Access {
        base: turns,
        index: group,
    };
    let word = e.append(word, span);
    let emit = Statement::Emit(e.range_from(start));
    let store = |pointer, value| Statement::Store { pointer, value };
    let statements = vec![emit, store(own, group), store(word, zero)];
    prepend(&mut function, statements, span);
    module.entry_points[entry].function = function;
    true
}
