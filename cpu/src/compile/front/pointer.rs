//! Pointers: places, loads, stores and copies.

use std::rc::Rc;

use naga::{Handle, TypeInner};

use super::{Front, Node, Pointer, scalars};
use crate::compile::{
    error::{Result, internal},
    ir::{Base, Comparison, Count, Leaf, Place, Statement, Step, Type, Value},
    layout::{MAX_SCALARS, Ty},
};

impl Front<'_> {
    /// An expression that is a pointer.
    pub(super) fn pointer(&mut self, expression: Handle<naga::Expression>) -> Result<Rc<Pointer>> {
        match self.node(expression)? {
            Node::Pointer(pointer) => Ok(pointer),
            other => Err(internal(format!("a pointer was expected, not {other:?}"))),
        }
    }

    /// The pointer to a member, or to an element by a constant index.
    pub(super) fn member(&mut self, pointer: &Pointer, index: u32) -> Result<Pointer> {
        let run_time = matches!(
            *self.layouts.inner(pointer.ty),
            TypeInner::Array {
                size: naga::ArraySize::Dynamic,
                ..
            }
        );
        if run_time {
            let index = self.b.u32(index);
            return self.indexed(pointer, index);
        }
        let element = self.layouts.element(pointer.ty, index, pointer.space())?;
        let mut pointer = pointer.clone();
        pointer.place.offset = pointer
            .place
            .offset
            .checked_add(element.offset)
            .ok_or_else(|| internal("an offset beyond 4 GiB"))?;
        pointer.ty = element.ty;
        Ok(pointer)
    }

    /// The pointer to an element by an index known at run time.
    pub(super) fn indexed(&mut self, pointer: &Pointer, index: Value) -> Result<Pointer> {
        let elements = self.layouts.elements(pointer.ty, pointer.space())?;
        let count = match (elements.count, pointer.place.base) {
            (Some(count), _) => Count::Fixed(count),
            (None, Base::Binding(at)) => Count::Bound(at),
            (None, _) => return Err(internal("a run-time sized array outside a buffer")),
        };
        let constant = self.b.program.constant(index);
        if let (Some(bits), Count::Fixed(count)) = (constant, count)
            && (!self.inspector.checks() || (bits as u32) < count)
        {
            // Out of bounds only where the policy of bounds checks decides: at the last element.
            return self.member(pointer, (bits as u32).min(count - 1));
        }
        let mut pointer = pointer.clone();
        pointer.place.steps.push(Step {
            index,
            stride: elements.stride,
            count,
        });
        pointer.ty = elements.ty;
        Ok(pointer)
    }

    /// The target of a pointer.
    pub(super) fn load(&mut self, pointer: &Pointer) -> Result<Node> {
        if self.layouts.scalars(pointer.ty)? > MAX_SCALARS {
            let copy = self.temporary(pointer.ty)?;
            self.copy(&copy, pointer)?;
            return Ok(Node::Memory(copy));
        }
        Ok(scalars(self.load_scalars(pointer)?))
    }

    pub(super) fn load_scalars(&mut self, pointer: &Pointer) -> Result<Vec<Value>> {
        let leaves = self.layouts.leaves(pointer.ty, pointer.space())?;
        Ok(self.b.load(pointer.place.clone(), leaves, pointer.access))
    }

    pub(super) fn store_scalars(&mut self, pointer: &Pointer, values: &[Value]) -> Result<()> {
        let leaves = self.layouts.leaves(pointer.ty, pointer.space())?;
        if leaves.len() != values.len() {
            return Err(internal("a store of a value of another type"));
        }
        self.b.push(Statement::Store {
            place: pointer.place.clone(),
            leaves: leaves
                .iter()
                .zip(values)
                .map(|(&(offset, _), &value)| Leaf { offset, value })
                .collect(),
            access: pointer.access,
        });
        Ok(())
    }

    pub(super) fn store_node(&mut self, pointer: &Pointer, node: Node) -> Result<()> {
        match node {
            Node::Scalars(values) => self.store_scalars(pointer, &values),
            Node::Memory(from) => self.copy(pointer, &from),
            other => Err(internal(format!("a value was expected, not {other:?}"))),
        }
    }

    pub(super) fn store_zero(&mut self, pointer: &Pointer) -> Result<()> {
        self.by_parts(pointer, None)
    }

    pub(super) fn copy(&mut self, to: &Pointer, from: &Pointer) -> Result<()> {
        self.by_parts(to, Some(from))
    }

    /// Stores zeros, or a copy of `from`, part by part: arrays of many scalars by a loop.
    fn by_parts(&mut self, to: &Pointer, from: Option<&Pointer>) -> Result<()> {
        if self.layouts.scalars(to.ty)? <= MAX_SCALARS {
            let values = match from {
                Some(from) => self.load_scalars(from)?,
                None => {
                    let leaves = self.layouts.leaves(to.ty, to.space())?;
                    let zero = |&(_, ty): &(u32, Type)| self.b.constant(ty, 0);
                    leaves.iter().map(zero).collect()
                }
            };
            return self.store_scalars(to, &values);
        }
        let layouts = self.layouts;
        match *layouts.inner(to.ty) {
            TypeInner::Struct { ref members, .. } => {
                for index in 0..members.len() as u32 {
                    let part = self.member(to, index)?;
                    let source = match from {
                        Some(from) => Some(self.member(from, index)?),
                        None => None,
                    };
                    self.by_parts(&part, source.as_ref())?;
                }
                Ok(())
            }
            _ => self.by_elements(to, from),
        }
    }

    fn by_elements(&mut self, to: &Pointer, from: Option<&Pointer>) -> Result<()> {
        let count = self.layouts.elements(to.ty, to.space())?.count;
        let count = count.ok_or_else(|| internal("a run-time sized array as a value"))?;
        let counter = self.b.variable(Type::I32);
        let zero = self.b.u32(0);
        self.b.set(counter, zero);
        let scope = self.b.scope();
        self.b.open();
        let lowered = self.element_of_copy(to, from, counter);
        let body = self.b.close();
        lowered?;
        self.b.open();
        let index = self.b.get(counter);
        let one = self.b.u32(1);
        let next = self.b.add(index, one);
        self.b.set(counter, next);
        let end = self.b.u32(count);
        let done = self.b.compare(Comparison::Eq, next, end);
        self.b.push(Statement::If {
            condition: done,
            accept: vec![Statement::Exit(scope)],
            reject: Vec::new(),
        });
        let continuing = self.b.close();
        self.b.push(Statement::Loop {
            scope,
            starts: Default::default(),
            body,
            continuing,
        });
        Ok(())
    }

    fn element_of_copy(
        &mut self,
        to: &Pointer,
        from: Option<&Pointer>,
        counter: crate::compile::ir::Variable,
    ) -> Result<()> {
        let index = self.b.get(counter);
        let part = self.indexed(to, index)?;
        let source = match from {
            Some(from) => Some(self.indexed(from, index)?),
            None => None,
        };
        self.by_parts(&part, source.as_ref())
    }

    /// An element of a value in scalars, by an index known at run time.
    pub(super) fn select_element(
        &mut self,
        ty: Ty,
        values: &[Value],
        index: Value,
    ) -> Result<Node> {
        let elements = self
            .layouts
            .elements(ty, crate::compile::layout::Space::Own)?;
        let count = elements.count.unwrap_or(1) as usize;
        self.check_index(index, count as u32);
        let size = values.len() / count;
        if let Some(bits) = self.b.program.constant(index) {
            let at = (bits as usize).min(count - 1) * size;
            return Ok(scalars(&values[at..at + size]));
        }
        if count > 4 {
            let pointer = self.in_memory(ty, values)?;
            let element = self.indexed(&pointer, index)?;
            return self.load(&element);
        }
        // As the bounds policy for memory: too large an index selects the last element.
        let mut chosen = values[(count - 1) * size..].to_vec();
        for element in (0..count - 1).rev() {
            let number = self.b.u32(element as u32);
            let here = self.b.compare(Comparison::Eq, index, number);
            for (part, value) in chosen.iter_mut().enumerate() {
                *value = self.b.select(here, values[element * size + part], *value);
            }
        }
        Ok(scalars(chosen))
    }

    /// Scalars put into memory: a table where all are constant, else memory of the invocation.
    fn in_memory(&mut self, ty: Ty, values: &[Value]) -> Result<Pointer> {
        if let Some(table) = self.table_of(ty, values)? {
            return Ok(table);
        }
        let pointer = self.temporary(ty)?;
        self.store_scalars(&pointer, values)?;
        Ok((*pointer).clone())
    }

    /// A pointer to a table of the code.
    pub(super) fn table_pointer(&mut self, ty: Ty, bytes: Vec<u8>) -> Pointer {
        let program = &mut self.b.program;
        let table = *self
            .tables
            .entry(bytes)
            .or_insert_with_key(|bytes| program.tables.push(bytes.clone()));
        Pointer {
            place: Place::new(Base::Table(table), 0),
            ty,
            access: crate::compile::ir::Access::Plain,
        }
    }
}
