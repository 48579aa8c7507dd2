//! Parallel primitives on the runtime [Tombolo](tombolo): reductions and scans, of segments too, compaction, histograms,
//! sorting and products of matrices, on every adapter of the runtime.
//!
//! ```no_run
//! use tombolo::Context;
//! use tombolo_kernels::{Reduce, Scan, Sum};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Context::new()?.device()?;
//! let values = device.buffer(&[3u32, 1, 4, 1, 5])?;
//! let (total, ends) = (device.zeroed(1)?, device.zeroed(5)?);
//!
//! let mut reduce = Reduce::<u32, Sum>::new(&device)?;
//! reduce.run(&values, &total)?;
//! let mut scan = Scan::<u32, Sum>::inclusive(&device)?;
//! scan.run(&values, &ends)?;
//! assert_eq!(total.read()?, [14]);
//! assert_eq!(ends.read()?, [3, 4, 8, 9, 14]);
//! # Ok(())
//! # }
//! ```
//!
//! # How a primitive is used
//! - An object belongs to one device, or for `Multi…` to several, and holds compiled kernels and scratch memory. `new` compiles; `run` records launches and
//!   returns at once with the [`Event`](tombolo::Event) of the last launch. A fault in a launch is the error of the event, and
//!   of every read of the results.
//! - Scratch memory grows with the longest input so far; a call with an input no longer than before allocates nothing. Since
//!   scratch memory is the object's, `run` takes `&mut self`; commands of a device run in order, so a second call may follow
//!   before the end of the first.
//! - Inputs and outputs are [`Values`]: a [`DeviceBuffer`](tombolo::DeviceBuffer), a [`Buffer`](tombolo::Buffer) of the
//!   context, values behind a [`Ptr`](tombolo::Ptr) into the shared heap, or a part of such values. Inputs and outputs are
//!   different memory; the runtime refuses a launch otherwise.
//! - Any length from 0 to [`MOST_VALUES`] will do, as far as the adapter can bind the values at once.
//!
//! # How a primitive is written
//! Each primitive has a file of WGSL in `shaders/` and a file of Rust in `src/`. The element type and the operator are small
//! WGSL sources of their own (`alias Element = f32;`, `fn combine(a: Element, b: Element) -> Element`), put beside the kernel
//! by [`Program::builder`](tombolo::Program::builder); sizes are `override`s. No kernel needs subgroups, and no work-group
//! waits for another: an earlier launch computes the facts needed about other work-groups, so the number of launches grows with
//! the logarithm of the length (G. E. Blelloch, "Prefix sums and their applications", 1990; D. Merrill and A. Grimshaw,
//! "Parallel scan for stream architectures", 2009, call the scheme reduce-then-scan). Loops have constant bounds: adapters with
//! a loop budget are spared the loop guard.

#![warn(missing_debug_implementations, missing_docs)]
#![deny(unsafe_code)]

mod carries;
mod compact;
mod element;
mod error;
mod gemm;
mod gemv;
mod histogram;
mod kernels;
mod multi;
mod operator;
mod product;
mod reduce;
mod scan;
mod scratch;
mod segmented_reduce;
mod segmented_scan;
mod shape;
mod sort;
mod values;

pub use compact::{Compact, CompactFlagged};
pub use element::{Element, Integer};
pub use error::Error;
pub use gemm::{Gemm, GemmSize};
pub use gemv::Gemv;
pub use histogram::Histogram;
pub use multi::{MultiHistogram, MultiReduce, MultiScan};
pub use operator::{And, Max, Min, Operator, Or, Product, Sum, Xor};
pub use reduce::Reduce;
pub use scan::Scan;
pub use segmented_reduce::SegmentedReduce;
pub use segmented_scan::{SegmentedScan, SegmentedScanFlagged};
pub use shape::Shape;
pub use sort::{Sort, SortPairs};
pub use values::Values;

/// The most values of an input: kernels count in 32 bits, and a last work-group reaches beyond the end.
pub const MOST_VALUES: u64 = 1 << 31;

/// The program in the README compiles, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
