//! One invocation: its stack of running functions, and where in each of them it is.

use naga::{Block, Expression, Handle, Statement};

use super::access::Variable;
use super::collective::Pending;
use super::dispatch::World;
use super::shadow::Shadow;
use crate::fault::Fault;
use crate::memory::{self, Place, Pointee, Pointer};
use crate::report::{FunctionId, InvocationId, Site};
use crate::value::{Opaque, Value};

/// A running invocation.
pub(super) struct Invocation<'m> {
    pub id: InvocationId,
    /// Its number in its subgroup.
    pub lane: u32,
    /// Its number in the work-group.
    pub local_index: u32,
    /// Its number in the dispatch.
    pub linear: u64,
    pub workgroup_linear: u64,
    /// Private variables, then those of the running functions.
    pub memory: Vec<Variable>,
    pub frames: Vec<Frame<'m>>,
    /// What the invocation waits for.
    pub pending: Option<Pending>,
}

/// A running function.
pub(super) struct Frame<'m> {
    pub function: FunctionId,
    pub expressions: &'m naga::Arena<Expression>,
    pub values: Vec<Option<Value>>,
    pub control: Vec<Control<'m>>,
    /// How many variables the invocation had when the function was called.
    memory_before: usize,
    /// Where the caller wants the result.
    result: Option<Handle<Expression>>,
}

/// A block that is being executed.
pub(super) struct Control<'m> {
    pub block: &'m Block,
    /// The statement that comes next.
    pub next: usize,
    pub kind: ControlKind<'m>,
}

/// What a block is a part of.
pub(super) enum ControlKind<'m> {
    Plain,
    /// A branch of an `if`: 0 for the accepting one.
    Branch(u32),
    /// A case of a `switch`, by its number.
    Case {
        cases: &'m [naga::SwitchCase],
        index: usize,
    },
    LoopBody {
        parts: LoopParts<'m>,
        iteration: u32,
    },
    LoopContinuing {
        parts: LoopParts<'m>,
        iteration: u32,
    },
}

/// The parts of a loop statement.
#[derive(Clone, Copy)]
pub(super) struct LoopParts<'m> {
    pub body: &'m Block,
    pub continuing: &'m Block,
    pub break_if: Option<Handle<Expression>>,
}

/// A place in the execution of an invocation. Places are passed in ascending order, whatever the
/// invocation does, and equal places of two invocations are the same statement in the same iterations.
pub(super) type PlaceInFlow = Vec<u32>;

