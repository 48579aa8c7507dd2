//! Host and device layouts: a structure that is declared twice, once in Rust and once in WGSL, and whose bytes both sides read.
//! Nothing but care keeps two such declarations alike, and the two languages place members by different rules
//! (WGSL specification, "Alignment and Size", against `#[repr(C)]`). Here they are compared.
//!
//! - [`RustLayout`] says how the Rust side lies in memory; `layout_of!` and `shared!` make a layout, from the
//!   compiler's own offsets and sizes.
//! - [`Program::check_layout`] compares a layout with the type of that name in a program (`compare`), and reports every
//!   difference at once, with both layouts side by side (`render`).
//!
//! Nothing is generated, so that both declarations stay what the reader sees.

use std::fmt;
use std::marker::PhantomData;

mod compare;
mod known;
mod lookup;
mod mismatch;
mod render;
mod text;

#[doc(hidden)]
pub use known::SharedStructure;
pub(crate) use known::{KnownLayouts, ValueLayouts, difference};
pub use mismatch::{LayoutDifference, LayoutFault, LayoutMismatch};
pub(crate) use text::{faults, plain_name, rust_text, wgsl_text};

/// How a Rust structure lies in memory; made by [`layout_of!`](crate::layout_of) or
/// [`shared!`](crate::shared), compared by [`Program::check_layout`](crate::Program::check_layout).
#[derive(Debug, Clone, Copy)]
pub struct RustLayout {
    /// The name of the structure.
    pub name: &'static str,
    /// Bytes of one value.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// The fields, in the order of their listing.
    pub fields: &'static [RustField],
    /// The macros make layouts in the crates of programs, where nobody makes a `#[non_exhaustive]` structure, nor calls a
    /// function with a list that has to be a constant. This field says that nobody else is to make layouts.
    #[doc(hidden)]
    pub made_by_macros: (),
}

/// One field of a [`RustLayout`].
#[derive(Clone, Copy)]
pub struct RustField {
    name: &'static str,
    member: Option<&'static str>,
    offset: usize,
    size: usize,
    align: usize,
    nested: Option<&'static RustLayout>,
    // The name of a type is no constant yet, but a function returning the name is.
    type_name: fn() -> &'static str,
}

impl RustField {
    /// What the macros make of a field: `get` only serves to tell the type of the field.
    #[doc(hidden)]
    pub const fn of<S, F>(
        name: &'static str,
        member: Option<&'static str>,
        offset: usize,
        _get: fn(S) -> F,
        nested: Option<&'static RustLayout>,
    ) -> Self {
        Self {
            name,
            member,
            offset,
            size: size_of::<F>(),
            align: align_of::<F>(),
            nested,
            type_name: std::any::type_name::<F>,
        }
    }

    /// The name of the field in Rust.
    pub fn name(&self) -> &'static str {
        plain(self.name)
    }

    /// The name of the member of the WGSL structure that the field is compared with; `None` for a field declared as
    /// padding.
    pub fn member_name(&self) -> Option<&'static str> {
        self.member.map(plain)
    }

    /// Bytes from the start of the structure.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of the field.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Alignment of the field in bytes.
    pub const fn align(&self) -> usize {
        self.align
    }

    /// The layout of the structure in the field, or in an array there, where known.
    pub const fn nested(&self) -> Option<&'static RustLayout> {
        self.nested
    }

    /// The type of the field, as the compiler names the type.
    fn full_type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// The type of the field, without the modules in its names.
    pub fn type_name(&self) -> String {
        render::without_modules((self.type_name)())
    }
}

impl fmt::Debug for RustField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustField")
            .field("name", &self.name())
            .field("type", &self.type_name())
            .field("member", &self.member_name())
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("align", &self.align)
            .field("nested", &self.nested)
            .finish()
    }
}

