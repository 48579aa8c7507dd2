//! Calls: each is inlined as a scope for `return` to leave.

use std::rc::Rc;

use naga::Handle;

use super::{Frame, Front, Node, Pointer, Returned, scalars};
use crate::compile::{
    error::{Result, internal},
    ir::{Access, Base, Place, Statement},
    layout::{MAX_SCALARS, Space, Ty},
};

impl<'a> Front<'a> {
    /// Lowers the entry point itself.
    pub(super) fn entry(
        &mut self,
        point: &'a naga::EntryPoint,
        info: &'a naga::valid::FunctionInfo,
    ) -> Result<()> {
        let arguments = self.entry_arguments(&point.function)?;
        self.inline(&point.function, info, arguments)?;
        Ok(())
    }

    /// Lowers a call statement.
    pub(super) fn call(
        &mut self,
        function: Handle<naga::Function>,
        arguments: &[Handle<naga::Expression>],
        result: Option<Handle<naga::Expression>>,
    ) -> Result<()> {
        let arguments = arguments
            .iter()
            .map(|&argument| self.node(argument))
            .collect::<Result<Vec<_>>>()?;
        let callee = &self.module.functions[function];
        let info = &self.info[function];
        let node = self.inline(callee, info, arguments)?;
        if let (Some(result), Some(node)) = (result, node) {
            self.set_node(result, node)?;
        }
        Ok(())
    }

    /// Appends the body of a function. Returns the result.
    fn inline(
        &mut self,
        function: &'a naga::Function,
        info: &'a naga::valid::FunctionInfo,
        arguments: Vec<Node>,
    ) -> Result<Option<Node>> {
        let returned = match &function.result {
            Some(result) => self.returned(Ty::Handle(result.ty))?,
            None => Returned::Nothing,
        };
        let scope = self.b.scope();
        let name = match self.frames.is_empty() {
            true => self.b.program.name.as_str(),
            false => function.name.as_deref().unwrap_or("a function"),
        };
        let name = std::sync::Arc::from(name);
        self.frames.push(Frame {
            function,
            name,
            info,
            nodes: vec![None; function.expressions.len()],
            locals: Default::default(),
            arguments,
            scope,
            returned,
            breaks: Vec::new(),
            continues: Vec::new(),
        });
        self.b.open();
        let lowered = self
            .locals(function)
            .and_then(|()| self.statements(&function.body));
        let body = self.b.close();
        lowered?;
        self.b.push(Statement::Scope { scope, body });
        let Some(frame) = self.frames.pop() else {
            return Err(internal("a call that ended twice"));
        };
        Ok(match frame.returned {
            Returned::Nothing => None,
            Returned::Memory(pointer) => Some(Node::Memory(pointer)),
            Returned::Scalars(variables) => {
                let values: Vec<_> = variables.iter().map(|&v| self.b.get(v)).collect();
                Some(scalars(values))
            }
        })
    }

    fn returned(&mut self, ty: Ty) -> Result<Returned> {
        if self.layouts.scalars(ty)? > MAX_SCALARS {
            return Ok(Returned::Memory(self.temporary(ty)?));
        }
        let mut variables = Vec::new();
        for (_, scalar) in self.layouts.leaves(ty, Space::Own)? {
            let variable = self.b.variable(scalar);
            // Paths without a result are not reached; the variable still has a value there.
            let zero = self.b.constant(scalar, 0);
            self.b.set(variable, zero);
            variables.push(variable);
        }
        Ok(Returned::Scalars(variables))
    }

    /// Memory of the invocation for a value of a type.
    pub(super) fn temporary(&mut self, ty: Ty) -> Result<Rc<Pointer>> {
        let bytes = self.layouts.bytes(ty, Space::Own)?;
        let slot = self.b.program.slots.push(bytes);
        Ok(Rc::new(Pointer {
            place: Place::new(Base::Slot(slot), 0),
            ty,
            access: Access::Plain,
        }))
    }

    fn locals(&mut self, function: &'a naga::Function) -> Result<()> {
        for (handle, local) in function.local_variables.iter() {
            let pointer = self.temporary(Ty::Handle(local.ty))?;
            self.frame_mut()?.locals.insert(handle, pointer.clone());
            match local.init {
                Some(init) => {
                    let node = self.node(init)?;
                    self.store_node(&pointer, node)?;
                }
                None => self.store_zero(&pointer)?,
            }
            self.name_local(&pointer, local.name.as_deref());
            self.check_declaration(&pointer, local.init.is_some());
        }
        Ok(())
    }

    /// Lowers a `return`.
    pub(super) fn leave(&mut self, value: Option<Handle<naga::Expression>>) -> Result<()> {
        if let Some(value) = value {
            let node = self.node(value)?;
            let memory = match &self.frame()?.returned {
                Returned::Nothing => None,
                Returned::Memory(pointer) => Some(pointer.clone()),
                Returned::Scalars(variables) => {
                    let variables = variables.clone();
                    let values = self.scalars_of(&node)?;
                    for (&variable, &value) in variables.iter().zip(values.iter()) {
                        self.b.set(variable, value);
                    }
                    None
                }
            };
            if let Some(pointer) = memory {
                self.store_node(&pointer, node)?;
            }
        }
        let scope = self.frame()?.scope;
        self.b.push(Statement::Exit(scope));
        Ok(())
    }
}
