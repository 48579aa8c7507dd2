//! Operations that several invocations do together, once all that take part have come.

use naga::{
    BinaryOperator, CollectiveOperation, Direction, Expression, GatherMode, Handle, MathFunction,
    Statement, SubgroupOperation,
};

use super::dispatch::World;
use super::invocation::Invocation;
use crate::fault::Fault;
use crate::memory::Pointer;
use crate::operate;
use crate::report::FindingKind;
use crate::value::{Scalar, Value, Vector};

/// What an invocation waits for.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// A barrier. One that names the subgroup alone concerns the subgroup.
    Barrier(naga::Barrier),
    UniformLoad {
        pointer: Pointer,
        result: Handle<Expression>,
    },
    Subgroup {
        operation: Operation,
        result: Handle<Expression>,
    },
}

/// An operation of a subgroup, with this invocation's operands.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Ballot(bool),
    /// The value of another lane.
    Gather {
        source: Source,
        argument: Value,
    },
    Combine {
        operation: SubgroupOperation,
        collective: CollectiveOperation,
        argument: Value,
    },
}

/// Which lane a value comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    First,
    Lane(u32),
}

impl Pending {
    /// True where the invocations of a subgroup wait for each other, and not those of a work-group.
    pub fn is_of_subgroup(&self) -> bool {
        match self {
            Pending::Barrier(barrier) => *barrier == naga::Barrier::SUB_GROUP,
            Pending::UniformLoad { .. } => false,
            Pending::Subgroup { .. } => true,
        }
    }

    /// What a statement waits for, which has to be one that waits.
    pub fn of(invocation: &Invocation<'_>, statement: &Statement) -> Result<Pending, Fault> {
        match *statement {
            Statement::ControlBarrier(barrier) => Ok(Pending::Barrier(barrier)),
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let pointer = invocation.pointer(pointer)?;
                Ok(Pending::UniformLoad { pointer, result })
            }
            _ => Pending::subgroup(invocation, statement),
        }
    }

    /// The subgroup operation of a statement.
    fn subgroup(invocation: &Invocation<'_>, statement: &Statement) -> Result<Pending, Fault> {
        let (operation, result) = match *statement {
            Statement::SubgroupBallot { predicate, result } => {
                let predicate = match predicate {
                    Some(predicate) => invocation.value(predicate)?.scalar().and_then(Scalar::bool),
                    None => Some(true),
                };
                (
                    Operation::Ballot(
                        predicate.ok_or(Fault::Malformed("a ballot's predicate is no boolean"))?,
                    ),
                    result,
                )
            }
            Statement::SubgroupGather {
                mode,
                argument,
                result,
            } => {
                let source = source(invocation, mode)?;
                (
                    Operation::Gather {
                        source,
                        argument: invocation.value(argument)?.clone(),
                    },
                    result,
                )
            }
            Statement::SubgroupCollectiveOperation {
                op,
                collective_op,
                argument,
                result,
            } => {
                let argument = invocation.value(argument)?.clone();
                (
                    Operation::Combine {
                        operation: op,
                        collective: collective_op,
                        argument,
                    },
                    result,
                )
            }
            _ => return Err(Fault::Malformed("a statement is no subgroup operation")),
        };
        Ok(Pending::Subgroup { operation, result })
    }
}

fn source(invocation: &Invocation<'_>, mode: GatherMode) -> Result<Source, Fault> {
    let operand = |handle| match invocation.value(handle)?.scalar() {
        Some(Scalar::U32(value)) => Ok(value),
        Some(Scalar::I32(value)) => Ok(value as u32),
        _ => Err(Fault::Malformed("a lane's number is no integer")),
    };
    let own = invocation.lane;
    Ok(match mode {
        GatherMode::BroadcastFirst => Source::First,
        GatherMode::Broadcast(lane) | GatherMode::Shuffle(lane) => Source::Lane(operand(lane)?),
        GatherMode::ShuffleDown(delta) => Source::Lane(own.wrapping_add(operand(delta)?)),
        GatherMode::ShuffleUp(delta) => Source::Lane(own.wrapping_sub(operand(delta)?)),
        GatherMode::ShuffleXor(mask) => Source::Lane(own ^ operand(mask)?),
        GatherMode::QuadBroadcast(lane) => Source::Lane((own & !3) | (operand(lane)? & 3)),
        GatherMode::QuadSwap(Direction::X) => Source::Lane(own ^ 1),
        GatherMode::QuadSwap(Direction::Y) => Source::Lane(own ^ 2),
        GatherMode::QuadSwap(Direction::Diagonal) => Source::Lane(own ^ 3),
    })
}

