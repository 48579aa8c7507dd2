//! Types of elements.

use std::fmt::Debug;

use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// A type of values for the kernels of the crate: `u32`, `i32` or `f32`.
pub trait Element: Pod + Debug + PartialEq + sealed::Sealed {
    /// A WGSL source that declares the type as `Element`, and the functions `least` and `most`, returning the smallest and the
    /// largest value, for `f32` the infinities.
    #[doc(hidden)]
    const SOURCE: &'static str;
    /// A WGSL source with the functions `ordered` and `bits_of`, turning the bits of a value into a number of the same order,
    /// and back.
    #[doc(hidden)]
    const ORDER: &'static str;
}

/// An element type with bits: `u32` or `i32`.
pub trait Integer: Element {}

macro_rules! elements {
    ($($ty:ty: $source:literal, $order:literal;)+) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const SOURCE: &'static str = include_str!($source);
            const ORDER: &'static str = include_str!($order);
        }
    )+};
}

elements! {
    u32: "../shaders/element_u32.wgsl", "../shaders/order_u32.wgsl";
    i32: "../shaders/element_i32.wgsl", "../shaders/order_i32.wgsl";
    f32: "../shaders/element_f32.wgsl", "../shaders/order_f32.wgsl";
}

impl Integer for u32 {}
impl Integer for i32 {}
