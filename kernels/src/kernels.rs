//! From the crate's WGSL to kernels.

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
    /// A program whose kernels combine values of type `T` by `O`.
    pub(crate) fn combining<T: Element, O: Operator<T>>(
        device: &Device,
        name: &str,
        source: &str,
    ) -> Result<Self, Error> {
        let program = Program::builder()
            .source(name, source)
            .source("element.wgsl", T::SOURCE)
            .source("operator.wgsl", operator::source::<T, O>())
            .build()?;
        let device = device.clone();
        Ok(Self { device, program })
    }

    /// The kernel of an entry point.
    pub(crate) fn kernel(&self, entry: &str, constants: &Constants) -> Result<Kernel, Error> {
        Ok(self.device.kernel(&self.program, entry, constants)?)
    }
}