impl World<'_, '_> {
    /// Does what the invocations at `active` wait for. All wait for the same operation, and they are
    /// in the order of their lanes.
    pub fn resolve_subgroup(
        &mut self,
        invocations: &mut [Invocation<'_>],
        active: &[usize],
    ) -> Result<(), Fault> {
        let mut operations = Vec::with_capacity(active.len());
        for &index in active {
            match invocations[index].pending.take() {
                Some(Pending::Barrier(_)) => {}
                Some(Pending::Subgroup { operation, result }) => {
                    operations.push((index, operation, result))
                }
                _ => return Err(Fault::Malformed("a subgroup waits for something else")),
            }
        }
        let lanes: Vec<u32> = active
            .iter()
            .map(|&index| invocations[index].lane)
            .collect();
        for (position, (index, operation, result)) in operations.iter().enumerate() {
            let value = match operation {
                Operation::Ballot(_) => ballot(&operations, &lanes),
                Operation::Gather { source, argument } => {
                    let lane = match source {
                        Source::First => lanes[0],
                        Source::Lane(lane) => *lane,
                    };
                    match lanes.iter().position(|active| *active == lane) {
                        Some(from) => match &operations[from].1 {
                            Operation::Gather { argument, .. } => argument.clone(),
                            _ => return Err(DIFFERENT),
                        },
                        None => {
                            let site = invocations[*index].statement_site();
                            if self.options.detect.inactive_lanes
                                && let Some(site) = site
                            {
                                self.report(
                                    FindingKind::InactiveLane { lane },
                                    None,
                                    &invocations[*index],
                                    site,
                                );
                            }
                            argument.clone()
                        }
                    }
                }
                Operation::Combine {
                    operation,
                    collective,
                    argument,
                } => {
                    let range = match collective {
                        CollectiveOperation::Reduce => 0..operations.len(),
                        CollectiveOperation::InclusiveScan => 0..position + 1,
                        CollectiveOperation::ExclusiveScan => 0..position,
                    };
                    combine(*operation, &operations[range], argument)?
                }
            };
            invocations[*index].set(*result, value)?;
        }
        Ok(())
    }
}

const DIFFERENT: Fault =
    Fault::Malformed("lanes of a subgroup do different operations at one place");

/// One lane's operation, and where its result goes.
type LaneOperation = (usize, Operation, Handle<Expression>);

fn ballot(operations: &[LaneOperation], lanes: &[u32]) -> Value {
    let mut words = [0u32; 4];
    for ((_, operation, _), lane) in operations.iter().zip(lanes) {
        if let Operation::Ballot(true) = operation {
            words[*lane as usize / 32] |= 1 << (lane % 32);
        }
    }
    let components = words.map(Scalar::U32);
    let mut vector = Vector::splat(naga::VectorSize::Quad, components[0]);
    if let Some(all) = Vector::new(&components) {
        vector = all;
    }
    vector.into()
}

/// Combines the operands of some lanes, in their order. Without lanes: the operation's identity, of
/// the type of `like`.
fn combine(
    operation: SubgroupOperation,
    lanes: &[LaneOperation],
    like: &Value,
) -> Result<Value, Fault> {
    let mut result = None;
    for (_, operand, _) in lanes {
        let Operation::Combine { argument, .. } = operand else {
            return Err(DIFFERENT);
        };
        result = Some(match result {
            None => argument.clone(),
            Some(so_far) => step(operation, &so_far, argument).ok_or(Fault::Malformed(
                "a subgroup operation does not take operands of this type",
            ))?,
        });
    }
    let identity = || {
        like.map(|scalar| {
            let one = operation == SubgroupOperation::Mul;
            match scalar.ty().kind {
                naga::ScalarKind::Float => Scalar::rounded(scalar.ty(), f64::from(u8::from(one))),
                _ => Scalar::wrapped(scalar.ty(), one.into()),
            }
        })
    };
    result.or_else(identity).ok_or(Fault::Malformed(
        "an exclusive scan of a type without identity",
    ))
}

fn step(operation: SubgroupOperation, a: &Value, b: &Value) -> Option<Value> {
    use SubgroupOperation as Op;
    let operator = match operation {
        Op::Min => return operate::math(MathFunction::Min, &[a, b]),
        Op::Max => return operate::math(MathFunction::Max, &[a, b]),
        Op::Add => BinaryOperator::Add,
        Op::Mul => BinaryOperator::Multiply,
        Op::All | Op::And => BinaryOperator::And,
        Op::Any | Op::Or => BinaryOperator::InclusiveOr,
        Op::Xor => BinaryOperator::ExclusiveOr,
    };
    operate::binary(operator, a, b)
}
