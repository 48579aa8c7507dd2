//! From the crate's WGSL to kernels.

use tombolo::kernel::ProgramBuilder;
use tombolo::{Constants, Device, Kernel, Program};

use crate::element::Element;
use crate::error::Error;
use crate::operator::{self, Operator};

/// A program of the crate on a device.
pub(crate) struct Library {
    device: Device,
    program: Program,
}

impl Library {
    /// The source of a primitive beside the source of the element type.
    pub(crate) fn plain<T: Element>(name: &str, source: &'static str) -> ProgramBuilder {
        Program::builder()
            .source(name, source)
            .source("element.wgsl", T::SOURCE)
    }

    /// The same for kernels taking the shape of work-groups from the host.
    pub(crate) fn sources<T: Element>(name: &str, source: &'static str) -> ProgramBuilder {
        Self::plain::<T>(name, source).source("sizes.wgsl", include_str!("../shaders/sizes.wgsl"))
    }

    /// A program whose kernels combine values of type `T` by `O`.
    pub(crate) fn combining<T: Element, O: Operator<T>>(
        device: &Device,
        name: &str,
        source: &'static str,
    ) -> Result<Self, Error> {
        let sources = Self::sources::<T>(name, source);
        Self::new(
            device,
            sources.source("operator.wgsl", operator::source::<T, O>()),
        )
    }

    /// A program of the given sources.
    pub(crate) fn new(device: &Device, sources: ProgramBuilder) -> Result<Self, Error> {
        Ok(Self {
            device: device.clone(),
            program: sources.build()?,
        })
    }

    /// The kernel of an entry point.
    pub(crate) fn kernel(&self, entry: &str, constants: &Constants) -> Result<Kernel, Error> {
        Ok(self.device.kernel(&self.program, entry, constants)?)
    }
}

/// The WGSL of sums over the invocations of a work-group.
pub(crate) const RANKS: (&str, &str) = ("ranks.wgsl", include_str!("../shaders/ranks.wgsl"));

/// A kernel for calls with nothing to do, which return an event as all others.
pub(crate) fn nothing(device: &Device) -> Result<Kernel, Error> {
    let source = "@compute @workgroup_size(1) fn nothing() {}";
    let program = Program::new("nothing.wgsl", source)?;
    Ok(device.kernel(&program, "nothing", &Constants::new())?)
}
