//! Visits the expression handles inside expressions and statements, for replacement without naming
//! every kind of expression at each place of a copy.

use naga::{
    AtomicFunction, Expression, GatherMode, Handle, ImageQuery, RayPipelineFunction,
    RayQueryFunction, SampleLevel, Statement,
};

#[cfg(test)]
mod tests;

type Replace<'a, E> = &'a mut dyn FnMut(&mut Handle<Expression>) -> Result<(), E>;

fn maybe<E>(handle: &mut Option<Handle<Expression>>, f: Replace<'_, E>) -> Result<(), E> {
    handle.as_mut().map_or(Ok(()), f)
}

fn each<const N: usize, E>(
    handles: [&mut Handle<Expression>; N],
    f: Replace<'_, E>,
) -> Result<(), E> {
    handles.into_iter().try_for_each(f)
}

fn each_given<const N: usize, E>(
    handles: [&mut Option<Handle<Expression>>; N],
    f: Replace<'_, E>,
) -> Result<(), E> {
    handles.into_iter().flatten().try_for_each(f)
}

/// Calls `f` for each expression that `expression` refers to.
pub(in crate::kernel) fn operands<E>(
    expression: &mut Expression,
    f: Replace<'_, E>,
) -> Result<(), E> {
    crate::kernel::work::count(1);
    match expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::Override(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. }
        | Expression::WorkGroupUniformLoadResult { .. }
        | Expression::RayQueryProceedResult
        | Expression::SubgroupBallotResult
        | Expression::SubgroupOperationResult { .. } => Ok(()),
        Expression::Compose { components, .. } => components.iter_mut().try_for_each(f),
        Expression::Access { base, index } => each([base, index], f),
        Expression::AccessIndex { base, .. } => f(base),
        Expression::Splat { value, .. } => f(value),
        Expression::Swizzle { vector, .. } => f(vector),
        Expression::Load { pointer } => f(pointer),
        Expression::ImageSample {
            image,
            sampler,
            coordinate,
            array_index,
            offset,
            level,
            depth_ref,
            ..
        } => {
            each([image, sampler, coordinate], f)?;
            each_given([array_index, offset], f)?;
            of_level(level, f)?;
            maybe(depth_ref, f)
        }
        Expression::ImageLoad {
            image,
            coordinate,
            array_index,
            sample,
            level,
        } => {
            each([image, coordinate], f)?;
            each_given([array_index, sample, level], f)
        }
        Expression::ImageQuery { image, query } => {
            f(image)?;
            of_query(query, f)
        }
        Expression::Unary { expr, .. }
        | Expression::Derivative { expr, .. }
        | Expression::As { expr, .. } => f(expr),
        Expression::Binary { left, right, .. } => each([left, right], f),
        Expression::Select {
            condition,
            accept,
            reject,
        } => each([condition, accept, reject], f),
        Expression::Relational { argument, .. } => f(argument),
        Expression::Math {
            arg,
            arg1,
            arg2,
            arg3,
            ..
        } => {
            f(arg)?;
            each_given([arg1, arg2, arg3], f)
        }
        Expression::ArrayLength(array) => f(array),
        Expression::RayQueryVertexPositions { query, .. }
        | Expression::RayQueryGetIntersection { query, .. } => f(query),
        Expression::CooperativeLoad { data, .. } => each([&mut data.pointer, &mut data.stride], f),
        Expression::CooperativeMultiplyAdd { a, b, c } => each([a, b, c], f),
    }
}

fn of_level<E>(level: &mut SampleLevel, f: Replace<'_, E>) -> Result<(), E> {
    match level {
        SampleLevel::Auto | SampleLevel::Zero => Ok(()),
        SampleLevel::Exact(level) | SampleLevel::Bias(level) => f(level),
        SampleLevel::Gradient { x, y } => each([x, y], f),
    }
}

fn of_query<E>(query: &mut ImageQuery, f: Replace<'_, E>) -> Result<(), E> {
    match query {
        ImageQuery::Size { level } => maybe(level, f),
        ImageQuery::NumLevels | ImageQuery::NumLayers | ImageQuery::NumSamples => Ok(()),
    }
}

