//! Why the planner refuses.

use std::fmt;
use std::ops::Range;

use super::Place;

/// Why the planner refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// There are more places than a set of places can hold.
    #[error(
        "migrate: place {index} is beyond the {limit} that a buffer can be at (the host and {} devices): \
         use fewer devices in one context",
        limit - 1
    )]
    TooManyPlaces {
        /// The place asked for.
        index: u32,
        /// The most places.
        limit: u32,
    },
    /// The range does not lie in the buffer, or ends before its start.
    #[error(
        "migrate: bytes {start}..{end} are not within the {len} bytes there are: shorten the range"
    )]
    OutOfRange {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// Bytes of the buffer.
        len: u64,
    },
    /// Wanted bytes were only on a device that is gone.
    #[error(
        "migrate: the latest bytes {} were only at {place}, which was lost: overwrite or discard them before they \
         are read",
        Ranges(ranges)
    )]
    Lost {
        /// The first place of the loss.
        place: Place,
        /// All lost bytes among those wanted.
        ranges: Vec<Range<u64>>,
    },
    /// The residency has changed since the plan was made, or the plan is of another buffer.
    #[error("migrate: the plan is of another buffer or of an earlier state: plan again")]
    StalePlan,
    /// Bytes that were to be dropped are nowhere else.
    #[error(
        "migrate: the latest bytes {} are only at {place}: copy them elsewhere before they are dropped there",
        Ranges(ranges)
    )]
    OnlyCopy {
        /// Their place.
        place: Place,
        /// Which.
        ranges: Vec<Range<u64>>,
    },
}

/// The most ranges written out.
const SHOWN: usize = 4;

/// Writes ranges for people.
pub(super) struct Ranges<'a>(pub &'a [Range<u64>]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}..{}", range.start, range.end)?;
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more ranges"),
        }
    }
}
