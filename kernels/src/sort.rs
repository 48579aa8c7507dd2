//! Sorting.

use tombolo::{Constants, Device, Event, Kernel, Launch, Program};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library, RANKS};
use crate::operator::Sum;
use crate::scan::Scan;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// Bits of a digit, as in `shaders/sort.wgsl`.
const DIGIT_BITS: u32 = 4;
/// Values of a digit.
const DIGITS: u64 = 1 << DIGIT_BITS;
/// Launches moving keys.
const PASSES: u32 = 32 / DIGIT_BITS;

/// Sorts keys. Numbers of type `f32` are in the order of [`f32::total_cmp`].
///
/// # How it works
/// A radix sort (D. Merrill and A. Grimshaw, "High performance and scalable radix sorting", 2011), from the lowest 4 bits of
/// the keys to the highest:
/// 1. Each work-group counts how often each of the 16 digits occurs in a tile.
/// 2. An exclusive [`Scan`] of the counts gives the place of the keys of each digit and tile.
/// 3. Each work-group sorts a tile by the digit and writes the keys there.
///
/// The input is not changed; scratch memory is as large as the input, and 1/64 of the input besides.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::Sort;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let (keys, sorted) = (device.buffer(&[2.5f32, -7.5, 3.25])?, device.zeroed(3)?);
/// Sort::descending(&device)?.run(&keys, &sorted)?;
/// assert_eq!(sorted.read()?, [3.25, 2.5, -7.5]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sort<K>(Radix<K, u32>);

/// Sorts keys and moves a value along with each: [`Sort`] for pairs. Values of equal keys stay in their order.
#[derive(Debug)]
pub struct SortPairs<K, V>(Radix<K, V>);

/// The common parts of [`Sort`] and [`SortPairs`].
#[derive(Debug)]
struct Radix<K, V> {
    shape: Shape,
    count: Kernel,
    relocate: Kernel,
    nothing: Kernel,
    starts: Scan<u32, Sum>,
    counters: Scratch<u32>,
    keys: Scratch<K>,
    values: Scratch<V>,
}

/// Keys, and where pairs are sorted their values.
struct Pairs<K, V> {
    keys: Values<K>,
    values: Option<Values<V>>,
}

impl<K: Element> Sort<K> {
    /// Compiles the kernels for a device; the smallest key comes first.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn ascending(device: &Device) -> Result<Self, Error> {
        Ok(Self(Radix::new(device, "sort_tiles", false)?))
    }

    /// Compiles the kernels for a device; the largest key comes first.
    ///
    /// # Errors
    /// As [`Sort::ascending`].
    pub fn descending(device: &Device) -> Result<Self, Error> {
        Ok(Self(Radix::new(device, "sort_tiles", true)?))
    }

    /// Writes the keys of `source` to `sorted`, in order.
    ///
    /// # Errors
    /// [`Error::TooShort`] where `sorted` has fewer values than `source`, [`Error::TooLong`], [`Error::Launch`],
    /// [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<K>>,
        sorted: impl Into<Values<K>>,
    ) -> Result<Event, Error> {
        let keys = source.into();
        let len = keys.count("source")?;
        let sorted = Pairs {
            keys: sorted.into().first("sorted", len)?,
            values: None,
        };
        self.0.run(Pairs { keys, values: None }, &sorted)
    }
}

impl<K: Element, V: Element> SortPairs<K, V> {
    /// Compiles the kernels for a device; the smallest key comes first.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn ascending(device: &Device) -> Result<Self, Error> {
        Ok(Self(Radix::new(device, "sort_tiles_of_pairs", false)?))
    }

    /// Compiles the kernels for a device; the largest key comes first.
    ///
    /// # Errors
    /// As [`SortPairs::ascending`].
    pub fn descending(device: &Device) -> Result<Self, Error> {
        Ok(Self(Radix::new(device, "sort_tiles_of_pairs", true)?))
    }

    /// Writes the keys to `sorted_keys`, in order, and the value of each key to the same place of `sorted_values`.
    ///
    /// # Errors
    /// [`Error::TooShort`] where another argument has fewer values than `keys`, [`Error::TooLong`], [`Error::Launch`],
    /// [`Error::Memory`].
    pub fn run(
        &mut self,
        keys: impl Into<Values<K>>,
        values: impl Into<Values<V>>,
        sorted_keys: impl Into<Values<K>>,
        sorted_values: impl Into<Values<V>>,
    ) -> Result<Event, Error> {
        let keys = keys.into();
        let len = keys.count("keys")?;
        let source = Pairs {
            keys,
            values: Some(values.into().first("values", len)?),
        };
        let sorted = Pairs {
            keys: sorted_keys.into().first("sorted_keys", len)?,
            values: Some(sorted_values.into().first("sorted_values", len)?),
        };
        self.0.run(source, &sorted)
    }
}

