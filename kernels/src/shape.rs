//! How work is cut into work-groups.

use tombolo::{Constants, Device};

use crate::error::Error;

/// The share of the input that a work-group takes: a *tile* of `invocations * items` values.
///
/// The defaults suit discrete GPUs: enough bytes in flight in each invocation, little enough memory for several work-groups on
/// a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Invocations of a work-group, a power of two.
    pub invocations: u32,
    /// Values of each invocation.
    pub items: u32,
}

/// The most values of an invocation.
const MOST_ITEMS: u32 = 64;

impl Shape {
    /// Values in a tile.
    pub fn tile(self) -> u64 {
        u64::from(self.invocations) * u64::from(self.items)
    }

    /// Words of a tile in work-group memory, with the gaps of `shaders/sizes.wgsl`.
    pub(crate) fn slots(self) -> u64 {
        self.tile() + self.tile() / 32
    }

    /// Checks the shape against a device's limits, for kernels keeping `words` words for each work-group.
    pub(crate) fn check(self, device: &Device, words: u64) -> Result<Self, Error> {
        let Self { invocations, items } = self;
        let capabilities = device.capabilities();
        let most = (capabilities.workgroup_invocations).min(capabilities.workgroup_size[0]);
        let memory = u64::from(capabilities.workgroup_storage_bytes) / 4;
        let why = if !invocations.is_power_of_two() {
            "the number of invocations is no power of two".to_owned()
        } else if invocations > most {
            format!("a work-group of the device has {most} invocations at most")
        } else if !(1..=MOST_ITEMS).contains(&items) {
            format!("an invocation takes 1 to {MOST_ITEMS} values")
        } else if words > memory {
            format!("{words} words of work-group memory are needed, and the device has {memory}")
        } else {
            return Ok(self);
        };
        Err(Error::Shape {
            invocations,
            items,
            why,
        })
    }

    /// The constants `INVOCATIONS`, `LEVELS` (the logarithm of `INVOCATIONS`) and `ITEMS`.
    pub(crate) fn constants(self) -> Constants {
        self.and(Constants::new())
    }

    /// The shape's constants beside others.
    pub(crate) fn and(self, constants: Constants) -> Constants {
        constants
            .set("INVOCATIONS", self.invocations)
            .set("LEVELS", self.invocations.ilog2())
            .set("ITEMS", self.items)
    }

    /// How many tiles cover `len` values.
    pub(crate) fn tiles(self, len: u64) -> u64 {
        len.div_ceil(self.tile())
    }
}
