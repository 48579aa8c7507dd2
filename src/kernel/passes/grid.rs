//! Grids larger than an adapter dispatches at once.
//!
//! WebGPU adapters take some 65,535 work-groups in a dimension. A larger grid is dispatched in parts, and this pass
//! makes the parts look like the whole: `workgroup_id`, `global_invocation_id` and `num_workgroups` are those of the
//! logical grid, read from a small uniform with the start of each part.
//!
//! The user's entry point becomes an ordinary function. A new function of the same name takes the
//! same arguments, corrects them, and calls the user's, which needs no change, in whatever way the
//! arguments are used.
//!
//! The pass runs only when a launch exceeds the adapter's limit, so that ordinary launches never pay for it.

use naga::{
    AddressSpace, BinaryOperator, Binding, Block, BuiltIn, Expression, Function, FunctionArgument,
    GlobalVariable, Handle, Literal, MemoryDecorations, Module, ResourceBinding, Scalar, Span,
    Statement, StructMember, Type, TypeInner, VectorSize,
};

use super::{type_of, unique_name};

/// Bytes in the uniform: `base: vec3<u32>` at offset 0, `groups: vec3<u32>` at offset 16.
pub const BYTES: u64 = 32;

/// Offset in bytes of the first work-group of a part within the logical grid: three `u32`.
pub const BASE_OFFSET: u64 = 0;

/// Offset in bytes of the work-groups in the whole logical grid: three `u32`.
pub const GROUPS_OFFSET: u64 = 16;

/// Makes entry point `entry` (its index in `module.entry_points`) see the logical grid described by the uniform at
/// `params`.
///
/// Returns `false`, and leaves the module unchanged, where there is no such entry point or the entry point takes none
/// of `workgroup_id`, `global_invocation_id` and `num_workgroups`: every part then runs unchanged. `params` must be a
/// binding that the user's program does not use.
pub fn run(module: &mut Module, entry: usize, params: ResourceBinding) -> bool {
    let Some(entry_point) = module.entry_points.get(entry) else {
        return false;
    };
    let is_adjusted = |binding: &Option<Binding>| adjustment(binding).is_some();
    let needed = entry_point.function.arguments.iter().any(|argument| {
        is_adjusted(&argument.binding)
            || (members(module, argument))
                .is_some_and(|m| m.iter().any(|m| is_adjusted(&m.binding)))
    });
    if !needed {
        return false;
    }

    let (uniform, vector) = add_uniform(module, params);
    let body_name = unique_name(module, &format!("{}_body", module.entry_points[entry].name));
    let name = module.entry_points[entry].name.clone();
    let mut body = std::mem::take(&mut module.entry_points[entry].function);
    let arguments = body.arguments.clone();
    let diagnostic_filter_leaf = body.diagnostic_filter_leaf;
    for argument in &mut body.arguments {
        argument.binding = None;
    }
    body.name = Some(body_name);
    let callee = module.functions.append(body, Span::UNDEFINED);

    let mut wrapper = Wrapper {
        function: Function {
            name: Some(name),
            diagnostic_filter_leaf,
            ..Function::default()
        },
        uniform,
        vector,
        workgroup_size: module.entry_points[entry].workgroup_size,
    };
    let passed = (arguments.iter().enumerate())
        .map(|(index, argument)| wrapper.argument(module, index, argument))
        .collect();
    let Wrapper { mut function, .. } = wrapper;
    function.arguments = arguments;
    function.body.push(
        Statement::Call {
            function: callee,
            arguments: passed,
            result: None,
        },
        Span::UNDEFINED,
    );
    let end = Statement::Return { value: None };
    function.body.push(end, Span::UNDEFINED);
    module.entry_points[entry].function = function;
    true
}

/// The correction of a built-in value to that of the logical grid.
#[derive(Clone, Copy)]
enum Adjustment {
    AddBase,
    AddBaseInvocations,
    Groups,
}

fn adjustment(binding: &Option<Binding>) -> Option<Adjustment> {
    match *binding {
        Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => Some(Adjustment::AddBase),
        Some(Binding::BuiltIn(BuiltIn::GlobalInvocationId)) => Some(Adjustment::AddBaseInvocations),
        Some(Binding::BuiltIn(BuiltIn::NumWorkGroups)) => Some(Adjustment::Groups),
        _ => None,
    }
}

