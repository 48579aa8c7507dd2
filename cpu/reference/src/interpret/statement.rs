//! The execution of statements, one at a time.

use naga::{Block, Expression, Handle, Statement, SwitchValue};

use super::collective::Pending;
use super::dispatch::World;
use super::evaluate;
use super::invocation::{Control, ControlKind, Invocation, LoopParts};
use crate::fault::Fault;
use crate::memory::{Place, Pointer};
use crate::report::{FindingKind, FunctionId, Site};
use crate::value::{Opaque, Scalar, Value};

impl<'m> World<'_, 'm> {
    /// Runs an invocation up to where it ends or waits for others.
    pub fn run(&mut self, invocation: &mut Invocation<'m>) -> Result<(), Fault> {
        while invocation.pending.is_none() && !invocation.frames.is_empty() {
            self.steps += 1;
            if self.steps > self.options.step_limit {
                return Err(Fault::StepLimit {
                    limit: self.options.step_limit,
                });
            }
            match invocation.frame_mut()?.fetch() {
                Some(statement) => self.execute(invocation, statement)?,
                None => self.leave_block(invocation)?,
            }
        }
        Ok(())
    }

    /// What happens at the end of a block.
    fn leave_block(&mut self, invocation: &mut Invocation<'m>) -> Result<(), Fault> {
        let frame = invocation.frame_mut()?;
        let Some(Control { kind, .. }) = frame.control.pop() else {
            return invocation.return_(None);
        };
        match kind {
            ControlKind::Plain | ControlKind::Branch(_) => {}
            ControlKind::Case { cases, index } => {
                if cases[index].fall_through
                    && let Some(next) = cases.get(index + 1)
                {
                    frame.enter(
                        &next.body,
                        ControlKind::Case {
                            cases,
                            index: index + 1,
                        },
                    );
                }
            }
            ControlKind::LoopBody { parts, iteration } => {
                frame.enter(
                    parts.continuing,
                    ControlKind::LoopContinuing { parts, iteration },
                );
            }
            ControlKind::LoopContinuing { parts, iteration } => {
                let ends = match parts.break_if {
                    Some(condition) => truth(frame.value(condition)?)?,
                    None => false,
                };
                if !ends {
                    frame.enter(
                        parts.body,
                        ControlKind::LoopBody {
                            parts,
                            iteration: iteration + 1,
                        },
                    );
                }
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        invocation: &mut Invocation<'m>,
        statement: &'m Statement,
    ) -> Result<(), Fault> {
        match *statement {
            Statement::Emit(ref range) => range
                .clone()
                .try_for_each(|handle| self.emit(invocation, handle)),
            Statement::Block(ref block) => enter(invocation, block, ControlKind::Plain),
            Statement::If {
                condition,
                ref accept,
                ref reject,
            } => {
                let holds = truth(invocation.value(condition)?)?;
                let (block, branch) = if holds { (accept, 0) } else { (reject, 1) };
                enter(invocation, block, ControlKind::Branch(branch))
            }
            Statement::Switch {
                selector,
                ref cases,
            } => switch(invocation, selector, cases),
            Statement::Loop {
                ref body,
                ref continuing,
                break_if,
            } => {
                let parts = LoopParts {
                    body,
                    continuing,
                    break_if,
                };
                let iteration = 0;
                enter(invocation, body, ControlKind::LoopBody { parts, iteration })
            }
            Statement::Break => leave(invocation, true),
            Statement::Continue => leave(invocation, false),
            Statement::Return { value } => {
                let value = value
                    .map(|value| invocation.value(value).cloned())
                    .transpose()?;
                invocation.return_(value)
            }
            Statement::Store { pointer, value } => {
                let (target, value) = (
                    invocation.pointer(pointer)?,
                    invocation.value(value)?.clone(),
                );
                let site = self.site(invocation, pointer)?;
                self.store(invocation, &target, &value, site)
            }
            Statement::Atomic {
                pointer,
                fun,
                value,
                result,
            } => self.atomic(invocation, pointer, fun, value, result),
            Statement::Call {
                function,
                ref arguments,
                result,
            } => {
                let arguments: Vec<Value> = arguments
                    .iter()
                    .map(|argument| invocation.value(*argument).cloned())
                    .collect::<Result<_, _>>()?;
                invocation.call(self, FunctionId::Function(function), &arguments, result)
            }
            Statement::ImageStore {
                image,
                coordinate,
                array_index,
                value,
            } => self.image_store(invocation, image, coordinate, array_index, value),
            Statement::ImageAtomic {
                image,
                coordinate,
                array_index,
                fun,
                value,
            } => self.image_atomic(invocation, image, coordinate, array_index, fun, value),
            Statement::MemoryBarrier(_) => Ok(()),
            Statement::ControlBarrier(_)
            | Statement::WorkGroupUniformLoad { .. }
            | Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. } => {
                invocation.pending = Some(Pending::of(invocation, statement)?);
                Ok(())
            }
            Statement::Kill => Err(Fault::Unsupported(
                "`discard`, which compute shaders do not have",
            )),
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => {
                Err(Fault::Unsupported("ray tracing"))
            }
            Statement::CooperativeStore { .. } => Err(Fault::Unsupported("cooperative matrices")),
        }
    }

    /// The place of a statement's access: that of its pointer, which spans the left-hand side.
    fn site(
        &self,
        invocation: &Invocation<'m>,
        pointer: Handle<Expression>,
    ) -> Result<Site, Fault> {
        match invocation.statement_site() {
            Some(site) if site.span.is_defined() => Ok(site),
            _ => invocation.expression_site(pointer),
        }
    }

    fn emit(
        &mut self,
        invocation: &mut Invocation<'m>,
        handle: Handle<Expression>,
    ) -> Result<(), Fault> {
        let frame = invocation.frame()?;
        let expression = &frame.expressions[handle];
        if let Some(value) = evaluate_place(self, invocation, handle, expression)? {
            return invocation.set(handle, value);
        }
        let value = match *expression {
            Expression::Load { pointer } => {
                let (source, site) = (
                    invocation.pointer(pointer)?,
                    invocation.expression_site(handle)?,
                );
                self.load(invocation, &source, site)?
            }
            Expression::ImageSample { .. }
            | Expression::ImageLoad { .. }
            | Expression::ImageQuery { .. } => self.image_expression(invocation, expression)?,
            Expression::Derivative { .. } => {
                return Err(Fault::Unsupported(
                    "derivatives, which compute shaders do not have",
                ));
            }
            _ => evaluate::pure(self.prepared, expression, |operand| {
                invocation.value(operand)
            })?
            .ok_or(Fault::Unsupported(
                "an expression that compute WGSL does not have",
            ))?,
        };
        invocation.set(handle, value)
    }

    /// An element of a value that is no pointer, by the policy for those.
    fn value_element(
        &mut self,
        invocation: &Invocation<'m>,
        base: &Value,
        index: i64,
        site: Site,
    ) -> Result<Value, Fault> {
        use naga::proc::BoundsCheckPolicy as Policy;
        let length = evaluate::elements(base).ok_or(Fault::Malformed(
            "something is indexed that has no elements",
        ))?;
        let found = u64::try_from(index)
            .ok()
            .and_then(|index| evaluate::element(base, index));
        if let Some(found) = found {
            return Ok(found);
        }
        if self.options.detect.out_of_range {
            self.report(
                FindingKind::OutOfRange { index, length },
                None,
                invocation,
                site,
            );
        }
        let restricted = u64::from(index as u32).min(length.saturating_sub(1));
        let element = evaluate::element(base, restricted);
        match self.options.policies.index {
            Policy::Restrict => element.ok_or(Fault::OutOfRange {
                index,
                length,
                site,
            }),
            Policy::ReadZeroSkipWrite => element
                .and_then(|element| element.map(|scalar| Scalar::zero(scalar.ty())))
                .ok_or(Fault::Unsupported(
                    "an array value indexed out of range, read as zero",
                )),
            Policy::Unchecked => Err(Fault::OutOfRange {
                index,
                length,
                site,
            }),
        }
    }

    /// One resource of a binding array.
    fn resource_element(
        &self,
        base: &Value,
        index: i64,
        site: Site,
    ) -> Result<Option<Value>, Fault> {
        let element = || {
            u32::try_from(index).map_err(|_| Fault::OutOfRange {
                index,
                length: 0,
                site,
            })
        };
        Ok(match *base {
            Value::Image(Opaque { binding, .. }) => Some(Value::Image(Opaque {
                binding,
                element: element()?,
            })),
            Value::Sampler(Opaque { binding, .. }) => Some(Value::Sampler(Opaque {
                binding,
                element: element()?,
            })),
            Value::Pointer(Pointer {
                place: Place::BindingArray(binding),
                pointee,
                space,
                ..
            }) => {
                let range = self.range(binding, element()?)?;
                let pointee = self.binding_array_base(pointee)?;
                Some(Value::Pointer(Pointer {
                    place: Place::Buffer(range),
                    offset: 0,
                    pointee,
                    space,
                    valid: true,
                    out_of_range: None,
                }))
            }
            _ => None,
        })
    }
}

