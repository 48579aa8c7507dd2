//! Combinations over tiles, each back to the last tile in which a segment begins: what segmented primitives carry from tile to tile.

use tombolo::{Device, Event, Kernel};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::Library;
use crate::operator::Operator;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// What a segmented scan writes, as `KIND` in `shaders/segmented_scan.wgsl`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Inclusive = 0,
    Exclusive = 1,
    Carries = 2,
}

/// Values, and a word or a bit for each that says whether a segment begins there.
#[derive(Debug, Clone)]
pub(crate) struct Segments<T> {
    pub values: Values<T>,
    pub heads: Values<u32>,
}

/// The kernels of one kind of level.
#[derive(Debug)]
pub(crate) struct Level {
    pub shape: Shape,
    reduce: Kernel,
    tiles: Kernel,
    single: Kernel,
}

impl Level {
    /// The program of all levels, and the shape.
    pub(crate) fn library<T: Element, O: Operator<T>>(
        device: &Device,
        shape: Shape,
    ) -> Result<Library, Error> {
        shape.check(device, shape.slots() + 2 * u64::from(shape.invocations) + 1)?;
        let source = include_str!("../shaders/segmented_scan.wgsl");
        Library::combining::<T, O>(device, "segmented_scan.wgsl", source)
    }

    pub(crate) fn new(
        library: &Library,
        shape: Shape,
        kind: Kind,
        packed: bool,
    ) -> Result<Self, Error> {
        let constants = shape.constants().set("KIND", kind as u32);
        let constants = constants.set("PACKED", packed);
        Ok(Self {
            shape,
            reduce: library.kernel("reduce_tiles", &constants)?,
            tiles: library.kernel("scan_tiles", &constants)?,
            single: library.kernel("scan_single_tile", &constants)?,
        })
    }

    /// Combines the values of each tile from the last head on.
    pub(crate) fn reduce<T: Element>(
        &self,
        source: &Segments<T>,
        totals: &Segments<T>,
    ) -> Result<(), Error> {
        let launch = source.values.read(self.reduce.launch(), "source")?;
        let launch = source.heads.read(launch, "heads")?;
        let launch = totals.values.write(launch, "totals")?;
        let launch = totals.heads.write(launch, "total_heads")?;
        launch.workgroups(totals.values.len()).submit()?;
        Ok(())
    }

    /// Scans `source`, a single tile where there are no carries.
    pub(crate) fn scan<T: Element>(
        &self,
        source: &Segments<T>,
        sink: &Values<T>,
        carries: Option<&Values<T>>,
    ) -> Result<Event, Error> {
        let launch = match carries {
            Some(carries) => carries.read(self.tiles.launch(), "carries")?,
            None => self.single.launch(),
        };
        let launch = source.values.read(launch, "source")?;
        let launch = source.heads.read(launch, "heads")?;
        let launch = sink.write(launch, "sink")?;
        let tiles = self.shape.tiles(source.values.len());
        Ok(launch.workgroups(tiles).submit()?)
    }
}

/// Makes carries of the totals of tiles.
#[derive(Debug)]
pub(crate) struct Carries<T> {
    level: Level,
    totals: Scratch<T>,
    heads: Scratch<u32>,
    carries: Scratch<T>,
}

impl<T: Element> Carries<T> {
    pub(crate) fn new(device: &Device, library: &Library, shape: Shape) -> Result<Self, Error> {
        Ok(Self {
            level: Level::new(library, shape, Kind::Carries, false)?,
            totals: Scratch::new(device),
            heads: Scratch::new(device),
            carries: Scratch::new(device),
        })
    }

    /// Memory for the totals of `tiles` tiles of the input.
    pub(crate) fn totals(&mut self, tiles: u64) -> Result<Segments<T>, Error> {
        self.segments(0, tiles)
    }

    /// What each tile begins with, for at least one total: the combination of the totals before, from the last with a head on.
    pub(crate) fn of(&mut self, totals: Segments<T>) -> Result<Values<T>, Error> {
        let mut last = totals;
        let mut levels = Vec::new();
        while last.values.len() > self.level.shape.tile() {
            let tiles = self.level.shape.tiles(last.values.len());
            let next = self.segments(levels.len() + 1, tiles)?;
            self.level.reduce(&last, &next)?;
            levels.push(std::mem::replace(&mut last, next));
        }
        let mut carries = self.carries.values(levels.len(), last.values.len())?;
        self.level.scan(&last, &carries, None)?;
        for (index, level) in levels.iter().enumerate().rev() {
            let scanned = self.carries.values(index, level.values.len())?;
            self.level.scan(level, &scanned, Some(&carries))?;
            carries = scanned;
        }
        Ok(carries)
    }

    fn segments(&mut self, index: usize, len: u64) -> Result<Segments<T>, Error> {
        Ok(Segments {
            values: self.totals.values(index, len)?,
            heads: self.heads.values(index, len)?,
        })
    }
}