fn members<'a>(module: &'a Module, argument: &FunctionArgument) -> Option<&'a [StructMember]> {
    match module.types[argument.ty].inner {
        TypeInner::Struct { ref members, .. } => Some(members),
        _ => None,
    }
}

/// Adds the uniform; also returns the type of its members.
fn add_uniform(
    module: &mut Module,
    params: ResourceBinding,
) -> (Handle<GlobalVariable>, Handle<Type>) {
    let vector = type_of(
        module,
        TypeInner::Vector {
            size: VectorSize::Tri,
            scalar: Scalar::U32,
        },
    );
    let member = |name: &str, offset: u64| StructMember {
        name: Some(name.to_owned()),
        ty: vector,
        binding: None,
        offset: offset as u32,
    };
    let ty = Type {
        name: Some(unique_name(module, "TomboloGrid")),
        inner: TypeInner::Struct {
            members: vec![member("base", BASE_OFFSET), member("groups", GROUPS_OFFSET)],
            span: BYTES as u32,
        },
    };
    let ty = module.types.insert(ty, Span::UNDEFINED);
    let name = unique_name(module, "tombolo_grid");
    let uniform = GlobalVariable {
        name: Some(name),
        space: AddressSpace::Uniform,
        binding: Some(params),
        ty,
        init: None,
        memory_decorations: MemoryDecorations::empty(),
    };
    let uniform = module.global_variables.append(uniform, Span::UNDEFINED);
    (uniform, vector)
}

/// The new entry point while it is made.
struct Wrapper {
    function: Function,
    uniform: Handle<GlobalVariable>,
    vector: Handle<Type>,
    workgroup_size: [u32; 3],
}

impl Wrapper {
    /// The value to pass for argument `index`.
    fn argument(
        &mut self,
        module: &Module,
        index: usize,
        argument: &FunctionArgument,
    ) -> Handle<Expression> {
        let given = self.add(Expression::FunctionArgument(index as u32));
        if let Some(adjustment) = adjustment(&argument.binding) {
            return self.adjusted(given, adjustment);
        }
        let Some(members) = members(module, argument) else {
            return given;
        };
        if members.iter().all(|m| adjustment(&m.binding).is_none()) {
            return given;
        }
        let components = (members.iter().zip(0u32..))
            .map(|(member, index)| {
                let value = self.emitted(Expression::AccessIndex { base: given, index });
                match adjustment(&member.binding) {
                    Some(adjustment) => self.adjusted(value, adjustment),
                    None => value,
                }
            })
            .collect();
        self.emitted(Expression::Compose {
            ty: argument.ty,
            components,
        })
    }

    fn adjusted(
        &mut self,
        given: Handle<Expression>,
        adjustment: Adjustment,
    ) -> Handle<Expression> {
        match adjustment {
            Adjustment::Groups => self.parameter(1),
            Adjustment::AddBase => {
                let base = self.parameter(0);
                self.binary(BinaryOperator::Add, given, base)
            }
            Adjustment::AddBaseInvocations => {
                let base = self.parameter(0);
                let size = (self.workgroup_size)
                    .map(|extent| self.add(Expression::Literal(Literal::U32(extent))));
                let size = self.emitted(Expression::Compose {
                    ty: self.vector,
                    components: size.to_vec(),
                });
                let first = self.binary(BinaryOperator::Multiply, base, size);
                self.binary(BinaryOperator::Add, given, first)
            }
        }
    }

    /// Member `index` of the uniform.
    fn parameter(&mut self, index: u32) -> Handle<Expression> {
        let base = self.add(Expression::GlobalVariable(self.uniform));
        let pointer = self.emitted(Expression::AccessIndex { base, index });
        self.emitted(Expression::Load { pointer })
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Handle<Expression> {
        self.emitted(Expression::Binary { op, left, right })
    }

    /// Adds an expression evaluated without a statement.
    fn add(&mut self, expression: Expression) -> Handle<Expression> {
        (self.function.expressions).append(expression, Span::UNDEFINED)
    }

    /// Adds an expression and its evaluating statement.
    fn emitted(&mut self, expression: Expression) -> Handle<Expression> {
        let before = self.function.expressions.len();
        let handle = self.add(expression);
        let range = self.function.expressions.range_from(before);
        let body: &mut Block = &mut self.function.body;
        body.push(Statement::Emit(range), Span::UNDEFINED);
        handle
    }
}
