//! From naga's IR to lane programs: functions are inlined, values are taken apart into scalars, pointers become places.
//!
//! *How it works.* A [`Frame`] stands for a call in the course of inlining, and knows the lowered form of each
//! expression of its function ([`Node`]). Expressions are evaluated where naga emits them. Every variable of a function
//! begins as a slot of memory; [`passes`](super::passes) makes scalars of slots without need for memory.

mod atomic;
mod builtin;
mod check;
mod constant;
mod expression;
mod function;
mod geometry;
mod image;
mod lanes;
mod math;
mod operator;
mod overflow;
mod pointer;
mod statement;
mod subgroup;
mod transcendental;

use std::{collections::HashMap, rc::Rc};

use naga::{AddressSpace, Handle, StorageAccess, TypeInner};

use super::{
    error::{CompileError, Result, internal, unsupported},
    ir::{
        Access, Base, Binding, BindingAt, BindingUse, Place, Program, Scope, Statement, Table,
        Value, Variable, build::Builder, visit,
    },
    layout::{Layouts, Space, Ty, array_count},
};
use crate::sanitizer::Instruments;

/// The most values in a kernel once all calls are inlined.
const MAX_VALUES: usize = 1 << 21;

/// The lowered form of an expression.
#[derive(Clone, Debug)]
enum Node {
    /// A value, taken apart
    Scalars(Rc<[Value]>),
    /// A pointer
    Pointer(Rc<Pointer>),
    /// A value of too many scalars: memory that nobody else writes
    Memory(Rc<Pointer>),
    /// A texture or sampler
    Resource(BindingAt),
    /// Arrays of bindings, before one is selected
    Bindings {
        first: Binding,
        count: u32,
        ty: Handle<naga::Type>,
        access: Access,
    },
}

/// A place and the type of its content.
#[derive(Clone, Debug)]
struct Pointer {
    place: Place,
    ty: Ty,
    access: Access,
}

impl Pointer {
    fn space(&self) -> Space {
        if self.place.base.is_own() {
            Space::Own
        } else {
            Space::Host
        }
    }
}

/// Where a function puts its result.
enum Returned {
    Nothing,
    Scalars(Vec<Variable>),
    Memory(Rc<Pointer>),
}

/// A call in the course of inlining.
struct Frame<'a> {
    function: &'a naga::Function,
    /// For reports
    name: std::sync::Arc<str>,
    info: &'a naga::valid::FunctionInfo,
    /// By index of expression
    nodes: Vec<Option<Node>>,
    locals: HashMap<Handle<naga::LocalVariable>, Rc<Pointer>>,
    arguments: Vec<Node>,
    scope: Scope,
    returned: Returned,
    /// The targets of `break` and `continue`: innermost last
    breaks: Vec<Scope>,
    continues: Vec<Scope>,
}

struct Front<'a> {
    module: &'a naga::Module,
    info: &'a naga::valid::ModuleInfo,
    layouts: Layouts<'a>,
    b: Builder,
    globals: HashMap<Handle<naga::GlobalVariable>, Node>,
    constants: HashMap<Handle<naga::Expression>, Node>,
    tables: HashMap<Vec<u8>, Table>,
    frames: Vec<Frame<'a>>,
    inspector: check::Inspector,
}

/// The lane program of the entry point with index `entry`. Overrides must have been substituted.
///
/// # Errors
/// If the kernel uses a feature missing from this adapter, or more than the adapter allows.
pub(crate) fn lower(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: usize,
    instruments: Instruments,
) -> Result<Program> {
    let point = &module.entry_points[entry];
    let mut front = Front {
        module,
        info,
        layouts: Layouts { module },
        b: Builder::new(Program {
            name: point.name.clone(),
            workgroup_size: point.workgroup_size,
            ..Program::default()
        }),
        globals: HashMap::new(),
        constants: HashMap::new(),
        tables: HashMap::new(),
        frames: Vec::new(),
        inspector: check::Inspector::new(instruments),
    };
    let used = info.get_entry_point(entry);
    for (handle, variable) in module.global_variables.iter() {
        if !used[handle].is_empty() {
            let node = front.global(variable)?;
            front.name_global(variable, &node);
            front.globals.insert(handle, node);
        }
    }
    front.initialize_private(used)?;
    front.entry(point, used)?;
    front.check_end();
    let sites = front.inspector.sites();
    let mut program = front.b.finish();
    program.sites = sites;
    forget_constancy(&mut program);
    Ok(program)
}

/// A kernel able to synchronise with others may learn from them of a changed buffer, so only uniform buffers stay
/// constant to such a kernel.
fn forget_constancy(program: &mut Program) {
    let synchronises = visit::any(&program.body, &mut |statement| {
        matches!(
            statement,
            Statement::Atomic(_)
                | Statement::Barrier(_)
                | Statement::Subgroup(_)
                | Statement::Load {
                    access: Access::Atomic,
                    ..
                }
        )
    });
    if synchronises {
        for used in program.bindings.values_mut() {
            used.constant &= used.uniform;
        }
    }
}