impl<'m> Invocation<'m> {
    /// The running function.
    pub fn frame(&self) -> Result<&Frame<'m>, Fault> {
        self.frames
            .last()
            .ok_or(Fault::Malformed("an invocation that has ended goes on"))
    }

    pub fn frame_mut(&mut self) -> Result<&mut Frame<'m>, Fault> {
        self.frames
            .last_mut()
            .ok_or(Fault::Malformed("an invocation that has ended goes on"))
    }

    /// The value of an expression of the running function.
    pub fn value(&self, handle: Handle<Expression>) -> Result<&Value, Fault> {
        self.frame()?.value(handle)
    }

    /// The pointer that an expression evaluates to.
    pub fn pointer(&self, handle: Handle<Expression>) -> Result<Pointer, Fault> {
        match self.value(handle)? {
            Value::Pointer(pointer) => Ok(*pointer),
            _ => Err(Fault::Malformed(
                "an access goes through something that is no pointer",
            )),
        }
    }

    /// Sets the value of an expression of the running function.
    pub fn set(&mut self, handle: Handle<Expression>, value: Value) -> Result<(), Fault> {
        self.frame_mut()?.values[handle.index()] = Some(value);
        Ok(())
    }

    /// The place of an expression in the kernel's text.
    pub fn expression_site(&self, handle: Handle<Expression>) -> Result<Site, Fault> {
        let frame = self.frame()?;
        Ok(Site {
            function: frame.function,
            span: frame.expressions.get_span(handle),
        })
    }

    /// The place of the statement that was fetched last.
    pub fn statement_site(&self) -> Option<Site> {
        let frame = self.frames.last()?;
        let control = frame.control.last()?;
        let (_, span) = control
            .block
            .span_iter()
            .nth(control.next.checked_sub(1)?)?;
        Some(Site {
            function: frame.function,
            span: *span,
        })
    }

    /// Where the invocation is.
    pub fn place(&self) -> PlaceInFlow {
        let mut place = Vec::new();
        for control in self.frames.iter().flat_map(|frame| &frame.control) {
            place.push(match control.kind {
                ControlKind::Plain => 0,
                ControlKind::Branch(branch) => branch,
                ControlKind::Case { index, .. } => index as u32,
                ControlKind::LoopBody { iteration, .. } => 2 * iteration,
                ControlKind::LoopContinuing { iteration, .. } => 2 * iteration + 1,
            });
            place.push(control.next as u32);
        }
        place
    }

    /// Begins a call of a function.
    pub fn call(
        &mut self,
        world: &World<'_, 'm>,
        function: FunctionId,
        arguments: &[Value],
        result: Option<Handle<Expression>>,
    ) -> Result<(), Fault> {
        let code = world.prepared.function(function);
        let template = world.prepared.template(function)?;
        let memory_before = self.memory.len();
        let mut values = template.values.clone();
        for (handle, expression) in code.expressions.iter() {
            let value = match *expression {
                Expression::FunctionArgument(index) => arguments.get(index as usize).cloned(),
                Expression::LocalVariable(variable) => Some(Value::Pointer(Pointer {
                    place: Place::Invocation(memory_before + variable.index()),
                    offset: 0,
                    pointee: Pointee::Type(code.local_variables[variable].ty),
                    space: naga::AddressSpace::Function,
                    valid: true,
                    out_of_range: None,
                })),
                Expression::GlobalVariable(variable) => Some(self.global(world, variable)?),
                _ => continue,
            };
            values[handle.index()] = value;
        }
        for ((_, variable), initial) in code.local_variables.iter().zip(&template.locals) {
            self.memory.push(world.variable(
                variable.name.clone(),
                variable.ty,
                initial.as_ref(),
            )?);
        }
        self.frames.push(Frame {
            function,
            expressions: &code.expressions,
            values,
            control: vec![Control {
                block: &code.body,
                next: 0,
                kind: ControlKind::Plain,
            }],
            memory_before,
            result,
        });
        Ok(())
    }

    /// Ends the running function.
    pub fn return_(&mut self, value: Option<Value>) -> Result<(), Fault> {
        let frame = self
            .frames
            .pop()
            .ok_or(Fault::Malformed("a return outside of functions"))?;
        self.memory.truncate(frame.memory_before);
        match (frame.result, value) {
            (Some(handle), Some(value)) if !self.frames.is_empty() => self.set(handle, value),
            _ => Ok(()),
        }
    }

    /// What an expression that names a global variable evaluates to.
    fn global(
        &self,
        world: &World<'_, '_>,
        handle: Handle<naga::GlobalVariable>,
    ) -> Result<Value, Fault> {
        let module = world.prepared.module;
        let variable = &module.global_variables[handle];
        let inner = &module.types[variable.ty].inner;
        let binding = || {
            variable
                .binding
                .ok_or(Fault::Malformed("a resource has no binding"))
        };
        let place = match (variable.space, inner) {
            (naga::AddressSpace::Handle, _) => {
                return opaque(
                    module,
                    inner,
                    Opaque {
                        binding: binding()?,
                        element: 0,
                    },
                );
            }
            (_, naga::TypeInner::BindingArray { .. }) => Place::BindingArray(binding()?),
            (naga::AddressSpace::WorkGroup, _) => Place::WorkGroup(handle),
            (naga::AddressSpace::Immediate, _) => Place::Immediate,
            (naga::AddressSpace::Private, _) => {
                let position = world.privates.iter().position(|private| *private == handle);
                Place::Invocation(
                    position.ok_or(Fault::Malformed("a private variable was not made"))?,
                )
            }
            (naga::AddressSpace::Storage { .. } | naga::AddressSpace::Uniform, _) => {
                Place::Buffer(world.range(binding()?, 0)?)
            }
            _ => {
                return Err(Fault::Unsupported(
                    "a variable of an address space that compute shaders do not have",
                ));
            }
        };
        Ok(Value::Pointer(Pointer {
            place,
            offset: 0,
            pointee: Pointee::Type(variable.ty),
            space: variable.space,
            valid: true,
            out_of_range: None,
        }))
    }
}

/// An image or a sampler, or the first of a binding array of either.
pub(super) fn opaque(
    module: &naga::Module,
    inner: &naga::TypeInner,
    which: Opaque,
) -> Result<Value, Fault> {
    match *inner {
        naga::TypeInner::Image { .. } => Ok(Value::Image(which)),
        naga::TypeInner::Sampler { .. } => Ok(Value::Sampler(which)),
        naga::TypeInner::BindingArray { base, .. } => {
            opaque(module, &module.types[base].inner, which)
        }
        _ => Err(Fault::Unsupported(
            "a resource that is no buffer, texture or sampler",
        )),
    }
}

impl<'m> Frame<'m> {
    /// The value of an expression that was evaluated already.
    pub fn value(&self, handle: Handle<Expression>) -> Result<&Value, Fault> {
        self.values[handle.index()].as_ref().ok_or(Fault::Malformed(
            "an expression is used before it is evaluated",
        ))
    }

    /// The statement that comes next, and one step on; `None` at the end of the innermost block.
    pub fn fetch(&mut self) -> Option<&'m Statement> {
        let control = self.control.last_mut()?;
        let statement = control.block.get(control.next)?;
        control.next += 1;
        Some(statement)
    }

    /// Enters a block.
    pub fn enter(&mut self, block: &'m Block, kind: ControlKind<'m>) {
        self.control.push(Control {
            block,
            next: 0,
            kind,
        });
    }
}

impl World<'_, '_> {
    /// A new variable. Memory that has no initial value is zero, and counts as unwritten.
    pub fn variable(
        &self,
        name: Option<String>,
        ty: Handle<naga::Type>,
        initial: Option<&Value>,
    ) -> Result<Variable, Fault> {
        let prepared = self.prepared;
        let size = prepared.layouts[ty].size as usize;
        let mut bytes = vec![0; size];
        let shadow = match (self.options.detect.uninitialized, initial) {
            (true, None) => Shadow::unwritten(size),
            _ => Shadow::default(),
        };
        if let Some(initial) = initial {
            memory::write(
                prepared.module,
                &prepared.layouts,
                Pointee::Type(ty),
                initial,
                &mut bytes,
            )?;
        }
        Ok(Variable {
            bytes,
            shadow,
            name,
        })
    }
}
