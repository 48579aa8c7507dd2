//! Vectors of two to four scalars of one type.

use super::Scalar;

/// A vector. Kept in place, since vectors are most of what kernels compute with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Vector {
    length: u8,
    components: [Scalar; 4],
}

impl Vector {
    /// A vector of the given components; `None` unless there are two to four of one type.
    pub fn new(components: &[Scalar]) -> Option<Vector> {
        let first = *components.first()?;
        if !(2..=4).contains(&components.len())
            || components
                .iter()
                .any(|component| component.ty() != first.ty())
        {
            return None;
        }
        let mut all = [first; 4];
        all[..components.len()].copy_from_slice(components);
        Some(Vector {
            length: components.len() as u8,
            components: all,
        })
    }

    /// A vector whose components are all `component`.
    pub fn splat(size: naga::VectorSize, component: Scalar) -> Vector {
        Vector {
            length: size as u8,
            components: [component; 4],
        }
    }

    /// The components, in order.
    pub fn components(&self) -> &[Scalar] {
        &self.components[..usize::from(self.length)]
    }

    /// The number of components.
    pub fn size(&self) -> usize {
        usize::from(self.length)
    }

    /// The type of the components.
    pub fn scalar(&self) -> naga::Scalar {
        self.components[0].ty()
    }

    /// Applies `operation` to each component.
    pub fn map(&self, operation: impl Fn(Scalar) -> Option<Scalar>) -> Option<Vector> {
        let mut results = [self.components[0]; 4];
        for (result, component) in results.iter_mut().zip(self.components()) {
            *result = operation(*component)?;
        }
        Vector::new(&results[..self.size()])
    }

    /// Applies `operation` to pairs of components; `None` where the sizes differ.
    pub fn zip(
        &self,
        other: Vector,
        operation: impl Fn(Scalar, Scalar) -> Option<Scalar>,
    ) -> Option<Vector> {
        if self.length != other.length {
            return None;
        }
        let mut results = [self.components[0]; 4];
        for (index, result) in results[..self.size()].iter_mut().enumerate() {
            *result = operation(self.components[index], other.components[index])?;
        }
        Vector::new(&results[..self.size()])
    }
}

impl core::fmt::Debug for Vector {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_list().entries(self.components()).finish()
    }
}
