//! Functions in Rust for kernels to call: for work too long to be emitted, or in need of Rust itself.
//!
//! *The seam.* A kernel calls for all its lanes at once. Operands and results are arrays of words, a row for each value
//! and a column for each lane; a value of 64 bits has columns of two words. `lanes` has a bit for each lane taking
//! part; results of other lanes are never read. Resources are the targets of the bound entries. `which` tells apart
//! functions with the same code.
//!
//! ```text
//! operands   lane 0   lane 1   …            results   lane 0   lane 1   …
//! row 0      x        x                     row 0     …
//! row 1      y        y
//! ```
//!
//! To add a function: a variant of [`HostFunction`], its code of type [`HostFn`], and a
//! [`Statement::Call`](super::ir::Statement::Call) where the front lowers the feature in question.

use std::slice;

use super::{
    abi::BoundResource,
    image::{self, ImageAtomic, ImageQuery, Sampled},
    subgroup,
};
use crate::{
    math::{Rare, double},
    sanitizer, schedule,
};

/// The code of a function.
///
/// # Safety
/// `resources` point to as many entries as the function takes, the words to as many rows of `width` columns as the
/// function takes and gives, aligned to their type. A function must not unwind, and must hold nothing during accesses
/// to memory named by a kernel.
pub(crate) type HostFn = unsafe extern "C" fn(
    resources: *const *const BoundResource,
    operands: *const u32,
    results: *mut u32,
    lanes: u32,
    width: u32,
    which: u32,
);

/// A function in Rust.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HostFunction {
    /// `a * b + c` of `f32`, rounded once, for processors without an instruction
    MultiplyAdd32,
    /// The same of `f64`
    MultiplyAdd64,
    /// A function of `f32` for arguments too large for the usual way
    Rare(Rare),
    /// A function of a single `f64`
    Double1(double::Unary),
    /// A function of two
    Double2(double::Binary),
    /// Reads a texel
    ImageLoad,
    /// Writes a texel
    ImageStore,
    /// Changes a texel
    ImageAtomic(ImageAtomic),
    /// Asks about a texture
    ImageQuery(ImageQuery),
    /// Samples a texture
    ImageSample(Sampled),
    /// Tells the monitor of the dispatch of a site, by number
    Check(u32),
    /// Puts the invocations of a work-group in an order, by a seed
    Shuffle,
    /// Performs an operation of all lanes taking part together: see [`subgroup`]
    Subgroup(subgroup::Operation),
    /// Lets invocations go on after coming together
    Meet,
}

/// The addresses called by kernels, by [`HostFunction::index`].
pub(crate) static FUNCTIONS: [HostFn; 14] = [
    multiply_add_32,
    multiply_add_64,
    rare,
    double_1,
    double_2,
    image::load,
    image::store,
    image::atomic,
    image::query,
    image::sample,
    sanitizer::check,
    schedule::shuffle,
    subgroup::of_lanes,
    subgroup::meet,
];

impl HostFunction {
    /// Where kernels find the address of the function.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::MultiplyAdd32 => 0,
            Self::MultiplyAdd64 => 1,
            Self::Rare(_) => 2,
            Self::Double1(_) => 3,
            Self::Double2(_) => 4,
            Self::ImageLoad => 5,
            Self::ImageStore => 6,
            Self::ImageAtomic(_) => 7,
            Self::ImageQuery(_) => 8,
            Self::ImageSample(_) => 9,
            Self::Check(_) => 10,
            Self::Shuffle => 11,
            Self::Subgroup(_) => 12,
            Self::Meet => 13,
        }
    }

    /// The number telling the function apart from others with the same code.
    pub(crate) fn which(self) -> u32 {
        match self {
            Self::MultiplyAdd32
            | Self::MultiplyAdd64
            | Self::ImageLoad
            | Self::ImageStore
            | Self::Shuffle
            | Self::Meet => 0,
            Self::Subgroup(operation) => operation.encode(),
            Self::Check(site) => site,
            Self::ImageAtomic(operation) => operation as u32,
            Self::ImageQuery(query) => query as u32,
            Self::ImageSample(way) => way.which(),
            Self::Rare(function) => function as u32,
            Self::Double1(function) => function as u32,
            Self::Double2(function) => function as u32,
        }
    }

    /// Whether a call whose results nobody needs can be left out.
    pub(crate) fn is_pure(self) -> bool {
        match self {
            Self::MultiplyAdd32
            | Self::MultiplyAdd64
            | Self::Rare(_)
            | Self::Double1(_)
            | Self::Double2(_)
            | Self::ImageLoad
            | Self::ImageQuery(_)
            | Self::ImageSample(_) => true,
            Self::ImageStore
            | Self::ImageAtomic(_)
            | Self::Check(_)
            | Self::Shuffle
            | Self::Subgroup(_)
            | Self::Meet => false,
        }
    }

    /// Whether a call is no work of the kernel's own.
    pub(crate) fn observes(self) -> bool {
        matches!(self, Self::Check(_) | Self::Shuffle)
    }
}