impl<'a> Front<'a> {
    fn global(&mut self, variable: &naga::GlobalVariable) -> Result<Node> {
        let ty = Ty::Handle(variable.ty);
        let base = match variable.space {
            AddressSpace::Uniform | AddressSpace::Storage { .. } => return self.buffer(variable),
            AddressSpace::Private => {
                let bytes = self.layouts.bytes(ty, Space::Own)?;
                Place::new(Base::Slot(self.b.program.slots.push(bytes)), 0)
            }
            AddressSpace::WorkGroup => {
                let bytes = self.layouts.bytes(ty, Space::Own)?;
                let offset = self.b.program.workgroup_bytes.next_multiple_of(16);
                self.b.program.workgroup_bytes =
                    offset
                        .checked_add(bytes)
                        .ok_or_else(|| CompileError::TooLarge {
                            what: "work-group memory".into(),
                            needed: u64::from(offset) + u64::from(bytes),
                            limit: u64::from(u32::MAX),
                            remedy: "keep so much data in a storage buffer",
                        })?;
                Place::new(Base::WorkGroup, offset)
            }
            AddressSpace::Immediate => Place::new(Base::Immediates, 0),
            AddressSpace::Handle => return self.handle(variable),
            space => return Err(unsupported(format!("variables of {space:?}"))),
        };
        Ok(Node::Pointer(Rc::new(Pointer {
            place: base,
            ty,
            access: Access::Plain,
        })))
    }

    fn buffer(&mut self, variable: &naga::GlobalVariable) -> Result<Node> {
        let at = variable
            .binding
            .ok_or_else(|| internal("a buffer without a binding"))?;
        let (inner, count) = self.bound_type(variable)?;
        let ty = Ty::Handle(inner);
        let uniform = variable.space == AddressSpace::Uniform;
        // Decorated memory is shared with somebody writing while the kernel runs.
        let decorated = !variable.memory_decorations.is_empty();
        let writes = matches!(variable.space, AddressSpace::Storage { access }
            if access.contains(StorageAccess::STORE));
        let access = if decorated {
            Access::Atomic
        } else {
            Access::Plain
        };
        let buffer = BindingUse {
            group: at.group,
            binding: at.binding,
            element: 0,
            array: self.layouts.run_time_array(ty)?,
            least: self.layouts.bytes(ty, Space::Host)?.into(),
            uniform,
            constant: uniform || !writes && !decorated,
            shared: decorated,
            reduction: None,
        };
        let first = self.enter_bindings(buffer, count)?;
        Ok(match count {
            Some(count) => Node::Bindings {
                first,
                count,
                ty: inner,
                access,
            },
            None => Node::Pointer(Rc::new(Pointer {
                place: Place::new(Base::Binding(BindingAt { first, index: None }), 0),
                ty,
                access,
            })),
        })
    }

    /// The type of a binding of a variable, and how many bindings there are if the variable is an array of them.
    fn bound_type(
        &self,
        variable: &naga::GlobalVariable,
    ) -> Result<(Handle<naga::Type>, Option<u32>)> {
        match self.module.types[variable.ty].inner {
            TypeInner::BindingArray { base, size } => {
                let count = array_count(self.module, size)?
                    .ok_or_else(|| unsupported("an array of bindings without a size"))?;
                Ok((base, Some(count)))
            }
            _ => Ok((variable.ty, None)),
        }
    }

    /// Makes the kernel use a binding, or the elements of an array of bindings. Returns the first.
    fn enter_bindings(&mut self, binding: BindingUse, count: Option<u32>) -> Result<Binding> {
        let mut first = None;
        for element in 0..count.unwrap_or(1) {
            let entered = self
                .b
                .program
                .bindings
                .push(BindingUse { element, ..binding });
            first = first.or(Some(entered));
        }
        first.ok_or_else(|| internal("an empty array of bindings"))
    }

    /// Gives private variables of the module their initial values.
    fn initialize_private(&mut self, used: &naga::valid::FunctionInfo) -> Result<()> {
        for (handle, variable) in self.module.global_variables.iter() {
            if variable.space != AddressSpace::Private || used[handle].is_empty() {
                continue;
            }
            let Some(Node::Pointer(pointer)) = self.globals.get(&handle).cloned() else {
                return Err(internal("a private variable without memory"));
            };
            match variable.init {
                Some(init) => {
                    let node = self.global_expression(init)?;
                    self.store_node(&pointer, node)?;
                }
                None => self.store_zero(&pointer)?,
            }
            self.check_declaration(&pointer, variable.init.is_some());
        }
        Ok(())
    }

    fn frame(&self) -> Result<&Frame<'a>> {
        self.frames
            .last()
            .ok_or_else(|| internal("an expression outside a function"))
    }

    fn frame_mut(&mut self) -> Result<&mut Frame<'a>> {
        self.frames
            .last_mut()
            .ok_or_else(|| internal("a statement outside a function"))
    }

    /// The type of an expression of the function in the course of inlining.
    fn type_of(&self, expression: Handle<naga::Expression>) -> Result<Ty> {
        use naga::proc::TypeResolution as R;
        Ok(match self.frame()?.info[expression].ty {
            R::Handle(handle) => Ty::Handle(handle),
            R::Value(TypeInner::Scalar(scalar)) => Ty::Scalar(scalar),
            R::Value(TypeInner::Vector { size, scalar }) => Ty::Vector(size, scalar),
            R::Value(TypeInner::Matrix {
                columns,
                rows,
                scalar,
            }) => Ty::Matrix(columns, rows, scalar),
            R::Value(ref other) => return Err(internal(format!("a value of {other:?}"))),
        })
    }

    fn check_size(&self) -> Result<()> {
        let needed = self.b.program.values.len();
        if needed <= MAX_VALUES {
            return Ok(());
        }
        Err(CompileError::TooLarge {
            what: "a kernel, with all calls inlined,".into(),
            needed: needed as u64,
            limit: MAX_VALUES as u64,
            remedy: "split it, or turn repeated calls into a loop",
        })
    }
}

fn scalars(values: impl Into<Rc<[Value]>>) -> Node {
    Node::Scalars(values.into())
}
