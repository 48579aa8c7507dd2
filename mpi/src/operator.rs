//! MPI's own operators, for numbers.

use mpi::ffi;

use crate::datatype::Number;
use crate::error::{MpiError, Operation};

/// How numbers of all ranks are combined, element by element. The order of additions of floating-point numbers is the
/// library's own ([`WgslOperator`](crate::WgslOperator) goes by rank).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operator {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The bits set on all ranks; of integers.
    BitAnd,
    /// The bits set on any rank; of integers.
    BitOr,
    /// The bits set on an odd number of ranks; of integers.
    BitXor,
}

impl Operator {
    /// MPI's handle, if the type has the operator.
    ///
    /// # Errors
    /// [`MpiError::NoOperator`].
    pub(crate) fn raw<T: Number>(self, operation: Operation) -> Result<ffi::MPI_Op, MpiError> {
        let needs_bits = matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor);
        if needs_bits && !T::IS_INTEGER {
            return Err(MpiError::NoOperator {
                operation,
                operator: self,
                element: std::any::type_name::<T>(),
            });
        }
        // SAFETY: constants, set before `main`.
        Ok(unsafe {
            match self {
                Self::Sum => ffi::RSMPI_SUM,
                Self::Product => ffi::RSMPI_PROD,
                Self::Min => ffi::RSMPI_MIN,
                Self::Max => ffi::RSMPI_MAX,
                Self::BitAnd => ffi::RSMPI_BAND,
                Self::BitOr => ffi::RSMPI_BOR,
                Self::BitXor => ffi::RSMPI_BXOR,
            }
        })
    }
}
