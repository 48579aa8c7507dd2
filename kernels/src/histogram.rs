//! Histograms.

use std::marker::PhantomData;
use std::ops::Range;

use tombolo::{Constants, Device, Event, Kernel};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library};
use crate::shape::Shape;
use crate::values::Values;

/// Counts how many values fall into each bin.
///
/// # How it works
/// 1. The counters are cleared.
/// 2. Each work-group counts a tile of the input in memory of its own, and adds the counts to the counters. Bins beyond the
///    room there are counted in the device's memory.
///
/// Every value is read once.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::Histogram;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let values = device.buffer(&[0.1f32, 0.2, 0.9, 7.0])?;
/// let counts = device.zeroed(2)?;
/// Histogram::even(&device, 2, 0.0..1.0)?.run(&values, &counts)?;
/// assert_eq!(counts.read()?, [2, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Histogram<T> {
    bins: u32,
    clear: Kernel,
    count: Kernel,
    nothing: Kernel,
    element: PhantomData<fn() -> T>,
}

impl Histogram<u32> {
    /// Compiles the kernels for a device; the value is the bin, and values from `bins` on are not counted.
    ///
    /// # Errors
    /// As [`Histogram::by`].
    pub fn new(device: &Device, bins: u32) -> Result<Self, Error> {
        Self::by(device, bins, "value")
    }
}

impl Histogram<f32> {
    /// Compiles the kernels for a device; bins of equal width cover `range`, and values outside are not counted, nor is NaN.
    /// The bin of a value is `(value - start) * (bins / (end - start))`, rounded in each step and at last down.
    ///
    /// # Errors
    /// [`Error::Bins`] for a range that is empty or not finite; else as [`Histogram::by`].
    pub fn even(device: &Device, bins: u32, range: Range<f32>) -> Result<Self, Error> {
        let scale = bins as f32 / (range.end - range.start);
        if range.is_empty() || !scale.is_finite() || scale <= 0.0 {
            let why = format!(
                "there are no bins of equal width from {} to {}",
                range.start, range.end
            );
            return Err(Error::Bins { bins, why });
        }
        let source = "\
            override START: f32;\n\
            override END: f32;\n\
            override SCALE: f32;\n\
            fn bin_of(value: Element) -> u32 {\n    \
                if !(value >= START && value < END) { return BINS; }\n    \
                // Rounding may reach the end.\n    \
                return min(u32((value - START) * SCALE), BINS - 1u);\n\
            }\n";
        let constants = Constants::new()
            .set("START", range.start)
            .set("END", range.end)
            .set("SCALE", scale);
        Self::with_source(device, bins, source.to_owned(), constants)
    }
}

impl<T: Element> Histogram<T> {
    const SHAPE: Shape = Shape {
        invocations: 256,
        items: 32,
    };

    /// Compiles the kernels for a device. `bin` is a WGSL expression of type `u32` of the value, `value`; values whose bin is
    /// not below `bins` are not counted.
    ///
    /// # Errors
    /// [`Error::Bins`] where there are no bins; [`Error::Kernel`], also where the expression is wrong; [`Error::Shape`] on a
    /// device without work-groups of 256 invocations.
    pub fn by(device: &Device, bins: u32, bin: &str) -> Result<Self, Error> {
        let source = format!("fn bin_of(value: Element) -> u32 {{ return {bin}; }}\n");
        Self::with_source(device, bins, source, Constants::new())
    }

    fn with_source(
        device: &Device,
        bins: u32,
        bin_of: String,
        constants: Constants,
    ) -> Result<Self, Error> {
        if bins == 0 {
            let why = "a histogram has at least one".to_owned();
            return Err(Error::Bins { bins, why });
        }
        let shape = Self::SHAPE.check(device, 0)?;
        // Half of the memory, so that two work-groups share a multiprocessor.
        let memory = device.capabilities().workgroup_storage_bytes / 4 / 2;
        let entry = match bins <= memory {
            true => "count_tiles",
            false => "count_directly",
        };
        let source = include_str!("../shaders/histogram.wgsl");
        let sources = Library::sources::<T>("histogram.wgsl", source).source("bin.wgsl", bin_of);
        let library = Library::new(device, sources)?;
        let constants = shape.and(constants).set("BINS", bins);
        Ok(Self {
            bins,
            clear: library.kernel("clear_counts", &constants)?,
            count: library.kernel(entry, &constants)?,
            nothing: kernels::nothing(device)?,
            element: PhantomData,
        })
    }

    /// Writes the number of values of `source` in each bin to `counts`.
    ///
    /// # Errors
    /// [`Error::TooShort`] where `counts` has fewer values than there are bins, [`Error::TooLong`], [`Error::Launch`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        counts: impl Into<Values<u32>>,
    ) -> Result<Event, Error> {
        let (source, counts) = (source.into(), counts.into());
        // Before anything is cleared.
        source.count("source")?;
        let counts = counts.first("counts", self.bins.into())?;
        let launch = counts.write(self.clear.launch(), "counts")?;
        let cleared = launch.invocations(self.bins).submit()?;
        match source.is_empty() {
            true => Ok(cleared),
            false => self.add(&source, &counts),
        }
    }

    /// As [`Histogram::run`], beginning with the contents of `counts`: for inputs in several pieces. Counters wrap around.
    ///
    /// # Errors
    /// As [`Histogram::run`].
    pub fn add(
        &mut self,
        source: impl Into<Values<T>>,
        counts: impl Into<Values<u32>>,
    ) -> Result<Event, Error> {
        let source = source.into();
        let counts = counts.into().first("counts", self.bins.into())?;
        let len = source.count("source")?;
        if len == 0 {
            return Ok(self.nothing.launch().workgroups(0).submit()?);
        }
        let launch = source.read(self.count.launch(), "source")?;
        let launch = counts.read(launch, "counts")?;
        Ok(launch.workgroups(Self::SHAPE.tiles(len)).submit()?)
    }
}
