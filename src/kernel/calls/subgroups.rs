//! Calls of a subgroup in one packet: gives the functions of `shaders/rpc_subgroup.wgsl` their bodies on devices where
//! packets are shared, and `f_try` the form without shared packets on the others.
//!
//! Put in after parsing: a program need not enable subgroups, and validates for devices without subgroups. Only bodies
//! calling more functions are taken out: naga wants callees in front of their callers.

use naga::{
    Block, CollectiveOperation, Expression, Function, GatherMode, Literal, Module, Span, Statement,
    SubgroupOperation,
};

use super::ALONE;
use crate::device::fence;

/// What a function does with its argument, or with 1 where there is none.
const BODIES: [(&str, Body); 4] = [
    (
        "tombolo_subgroup_rank",
        Body::Sum(CollectiveOperation::ExclusiveScan),
    ),
    (
        "tombolo_subgroup_count",
        Body::Sum(CollectiveOperation::Reduce),
    ),
    ("tombolo_subgroup_first", Body::First),
    (
        "tombolo_subgroup_sum",
        Body::Sum(CollectiveOperation::Reduce),
    ),
];

#[derive(Debug, Clone, Copy)]
enum Body {
    Sum(CollectiveOperation),
    First,
}

/// Has the invocations of a subgroup share packets, where the services say so as well.
pub(super) fn share(module: &mut Module) {
    for (_, function) in module.functions.iter_mut() {
        let mut known = BODIES.iter();
        let body = known.find(|(name, _)| function.name.as_deref() == Some(name));
        if let Some(&(_, body)) = body {
            replace(function, body);
        }
    }
}

/// Has each invocation post packets of its own.
pub(super) fn part(module: &mut Module) {
    let names = module.functions.iter().map(|(_, f)| f.name.clone());
    let called: Vec<String> = (names.flatten())
        .filter_map(|name| Some(name.strip_prefix(ALONE)?.to_owned()))
        .collect();
    for name in called {
        fence::replace_body(module, &format!("{name}_try"), &format!("{ALONE}{name}"));
    }
}

fn replace(function: &mut Function, body: Body) {
    let Some(result) = &function.result else {
        return;
    };
    let (ty, span) = (result.ty, Span::UNDEFINED);
    function.expressions.clear();
    function.named_expressions.clear();
    let argument = match function.arguments.is_empty() {
        true => Expression::Literal(Literal::U32(1)),
        false => Expression::FunctionArgument(0),
    };
    let argument = function.expressions.append(argument, span);
    let told = Expression::SubgroupOperationResult { ty };
    let result = function.expressions.append(told, span);
    let statement = match body {
        Body::Sum(collective_op) => Statement::SubgroupCollectiveOperation {
            op: SubgroupOperation::Add,
            collective_op,
            argument,
            result,
        },
        Body::First => Statement::SubgroupGather {
            mode: GatherMode::BroadcastFirst,
            argument,
            result,
        },
    };
    function.body = Block::new();
    function.body.push(statement, span);
    let end = Statement::Return {
        value: Some(result),
    };
    function.body.push(end, span);
}
