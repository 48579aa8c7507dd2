//! The migration planner: it knows where the latest bytes of a buffer are, and decides which copies a command needs.
//! The planner touches no memory and no device.
//!
//! A buffer belongs to a context, and every [`Place`] (the host, and each device) may have memory of the buffer.
//! [`Residency`] remembers, for each range of bytes, which places hold the latest version, and how far the others are
//! behind. Only writes make a version; a copy makes one more place current.
//!
//! ```text
//!              0          256         512         768         1024
//!              +-----------+-----------+-----------+------------+
//!   latest at  | {1}       | {1, 2}    | {0, 2}    | (undefined)|
//!              +-----------+-----------+-----------+------------+
//!                           \_ 2 reads 0..1024 _/
//!   plan       | 1 -> 2    | current   | current   | undefined  |      256 bytes move
//! ```
//!
//! - **[`Residency::plan`]** is pure: wants and [`Routes`] in, [`Plan`] out. A copy consists of exactly the bytes read
//!   by a want, ever written, and missing at the place; the source is the cheapest place.
//! - **[`Residency::commit`]** is called when the copies are enqueued, [`Residency::wrote`] when the command is.
//!   So decisions are made at enqueue time, and the order of enqueuing is the order of versions.
//! - **Sub-buffers** are ranges of their root buffer and have no state: each root has a single residency, so a parent
//!   and all its parts always agree.
//! - **Hazards**: events of unfinished commands are remembered for each range ([`Residency::begin`]), so the runtime
//!   can ask what a copy or a command has to wait for. Memory of different places never conflicts: a kernel may go on
//!   reading an old version on a device while another device writes the next version.
//!
//! ```
//! use tombolo::buffers::migrate::{Access, Place, Residency, Routes, Want};
//!
//! let (left, right) = (Place::new(1)?, Place::new(2)?);
//! let mut buffer = Residency::new(1024);
//! buffer.wrote(left, 0..1024)?;
//! // The right half goes to the other device, through the host, and stays there.
//! let want = Want::new(right, 512..1024, Access::ReadWrite);
//! let plan = buffer.plan(&[want.clone()], &Routes::new())?;
//! assert_eq!(plan.steps.len(), 2);
//! assert_eq!(plan.moved(), 2 * 512);
//! buffer.commit(&plan)?;
//! buffer.wrote(right, 512..1024)?;
//! // From now on each device has its half, and nothing moves.
//! assert_eq!(buffer.plan(&[want], &Routes::new())?.moved(), 0);
//! # Ok::<(), tombolo::buffers::migrate::MigrateError>(())
//! ```

mod error;
mod evict;
mod explain;
mod extent;
mod place;
mod plan;
mod residency;
mod routes;
mod uses;
mod vacate;

#[cfg(test)]
mod model;
#[cfg(test)]
mod model_wires;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_model;
#[cfg(test)]
mod tests_text;
#[cfg(test)]
mod tests_uses;

pub use error::MigrateError;
pub use evict::Eviction;
pub use explain::{Explanation, Movement};
pub use extent::{Content, Held};
pub use place::{Place, Places};
pub use plan::{Avoided, Counters, Plan, Step, Why};
pub use residency::Residency;
pub use routes::{Route, Routes};
pub use uses::{Hazard, HazardKind, Use};

use std::ops::Range;

/// A command's access to a range of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads. Makes no version.
    Read,
    /// The command writes some unknown part of the range: the rest must be current.
    Write,
    /// Reads, and writes some of the range.
    ReadWrite,
    /// The command writes every byte of the range and reads none of the old ones: the content before is undefined.
    Overwrite,
}

impl Access {
    /// Whether the bytes must be current first.
    #[must_use]
    pub fn needs_content(self) -> bool {
        self != Self::Overwrite
    }

    /// Whether the access makes a version.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// The joint effect of two accesses, both in need of the content.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::ReadWrite }
    }
}

/// A range of a buffer that a command uses somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Want {
    /// Where.
    pub place: Place,
    /// Bytes of the root buffer.
    pub range: Range<u64>,
    /// How.
    pub access: Access,
}

impl Want {
    /// So many bytes of the root buffer, used at `place`.
    pub fn new(place: Place, range: Range<u64>, access: Access) -> Self {
        Self {
            place,
            range,
            access,
        }
    }
}
