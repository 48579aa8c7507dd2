//! Compaction.

use tombolo::{Device, Event, Kernel, Launch};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::{Library, RANKS};
use crate::operator::Sum;
use crate::scan::Scan;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// Moves the values that fulfil a condition together, in the input's order.
///
/// # How it works
/// 1. Each work-group counts the chosen values of a tile.
/// 2. An exclusive [`Scan`] of the counts gives the place of each tile's values.
/// 3. Each work-group ranks the tile's chosen values and writes the values there; the last work-group writes the number of all
///    chosen values.
///
/// Every value is read twice.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::Compact;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let values = device.buffer(&[2.0f32, -7.5, 3.25, -1.0])?;
/// let (kept, count) = (device.zeroed(4)?, device.zeroed(1)?);
/// Compact::by(&device, "value < 0.0")?.run(&values, &kept, &count)?;
/// assert_eq!(count.read()?, [2]);
/// assert_eq!(kept.read_range(..2)?, [-7.5, -1.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Compact<T>(Compaction<T>);

/// Moves the flagged values together, in the input's order: [`Compact`] with the choice in a second input.
#[derive(Debug)]
pub struct CompactFlagged<T>(Compaction<T>);

/// The common parts of [`Compact`] and [`CompactFlagged`].
#[derive(Debug)]
struct Compaction<T> {
    shape: Shape,
    count: Kernel,
    relocate: Kernel,
    nothing: Kernel,
    starts: Scan<u32, Sum>,
    scratch: Scratch<u32>,
    element: std::marker::PhantomData<fn() -> T>,
}

/// Both inputs and both outputs.
struct Call<'a, T> {
    source: Values<T>,
    flags: Option<&'a Values<u32>>,
    kept: Values<T>,
    count: Values<u32>,
}

impl<T: Element> Compact<T> {
    /// Compiles the kernels for a device. `condition` is a WGSL expression of type `bool` of the value, `value`, and of its
    /// place in the input, `index` of type `u32`.
    ///
    /// # Errors
    /// [`Error::Kernel`], also where the condition is wrong; [`Error::Shape`] on a device without work-groups of 256
    /// invocations.
    pub fn by(device: &Device, condition: &str) -> Result<Self, Error> {
        let choice = format!(
            "fn is_kept(value: Element, index: u32) -> bool {{ return {condition}; }}\n\
             fn is_chosen(at: u32) -> bool {{ return is_kept(source[at], at); }}\n"
        );
        Ok(Self(Compaction::new(device, choice)?))
    }

    /// Writes the chosen values of `source` to the beginning of `kept`, and their number to the first value of `count`. Values
    /// beyond the room of `kept` are counted and not written; the rest of `kept` stays unchanged.
    ///
    /// # Errors
    /// [`Error::TooShort`] where an output is empty, [`Error::TooLong`], [`Error::Launch`], [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        kept: impl Into<Values<T>>,
        count: impl Into<Values<u32>>,
    ) -> Result<Event, Error> {
        self.0.run(&Call {
            source: source.into(),
            flags: None,
            kept: kept.into(),
            count: count.into(),
        })
    }
}

impl<T: Element> CompactFlagged<T> {
    /// Compiles the kernels for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let choice = "@group(0) @binding(5) var<storage, read> flags: array<u32>;\n\
                      fn is_chosen(at: u32) -> bool { return flags[at] != 0u; }\n";
        Ok(Self(Compaction::new(device, choice.to_owned())?))
    }

    /// As [`Compact::run`], for the values whose flag is not 0.
    ///
    /// # Errors
    /// As [`Compact::run`], and [`Error::TooShort`] where there are fewer flags than values.
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        flags: impl Into<Values<u32>>,
        kept: impl Into<Values<T>>,
        count: impl Into<Values<u32>>,
    ) -> Result<Event, Error> {
        let source = source.into();
        let flags = flags.into().first("flags", source.count("source")?)?;
        self.0.run(&Call {
            source,
            flags: Some(&flags),
            kept: kept.into(),
            count: count.into(),
        })
    }
}

impl<T: Element> Compaction<T> {
    const SHAPE: Shape = Shape {
        invocations: 256,
        items: 8,
    };

    fn new(device: &Device, choice: String) -> Result<Self, Error> {
        let shape = Self::SHAPE;
        let shape = shape.check(device, shape.slots() + u64::from(shape.invocations))?;
        let source = include_str!("../shaders/compact.wgsl");
        let sources = Library::sources::<T>("compact.wgsl", source)
            .source(RANKS.0, RANKS.1)
            .source("choice.wgsl", choice);
        let library = Library::new(device, sources)?;
        let constants = shape.constants();
        Ok(Self {
            shape,
            count: library.kernel("count_tiles", &constants)?,
            relocate: library.kernel("move_tiles", &constants)?,
            nothing: library.kernel("count_nothing", &constants)?,
            starts: Scan::exclusive(device)?,
            scratch: Scratch::new(device),
            element: std::marker::PhantomData,
        })
    }

    fn run(&mut self, call: &Call<'_, T>) -> Result<Event, Error> {
        let len = call.source.count("source")?;
        let count = call.count.first("count", 1)?;
        if len == 0 {
            let launch = count.write(self.nothing.launch(), "count")?;
            return Ok(launch.workgroups(1).submit()?);
        }
        call.kept.first("kept", 1)?;
        let tiles = self.shape.tiles(len);
        let counts = self.scratch.values(0, tiles)?;
        let starts = self.scratch.values(1, tiles)?;

        let launch = counts.write(call.inputs(self.count.launch())?, "tile_counts")?;
        launch.workgroups(tiles).submit()?;

        self.starts.run(&counts, &starts)?;

        let launch = call.inputs(self.relocate.launch())?;
        let launch = starts.read(launch, "tile_starts")?;
        // Not all of `kept` is written.
        let launch = call.kept.read(launch, "kept")?;
        let launch = count.write(launch, "count")?;
        Ok(launch.workgroups(tiles).submit()?)
    }
}

impl<T: Element> Call<'_, T> {
    fn inputs(&self, launch: Launch) -> Result<Launch, Error> {
        let launch = match self.flags {
            Some(flags) => flags.read(launch, "flags")?,
            None => launch,
        };
        self.source.read(launch, "source")
    }
}