/// Evaluates expressions that choose an element, and the length of arrays; `None` for others.
fn evaluate_place<'m>(
    world: &mut World<'_, 'm>,
    invocation: &Invocation<'m>,
    handle: Handle<Expression>,
    expression: &Expression,
) -> Result<Option<Value>, Fault> {
    let site = invocation.expression_site(handle)?;
    let (base, index, fixed) = match *expression {
        Expression::Access { base, index } => {
            let index = invocation.value(index)?.scalar().and_then(Scalar::index);
            (
                base,
                index.ok_or(Fault::Malformed("an index is no integer"))?,
                false,
            )
        }
        Expression::AccessIndex { base, index } => (base, index.into(), true),
        Expression::ArrayLength(array) => {
            let array = invocation.pointer(array)?;
            return world.array_length(&array).map(|length| Some(length.into()));
        }
        _ => return Ok(None),
    };
    let base = invocation.value(base)?;
    if let Some(resource) = world.resource_element(base, index, site)? {
        return Ok(Some(resource));
    }
    match base {
        Value::Pointer(pointer) if fixed => world
            .member(*pointer, index as u32, site)
            .map(|pointer| Some(Value::Pointer(pointer))),
        Value::Pointer(pointer) => world
            .element(*pointer, index, site)
            .map(|pointer| Some(Value::Pointer(pointer))),
        _ if fixed => Ok(None),
        base => world.value_element(invocation, base, index, site).map(Some),
    }
}

