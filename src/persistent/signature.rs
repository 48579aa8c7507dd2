//! Rust values as arguments and results of handlers, and whether they fit.

use bytemuck::Pod;

use super::error::ServerError;
use crate::kernel::calls::leaves::LeafScalar;
use crate::kernel::host_layout::{KnownLayouts, difference};
use crate::kernel::layout::TypeLayout;
use crate::kernel::server::HandlerDeclaration;
use crate::memory::Ptr;
use crate::rpc::for_argument_lists;

/// A Rust type as it is compared with a WGSL type.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct RustType {
    name: &'static str,
    bytes: usize,
    pointer: bool,
}

impl RustType {
    fn of<T: Pod>() -> Self {
        let name = std::any::type_name::<T>();
        let pointer = std::any::type_name::<Ptr<u32>>();
        let head = pointer.split('<').next().unwrap_or(pointer);
        Self {
            name,
            bytes: size_of::<T>(),
            pointer: name.split('<').next() == Some(head),
        }
    }

    /// The type in few words: without the paths of modules.
    fn text(self) -> String {
        let parts = self
            .name
            .split_inclusive(['<', '>', ',', ' ', '[', ']', ';']);
        parts
            .map(|part| part.rsplit("::").next().unwrap_or(part))
            .collect()
    }

    /// Why it does not fit a WGSL type.
    fn differs(self, layout: &TypeLayout) -> Option<String> {
        let wgsl = &layout.wgsl;
        if layout.size as usize != self.bytes {
            return Some(format!(
                "`{wgsl}` has {} bytes, and `{}` {}",
                layout.size,
                self.text(),
                self.bytes
            ));
        }
        let theirs = layout.scalar.and_then(LeafScalar::of);
        let same = match (LeafScalar::of_rust(self.name), theirs, self.pointer) {
            // Another width is another view of the same words: `u64` for `vec2<u32>`.
            (Some(own), Some(theirs), _) => own == theirs || own.bytes() != theirs.bytes(),
            (_, word, true) => word == Some(LeafScalar::U32) && layout.align == 8,
            _ => true,
        };
        (!same).then(|| format!("`{wgsl}` is no `{}`", self.text()))
    }
}

/// Arguments of a handler: a tuple of up to twelve values of plain old data, `()` for none.
///
/// `u32`, `i32` and `f32` are the types of WGSL, and so are `u64`, `i64`, `f64` and `half::f16` where the device has them;
/// arrays of them are vectors (`[f32; 3]` for `vec3<f32>`) and matrices; [`Ptr`] is `usm_ptr`; structures have the same
/// layout.
pub trait CallArguments: Send {
    /// The types.
    #[doc(hidden)]
    fn types() -> Vec<RustType>;
    /// Words of all values: each begins a word.
    #[doc(hidden)]
    fn words() -> usize;
    /// Writes the values into so many words, which are zero.
    #[doc(hidden)]
    fn put(&self, words: &mut [u32]);
    /// Reads the values out of words that [`CallArguments::put`] has written, perhaps in another process. Missing words are
    /// zero.
    #[doc(hidden)]
    fn get(words: &[u32]) -> Self;
}

/// The result of a handler: a value of plain old data, or `()` for none.
pub trait CallResult: Pod + Send {}

impl<T: Pod + Send> CallResult for T {}

fn put_one<T: Pod>(value: &T, words: &mut [u32]) {
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
    let from = bytemuck::bytes_of(value);
    let len = from.len().min(bytes.len());
    bytes[..len].copy_from_slice(&from[..len]);
}

/// A value out of words; missing words are zero.
pub(super) fn take<T: Pod>(words: &[u32]) -> T {
    let mut value = T::zeroed();
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let to = bytemuck::bytes_of_mut(&mut value);
    let len = to.len().min(bytes.len());
    to[..len].copy_from_slice(&bytes[..len]);
    value
}

macro_rules! arguments {
    ($(($($argument:ident $index:tt),*))*) => {$(
        impl<$($argument: Pod + Send),*> CallArguments for ($($argument,)*) {
            fn types() -> Vec<RustType> {
                vec![$(RustType::of::<$argument>()),*]
            }

            fn words() -> usize {
                0 $(+ size_of::<$argument>().div_ceil(4))*
            }

            #[allow(unused_variables, unused_assignments, unused_mut)]
            fn put(&self, words: &mut [u32]) {
                let mut rest = words;
                $(
                    let count = size_of::<$argument>().div_ceil(4).min(rest.len());
                    let (own, others) = rest.split_at_mut(count);
                    put_one(&self.$index, own);
                    rest = others;
                )*
            }

            #[allow(unused_variables, unused_assignments, unused_mut, clippy::unused_unit)]
            fn get(words: &[u32]) -> Self {
                let mut rest = words;
                ($({
                    let count = size_of::<$argument>().div_ceil(4).min(rest.len());
                    let (own, others) = rest.split_at(count);
                    rest = others;
                    take::<$argument>(own)
                },)*)
            }
        }
    )*};
}

for_argument_lists!(arguments);

/// Compares a handler of `program` with the Rust types of its calls.
pub(super) fn check<A: CallArguments, R: CallResult>(
    handler: &HandlerDeclaration,
    program: &str,
    known: &KnownLayouts,
) -> Result<(), ServerError> {
    let (types, result) = (A::types(), RustType::of::<R>());
    let fault = |why: String| {
        let arguments: Vec<String> = types.iter().map(|ty| ty.text()).collect();
        Err(ServerError::Signature {
            wgsl: handler.signature.text(),
            rust: format!("({}) -> {}", arguments.join(", "), result.text()),
            why,
        })
    };
    if types.len() != handler.parameters.len() {
        return fault(format!(
            "it takes {} arguments, and is given {}",
            handler.parameters.len(),
            types.len()
        ));
    }
    let alike = |what: String, ty: &RustType, layout: &TypeLayout| {
        let rust = known.of(ty.name);
        match rust.and_then(|rust| difference(program, &rust, layout)) {
            None => Ok(()),
            Some(difference) => Err(ServerError::Layout {
                handler: handler.signature.text(),
                value: what,
                difference,
            }),
        }
    };
    let names = handler.given().iter();
    for ((ty, layout), (name, _)) in types.iter().zip(&handler.parameters).zip(names) {
        alike(format!("`{name}`"), ty, layout)?;
        if let Some(why) = ty.differs(layout) {
            return fault(format!("`{name}`: {why}"));
        }
    }
    if let Some(layout) = &handler.result {
        alike("the result".to_owned(), &result, layout)?;
    }
    match &handler.result {
        None if result.bytes != 0 => fault("it has no result".to_owned()),
        Some(layout) => match result.differs(layout) {
            Some(why) => fault(format!("the result: {why}")),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_out_of_their_words() {
        fn through<A: CallArguments + PartialEq + std::fmt::Debug>(arguments: A) {
            let mut words = vec![0; A::words()];
            arguments.put(&mut words);
            assert_eq!(A::get(&words), arguments);
        }
        through(());
        through((7u32,));
        through((1u32, [0.5f32, -2.0, 3.0], -9i32));
        through(([1u8, 2, 3, 4, 5], 6u16, 7u64, 8u32, 9i32, 10.5f32));
        // What is missing is zero.
        assert_eq!(<(u32, u32)>::get(&[5]), (5, 0));
    }
}
