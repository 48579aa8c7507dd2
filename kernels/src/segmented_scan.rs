//! Scans of many segments at once.

use std::marker::PhantomData;

use tombolo::{Device, Event, Kernel};

use crate::carries::{Carries, Kind, Level, Segments};
use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library};
use crate::operator::Operator;
use crate::scan::Scan;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// Scans the segments of an input, each as [`Scan`] does, in one call for all.
///
/// Offsets say where segments begin, in any order: an offset `n` makes `source[n]` the first value of a segment. So the array of
/// `segments + 1` offsets that [`SegmentedReduce`](crate::SegmentedReduce) takes will do, as will an array without the last offset;
/// values before the smallest offset are a segment of their own, offsets beyond the values say nothing, and no offset can be wrong.
///
/// # How it works
/// 1. Offsets become bits, a bit for each value that begins a segment.
/// 2. Each work-group combines the values of a tile from the last such value on. The totals make a list with segments of its own,
///    scanned by the same kernels.
/// 3. Each work-group scans a tile, beginning with the combination of the segment's values in the tiles before (S. Sengupta,
///    M. Harris, Y. Zhang and J. D. Owens, "Scan primitives for GPU computing", 2007).
///
/// The work does not depend on the segments' lengths. Every value is read at most twice and written once.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::{SegmentedScan, Sum};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let (values, offsets) = (device.buffer(&[3u32, 1, 4, 1, 5])?, device.buffer(&[0u32, 2, 2, 5])?);
/// let sums = device.zeroed(5)?;
/// SegmentedScan::<u32, Sum>::inclusive(&device)?.run(&values, &offsets, &sums)?;
/// assert_eq!(sums.read()?, [3, 4, 4, 5, 10]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentedScan<T, O> {
    scan: Outer<T, O>,
    clear: Kernel,
    mark: Kernel,
    marks: Scratch<u32>,
}

/// Scans the segments of an input: [`SegmentedScan`] with a flag beside each value, not 0 where a segment begins.
#[derive(Debug)]
pub struct SegmentedScanFlagged<T, O>(Outer<T, O>);

/// The common parts of [`SegmentedScan`] and [`SegmentedScanFlagged`].
#[derive(Debug)]
struct Outer<T, O> {
    level: Level,
    carries: Carries<T>,
    nothing: Kernel,
    operator: PhantomData<fn() -> O>,
}

impl<T: Element, O: Operator<T>> SegmentedScan<T, O> {
    /// The shape of [`SegmentedScan::inclusive`] and [`SegmentedScan::exclusive`].
    pub const SHAPE: Shape = Scan::<T, O>::SHAPE;

    /// Compiles the kernels of inclusive scans for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of the default shape.
    pub fn inclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE, true)
    }

    /// Compiles the kernels of exclusive scans for a device: the result for a segment's first value is the operator's identity.
    ///
    /// # Errors
    /// As [`SegmentedScan::inclusive`].
    pub fn exclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE, false)
    }

    /// As [`SegmentedScan::inclusive`] or [`SegmentedScan::exclusive`], with work-groups of another shape.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] for a shape that the device does not have.
    pub fn with_shape(device: &Device, shape: Shape, inclusive: bool) -> Result<Self, Error> {
        let library = Level::library::<T, O>(device, shape)?;
        let constants = shape.constants();
        Ok(Self {
            scan: Outer::new(device, &library, shape, inclusive, true)?,
            clear: library.kernel("clear_marks", &constants)?,
            mark: library.kernel("mark_heads", &constants)?,
            marks: Scratch::new(device),
        })
    }

    /// Scans the segments of `source` into as many values of `sink`.
    ///
    /// # Errors
    /// [`Error::TooShort`] where `sink` has fewer values than `source`, [`Error::TooLong`], [`Error::Launch`],
    /// [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        offsets: impl Into<Values<u32>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let (values, offsets) = (source.into(), offsets.into());
        let len = values.count("source")?;
        let count = offsets.count("offsets")?;
        let sink = sink.into().first("sink", len)?;
        if len == 0 {
            return self.scan.nothing();
        }
        let heads = self.marks.values(0, len.div_ceil(32))?;
        let launch = heads.write(self.clear.launch(), "marks")?;
        launch.invocations(heads.len()).submit()?;
        if count > 0 {
            let launch = offsets.read(self.mark.launch(), "offsets")?;
            let launch = heads.read(launch, "marks")?;
            launch.invocations(count).submit()?;
        }
        self.scan.run(&Segments { values, heads }, &sink)
    }
}

impl<T: Element, O: Operator<T>> SegmentedScanFlagged<T, O> {
    /// Compiles the kernels of inclusive scans for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of the default shape.
    pub fn inclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, SegmentedScan::<T, O>::SHAPE, true)
    }

    /// Compiles the kernels of exclusive scans for a device: the result for a segment's first value is the operator's identity.
    ///
    /// # Errors
    /// As [`SegmentedScanFlagged::inclusive`].
    pub fn exclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, SegmentedScan::<T, O>::SHAPE, false)
    }

    /// As [`SegmentedScanFlagged::inclusive`] or [`SegmentedScanFlagged::exclusive`], with work-groups of another shape.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] for a shape that the device does not have.
    pub fn with_shape(device: &Device, shape: Shape, inclusive: bool) -> Result<Self, Error> {
        let library = Level::library::<T, O>(device, shape)?;
        Ok(Self(Outer::new(device, &library, shape, inclusive, false)?))
    }

    /// Scans the segments of `source` into as many values of `sink`. A segment begins at the first value, and wherever `flags`
    /// has a word other than 0.
    ///
    /// # Errors
    /// [`Error::TooShort`] where `flags` or `sink` has fewer values than `source`, [`Error::TooLong`], [`Error::Launch`],
    /// [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        flags: impl Into<Values<u32>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let values = source.into();
        let len = values.count("source")?;
        let heads = flags.into().first("flags", len)?;
        let sink = sink.into().first("sink", len)?;
        match len {
            0 => self.0.nothing(),
            _ => self.0.run(&Segments { values, heads }, &sink),
        }
    }
}

impl<T: Element, O: Operator<T>> Outer<T, O> {
    fn new(
        device: &Device,
        library: &Library,
        shape: Shape,
        inclusive: bool,
        packed: bool,
    ) -> Result<Self, Error> {
        let kind = match inclusive {
            true => Kind::Inclusive,
            false => Kind::Exclusive,
        };
        Ok(Self {
            level: Level::new(library, shape, kind, packed)?,
            carries: Carries::new(device, library, shape)?,
            nothing: kernels::nothing(device)?,
            operator: PhantomData,
        })
    }

    fn nothing(&self) -> Result<Event, Error> {
        Ok(self.nothing.launch().workgroups(0).submit()?)
    }

    /// Scans at least one value.
    fn run(&mut self, source: &Segments<T>, sink: &Values<T>) -> Result<Event, Error> {
        let tiles = self.level.shape.tiles(source.values.len());
        if tiles == 1 {
            return self.level.scan(source, sink, None);
        }
        let totals = self.carries.totals(tiles)?;
        self.level.reduce(source, &totals)?;
        let carries = self.carries.of(totals)?;
        self.level.scan(source, sink, Some(&carries))
    }
}
