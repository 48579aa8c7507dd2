//! Visits the expression handles inside expressions and statements, for replacement without naming
//! every kind of expression at each place of a copy.

use naga::{
    AtomicFunction, Expression, GatherMode, Handle, RayPipelineFunction, RayQueryFunction,
    SampleLevel, Statement,
};

type Replace<'a, E> = &'a mut dyn FnMut(&mut Handle<Expression>) -> Result<(), E>;

fn maybe<E>(handle: &mut Option<Handle<Expression>>, f: Replace<'_, E>) -> Result<(), E> {
    handle.as_mut().map_or(Ok(()), f)
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
        Expression::Access { base, index } => {
            f(base)?;
            f(index)
        }
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
            f(image)?;
            f(sampler)?;
            f(coordinate)?;
            maybe(array_index, f)?;
            maybe(offset, f)?;
            match level {
                SampleLevel::Auto | SampleLevel::Zero => {}
                SampleLevel::Exact(level) | SampleLevel::Bias(level) => f(level)?,
                SampleLevel::Gradient { x, y } => {
                    f(x)?;
                    f(y)?;
                }
            }
            maybe(depth_ref, f)
        }
        Expression::ImageLoad {
            image,
            coordinate,
            array_index,
            sample,
            level,
        } => {
            f(image)?;
            f(coordinate)?;
            maybe(array_index, f)?;
            maybe(sample, f)?;
            maybe(level, f)
        }
        Expression::ImageQuery { image, query } => {
            f(image)?;
            match query {
                naga::ImageQuery::Size { level } => maybe(level, f),
                _ => Ok(()),
            }
        }
        Expression::Unary { expr, .. }
        | Expression::Derivative { expr, .. }
        | Expression::As { expr, .. } => f(expr),
        Expression::Binary { left, right, .. } => {
            f(left)?;
            f(right)
        }
        Expression::Select {
            condition,
            accept,
            reject,
        } => {
            f(condition)?;
            f(accept)?;
            f(reject)
        }
        Expression::Relational { argument, .. } => f(argument),
        Expression::Math {
            arg,
            arg1,
            arg2,
            arg3,
            ..
        } => {
            f(arg)?;
            maybe(arg1, f)?;
            maybe(arg2, f)?;
            maybe(arg3, f)
        }
        Expression::ArrayLength(array) => f(array),
        Expression::RayQueryVertexPositions { query, .. }
        | Expression::RayQueryGetIntersection { query, .. } => f(query),
        Expression::CooperativeLoad { data, .. } => {
            f(&mut data.pointer)?;
            f(&mut data.stride)
        }
        Expression::CooperativeMultiplyAdd { a, b, c } => {
            f(a)?;
            f(b)?;
            f(c)
        }
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
        } => {
            value(pointer)?;
            value(stored)
        }
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
            value(image)?;
            value(coordinate)?;
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
            if let AtomicFunction::Exchange { compare } = fun {
                maybe(compare, value)?;
            }
            value(operand)?;
            maybe(outcome, result)
        }
        Statement::WorkGroupUniformLoad {
            pointer,
            result: outcome,
        } => {
            value(pointer)?;
            result(outcome)
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
            match fun {
                RayQueryFunction::Initialize {
                    acceleration_structure,
                    descriptor,
                } => {
                    value(acceleration_structure)?;
                    value(descriptor)
                }
                RayQueryFunction::Proceed { result: outcome } => result(outcome),
                RayQueryFunction::GenerateIntersection { hit_t } => value(hit_t),
                RayQueryFunction::ConfirmIntersection | RayQueryFunction::Terminate => Ok(()),
            }
        }
        Statement::RayPipelineFunction(RayPipelineFunction::TraceRay {
            acceleration_structure,
            descriptor,
            payload,
        }) => {
            value(acceleration_structure)?;
            value(descriptor)?;
            value(payload)
        }
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
            match mode {
                GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => {}
                GatherMode::Broadcast(index)
                | GatherMode::Shuffle(index)
                | GatherMode::ShuffleDown(index)
                | GatherMode::ShuffleUp(index)
                | GatherMode::ShuffleXor(index)
                | GatherMode::QuadBroadcast(index) => value(index)?,
            }
            value(argument)?;
            result(outcome)
        }
        Statement::SubgroupCollectiveOperation {
            argument,
            result: outcome,
            ..
        } => {
            value(argument)?;
            result(outcome)
        }
        Statement::CooperativeStore { target, data } => {
            value(target)?;
            value(&mut data.pointer)?;
            value(&mut data.stride)
        }
    }
}