fn enter<'m>(
    invocation: &mut Invocation<'m>,
    block: &'m Block,
    kind: ControlKind<'m>,
) -> Result<(), Fault> {
    invocation.frame_mut()?.enter(block, kind);
    Ok(())
}

fn truth(value: &Value) -> Result<bool, Fault> {
    value
        .scalar()
        .and_then(Scalar::bool)
        .ok_or(Fault::Malformed("a condition is no boolean"))
}

fn switch<'m>(
    invocation: &mut Invocation<'m>,
    selector: Handle<Expression>,
    cases: &'m [naga::SwitchCase],
) -> Result<(), Fault> {
    let selector = invocation
        .value(selector)?
        .scalar()
        .ok_or(Fault::Malformed("a selector is no scalar"))?;
    let chosen = cases.iter().position(|case| match case.value {
        SwitchValue::I32(value) => selector == Scalar::I32(value),
        SwitchValue::U32(value) => selector == Scalar::U32(value),
        SwitchValue::Default => false,
    });
    let default = || {
        cases
            .iter()
            .position(|case| case.value == SwitchValue::Default)
    };
    let index = chosen
        .or_else(default)
        .ok_or(Fault::Malformed("a switch has no default"))?;
    invocation
        .frame_mut()?
        .enter(&cases[index].body, ControlKind::Case { cases, index });
    Ok(())
}

/// Leaves blocks up to the innermost loop, or for a `break` the innermost loop or `switch`.
fn leave(invocation: &mut Invocation<'_>, breaks: bool) -> Result<(), Fault> {
    let frame = invocation.frame_mut()?;
    while let Some(control) = frame.control.pop() {
        match control.kind {
            ControlKind::Case { .. } if breaks => return Ok(()),
            ControlKind::LoopBody { parts, iteration } => {
                if !breaks {
                    frame.enter(
                        parts.continuing,
                        ControlKind::LoopContinuing { parts, iteration },
                    );
                }
                return Ok(());
            }
            ControlKind::LoopContinuing { .. } => {
                return Err(Fault::Malformed(
                    "`break` or `continue` in the continuing part of its loop",
                ));
            }
            _ => {}
        }
    }
    Err(Fault::Malformed("`break` or `continue` outside of loops"))
}
