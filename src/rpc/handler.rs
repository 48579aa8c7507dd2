//! Handlers: Rust functions serving calls, from the words of a port and back.

use bytemuck::Pod;

use super::argument_lists::for_argument_lists;

/// A call-serving Rust function or closure, of up to twelve arguments.
///
/// Arguments and result are plain old data of the same size as the WGSL types of the signature: `u32`, `i32` and `f32`,
/// and `u64`, `i64`, `f64` and `half::f16` for kernels on devices that have them; arrays of them for vectors (`[f32; 3]`
/// for `vec3<f32>`) and matrices; [`Ptr`](crate::Ptr) for `usm_ptr`; structures of the same layout. `()` is the result of
/// functions without one.
pub trait Handler<Arguments, Result>: Send + Sync + 'static {
    /// Bytes of each argument.
    #[doc(hidden)]
    fn argument_bytes() -> Vec<usize>;
    /// Bytes of the result.
    #[doc(hidden)]
    fn result_bytes() -> usize;
    /// The compiler's names for the types of the arguments, and behind them for that of the result.
    #[doc(hidden)]
    fn type_names() -> Vec<&'static str>;
    /// Serves a call. `arguments` has as many words as the arguments need.
    #[doc(hidden)]
    fn serve(&self, arguments: &[u32], results: &mut Vec<u32>);
}

/// Takes a value from the front of `words`. Missing words are zero.
pub(super) fn take<T: Pod>(words: &mut &[u32]) -> T {
    let bytes = size_of::<T>();
    let (own, rest) = words.split_at(bytes.div_ceil(4).min(words.len()));
    *words = rest;
    let mut value = T::zeroed();
    let from: &[u8] = bytemuck::cast_slice(own);
    let to = bytemuck::bytes_of_mut(&mut value);
    let len = to.len().min(from.len());
    to[..len].copy_from_slice(&from[..len]);
    value
}

/// Appends a value.
pub(super) fn put<T: Pod>(value: &T, words: &mut Vec<u32>) {
    let bytes = bytemuck::bytes_of(value);
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        words.push(u32::from_le_bytes(word));
    }
}

macro_rules! handlers {
    ($(($($argument:ident $index:tt),*))*) => {$(
        impl<Function, $($argument,)* Output> Handler<($($argument,)*), Output> for Function
        where
            Function: Fn($($argument),*) -> Output + Send + Sync + 'static,
            $($argument: Pod,)*
            Output: Pod,
        {
            fn argument_bytes() -> Vec<usize> {
                vec![$(size_of::<$argument>()),*]
            }

            fn result_bytes() -> usize {
                size_of::<Output>()
            }

            fn type_names() -> Vec<&'static str> {
                vec![$(std::any::type_name::<$argument>(),)* std::any::type_name::<Output>()]
            }

            fn serve(&self, arguments: &[u32], results: &mut Vec<u32>) {
                #[allow(unused_mut, unused_variables)]
                let mut words = arguments;
                // Arguments are evaluated in order.
                let result = self($(take::<$argument>(&mut words)),*);
                put(&result, results);
            }
        }
    )*};
}

for_argument_lists!(handlers);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Ptr;

    fn run<A, R, H: Handler<A, R>>(handler: H, arguments: &[u32]) -> (Vec<usize>, usize, Vec<u32>) {
        let mut results = Vec::new();
        handler.serve(arguments, &mut results);
        (H::argument_bytes(), H::result_bytes(), results)
    }

    #[test]
    fn arguments_come_in_order_and_results_go_back() {
        let sum = |a: u32, b: [f32; 3], c: i32| a as f32 + b[0] * b[1] * b[2] + c as f32;
        let words = [
            1,
            2f32.to_bits(),
            3f32.to_bits(),
            4f32.to_bits(),
            (-5i32) as u32,
        ];
        assert_eq!(run(sum, &words), (vec![4, 12, 4], 4, vec![20f32.to_bits()]));
        assert_eq!(run(|| (), &[]), (vec![], 0, vec![]));
        let next = |p: Ptr<u32>| Ptr::<u32>::from_address(p.address() + 4);
        assert_eq!(run(next, &[0xFFFF_FFFC, 7]), (vec![8], 8, vec![0, 8]));
        assert_eq!(
            run(|a: u8| [a, a + 1, a + 2], &[0x0105]),
            (vec![1], 3, vec![0x0007_0605])
        );
    }

    #[test]
    fn words_that_are_missing_are_zero() {
        assert_eq!(
            run(|a: u32, b: [u32; 2]| [a, b[0], b[1]], &[9]).2,
            [9, 0, 0]
        );
    }
}
