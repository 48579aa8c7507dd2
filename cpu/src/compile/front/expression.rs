//! Expressions and their lowered forms.

use std::rc::Rc;

use naga::{Expression as E, Handle, TypeInner};

use super::{Front, Node, Pointer, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    ir::{Base, BindingAt, Op, Place, Type, Value},
    layout::{MAX_SCALARS, Space, Ty},
};
use crate::sanitizer::Access;

impl Front<'_> {
    /// The lowered form of an expression. Expressions not emitted by naga are evaluated now.
    pub(super) fn node(&mut self, expression: Handle<E>) -> Result<Node> {
        if let Some(node) = &self.frame()?.nodes[expression.index()] {
            return Ok(node.clone());
        }
        let node = self.evaluate(expression)?;
        self.set_node(expression, node.clone())?;
        Ok(node)
    }

    pub(super) fn set_node(&mut self, expression: Handle<E>, node: Node) -> Result<()> {
        self.frame_mut()?.nodes[expression.index()] = Some(node);
        Ok(())
    }

    /// The scalars of a value.
    pub(super) fn values(&mut self, expression: Handle<E>) -> Result<Rc<[Value]>> {
        let node = self.node(expression)?;
        self.scalars_of(&node)
    }

    pub(super) fn scalars_of(&mut self, node: &Node) -> Result<Rc<[Value]>> {
        match node {
            Node::Scalars(values) => Ok(values.clone()),
            Node::Memory(pointer) => Ok(self.load_scalars(pointer)?.into()),
            other => Err(internal(format!("a value was expected, not {other:?}"))),
        }
    }

    pub(super) fn scalar(&mut self, expression: Handle<E>) -> Result<Value> {
        match *self.values(expression)? {
            [value] => Ok(value),
            _ => Err(internal("a scalar was expected, not a composite")),
        }
    }

    /// Evaluates an expression at the end of the code lowered so far.
    pub(super) fn evaluate(&mut self, expression: Handle<E>) -> Result<Node> {
        let function = self.frame()?.function;
        match function.expressions[expression] {
            E::Literal(literal) => Ok(scalars([self.literal(literal)?])),
            E::Constant(constant) => self.global_expression(self.module.constants[constant].init),
            E::ZeroValue(ty) => self.zero(Ty::Handle(ty)),
            E::Compose { ty, ref components } => self.compose(Ty::Handle(ty), components),
            E::Access { base, index } => {
                let value = self.scalar(index)?;
                self.enter_expression(expression);
                self.check_overflow(index)?;
                let index = value;
                self.access(base, index)
            }
            E::AccessIndex { base, index } => self.access_constant(base, index),
            E::Splat { size, value } => {
                let value = self.scalar(value)?;
                Ok(scalars(vec![value; size as usize]))
            }
            E::Swizzle {
                size,
                vector,
                pattern,
            } => {
                let values = self.values(vector)?;
                let chosen: Vec<_> = pattern[..size as usize]
                    .iter()
                    .map(|&component| values[component as usize])
                    .collect();
                Ok(scalars(chosen))
            }
            E::FunctionArgument(index) => self
                .frame()?
                .arguments
                .get(index as usize)
                .cloned()
                .ok_or_else(|| internal("an argument that the function does not have")),
            E::GlobalVariable(handle) => self
                .globals
                .get(&handle)
                .cloned()
                .ok_or_else(|| internal("a global variable that the kernel does not use")),
            E::LocalVariable(handle) => match self.frame()?.locals.get(&handle) {
                Some(pointer) => Ok(Node::Pointer(pointer.clone())),
                None => Err(internal("a variable without memory")),
            },
            E::Load { pointer } => {
                let pointer = self.pointer(pointer)?;
                self.enter_expression(expression);
                self.load_expression(&pointer)
            }
            E::Unary { op, expr } => self.unary(op, expr),
            E::Binary { op, left, right } => self.binary(op, left, right),
            E::Select {
                condition,
                accept,
                reject,
            } => self.select(condition, accept, reject),
            E::Relational { fun, argument } => self.relational(fun, argument),
            E::Math {
                fun,
                arg,
                arg1,
                arg2,
                arg3,
            } => self.math(fun, [Some(arg), arg1, arg2, arg3]),
            E::As {
                expr,
                kind,
                convert,
            } => self.conversion(expr, kind, convert),
            E::ArrayLength(pointer) => self.length(pointer),
            E::ImageLoad {
                image,
                coordinate,
                array_index,
                sample: _,
                level,
            } => self.image_load(image, coordinate, array_index, level),
            E::ImageQuery { image, query } => self.image_query(image, query),
            ref sample @ E::ImageSample { .. } => self.image_sample(sample),
            ref other => Err(unsupported(describe(other))),
        }
    }

    /// A load by the text. Atomics are read indivisibly.
    fn load_expression(&mut self, pointer: &Pointer) -> Result<Node> {
        if let TypeInner::Atomic(_) = *self.layouts.inner(pointer.ty) {
            let pointer = Pointer {
                access: crate::compile::ir::Access::Atomic,
                ..pointer.clone()
            };
            self.check_access(&pointer, Access::AtomicRead)?;
            return Ok(scalars(self.load_scalars(&pointer)?));
        }
        self.check_access(pointer, Access::Read)?;
        self.load(pointer)
    }

    fn compose(&mut self, ty: Ty, components: &[Handle<E>]) -> Result<Node> {
        if self.layouts.scalars(ty)? > MAX_SCALARS {
            let pointer = self.temporary(ty)?;
            for (index, &component) in components.iter().enumerate() {
                let node = self.node(component)?;
                let part = self.member(&pointer, index as u32)?;
                self.store_node(&part, node)?;
            }
            return Ok(Node::Memory(pointer));
        }
        let mut values = Vec::new();
        for &component in components {
            values.extend_from_slice(&self.values(component)?);
        }
        Ok(scalars(values))
    }

    fn access(&mut self, base: Handle<E>, index: Value) -> Result<Node> {
        match self.node(base)? {
            Node::Pointer(pointer) => {
                let pointer = self.indexed(&pointer, index)?;
                Ok(Node::Pointer(Rc::new(pointer)))
            }
            Node::Memory(pointer) => {
                self.check_index(index, self.elements_of(&pointer)?);
                let pointer = self.indexed(&pointer, index)?;
                self.load(&pointer)
            }
            Node::Resource(_) => Err(internal("an element of a texture or sampler")),
            Node::Scalars(values) => {
                let ty = self.type_of(base)?;
                self.select_element(ty, &values, index)
            }
            Node::Bindings {
                first, count, ty, ..
            } if self.is_resource(ty) => Ok(Node::Resource(BindingAt {
                first,
                index: Some((index, count)),
            })),
            Node::Bindings {
                first,
                count,
                ty,
                access,
            } => Ok(Node::Pointer(Rc::new(Pointer {
                place: Place::new(
                    Base::Binding(BindingAt {
                        first,
                        index: Some((index, count)),
                    }),
                    0,
                ),
                ty: Ty::Handle(ty),
                access,
            }))),
        }
    }

    fn access_constant(&mut self, base: Handle<E>, index: u32) -> Result<Node> {
        match self.node(base)? {
            Node::Pointer(pointer) => {
                let pointer = self.member(&pointer, index)?;
                Ok(Node::Pointer(Rc::new(pointer)))
            }
            Node::Memory(pointer) => {
                let pointer = self.member(&pointer, index)?;
                self.load(&pointer)
            }
            Node::Scalars(values) => {
                let ty = self.type_of(base)?;
                let mut at = 0;
                for before in 0..index {
                    at += self.scalars_of_element(ty, before)?;
                }
                let size = self.scalars_of_element(ty, index)?;
                match values.get(at..at + size) {
                    Some(values) => Ok(scalars(values)),
                    None => Err(internal("an element that the value does not have")),
                }
            }
            Node::Bindings { .. } => {
                let index = self.b.u32(index);
                self.access(base, index)
            }
            Node::Resource(_) => Err(internal("an element of a texture or sampler")),
        }
    }

    fn scalars_of_element(&self, ty: Ty, index: u32) -> Result<usize> {
        let element = self.layouts.element(ty, index, Space::Own)?;
        Ok(self.layouts.scalars(element.ty)? as usize)
    }

    fn length(&mut self, pointer: Handle<E>) -> Result<Node> {
        let pointer = self.pointer(pointer)?;
        let Base::Binding(at) = pointer.place.base else {
            return Err(internal("the length of an array outside a buffer"));
        };
        Ok(scalars([self.b.op(Type::I32, Op::Length(at))]))
    }
}

/// The name of an expression, for errors.
fn describe(expression: &E) -> &'static str {
    match expression {
        E::Derivative { .. } => "a derivative, outside a fragment shader,",
        E::Override(_) => "an override that was not substituted",
        E::RayQueryProceedResult
        | E::RayQueryVertexPositions { .. }
        | E::RayQueryGetIntersection { .. } => "ray tracing",
        E::CooperativeLoad { .. } | E::CooperativeMultiplyAdd { .. } => "a cooperative matrix",
        _ => "an expression",
    }
}