/// Calls `value` for each operand of `statement`, and `result` for the expression of its result. Blocks inside the
/// statement, and `Emit`, are left to the caller.
pub(in crate::kernel::passes) fn used_by<E>(
    statement: &mut Statement,
    value: Replace<'_, E>,
    result: Replace<'_, E>,
) -> Result<(), E> {
    match statement {
        Statement::Emit(_)
        | Statement::Block(_)
        | Statement::Break
        | Statement::Continue
        | Statement::Kill
        | Statement::ControlBarrier(_)
        | Statement::MemoryBarrier(_) => Ok(()),
        Statement::If { condition, .. } => value(condition),
        Statement::Switch { selector, .. } => value(selector),
        Statement::Loop { break_if, .. } => maybe(break_if, value),
        Statement::Return { value: returned } => maybe(returned, value),
        Statement::Store {
            pointer,
            value: stored,
        } => each([pointer, stored], value),
        Statement::ImageStore {
            image,
            coordinate,
            array_index,
            value: stored,
        }
        | Statement::ImageAtomic {
            image,
            coordinate,
            array_index,
            value: stored,
            ..
        } => {
            each([image, coordinate], value)?;
            maybe(array_index, value)?;
            value(stored)
        }
        Statement::Atomic {
            pointer,
            fun,
            value: operand,
            result: outcome,
        } => {
            value(pointer)?;
            of_atomic(fun, value)?;
            value(operand)?;
            maybe(outcome, result)
        }
        Statement::Call {
            arguments,
            result: outcome,
            ..
        } => {
            arguments.iter_mut().try_for_each(value)?;
            maybe(outcome, result)
        }
        Statement::RayQuery { query, fun } => {
            value(query)?;
            of_ray_query(fun, value, result)
        }
        Statement::RayPipelineFunction(RayPipelineFunction::TraceRay {
            acceleration_structure,
            descriptor,
            payload,
        }) => each([acceleration_structure, descriptor, payload], value),
        Statement::SubgroupBallot {
            result: outcome,
            predicate,
        } => {
            maybe(predicate, value)?;
            result(outcome)
        }
        Statement::SubgroupGather {
            mode,
            argument,
            result: outcome,
        } => {
            of_gather(mode, value)?;
            value(argument)?;
            result(outcome)
        }
        Statement::WorkGroupUniformLoad {
            pointer: operand,
            result: outcome,
        }
        | Statement::SubgroupCollectiveOperation {
            argument: operand,
            result: outcome,
            ..
        } => {
            value(operand)?;
            result(outcome)
        }
        Statement::CooperativeStore { target, data } => {
            each([target, &mut data.pointer, &mut data.stride], value)
        }
    }
}

fn of_atomic<E>(function: &mut AtomicFunction, value: Replace<'_, E>) -> Result<(), E> {
    match function {
        AtomicFunction::Exchange { compare } => maybe(compare, value),
        AtomicFunction::Add
        | AtomicFunction::Subtract
        | AtomicFunction::And
        | AtomicFunction::ExclusiveOr
        | AtomicFunction::InclusiveOr
        | AtomicFunction::Min
        | AtomicFunction::Max => Ok(()),
    }
}

fn of_ray_query<E>(
    function: &mut RayQueryFunction,
    value: Replace<'_, E>,
    result: Replace<'_, E>,
) -> Result<(), E> {
    match function {
        RayQueryFunction::Initialize {
            acceleration_structure,
            descriptor,
        } => each([acceleration_structure, descriptor], value),
        RayQueryFunction::Proceed { result: outcome } => result(outcome),
        RayQueryFunction::GenerateIntersection { hit_t } => value(hit_t),
        RayQueryFunction::ConfirmIntersection | RayQueryFunction::Terminate => Ok(()),
    }
}

fn of_gather<E>(mode: &mut GatherMode, value: Replace<'_, E>) -> Result<(), E> {
    match mode {
        GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => Ok(()),
        GatherMode::Broadcast(index)
        | GatherMode::Shuffle(index)
        | GatherMode::ShuffleDown(index)
        | GatherMode::ShuffleUp(index)
        | GatherMode::ShuffleXor(index)
        | GatherMode::QuadBroadcast(index) => value(index),
    }
}
