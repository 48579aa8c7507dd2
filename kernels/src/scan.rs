//! Scan, also called prefix sum.

use tombolo::{Device, Event, Kernel};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library};
use crate::operator::Operator;
use crate::reduce::Reduce;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// Combines all values up to each value: inclusive, `sink[i] = source[0] ⊕ … ⊕ source[i]`; or exclusive, without `source[i]`
/// itself, so that `sink[0]` is the operator's identity.
///
/// # How it works
/// 1. The tiles of the input are reduced to a total each, the totals' tiles again, and so on until a single tile is left.
/// 2. From the last level down, each level is scanned exclusively: every tile begins with the result of the level below, the
///    combination of all tiles before.
/// 3. The input is scanned the same way at the end, inclusively or exclusively.
///
/// Every value is read twice and written once: with bandwidth alone to pay for, a scan takes 3/2 of the time of a copy.
#[derive(Debug)]
pub struct Scan<T, O> {
    reduce: Reduce<T, O>,
    outer: Level,
    inner: Level,
    nothing: Kernel,
    totals: Scratch<T>,
    carries: Scratch<T>,
}

/// The kernels of a kind of level.
#[derive(Debug)]
struct Level {
    tiles: Kernel,
    single: Kernel,
}

impl<T: Element, O: Operator<T>> Scan<T, O> {
    /// The shape of [`Scan::inclusive`] and [`Scan::exclusive`]: tiles lie in work-group memory, so that values travel to and
    /// from the device's memory in rows.
    pub const SHAPE: Shape = Shape {
        invocations: 256,
        items: 8,
    };

    /// Compiles the kernels of an inclusive scan for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of the default shape.
    pub fn inclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE, true)
    }

    /// Compiles the kernels of an exclusive scan for a device.
    ///
    /// # Errors
    /// As [`Scan::inclusive`].
    pub fn exclusive(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE, false)
    }

    /// As [`Scan::inclusive`] or [`Scan::exclusive`], with work-groups of another shape.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] for a shape that the device does not have.
    pub fn with_shape(device: &Device, shape: Shape, inclusive: bool) -> Result<Self, Error> {
        let shape = shape.check(device, shape.slots() + u64::from(shape.invocations))?;
        let source = include_str!("../shaders/scan.wgsl");
        let library = Library::combining::<T, O>(device, "scan.wgsl", source)?;
        let level = |inclusive: bool| {
            let constants = shape.constants().set("INCLUSIVE", inclusive);
            Ok::<_, Error>(Level {
                tiles: library.kernel("scan_tiles", &constants)?,
                single: library.kernel("scan_single_tile", &constants)?,
            })
        };
        Ok(Self {
            reduce: Reduce::with_shape(device, shape)?,
            outer: level(inclusive)?,
            inner: level(false)?,
            nothing: kernels::nothing(device)?,
            totals: Scratch::new(device),
            carries: Scratch::new(device),
        })
    }

    /// Scans all values of `source` into as many values of `sink`.
    ///
    /// # Errors
    /// [`Error::TooShort`] where `sink` has fewer values than `source`, [`Error::TooLong`], [`Error::Launch`],
    /// [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        self.scan(source.into(), sink.into(), None)
    }

    /// As [`Scan::run`], beginning with the first value of `carry` in place of the operator's identity: for inputs in several pieces.
    ///
    /// # Errors
    /// As [`Scan::run`], and [`Error::TooShort`] for an empty `carry`.
    pub fn run_after(
        &mut self,
        source: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
        carry: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let carry = carry.into().first("carry", 1)?;
        self.scan(source.into(), sink.into(), Some(carry))
    }

    fn scan(
        &mut self,
        source: Values<T>,
        sink: Values<T>,
        carry: Option<Values<T>>,
    ) -> Result<Event, Error> {
        let len = source.count("source")?;
        let sink = sink.first("sink", len)?;
        if len == 0 {
            return Ok(self.nothing.launch().workgroups(0).submit()?);
        }
        // Level 0 is the input; each further level has a value for each tile of the level before.
        let mut levels = vec![source];
        while let Some(last) = levels.last().filter(|level| level.len() > self.tile()) {
            let count = self.reduce.shape.tiles(last.len());
            let totals = self.totals.values(levels.len(), count)?;
            self.reduce.tiles(last, &totals)?;
            levels.push(totals);
        }
        let mut carries = carry;
        for (index, level) in levels.iter().enumerate().skip(1).rev() {
            let scanned = self.carries.values(index, level.len())?;
            self.level(&self.inner, level, &scanned, carries.as_ref())?;
            carries = Some(scanned);
        }
        self.level(&self.outer, &levels[0], &sink, carries.as_ref())
    }

    fn tile(&self) -> u64 {
        self.reduce.shape.tile()
    }

    fn level(
        &self,
        kernels: &Level,
        source: &Values<T>,
        sink: &Values<T>,
        carries: Option<&Values<T>>,
    ) -> Result<Event, Error> {
        let launch = match carries {
            Some(carries) => carries.read(kernels.tiles.launch(), "carries")?,
            None => kernels.single.launch(),
        };
        let launch = source.read(launch, "source")?;
        let launch = sink.write(launch, "sink")?;
        let tiles = self.reduce.shape.tiles(source.len());
        Ok(launch.workgroups(tiles).submit()?)
    }
}
