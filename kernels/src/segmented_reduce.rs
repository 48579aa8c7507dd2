//! Reductions of many segments at once.

use std::marker::PhantomData;

use tombolo::{Device, Event, Kernel};

use crate::MOST_VALUES;
use crate::carries::{Carries, Level};
use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library};
use crate::operator::Operator;
use crate::shape::Shape;
use crate::values::Values;

/// Combines the values of each segment of an input: `sink[i] = source[offsets[i]] ⊕ … ⊕ source[offsets[i + 1] - 1]`; the identity
/// of the operator for a segment without values.
///
/// `segments + 1` offsets ascend and end at the number of values at most: each segment begins where the one before ends. Values
/// before the first offset and from the last on are in no segment. Other offsets fail the launch, with a message that names the
/// offset, which is the error of the event and of every read of the results. A single offset is not looked at: there is no segment.
///
/// # How it works
/// 1. Values and offsets are merged into one list, of which each work-group takes a tile, found by a binary search. Each invocation
///    takes as many values and offsets together as every other, so that long, short and empty segments cost the same (D. Merrill and
///    M. Garland, "Merge-based parallel sparse matrix-vector multiplication", 2016).
/// 2. What a tile has of a segment that goes on is combined over the tiles, and added to the segments' results.
///
/// Every value is read once; the number of launches grows with the logarithm of the length, and not with the number of segments.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::{Max, SegmentedReduce};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let (values, offsets) = (device.buffer(&[3u32, 1, 4, 1, 5])?, device.buffer(&[0u32, 2, 2, 5])?);
/// let largest = device.zeroed(3)?;
/// SegmentedReduce::<u32, Max>::new(&device)?.run(&values, &offsets, &largest)?;
/// assert_eq!(largest.read()?, [3, 0, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentedReduce<T, O> {
    shape: Shape,
    segments: Kernel,
    add: Kernel,
    empty: Kernel,
    nothing: Kernel,
    carries: Carries<T>,
    operator: PhantomData<fn() -> O>,
}

impl<T: Element, O: Operator<T>> SegmentedReduce<T, O> {
    /// The shape of [`SegmentedReduce::new`]: a tile has values and offsets together.
    pub const SHAPE: Shape = Shape {
        invocations: 256,
        items: 8,
    };

    /// Compiles the kernels for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE)
    }

    /// As [`SegmentedReduce::new`], with work-groups of another shape.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] for a shape that the device does not have.
    pub fn with_shape(device: &Device, shape: Shape) -> Result<Self, Error> {
        // The tile, sums and cuts of invocations, and two bounds.
        let words = shape.slots() + 2 * u64::from(shape.invocations) + 2;
        let shape = shape.check(device, words)?;
        let source = include_str!("../shaders/segmented_reduce.wgsl");
        let library = Library::combining::<T, O>(device, "segmented_reduce.wgsl", source)?;
        let levels = Level::library::<T, O>(device, shape)?;
        let constants = shape.constants();
        Ok(Self {
            shape,
            segments: library.kernel("reduce_segments", &constants)?,
            add: library.kernel("add_carries", &constants)?,
            empty: library.kernel("reduce_nothing", &constants)?,
            nothing: kernels::nothing(device)?,
            carries: Carries::new(device, &levels, shape)?,
            operator: PhantomData,
        })
    }

    /// Writes the combination of each segment's values to `sink`, a value for each offset but the last.
    ///
    /// # Errors
    /// [`Error::TooShort`] where there is no offset or `sink` has fewer values than there are segments; [`Error::TooLong`] where
    /// `source` has more than [`MOST_VALUES`](crate::MOST_VALUES) less the number of offsets; [`Error::Launch`], [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        offsets: impl Into<Values<u32>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let (source, offsets) = (source.into(), offsets.into());
        let len = source.count("source")?;
        let count = offsets.count("offsets")?;
        offsets.first("offsets", 1)?;
        let sink = sink.into().first("sink", count - 1)?;
        if len + count > MOST_VALUES {
            let argument = "source and offsets";
            let len = len + count;
            return Err(Error::TooLong { argument, len });
        }
        if sink.is_empty() {
            return Ok(self.nothing.launch().workgroups(0).submit()?);
        }
        if len == 0 {
            let launch = offsets.read(self.empty.launch(), "offsets")?;
            let launch = sink.write(launch, "sink")?;
            return Ok(launch.invocations(count).submit()?);
        }
        let tiles = self.shape.tiles(len + count);
        let totals = self.carries.totals(tiles)?;
        let launch = source.read(self.segments.launch(), "source")?;
        let launch = offsets.read(launch, "offsets")?;
        let launch = sink.write(launch, "sink")?;
        let launch = totals.values.write(launch, "totals")?;
        let launch = totals.heads.write(launch, "firsts")?;
        let reduced = launch.workgroups(tiles).submit()?;
        if tiles == 1 {
            return Ok(reduced);
        }
        let firsts = totals.heads.clone();
        let carries = self.carries.of(totals)?;
        let launch = firsts.read(self.add.launch(), "firsts")?;
        let launch = carries.read(launch, "carries")?;
        let launch = sink.read(launch, "sink")?;
        Ok(launch.invocations(tiles).submit()?)
    }
}
