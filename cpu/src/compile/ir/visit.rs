//! Walks over statements, for passes with the same question for each statement.

use super::{Base, BindingAt, Block, Case, Count, Op, Place, Program, Statement, Value, Variable};

/// Calls `f` with each operand of an operation.
pub(crate) fn operands(op: &Op, mut f: impl FnMut(Value)) {
    match *op {
        Op::Const(_) | Op::Builtin(_) | Op::Get(_) | Op::Result => {}
        Op::Length(at) => binding_operands(at, &mut f),
        Op::Unary(_, a) | Op::Convert(_, a) => f(a),
        Op::Binary(_, a, b) | Op::Compare(_, a, b) => {
            f(a);
            f(b);
        }
        Op::Select {
            condition,
            accept,
            reject,
        } => {
            f(condition);
            f(accept);
            f(reject);
        }
        Op::MultiplyAdd(a, b, c) => {
            f(a);
            f(b);
            f(c);
        }
    }
}

/// `op` with each operand replaced.
pub(crate) fn map_operands(op: Op, mut f: impl FnMut(Value) -> Value) -> Op {
    match op {
        Op::Const(_) | Op::Builtin(_) | Op::Get(_) | Op::Result => op,
        Op::Length(at) => Op::Length(map_binding(at, &mut f)),
        Op::Unary(unary, a) => Op::Unary(unary, f(a)),
        Op::Binary(binary, a, b) => Op::Binary(binary, f(a), f(b)),
        Op::Compare(comparison, a, b) => Op::Compare(comparison, f(a), f(b)),
        Op::Select {
            condition,
            accept,
            reject,
        } => Op::Select {
            condition: f(condition),
            accept: f(accept),
            reject: f(reject),
        },
        Op::Convert(conversion, a) => Op::Convert(conversion, f(a)),
        Op::MultiplyAdd(a, b, c) => Op::MultiplyAdd(f(a), f(b), f(c)),
    }
}

fn binding_operands(at: BindingAt, f: &mut impl FnMut(Value)) {
    if let Some((index, _)) = at.index {
        f(index);
    }
}

/// `at` with the value of its index replaced.
pub(crate) fn map_binding(at: BindingAt, f: &mut impl FnMut(Value) -> Value) -> BindingAt {
    BindingAt {
        first: at.first,
        index: at.index.map(|(index, count)| (f(index), count)),
    }
}

/// Calls `f` with each value in the address of a place.
pub(crate) fn place_operands(place: &Place, mut f: impl FnMut(Value)) {
    if let Base::Binding(at) = place.base {
        binding_operands(at, &mut f);
    }
    for step in &place.steps {
        f(step.index);
        if let Count::Bound(at) = step.count {
            binding_operands(at, &mut f);
        }
    }
}

/// `place` with each value in its address replaced.
pub(crate) fn map_place(place: &Place, mut f: impl FnMut(Value) -> Value) -> Place {
    let mut place = place.clone();
    if let Base::Binding(at) = &mut place.base {
        *at = map_binding(*at, &mut f);
    }
    for step in &mut place.steps {
        step.index = f(step.index);
        if let Count::Bound(at) = &mut step.count {
            *at = map_binding(*at, &mut f);
        }
    }
    place
}

/// Calls `f` with each value read by a statement itself, not by the blocks inside.
pub(crate) fn uses(program: &Program, statement: &Statement, mut f: impl FnMut(Value)) {
    match statement {
        Statement::Let(value) => operands(&program.values[*value].op, f),
        Statement::Set(_, value) => f(*value),
        Statement::Load { place, .. } => place_operands(place, f),
        Statement::Store { place, leaves, .. } => {
            place_operands(place, &mut f);
            for leaf in leaves {
                f(leaf.value);
            }
        }
        Statement::Atomic(atomic) => {
            place_operands(&atomic.place, &mut f);
            f(atomic.value);
            if let Some(compare) = atomic.compare {
                f(compare);
            }
        }
        Statement::Call(call) => {
            for &at in &call.resources {
                binding_operands(at, &mut f);
            }
            call.operands.iter().for_each(|&operand| f(operand));
        }
        Statement::Subgroup(operation) => {
            operation.operands.iter().for_each(|&operand| f(operand));
            operation.passes.iter().for_each(|&(_, passes)| f(passes));
        }
        Statement::If { condition, .. } => f(*condition),
        Statement::Switch { selector, .. } => f(*selector),
        Statement::Loop { .. }
        | Statement::Scope { .. }
        | Statement::Exit(_)
        | Statement::Continue(_)
        | Statement::Barrier(_) => {}
    }
}

