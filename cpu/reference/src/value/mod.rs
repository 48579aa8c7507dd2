//! Values of WGSL: scalars, vectors, matrices, and what is composed of them.
//!
//! A value knows its own type as far as an operation needs it, so that the interpreter asks the
//! module for types only where memory is read.

mod scalar;
mod vector;

pub use scalar::Scalar;
pub(crate) use scalar::nearest_f16;
pub use vector::Vector;

use std::rc::Rc;

use crate::memory::Pointer;

/// Which resource an image or a sampler expression names: the global's place in the module, and the
/// element of a binding array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opaque {
    /// Group and binding.
    pub binding: naga::ResourceBinding,
    /// Element of a `binding_array`; 0 elsewhere.
    pub element: u32,
}

/// What an expression evaluates to.
#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    Vector(Vector),
    /// Columns.
    Matrix(Rc<[Vector]>),
    /// Elements of an array, or members of a structure.
    Composite(Rc<[Value]>),
    Pointer(Pointer),
    Image(Opaque),
    Sampler(Opaque),
}

impl Value {
    /// The scalar, or `None` for any other kind of value.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Value::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    /// The vector, or `None` for any other kind of value.
    pub fn vector(&self) -> Option<Vector> {
        match self {
            Value::Vector(vector) => Some(*vector),
            _ => None,
        }
    }

    /// The scalar or the components of the vector; `None` for any other kind of value.
    pub fn components(&self) -> Option<&[Scalar]> {
        match self {
            Value::Scalar(scalar) => Some(core::slice::from_ref(scalar)),
            Value::Vector(vector) => Some(vector.components()),
            _ => None,
        }
    }

    /// All scalars of a value, in order of memory. Pointers and resources have none.
    pub fn leaves(&self) -> Vec<Scalar> {
        match self {
            Value::Scalar(scalar) => vec![*scalar],
            Value::Vector(vector) => vector.components().to_vec(),
            Value::Matrix(columns) => columns
                .iter()
                .flat_map(|column| column.components().iter().copied())
                .collect(),
            Value::Composite(parts) => parts.iter().flat_map(Value::leaves).collect(),
            Value::Pointer(_) | Value::Image(_) | Value::Sampler(_) => Vec::new(),
        }
    }

    /// Applies `operation` to a scalar, or to each component of a vector. `None` for other values,
    /// and where `operation` has no result.
    pub fn map(&self, operation: impl Fn(Scalar) -> Option<Scalar>) -> Option<Value> {
        match self {
            Value::Scalar(scalar) => operation(*scalar).map(Value::Scalar),
            Value::Vector(vector) => vector.map(operation).map(Value::Vector),
            _ => None,
        }
    }

    /// Applies `operation` to pairs of components. A scalar beside a vector counts for each of the
    /// vector's components. `None` where the shapes do not fit.
    pub fn zip(
        &self,
        other: &Value,
        operation: impl Fn(Scalar, Scalar) -> Option<Scalar>,
    ) -> Option<Value> {
        match (self, other) {
            (Value::Scalar(a), Value::Scalar(b)) => operation(*a, *b).map(Value::Scalar),
            (Value::Vector(a), Value::Vector(b)) => a.zip(*b, operation).map(Value::Vector),
            (Value::Scalar(a), Value::Vector(b)) => b.map(|b| operation(*a, b)).map(Value::Vector),
            (Value::Vector(a), Value::Scalar(b)) => a.map(|a| operation(a, *b)).map(Value::Vector),
            _ => None,
        }
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Value {
        Value::Scalar(scalar)
    }
}

impl From<Vector> for Value {
    fn from(vector: Vector) -> Value {
        Value::Vector(vector)
    }
}