/// Gives each lane taking part the result of `f` for the lane's operands.
///
/// # Safety
/// There must be `N` rows of operands and a row of results, of `width` columns, aligned to their type.
unsafe fn each_lane<T: Copy, const N: usize>(
    operands: *const u32,
    results: *mut u32,
    lanes: u32,
    width: u32,
    f: impl Fn([T; N]) -> T,
) {
    let width = width as usize;
    // SAFETY: by contract, and results lie apart from operands.
    let (operands, results) = unsafe {
        (
            slice::from_raw_parts(operands.cast::<T>(), N * width),
            slice::from_raw_parts_mut(results.cast::<T>(), width),
        )
    };
    for (lane, result) in results.iter_mut().enumerate() {
        if lanes >> lane & 1 != 0 {
            *result = f(std::array::from_fn(|row| operands[row * width + lane]));
        }
    }
}

/// Defines functions computing lane by lane.
macro_rules! lane_functions {
    ($($name:ident: $number:ty, |$which:ident, $operands:pat_param| $body:expr;)*) => {$(
        /// See [`HostFn`].
        unsafe extern "C" fn $name(
            _resources: *const *const BoundResource,
            operands: *const u32,
            results: *mut u32,
            lanes: u32,
            width: u32,
            $which: u32,
        ) {
            // SAFETY: by contract.
            unsafe { each_lane::<$number, _>(operands, results, lanes, width, |$operands| $body) };
        }
    )*};
}

lane_functions! {
    // Not `mul_add` of the standard library: the system's C library is asked there, and MinGW's rounds twice.
    multiply_add_32: f32, |_which, [a, b, c]| libm::fmaf(a, b, c);
    multiply_add_64: f64, |_which, [a, b, c]| libm::fma(a, b, c);
    rare: f32, |which, [x]| Rare::ALL.get(which as usize).map_or(x, |f| f.function()(x));
    double_1: f64, |which, [x]| double::Unary::ALL.get(which as usize).map_or(x, |f| f.function()(x));
    double_2: f64, |which, [x, y]| double::Binary::ALL.get(which as usize).map_or(x, |f| f.function()(x, y));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_share_code_are_told_apart() {
        for (at, &function) in double::Unary::ALL.iter().enumerate() {
            assert_eq!(HostFunction::Double1(function).which() as usize, at);
        }
        for (at, &function) in double::Binary::ALL.iter().enumerate() {
            assert_eq!(HostFunction::Double2(function).which() as usize, at);
        }
        for (at, &function) in Rare::ALL.iter().enumerate() {
            assert_eq!(HostFunction::Rare(function).which() as usize, at);
        }
    }

    #[test]
    fn lanes_that_take_no_part_stay_as_they_were() {
        let operands = [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut results = [-1.0f64; 2];
        let code = FUNCTIONS[HostFunction::MultiplyAdd64.index()];
        // SAFETY: three rows of two columns, and a row of results.
        unsafe {
            code(
                std::ptr::null(),
                operands.as_ptr().cast(),
                results.as_mut_ptr().cast(),
                0b10,
                2,
                0,
            );
        }
        assert_eq!(results, [-1.0, 2.0 * 4.0 + 6.0]);
    }
}