/// The name of a field that Rust has to write as a raw identifier.
fn plain(name: &'static str) -> &'static str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// A structure whose layout is known, because [`shared!`](crate::shared) declared it.
pub trait HostShareable {
    /// How the structure lies in memory.
    const LAYOUT: RustLayout;
}

/// Finds the layout of a type with or without a layout: where `T` has a layout, the inherent constant hides the one of
/// [`NoLayout`].
#[doc(hidden)]
#[derive(Debug)]
pub struct MaybeNested<T>(PhantomData<T>);

impl<T: HostShareable> MaybeNested<T> {
    #[doc(hidden)]
    pub const LAYOUT: Option<&'static RustLayout> = Some(&T::LAYOUT);
}

impl<T: HostShareable, const N: usize> MaybeNested<[T; N]> {
    #[doc(hidden)]
    pub const LAYOUT: Option<&'static RustLayout> = Some(&T::LAYOUT);
}

#[doc(hidden)]
pub trait NoLayout {
    #[doc(hidden)]
    const LAYOUT: Option<&'static RustLayout> = None;
}

impl<T> NoLayout for MaybeNested<T> {}

/// The [`RustLayout`] of a structure, from the names of the structure and all its fields. It is a constant. A field
/// left out, or that the structure does not have, is an error of the compiler.
///
/// | written | meaning |
/// | --- | --- |
/// | `field` | the WGSL structure has a member of the same name |
/// | `field => other` | the member is called `other` |
/// | `field => _` | padding: no member stands for it; so are fields whose name begins with `_` and has no member |
/// | `field: Type { … }` | the field is itself a structure, whose fields are compared too |
/// | `field: [Type { … }]` | the field is an array of such structures |
/// | `field: Type`, `field: [Type]` | the same for a structure that [`shared!`](crate::shared) declared |
///
/// The fields need not be public, but visible where the macro stands. The structure should be `#[repr(C)]`, since
/// Rust otherwise places fields as it likes. It may have parameters (`Pair<f32> { … }`).
///
/// ```
/// use tombolo::{Program, Ptr, layout_of};
///
/// #[repr(C)]
/// struct Node {
///     value: f32,
///     padding: u32,
///     next: Ptr<Node>,
/// }
///
/// let program = Program::new("list.wgsl", "
///     struct Node { weight: f32, next: usm_ptr }
///     @group(0) @binding(0) var<storage, read_write> first: usm_ptr;
///     @compute @workgroup_size(1) fn main() { let node = usm_Node(first); node.weight *= 2.0; }")?;
/// program.check_layout("Node", &layout_of!(Node { value => weight, padding => _, next }))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A field was added, and the list forgotten:
///
/// ```compile_fail
/// struct Node { value: f32, next: tombolo::Ptr<Node>, colour: u32 }
/// let layout = tombolo::layout_of!(Node { value, next });
/// ```
#[macro_export]
macro_rules! layout_of {
    (@field $ty:path, $field:ident, $member:expr, []) => {
        $crate::layout_of!(@made $ty, $field, $member, |whole: $ty| whole.$field, None)
    };
    (@field $ty:path, $field:ident, $member:expr, [[$nested:ident { $($inner:tt)* }]]) => {
        $crate::layout_of!(@made $ty, $field, $member, |whole: $ty| -> [$nested; _] { whole.$field },
            Some(const { &$crate::layout_of!($nested { $($inner)* }) }))
    };
    (@field $ty:path, $field:ident, $member:expr, [[$nested:ty]]) => {
        $crate::layout_of!(@made $ty, $field, $member, |whole: $ty| -> [$nested; _] { whole.$field },
            Some(const { &<$nested as $crate::kernel::HostShareable>::LAYOUT }))
    };
    (@field $ty:path, $field:ident, $member:expr, [$nested:ident { $($inner:tt)* }]) => {
        $crate::layout_of!(@made $ty, $field, $member, |whole: $ty| -> $nested { whole.$field },
            Some(const { &$crate::layout_of!($nested { $($inner)* }) }))
    };
    (@field $ty:path, $field:ident, $member:expr, [$nested:ident]) => {
        $crate::layout_of!(@made $ty, $field, $member, |whole: $ty| -> $nested { whole.$field },
            Some(const { &<$nested as $crate::kernel::HostShareable>::LAYOUT }))
    };
    (@made $ty:path, $field:ident, $member:expr, $get:expr, $nested:expr) => {
        $crate::kernel::RustField::of(
            ::core::stringify!($field), $member, ::core::mem::offset_of!($ty, $field), $get, $nested,
        )
    };
    (@member $field:ident) => { Some(::core::stringify!($field)) };
    (@member $field:ident _) => { None };
    (@member $field:ident $member:ident) => { Some(::core::stringify!($member)) };
    ($ty:path {
        $($field:ident $(=> $member:tt)? $(: $nested:tt $({ $($inner:tt)* })?)?),* $(,)?
    }) => {
        const {
            // Refused by the compiler where a field is left out.
            let _: fn($ty) = |whole| { let $ty { $($field: _),* } = whole; };
            $crate::kernel::RustLayout {
                name: ::core::stringify!($ty),
                size: ::core::mem::size_of::<$ty>(),
                align: ::core::mem::align_of::<$ty>(),
                made_by_macros: (),
                fields: &[$($crate::layout_of!(
                    @field $ty, $field, $crate::layout_of!(@member $field $($member)?),
                    [$($nested $({ $($inner)* })?)?]
                )),*],
            }
        }
    };
}

/// Declares structures that host and kernels share: `#[repr(C)]` is added, and [`HostShareable`] implemented, so a
/// structure's layout is `Name::LAYOUT`. Fields of such structures, or arrays of them, are compared in full depth.
/// Fields whose name begins with `_` are padding. Calls between kernels and the host compare such structures by themselves
/// when a program is built.
///
/// A crate with `bytemuck` among its own dependencies derives the traits directly; any other crate names their path, as
/// here.
///
/// ```
/// use tombolo::bytemuck::{Pod, Zeroable};
/// use tombolo::{Program, shared, kernel::HostShareable};
///
/// shared! {
///     #[derive(Debug, Clone, Copy, Pod, Zeroable)]
///     #[bytemuck(crate = "tombolo::bytemuck")]
///     pub struct Body {
///         pub mass: f32,
///         pub at: [f32; 3],
///     }
/// }
///
/// let program = Program::new("body.wgsl", "struct Body { mass: f32, at: vec3<f32> }")?;
/// // WGSL aligns a `vec3<f32>` to 16 bytes.
/// let error = program.check_layout("Body", &Body::LAYOUT).unwrap_err();
/// assert!(error.to_string().contains("`at` lies at byte 4 in Rust and at byte 16 in WGSL"));
/// # Ok::<(), tombolo::kernel::KernelError>(())
/// ```
#[macro_export]
macro_rules! shared {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $ty:ty),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $ty),*
        }

        impl $crate::kernel::HostShareable for $name {
            const LAYOUT: $crate::kernel::RustLayout = $crate::kernel::RustLayout {
                name: ::core::stringify!($name),
                size: ::core::mem::size_of::<$name>(),
                align: ::core::mem::align_of::<$name>(),
                made_by_macros: (),
                fields: &[$({
                    #[allow(unused_imports)]
                    use $crate::__private::NoLayout as _;
                    $crate::kernel::RustField::of(
                        ::core::stringify!($field),
                        Some(::core::stringify!($field)),
                        ::core::mem::offset_of!($name, $field),
                        |whole: $name| whole.$field,
                        $crate::__private::MaybeNested::<$ty>::LAYOUT,
                    )
                }),*],
            };
        }

        $crate::__collect_shared!($name);
    )*};
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod nested_tests;
