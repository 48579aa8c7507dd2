//! MPI's types of elements, and of memory with more elements than MPI counts.
//!
//! Counts of MPI are numbers of C's type `int`. Memory of more bytes is described as one element of a type, put together of
//! large blocks and a rest (Hammond and others, *To INT_MAX... and beyond!*, 2014); the receiver may describe the same bytes
//! in another way.

use std::os::raw::c_int;

use mpi::ffi;

use crate::error::{MpiError, Operation, check};

/// A number for MPI's own operators to combine.
///
/// # Safety
/// [`Number::raw`] names the type of MPI with the representation of the Rust type.
pub unsafe trait Number: bytemuck::Pod + Send + 'static {
    /// Whether the number has bits to combine.
    const IS_INTEGER: bool;

    /// MPI's type.
    #[doc(hidden)]
    fn raw() -> ffi::MPI_Datatype;
}

macro_rules! numbers {
    ($($number:ty: $raw:ident, $is_integer:literal;)*) => {$(
        // SAFETY: the C type of fixed width that MPI names so has the representation of the Rust type.
        unsafe impl Number for $number {
            const IS_INTEGER: bool = $is_integer;

            fn raw() -> ffi::MPI_Datatype {
                // SAFETY: a constant, set before `main`.
                unsafe { ffi::$raw }
            }
        }
    )*};
}

numbers! {
    u8: RSMPI_UINT8_T, true;
    u16: RSMPI_UINT16_T, true;
    u32: RSMPI_UINT32_T, true;
    u64: RSMPI_UINT64_T, true;
    i8: RSMPI_INT8_T, true;
    i16: RSMPI_INT16_T, true;
    i32: RSMPI_INT32_T, true;
    i64: RSMPI_INT64_T, true;
    f32: RSMPI_FLOAT, false;
    f64: RSMPI_DOUBLE, false;
}

/// A type put together of others, freed on drop.
pub(crate) struct Datatype(ffi::MPI_Datatype);

// SAFETY: handles of MPI are names, valid in all threads of the process.
unsafe impl Send for Datatype {}

impl Drop for Datatype {
    fn drop(&mut self) {
        // SAFETY: made by MPI and freed once; operations under way keep what they need.
        unsafe { ffi::MPI_Type_free(&raw mut self.0) };
    }
}

/// How many elements of which type some bytes are.
pub(crate) struct Shape {
    pub(crate) count: c_int,
    pub(crate) raw: ffi::MPI_Datatype,
    /// Held until the operation has ended.
    pub(crate) made: Option<Datatype>,
}

/// Describes `bytes` bytes, where `most` is the largest count.
pub(crate) fn bytes(operation: Operation, bytes: u64, most: u64) -> Result<Shape, MpiError> {
    // SAFETY: a constant, set before `main`.
    let byte = unsafe { ffi::RSMPI_UINT8_T };
    if bytes <= most {
        return Ok(Shape {
            count: bytes as c_int,
            raw: byte,
            made: None,
        });
    }
    let (block, blocks, rest) = blocks(bytes, most);
    let made = |code, raw| check(operation, code, bytes).map(|()| Datatype(raw));
    let mut raw = byte;
    // SAFETY: in each call below the arrays have as many entries as the call says, and the results are written by MPI.
    let block = {
        let code = unsafe { ffi::MPI_Type_contiguous(block as c_int, byte, &raw mut raw) };
        (block, made(code, raw)?)
    };
    let lengths = [blocks as c_int, rest as c_int];
    let places = [0, (blocks * block.0) as ffi::MPI_Aint];
    let types = [block.1.0, byte];
    // SAFETY: as above.
    let code = unsafe {
        ffi::MPI_Type_create_struct(
            2,
            lengths.as_ptr(),
            places.as_ptr(),
            types.as_ptr(),
            &raw mut raw,
        )
    };
    let mut whole = made(code, raw)?;
    // SAFETY: the type was just made.
    let code = unsafe { ffi::MPI_Type_commit(&raw mut whole.0) };
    check(operation, code, bytes)?;
    Ok(Shape {
        count: 1,
        raw: whole.0,
        made: Some(whole),
    })
}

/// Bytes of a block, how many there are, and the bytes behind the blocks. No number is above `most`, where bytes have its
/// square at most.
fn blocks(bytes: u64, most: u64) -> (u64, u64, u64) {
    // Large enough for a countable number of blocks, and a power of two where possible.
    let least = bytes.div_ceil(most);
    let block = least.next_power_of_two().min(most);
    (block, bytes / block, bytes % block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_and_cover_all_bytes() {
        for most in [7, 1000, i32::MAX as u64] {
            for bytes in [most + 1, most * 2, most * 3 + 5, most * most] {
                let (block, blocks, rest) = blocks(bytes, most);
                assert_eq!(block * blocks + rest, bytes);
                assert!(
                    block <= most && blocks <= most && rest < block,
                    "{most} {bytes}"
                );
            }
        }
    }
}
