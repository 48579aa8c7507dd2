//! Transcendental functions of f64: scalar calls, lane by lane.
//!
//! Kernels with f64 are rare, and WGSL bounds no errors there. The `libm` crate computes these in plain
//! Rust with IEEE-exact operations, so that the results are the same bits on every machine. Its errors
//! stay below 1 unit in the last place for most, 2 for the hyperbolic ones. Whole parts, exponents
//! and conversions of f64 are lane operations of the other files.

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// Inverse sine.
    Asin,
    /// Inverse cosine.
    Acos,
    /// Inverse tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Hyperbolic tangent.
    Tanh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// e to a power.
    Exp,
    /// 2 to a power.
    Exp2,
    /// Natural logarithm.
    Log,
    /// Logarithm to base 2.
    Log2,
}

/// A function of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// The angle of the point (second, first).
    Atan2,
    /// The first to the power of the second; NaN for a negative first, as with f32.
    Pow,
}

macro_rules! table {
    ($type:ident, $function:ty: $($variant:ident $name:ident($($argument:ident),*) = $body:expr;)*) => {
        impl $type {
            /// All of them, for an implementation that registers symbols.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code to call.
            pub fn function(self) -> $function {
                match self {
                    $(Self::$variant => {
                        extern "C" fn call($($argument: f64),*) -> f64 {
                            $body
                        }
                        call
                    })*
                }
            }

            /// A symbol for the code, the same in every build.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("tombolo_f64_", stringify!($name)),)*
                }
            }
        }
    };
}
table! { Unary, extern "C" fn(f64) -> f64:
    Sin sin(x) = libm::sin(x);
    Cos cos(x) = libm::cos(x);
    Tan tan(x) = libm::tan(x);
    Asin asin(x) = libm::asin(x);
    Acos acos(x) = libm::acos(x);
    Atan atan(x) = libm::atan(x);
    Sinh sinh(x) = libm::sinh(x);
    Cosh cosh(x) = libm::cosh(x);
    Tanh tanh(x) = libm::tanh(x);
    Asinh asinh(x) = libm::asinh(x);
    Acosh acosh(x) = libm::acosh(x);
    Atanh atanh(x) = libm::atanh(x);
    Exp exp(x) = libm::exp(x);
    Exp2 exp2(x) = libm::exp2(x);
    Log log(x) = libm::log(x);
    Log2 log2(x) = libm::log2(x);
}
table! { Binary, extern "C" fn(f64, f64) -> f64:
    Atan2 atan2(y, x) = libm::atan2(y, x);
    Pow pow(x, y) = if x < 0.0 && y != 0.0 { f64::NAN } else { libm::pow(x, y) };
}
