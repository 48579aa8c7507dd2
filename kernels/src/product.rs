//! The common parts of products of matrices: launches, each for a part of the sums.

use tombolo::{Constants, Device, Event, Kernel, Launch};

use crate::element::Element;
use crate::error::Error;
use crate::kernels::{self, Library};
use crate::values::Values;

/// The kernels of a product, `multiply` and `clear` of the product's source.
#[derive(Debug)]
pub(crate) struct Product {
    multiply: Kernel,
    clear: Kernel,
    nothing: Kernel,
    /// The most terms of a sum that a launch adds up
    most_terms: u32,
}

/// The parts of a product, each with the part's name in the kernel.
pub(crate) struct Factors<'a, T> {
    pub(crate) left: (&'static str, &'a Values<T>),
    pub(crate) right: (&'static str, &'a Values<T>),
    pub(crate) sink: &'a Values<T>,
    /// Terms of each sum
    pub(crate) terms: u32,
    /// Whether the product is added to the contents of `sink`
    pub(crate) adds: bool,
}

/// The terms added up by a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Whether the launch adds to the contents of `sink`, 0 or 1
    pub(crate) adds: u32,
}

impl Product {
    /// Compiles the kernels. A loop takes `most_turns` turns of `step` terms in a launch.
    pub(crate) fn new<T: Element>(
        device: &Device,
        name: &str,
        source: &'static str,
        [step, most_turns]: [u32; 2],
    ) -> Result<Self, Error> {
        let library = Library::new(device, Library::plain::<T>(name, source))?;
        let constants = Constants::new().set("MOST_TURNS", most_turns);
        Ok(Self {
            multiply: library.kernel("multiply", &constants)?,
            clear: library.kernel("clear", &constants)?,
            nothing: kernels::nothing(device)?,
            most_terms: step * most_turns,
        })
    }

    /// Launches as often as the terms take; `sized` gives a launch the sizes and the grid.
    pub(crate) fn run<T: Element>(
        &self,
        factors: &Factors<'_, T>,
        sized: impl Fn(Launch, Part) -> Launch,
    ) -> Result<Event, Error> {
        let &Factors {
            left,
            right,
            sink,
            terms,
            adds,
        } = factors;
        if sink.is_empty() || (terms == 0 && adds) {
            return Ok(self.nothing.launch().workgroups(0).submit()?);
        }
        if terms == 0 {
            let launch = sink.write(self.clear.launch(), "sink")?;
            return Ok(launch.invocations(sink.len()).submit()?);
        }
        let part = |start: u32, adds: bool| {
            let launch = left.1.read(self.multiply.launch(), left.0)?;
            let launch = right.1.read(launch, right.0)?;
            let launch = match adds {
                true => sink.read(launch, "sink")?,
                false => sink.write(launch, "sink")?,
            };
            let part = Part {
                start,
                end: terms.min(start.saturating_add(self.most_terms)),
                adds: adds.into(),
            };
            Ok::<_, Error>(sized(launch, part).submit()?)
        };
        let mut event = part(0, adds)?;
        for start in (0..terms).step_by(self.most_terms as usize).skip(1) {
            event = part(start, true)?;
        }
        Ok(event)
    }
}
