//! Operators.

use crate::element::{Element, Integer};

/// An operator of reductions and scans, as WGSL. The operator has to be associative and commutative: work-groups combine values
/// in an order of their own, the same in every run with the same length and [`Shape`](crate::Shape).
///
/// A program may bring an operator of its own:
/// ```
/// use tombolo_kernels::Operator;
///
/// /// Addition that stops at the largest number instead of wrapping around.
/// struct Saturating;
///
/// impl Operator<u32> for Saturating {
///     const IDENTITY: &'static str = "0u";
///     const COMBINE: &'static str = "a + min(b, ~a)";
/// }
/// ```
pub trait Operator<T: Element>: 'static {
    /// A WGSL expression of type `Element`, the value that leaves every value combined with it unchanged.
    const IDENTITY: &'static str;
    /// A WGSL expression of type `Element`, combining `a` and `b` of type `Element`.
    const COMBINE: &'static str;
    /// WGSL declarations of the functions called in the expressions.
    const FUNCTIONS: &'static str = "";
}

/// Addition. Integers wrap around; of `f32` each result depends on the order of additions, and the order does not change from
/// run to run.
#[derive(Debug, Clone, Copy)]
pub struct Sum;
/// Multiplication, with the same rules as [`Sum`].
#[derive(Debug, Clone, Copy)]
pub struct Product;
/// The smallest value; positive infinity, or the type's largest value, where there is none. Not defined for NaN.
#[derive(Debug, Clone, Copy)]
pub struct Min;
/// The largest value; negative infinity, or the type's smallest value, where there is none. Not defined for NaN.
#[derive(Debug, Clone, Copy)]
pub struct Max;
/// The bits that all values have.
#[derive(Debug, Clone, Copy)]
pub struct And;
/// The bits that at least one value has.
#[derive(Debug, Clone, Copy)]
pub struct Or;
/// The bits that an odd number of values have.
#[derive(Debug, Clone, Copy)]
pub struct Xor;

macro_rules! operators {
    ($($name:ident<$bound:ident>: $identity:literal, $combine:literal;)+) => {$(
        impl<T: $bound> Operator<T> for $name {
            const IDENTITY: &'static str = $identity;
            const COMBINE: &'static str = $combine;
        }
    )+};
}

operators! {
    Sum<Element>: "Element(0)", "a + b";
    Product<Element>: "Element(1)", "a * b";
    Min<Element>: "most()", "min(a, b)";
    Max<Element>: "least()", "max(a, b)";
    And<Integer>: "~Element(0)", "a & b";
    Or<Integer>: "Element(0)", "a | b";
    Xor<Integer>: "Element(0)", "a ^ b";
}

/// The WGSL source of an operator: the functions `identity` and `combine`.
pub(crate) fn source<T: Element, O: Operator<T>>() -> String {
    format!(
        "{}\nfn identity() -> Element {{ return {}; }}\n\
         fn combine(a: Element, b: Element) -> Element {{ return {}; }}\n",
        O::FUNCTIONS,
        O::IDENTITY,
        O::COMBINE
    )
}