impl<K: Element, V: Element> Radix<K, V> {
    /// The kernels keep 8 counters of each invocation in the place of the invocation's keys.
    const SHAPE: Shape = Shape {
        invocations: 256,
        items: 8,
    };

    fn new(device: &Device, entry: &str, descending: bool) -> Result<Self, Error> {
        let shape = Self::SHAPE;
        // Keys, sums over invocations, and the words kept for each digit.
        let words = shape.slots() + u64::from(shape.invocations) + 17 * DIGITS;
        let shape = shape.check(device, words)?;
        let sources = Program::builder()
            .source("sort.wgsl", include_str!("../shaders/sort.wgsl"))
            .source("sizes.wgsl", include_str!("../shaders/sizes.wgsl"))
            .source(RANKS.0, RANKS.1)
            .source("order.wgsl", K::ORDER);
        let library = Library::new(device, sources)?;
        let constants = shape.and(Constants::new().set("DESCENDING", descending));
        Ok(Self {
            shape,
            count: library.kernel("count_digits", &constants)?,
            relocate: library.kernel(entry, &constants)?,
            nothing: kernels::nothing(device)?,
            starts: Scan::exclusive(device)?,
            counters: Scratch::new(device),
            keys: Scratch::new(device),
            values: Scratch::new(device),
        })
    }

    fn run(&mut self, source: Pairs<K, V>, sorted: &Pairs<K, V>) -> Result<Event, Error> {
        let len = source.keys.len();
        if len == 0 {
            return Ok(self.nothing.launch().workgroups(0).submit()?);
        }
        let scratch = Pairs {
            keys: self.keys.values(0, len)?,
            values: match source.values {
                Some(_) => Some(self.values.values(0, len)?),
                None => None,
            },
        };
        // The number of passes is even, so that the last pass writes the result.
        let mut event = self.pass(0, &source, &scratch)?;
        for pass in 1..PASSES {
            event = match pass % 2 {
                1 => self.pass(pass, &scratch, sorted)?,
                _ => self.pass(pass, sorted, &scratch)?,
            };
        }
        Ok(event)
    }

    /// Moves all pairs to their places by one digit.
    fn pass(&mut self, pass: u32, from: &Pairs<K, V>, to: &Pairs<K, V>) -> Result<Event, Error> {
        let tiles = self.shape.tiles(from.keys.len());
        let counts = self.counters.values(0, tiles * DIGITS)?;
        let starts = self.counters.values(1, tiles * DIGITS)?;
        let shift = pass * DIGIT_BITS;

        let launch = from.keys.read(self.count.launch(), "keys")?;
        let launch = counts.write(launch, "digit_counts")?;
        launch.value("shift", &shift).workgroups(tiles).submit()?;

        self.starts.run(&counts, &starts)?;

        let launch = from.inputs(self.relocate.launch())?;
        let launch = to.outputs(starts.read(launch, "digit_starts")?)?;
        Ok(launch.value("shift", &shift).workgroups(tiles).submit()?)
    }
}

impl<K: Element, V: Element> Pairs<K, V> {
    fn inputs(&self, launch: Launch) -> Result<Launch, Error> {
        let launch = self.keys.read(launch, "keys")?;
        match &self.values {
            Some(values) => values.read(launch, "values"),
            None => Ok(launch),
        }
    }

    fn outputs(&self, launch: Launch) -> Result<Launch, Error> {
        let launch = self.keys.write(launch, "sorted_keys")?;
        match &self.values {
            Some(values) => values.write(launch, "sorted_values"),
            None => Ok(launch),
        }
    }
}
