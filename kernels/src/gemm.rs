//! Products of matrices.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use tombolo::{Device, Event};

use crate::element::Element;
use crate::error::Error;
use crate::product::{Factors, Product};
use crate::shape::Shape;
use crate::values::Values;

/// Rows and columns of the tile of a work-group, as in `shaders/gemm.wgsl`.
const TILE: u32 = 64;
/// Steps in depth taken at once by a work-group.
const STEPS: u32 = 16;
/// Turns of a launch, of 17 loop turns each: with so many turns a work-group stays within the 65,535 of lavapipe.
const MOST_TURNS: u32 = 2048;

/// The extents of a product of matrices: one of `rows` by `depth` values and one of `depth` by `columns` make one of `rows` by
/// `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmSize {
    /// Rows of the left factor and of the product.
    pub rows: u32,
    /// Columns of the right factor and of the product.
    pub columns: u32,
    /// Columns of the left factor, rows of the right factor.
    pub depth: u32,
}

/// Multiplies matrices: `sink[i][j] = Σ left[i][d] * right[d][j]`. Rows lie one behind the other, without gaps. Integers wrap around.
///
/// # How it works
/// Each work-group computes a tile of 64 by 64 values and goes through the depth in steps of 16, taken into work-group memory:
/// a value read once from the device's memory is used 64 times. Depths beyond 32,768 take several launches, each adding to the
/// sums of the launches before.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::{Gemm, GemmSize};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let left = device.buffer(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let right = device.buffer(&[10.0f32, 1.0])?;
/// let product = device.zeroed(2)?;
/// let size = GemmSize { rows: 2, columns: 1, depth: 2 };
/// Gemm::new(&device)?.run(size, &left, &right, &product)?;
/// assert_eq!(product.read()?, [12.0, 34.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gemm<T> {
    product: Product,
    element: PhantomData<fn() -> T>,
}

/// `Sizes` of `shaders/gemm.wgsl`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    rows: u32,
    columns: u32,
    depth: u32,
    start: u32,
    end: u32,
    adds: u32,
}

impl<T: Element> Gemm<T> {
    /// Compiles the kernels for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let shape = Shape {
            invocations: 256,
            items: 16,
        };
        shape.check(device, u64::from(STEPS * (2 * TILE + 4)))?;
        let source = include_str!("../shaders/gemm.wgsl");
        Ok(Self {
            product: Product::new::<T>(device, "gemm.wgsl", source, [STEPS, MOST_TURNS])?,
            element: PhantomData,
        })
    }

    /// Writes the product of `left` and `right` to `sink`.
    ///
    /// # Errors
    /// [`Error::TooShort`] for an argument with fewer values than its extents say, [`Error::TooLong`] for extents of more than
    /// [`MOST_VALUES`](crate::MOST_VALUES) values, [`Error::Launch`].
    pub fn run(
        &mut self,
        size: GemmSize,
        left: impl Into<Values<T>>,
        right: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        self.product(size, [left.into(), right.into(), sink.into()], false)
    }

    /// Adds the product of `left` and `right` to `sink`.
    ///
    /// # Errors
    /// As [`Gemm::run`].
    pub fn add(
        &mut self,
        size: GemmSize,
        left: impl Into<Values<T>>,
        right: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        self.product(size, [left.into(), right.into(), sink.into()], true)
    }

    fn product(
        &mut self,
        size: GemmSize,
        [left, right, sink]: [Values<T>; 3],
        adds: bool,
    ) -> Result<Event, Error> {
        let GemmSize {
            rows,
            columns,
            depth,
        } = size;
        let left = left.matrix("left", rows, depth)?;
        let right = right.matrix("right", depth, columns)?;
        let sink = sink.matrix("sink", rows, columns)?;
        let factors = Factors {
            left: ("left", &left),
            right: ("right", &right),
            sink: &sink,
            terms: depth,
            adds,
        };
        self.product.run(&factors, |launch, part| {
            let sizes = Sizes {
                rows,
                columns,
                depth,
                start: part.start,
                end: part.end,
                adds: part.adds,
            };
            let tiles = (columns.div_ceil(TILE), rows.div_ceil(TILE));
            launch.value("sizes", &sizes).workgroups(tiles)
        })
    }
}
