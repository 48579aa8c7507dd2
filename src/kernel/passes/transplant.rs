//! Functions of a text of the runtime's own, moved into the module of a program.

use std::collections::HashMap;
use std::convert::Infallible;

use naga::{
    Expression, Function, GlobalVariable, Handle, Module, ResourceBinding, Span, Statement, Type,
    TypeInner,
};

use super::blocks::each_statement_mut;
use super::{type_of, unique_name};

/// Moves functions from one module to another, whose variables and functions are named by `globals` and `functions` first.
pub(super) struct Mover<'m> {
    from: &'m Module,
    types: HashMap<Handle<Type>, Handle<Type>>,
    pub(super) globals: HashMap<Handle<GlobalVariable>, Handle<GlobalVariable>>,
    pub(super) functions: HashMap<Handle<Function>, Handle<Function>>,
}

impl<'m> Mover<'m> {
    /// From this module, of which nothing is moved yet.
    pub(super) fn of(from: &'m Module) -> Self {
        Self {
            from,
            types: HashMap::new(),
            globals: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// The type in the other module. The text has scalars, vectors, atomics, arrays and pointers to them.
    fn ty(&mut self, module: &mut Module, ty: Handle<Type>) -> Handle<Type> {
        if let Some(known) = self.types.get(&ty) {
            return *known;
        }
        let inner = match self.from.types[ty].inner {
            TypeInner::Array { base, size, stride } => TypeInner::Array {
                base: self.ty(module, base),
                size,
                stride,
            },
            TypeInner::Pointer { base, space } => TypeInner::Pointer {
                base: self.ty(module, base),
                space,
            },
            ref other => other.clone(),
        };
        let moved = type_of(module, inner);
        self.types.insert(ty, moved);
        moved
    }

    pub(super) fn variable(
        &mut self,
        module: &mut Module,
        variable: &GlobalVariable,
        binding: Option<ResourceBinding>,
    ) -> Handle<GlobalVariable> {
        let name = variable.name.as_deref().unwrap_or("tombolo_moved");
        let moved = GlobalVariable {
            name: Some(unique_name(module, name)),
            ty: self.ty(module, variable.ty),
            binding,
            init: None,
            ..variable.clone()
        };
        module.global_variables.append(moved, Span::UNDEFINED)
    }

    pub(super) fn function(
        &mut self,
        module: &mut Module,
        function: &Function,
        name: String,
    ) -> Function {
        let mut moved = function.clone();
        moved.name = Some(name);
        for argument in &mut moved.arguments {
            argument.ty = self.ty(module, argument.ty);
        }
        if let Some(result) = &mut moved.result {
            result.ty = self.ty(module, result.ty);
        }
        for (_, local) in moved.local_variables.iter_mut() {
            local.ty = self.ty(module, local.ty);
        }
        for (_, expression) in moved.expressions.iter_mut() {
            match expression {
                Expression::GlobalVariable(global) => *global = self.globals[global],
                Expression::CallResult(callee) => *callee = self.functions[callee],
                Expression::ZeroValue(ty)
                | Expression::Compose { ty, .. }
                | Expression::AtomicResult { ty, .. } => *ty = self.ty(module, *ty),
                _ => {}
            }
        }
        let _ = each_statement_mut(&mut moved.body, &mut |statement, span| {
            if let Statement::Call { function, .. } = statement {
                *function = self.functions[function];
            }
            // Places of another text would be taken for places in the program.
            *span = Span::UNDEFINED;
            Ok::<(), Infallible>(())
        });
        moved
    }
}
