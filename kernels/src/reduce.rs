//! Reduction.

use std::marker::PhantomData;

use tombolo::{Device, Event, Kernel};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::Library;
use crate::operator::Operator;
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::values::Values;

/// Combines all values into a single value: `sink[0] = source[0] ⊕ source[1] ⊕ …`; the identity of the operator where there is
/// no value.
///
/// # How it works
/// 1. Each work-group combines a tile of the input into a value of scratch memory.
/// 2. The same kernel is launched on the combined values, until a single tile is left, whose work-group writes the result.
///
/// Every value is read once; with the default shape all further launches together read 1/4095 of the input.
///
/// ```no_run
/// # use tombolo::Context;
/// use tombolo_kernels::{Max, Reduce};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Context::new()?.device()?;
/// let (values, largest) = (device.buffer(&[2.0f32, -7.5, 3.25])?, device.zeroed(1)?);
/// let event = Reduce::<f32, Max>::new(&device)?.run(&values, &largest)?;
/// event.wait()?;
/// assert_eq!(largest.read()?, [3.25]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reduce<T, O> {
    pub(crate) shape: Shape,
    tiles: Kernel,
    nothing: Kernel,
    scratch: Scratch<T>,
    operator: PhantomData<fn() -> O>,
}

impl<T: Element, O: Operator<T>> Reduce<T, O> {
    /// The shape of [`Reduce::new`].
    pub const SHAPE: Shape = Shape {
        invocations: 256,
        items: 16,
    };

    /// Compiles the kernels for a device.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] on a device without work-groups of 256 invocations.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_shape(device, Self::SHAPE)
    }

    /// As [`Reduce::new`], with work-groups of another shape.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Shape`] for a shape that the device does not have.
    pub fn with_shape(device: &Device, shape: Shape) -> Result<Self, Error> {
        let shape = shape.check(device, u64::from(shape.invocations))?;
        let source = include_str!("../shaders/reduce.wgsl");
        let library = Library::combining::<T, O>(device, "reduce.wgsl", source)?;
        let constants = shape.constants();
        Ok(Self {
            shape,
            tiles: library.kernel("reduce_tiles", &constants)?,
            nothing: library.kernel("reduce_nothing", &constants)?,
            scratch: Scratch::new(device),
            operator: PhantomData,
        })
    }

    /// Writes the combination of all values of `source` to the first value of `sink`.
    ///
    /// # Errors
    /// [`Error::TooShort`] for an empty `sink`, [`Error::TooLong`], [`Error::Launch`], [`Error::Memory`].
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let (mut source, sink) = (source.into(), sink.into().first("sink", 1)?);
        let len = source.count("source")?;
        if len == 0 {
            let launch = sink.write(self.nothing.launch(), "sink")?;
            return Ok(launch.workgroups(1).submit()?);
        }
        let mut level = 0;
        while source.len() > self.shape.tile() {
            let totals = (self.scratch).values(level % 2, self.shape.tiles(source.len()))?;
            self.tiles(&source, &totals)?;
            source = totals;
            level += 1;
        }
        self.tiles(&source, &sink)
    }

    /// Combines each tile of `source` into a value of `sink`; `sink` has as many values as there are tiles.
    pub(crate) fn tiles(&self, source: &Values<T>, sink: &Values<T>) -> Result<Event, Error> {
        let launch = source.read(self.tiles.launch(), "source")?;
        let launch = sink.write(launch, "sink")?;
        Ok(launch.workgroups(self.shape.tiles(source.len())).submit()?)
    }
}