/// Replaces each value read by a statement itself, not by the blocks inside.
pub(crate) fn map_uses(
    program: &mut Program,
    statement: &mut Statement,
    mut f: impl FnMut(&mut Program, Value) -> Value,
) {
    match statement {
        Statement::Let(value) => {
            let op = program.values[*value].op;
            program.values[*value].op = map_operands(op, |value| f(program, value));
        }
        Statement::Set(_, value) => *value = f(program, *value),
        Statement::Load { place, .. } => *place = map_place(place, |value| f(program, value)),
        Statement::Store { place, leaves, .. } => {
            *place = map_place(place, |value| f(program, value));
            for leaf in leaves {
                leaf.value = f(program, leaf.value);
            }
        }
        Statement::Atomic(atomic) => {
            atomic.place = map_place(&atomic.place, |value| f(program, value));
            atomic.value = f(program, atomic.value);
            atomic.compare = atomic.compare.map(|compare| f(program, compare));
        }
        Statement::Call(call) => {
            for at in &mut call.resources {
                *at = map_binding(*at, &mut |value| f(program, value));
            }
            for operand in &mut call.operands {
                *operand = f(program, *operand);
            }
        }
        Statement::Subgroup(operation) => {
            for operand in &mut operation.operands {
                *operand = f(program, *operand);
            }
            for (_, passes) in &mut operation.passes {
                *passes = f(program, *passes);
            }
        }
        Statement::If { condition, .. } => *condition = f(program, *condition),
        Statement::Switch { selector, .. } => *selector = f(program, *selector),
        Statement::Loop { .. }
        | Statement::Scope { .. }
        | Statement::Exit(_)
        | Statement::Continue(_)
        | Statement::Barrier(_) => {}
    }
}

/// Calls `f` with each value defined by a statement itself.
pub(crate) fn definitions(statement: &Statement, mut f: impl FnMut(Value)) {
    match statement {
        Statement::Let(value) => f(*value),
        Statement::Load { leaves, .. } => leaves.iter().for_each(|leaf| f(leaf.value)),
        Statement::Atomic(atomic) => {
            f(atomic.result);
            if let Some(exchanged) = atomic.exchanged {
                f(exchanged);
            }
        }
        Statement::Call(call) => call.results.iter().for_each(|&result| f(result)),
        Statement::Subgroup(operation) => operation.results.iter().for_each(|&result| f(result)),
        _ => {}
    }
}

/// Calls `$f` with references to the blocks directly inside a statement, of the same kind as `$statement`.
macro_rules! each_block {
    ($statement:expr, $f:ident) => {
        match $statement {
            Statement::If { accept, reject, .. } => {
                $f(accept);
                $f(reject);
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                $f(body);
                $f(continuing);
            }
            Statement::Scope { body, .. } => $f(body),
            Statement::Switch { cases, default, .. } => {
                for Case { body, .. } in cases {
                    $f(body);
                }
                $f(default);
            }
            _ => {}
        }
    };
}

/// Calls `f` with each block directly inside a statement, in the order of the text.
pub(crate) fn blocks<'a>(statement: &'a Statement, mut f: impl FnMut(&'a Block)) {
    each_block!(statement, f);
}

/// As [`blocks`], to change them.
pub(crate) fn blocks_mut(statement: &mut Statement, mut f: impl FnMut(&mut Block)) {
    each_block!(statement, f);
}

/// Calls `f` with each statement of a block and of the blocks inside, outer ones first.
pub(crate) fn statements<'a>(block: &'a Block, f: &mut impl FnMut(&'a Statement)) {
    for statement in block {
        f(statement);
        blocks(statement, |inner| statements(inner, f));
    }
}

/// Whether `f` says yes to a statement of a block, or of a block inside.
pub(crate) fn any(block: &Block, f: &mut impl FnMut(&Statement) -> bool) -> bool {
    block.iter().any(|statement| {
        if f(statement) {
            return true;
        }
        let mut found = false;
        blocks(statement, |inner| found = found || any(inner, f));
        found
    })
}

/// The variables assigned by a block.
pub(crate) fn assigned(block: &Block, f: &mut impl FnMut(Variable)) {
    statements(block, &mut |statement| {
        if let Statement::Set(variable, _) = statement {
            f(*variable);
        }
    });
}

/// Whether invocations may wait for one another somewhere in a block: at a barrier, or at an operation of a subgroup.
pub(crate) fn has_meeting(block: &Block) -> bool {
    has_barrier(block) || has_subgroups(block)
}

/// Whether the invocations of a work-group wait for one another somewhere in a block.
pub(crate) fn has_barrier(block: &Block) -> bool {
    any(
        block,
        &mut |statement| matches!(statement, Statement::Barrier(barrier) if barrier.waits),
    )
}

/// Whether a block has an operation of subgroups.
pub(crate) fn has_subgroups(block: &Block) -> bool {
    any(block, &mut |statement| {
        matches!(statement, Statement::Subgroup(_))
    })
}
