//! The numeric built-in functions of WGSL without an instruction of the machine.
//!
//! Each function is written once, over [`Lanes`], a small set of exact operations. With [`Scalar32`] each is a Rust function of
//! `f32`, compared by the tests with binary64 for every argument. The compiler implements [`Lanes`] for its instruction builder
//! and gets the same function as vector code with the same bits, whatever the number of lanes.
//!
//! Errors are in units in the last place (ULP): the distance of neighbouring floats around the true value. Each file has a table
//! of bounds of the errors, tested with samples of arguments, and of the operations of a single evaluation (constants and loads
//! not counted). `cargo run --release -p tombolo-cpu --example exhaustive` measures both again.
//!
//! | file | functions |
//! | --- | --- |
//! | [`trigonometric`] | `sin` `cos` `tan` |
//! | [`inverse`] | `asin` `acos` `atan` `atan2` |
//! | [`exponential`] | `exp` `exp2` |
//! | [`logarithm`] | `log` `log2` `pow` |
//! | [`hyperbolic`] | `sinh` `cosh` `tanh` `asinh` `acosh` `atanh` |
//! | [`common`] | `inverse_sqrt` `fma` `sign` `clamp` `saturate` `mix` `step` `smoothstep` `degrees` `radians` |
//! | [`rounding`] | `floor` `ceil` `trunc` `round` `fract` `modf` `remainder` `frexp` `ldexp` |
//! | [`half`] | `to_f16` `from_f16` `quantize` |
//! | [`convert`] | `float_to_signed` `float_to_unsigned` `signed_to_float` `unsigned_to_float` |
//! | [`bits`] | `count_one_bits` `reverse_bits` `count_leading_zeros` `count_trailing_zeros` `first_leading_bit_*` `first_trailing_bit` `extract_bits_*` `insert_bits` |
//! | [`division`] | `divide_*` `remainder_*` of i32 and u32 |
//! | [`packing`] | `pack_*` `unpack_*` `dot_4x*` |
//! | [`double`] | the transcendental functions of f64, as scalar calls |
//!
//! ```
//! use tombolo_cpu::math::{F, Scalar32, exponential};
//!
//! let lanes = Scalar32;
//! assert_eq!(exponential::exp2(F::new(&lanes, 10.0)).raw(), 1024.0);
//! ```

pub mod bits;
pub mod catalogue;
pub mod common;
pub mod convert;
mod cost;
pub mod division;
pub mod double;
pub mod exponential;
pub mod half;
pub mod hyperbolic;
pub mod inverse;

mod lanes;
pub mod logarithm;
pub mod packing;
pub mod rounding;
mod scalar;
#[cfg(test)]
mod tests;
pub mod trigonometric;
mod value;

pub use cost::Cost;
pub use lanes::{Lanes, Lanes32, Lanes64, Rare};
pub use scalar::{Scalar32, Scalar64};
pub use value::{F, I, M, Select, W};
