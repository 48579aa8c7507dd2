//! Constant expressions of a module, and tables of constants.

use std::rc::Rc;

use naga::{Expression as E, Handle, Literal};

use super::{Front, Node, Pointer, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Type, Value, fold},
    layout::{MAX_SCALARS, Space, Ty},
};

impl Front<'_> {
    /// A constant expression of the module.
    pub(super) fn global_expression(&mut self, handle: Handle<E>) -> Result<Node> {
        if let Some(node) = self.constants.get(&handle) {
            return Ok(node.clone());
        }
        let module = self.module;
        let node = match module.global_expressions[handle] {
            E::Literal(literal) => scalars([self.literal(literal)?]),
            E::Constant(constant) => self.global_expression(module.constants[constant].init)?,
            E::ZeroValue(ty) => self.zero(Ty::Handle(ty))?,
            E::Compose { ty, ref components } => {
                if self.layouts.scalars(Ty::Handle(ty))? > MAX_SCALARS {
                    let mut bytes = Vec::new();
                    self.constant_bytes(handle, &mut bytes)?;
                    Node::Memory(Rc::new(self.table_pointer(Ty::Handle(ty), bytes)))
                } else {
                    let mut values = Vec::new();
                    for &component in components {
                        let node = self.global_expression(component)?;
                        values.extend_from_slice(&self.scalars_of(&node)?);
                    }
                    scalars(values)
                }
            }
            E::Splat { size, value } => {
                let node = self.global_expression(value)?;
                let value = self.scalars_of(&node)?[0];
                scalars(vec![value; size as usize])
            }
            ref other => return Err(internal(format!("a constant that is {other:?}"))),
        };
        self.constants.insert(handle, node.clone());
        Ok(node)
    }

    pub(super) fn literal(&mut self, literal: Literal) -> Result<Value> {
        let (ty, bits) = match literal {
            Literal::F64(value) => (Type::F64, value.to_bits()),
            Literal::F32(value) => (Type::F32, value.to_bits().into()),
            Literal::F16(value) => (Type::F16, value.to_f32().to_bits().into()),
            Literal::U32(value) => (Type::I32, value.into()),
            Literal::I32(value) => (Type::I32, (value as u32).into()),
            Literal::U64(value) => (Type::I64, value),
            Literal::I64(value) => (Type::I64, value as u64),
            Literal::Bool(value) => (Type::Bool, value.into()),
            other => return Err(unsupported(format!("the literal {other:?}"))),
        };
        Ok(self.b.constant(ty, bits))
    }

    /// A value whose scalars are all zero.
    pub(super) fn zero(&mut self, ty: Ty) -> Result<Node> {
        if self.layouts.scalars(ty)? > MAX_SCALARS {
            let bytes = self.layouts.bytes(ty, Space::Own)?;
            let pointer = self.table_pointer(ty, vec![0; bytes as usize]);
            return Ok(Node::Memory(Rc::new(pointer)));
        }
        let leaves = self.layouts.leaves(ty, Space::Own)?;
        let zero = |&(_, ty): &(u32, Type)| self.b.constant(ty, 0);
        Ok(scalars(leaves.iter().map(zero).collect::<Vec<_>>()))
    }

    /// The bytes of a constant in the layout of kernels.
    fn constant_bytes(&mut self, handle: Handle<E>, bytes: &mut Vec<u8>) -> Result<()> {
        let module = self.module;
        match module.global_expressions[handle] {
            E::Compose { ref components, .. } => {
                for &component in components {
                    self.constant_bytes(component, bytes)?;
                }
                Ok(())
            }
            E::Constant(constant) => self.constant_bytes(module.constants[constant].init, bytes),
            E::ZeroValue(ty) => {
                let size = self.layouts.bytes(Ty::Handle(ty), Space::Own)?;
                bytes.resize(bytes.len() + size as usize, 0);
                Ok(())
            }
            _ => {
                let node = self.global_expression(handle)?;
                let values = self.scalars_of(&node)?;
                for &value in values.iter() {
                    self.append(value, bytes)?;
                }
                Ok(())
            }
        }
    }

    /// Appends a constant to a table.
    fn append(&mut self, value: Value, bytes: &mut Vec<u8>) -> Result<()> {
        let bits = self.b.program.constant(value);
        let bits = bits.ok_or_else(|| internal("a constant whose value is not known"))?;
        let size = self.b.program.ty(value).own_bytes() as usize;
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
        Ok(())
    }

    /// A table with these values, if all of them are constant.
    pub(super) fn table_of(&mut self, ty: Ty, values: &[Value]) -> Result<Option<Pointer>> {
        let program = &self.b.program;
        if values
            .iter()
            .any(|&value| program.constant(value).is_none())
        {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for &value in values {
            self.append(value, &mut bytes)?;
        }
        Ok(Some(self.table_pointer(ty, bytes)))
    }

    /// A float constant rounded to a type, as a value.
    pub(super) fn float(&mut self, ty: Type, value: f64) -> Value {
        debug_assert!(fold::mask(ty) != 0);
        self.b.float(ty, value)
    }
}
