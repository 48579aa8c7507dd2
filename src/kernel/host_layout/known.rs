//! Layouts of structures that generic code finds by the names of types, and the comparison for values of calls.
//!
//! A function of the host takes any plain old data, and a bound of generic code cannot ask whether a type has a layout. So
//! [`shared!`](crate::shared) leaves every declared structure in a list that the linker collects (the crate `inventory`), and
//! calls look there by the compiler's name of a type. A builder may name further types. Two structures of one name are told
//! apart by nothing, and count as unknown unless they lie alike.
//!
//! [`Program::check_layout`](crate::Program::check_layout) compares places of bytes. A call also tells the types of fields
//! apart where both sides are scalars of one width: `f32` for `u32` is a fault here.

use super::compare::{compare, element, is_padding, member_of, members, path};
use super::render::{rust_type, without_modules};
use super::{HostShareable, LayoutDifference, LayoutFault, RustField, RustLayout};
use crate::kernel::calls::leaves::LeafScalar;
use crate::kernel::layout::TypeLayout;

/// A structure declared by [`shared!`](crate::shared), as the linker collects them.
#[doc(hidden)]
#[derive(Debug)]
pub struct SharedStructure {
    // The name of a type is no constant yet, but a function returning the name is.
    type_name: fn() -> &'static str,
    layout: &'static RustLayout,
}

impl SharedStructure {
    #[doc(hidden)]
    pub const fn of<T: HostShareable>() -> Self {
        Self {
            type_name: std::any::type_name::<T>,
            layout: const { &T::LAYOUT },
        }
    }
}

#[cfg(not(target_family = "wasm"))]
inventory::collect!(SharedStructure);

/// Every structure that the linker has collected; none in a browser, where no code runs before the program's own.
fn collected() -> impl Iterator<Item = &'static SharedStructure> {
    #[cfg(not(target_family = "wasm"))]
    return inventory::iter::<SharedStructure>.into_iter();
    #[cfg(target_family = "wasm")]
    return std::iter::empty();
}

/// Adds a structure to the list.
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_shared {
    ($name:ident) => {
        $crate::__private::inventory::submit! { $crate::__private::SharedStructure::of::<$name>() }
    };
}

#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __collect_shared {
    ($name:ident) => {};
}

/// The Rust structure that a value of a call is, or the elements of the array that the value is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueLayout {
    structure: &'static RustLayout,
    /// Dimensions of the array; 0 for the structure itself.
    dimensions: usize,
}

impl ValueLayout {
    /// Whether both are the same structures, as far as layouts tell.
    fn is_like(&self, other: &Self) -> bool {
        self.dimensions == other.dimensions && alike(self.structure, other.structure)
    }
}

/// The layouts of the Rust types of a function's arguments, and behind them of the result, where known; none at all for a
/// function served elsewhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueLayouts(pub Vec<Option<ValueLayout>>);

impl ValueLayouts {
    /// Whether a value of one function is another structure than that of the other function.
    pub fn conflict(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.any(|pair| matches!(pair, (Some(one), Some(two)) if !one.is_like(two)))
    }
}

/// Layouts decide whether a program is refused, and are no part of what a function is called by.
impl PartialEq for ValueLayouts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ValueLayouts {}

/// Layouts of Rust structures: those that a builder names, and behind them all that [`shared!`](crate::shared) declared.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownLayouts(Vec<(&'static str, &'static RustLayout)>);

impl KnownLayouts {
    pub fn add<T: HostShareable>(&mut self) {
        let structure = SharedStructure::of::<T>();
        self.0.push(((structure.type_name)(), structure.layout));
    }

    /// The layout of the structure with this name of a type, or of the structures in an array.
    pub fn of(&self, type_name: &str) -> Option<ValueLayout> {
        let (name, dimensions) = element_name(type_name);
        let mut named = self.0.iter();
        let named = named.find(|(known, _)| *known == name);
        let structure = match named {
            Some((_, structure)) => structure,
            None => declared(name)?,
        };
        Some(ValueLayout {
            structure,
            dimensions,
        })
    }
}

/// The structure that [`shared!`](crate::shared) declared under this name, if the name tells which.
fn declared(type_name: &str) -> Option<&'static RustLayout> {
    let mut found = collected().filter(|one| (one.type_name)() == type_name);
    let first = found.next()?.layout;
    found
        .all(|other| alike(first, other.layout))
        .then_some(first)
}

/// Whether two layouts have the same fields at the same places.
fn alike(one: &RustLayout, two: &RustLayout) -> bool {
    let same_field = |(one, two): (&RustField, &RustField)| {
        let nested = match (one.nested, two.nested) {
            (Some(one), Some(two)) => alike(one, two),
            (None, None) => true,
            _ => false,
        };
        nested
            && (one.member, one.offset, one.size) == (two.member, two.offset, two.size)
            && one.full_type_name() == two.full_type_name()
    };
    std::ptr::eq(one, two)
        || (one.size == two.size
            && one.fields.len() == two.fields.len()
            && one.fields.iter().zip(two.fields).all(same_field))
}

/// The element type in the name of an array, and of how many dimensions the array is.
fn element_name(mut name: &str) -> (&str, usize) {
    let mut dimensions = 0;
    while let Some((element, _)) = (name.strip_prefix('[')).and_then(|array| array.rsplit_once(';'))
    {
        (name, dimensions) = (element, dimensions + 1);
    }
    (name, dimensions)
}

/// Every difference between a Rust structure and the structure that a value of a call is in WGSL; between elements, where
/// both sides have arrays. `None` also for a type that is no such structure: sizes are compared elsewhere.
pub(crate) fn difference(
    program: &str,
    rust: &ValueLayout,
    wgsl: &TypeLayout,
) -> Option<Box<LayoutDifference>> {
    let (inner, dimensions) = element(wgsl);
    if dimensions != rust.dimensions || members(inner).is_empty() {
        return None;
    }
    let (mut faults, notes) = compare(rust.structure, inner);
    retyped(rust.structure, inner, "", &mut faults);
    if faults.is_empty() {
        return None;
    }
    Some(Box::new(LayoutDifference {
        program: program.to_owned(),
        rust: *rust.structure,
        wgsl: inner.clone(),
        faults,
        notes,
    }))
}

/// Adds the fields whose scalars are of another type, and of the same width.
fn retyped(rust: &RustLayout, wgsl: &TypeLayout, outer: &str, faults: &mut Vec<LayoutFault>) {
    for field in rust.fields.iter().filter(|field| !is_padding(field)) {
        let Some(member) = member_of(field, wgsl) else {
            continue;
        };
        let name = path(outer, field.name());
        let (inner, depth) = element(&member.layout);
        if let Some(nested) = field.nested() {
            let name = format!("{name}{}", "[]".repeat(depth));
            retyped(nested, inner, &name, faults);
            continue;
        }
        let own = LeafScalar::of_rust(field.full_type_name());
        let theirs = inner.scalar.and_then(LeafScalar::of);
        let differs = own
            .zip(theirs)
            .is_some_and(|(own, theirs)| own != theirs && own.bytes() == theirs.bytes());
        if differs && !faults.iter().any(|fault| fault.field() == name) {
            faults.push(LayoutFault::Type {
                field: name,
                rust: without_modules(field.full_type_name()),
                wgsl: member.layout.wgsl.clone(),
                hint: rust_type(&member.layout).map(|ty| format!("declare it as `{ty}` in Rust")),
            });
        }
    }
}

#[cfg(test)]
mod tests;
