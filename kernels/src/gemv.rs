//! Products of a matrix with a vector.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use tombolo::{Device, Event};

use crate::element::Element;
use crate::error::Error;
use crate::product::{Factors, Product};
use crate::shape::Shape;
use crate::values::Values;

/// Rows of a work-group, as in `shaders/gemv.wgsl`.
const ROWS: u32 = 4;
/// Columns from an invocation's column to the next column of the same invocation.
const WIDTH: u32 = 64;
/// Turns of a launch: with so many turns an invocation stays within the 65,535 of lavapipe.
const MOST_TURNS: u32 = 16_384;

/// Multiplies a matrix with a vector: `sink[i] = Σ matrix[i][j] * vector[j]`. Rows lie one behind the other, without gaps. Integers
/// wrap around.
///
/// # How it works
/// 64 invocations sum up a row together, four rows are a work-group: made for matrices of many rows of more than a few dozen
/// columns. Every value of the matrix is read once. Rows of more than 1,048,576 columns take several launches, each adding to
/// the sums of the launches before.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::Gemv;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let matrix = device.buffer(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let vector = device.buffer(&[100.0f32, 10.0, 1.0])?;
/// let product = device.zeroed(2)?;
/// Gemv::new(&device)?.run([2, 3], &matrix, &vector, &product)?;
/// assert_eq!(product.read()?, [123.0, 456.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gemv<T> {
    product: Product,
    element: PhantomData<fn() -> T>,
}

/// `Sizes` of `shaders/gemv.wgsl`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    rows: u32,
    columns: u32,
    start: u32,
    end: u32,
    adds: u32,
}

impl<T: Element> Gemv<T> {
    /// Compiles the kernels for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let shape = Shape {
            invocations: WIDTH * ROWS,
            items: 1,
        };
        shape.check(device, u64::from(shape.invocations))?;
        let source = include_str!("../shaders/gemv.wgsl");
        Ok(Self {
            product: Product::new::<T>(device, "gemv.wgsl", source, [WIDTH, MOST_TURNS])?,
            element: PhantomData,
        })
    }

    /// Writes the product of a matrix of so many rows and columns with `vector` to `sink`, a value for each row.
    ///
    /// # Errors
    /// [`Error::TooShort`] for an argument with fewer values than the extents say, [`Error::TooLong`] for a matrix of more than
    /// [`MOST_VALUES`](crate::MOST_VALUES) values, [`Error::Launch`].
    pub fn run(
        &mut self,
        [rows, columns]: [u32; 2],
        matrix: impl Into<Values<T>>,
        vector: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let arguments = [matrix.into(), vector.into(), sink.into()];
        self.product([rows, columns], arguments, false)
    }

    /// Adds the product of a matrix of so many rows and columns with `vector` to `sink`.
    ///
    /// # Errors
    /// As [`Gemv::run`].
    pub fn add(
        &mut self,
        [rows, columns]: [u32; 2],
        matrix: impl Into<Values<T>>,
        vector: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let arguments = [matrix.into(), vector.into(), sink.into()];
        self.product([rows, columns], arguments, true)
    }

    fn product(
        &mut self,
        [rows, columns]: [u32; 2],
        [matrix, vector, sink]: [Values<T>; 3],
        adds: bool,
    ) -> Result<Event, Error> {
        let matrix = matrix.matrix("matrix", rows, columns)?;
        let vector = vector.matrix("vector", columns, 1)?;
        let sink = sink.matrix("sink", rows, 1)?;
        let factors = Factors {
            left: ("matrix", &matrix),
            right: ("vector", &vector),
            sink: &sink,
            terms: columns,
            adds,
        };
        self.product.run(&factors, |launch, part| {
            let sizes = Sizes {
                rows,
                columns,
                start: part.start,
                end: part.end,
                adds: part.adds,
            };
            launch
                .value("sizes", &sizes)
                .workgroups(rows.div_ceil(ROWS))
        })
    }
}
