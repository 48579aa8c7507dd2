//! What lies at an address that a kernel may not follow, in words for the program.

use std::fmt;

use super::Place;

/// The allocation, now or before, at an address not to be followed by a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// The pointer lies in a live allocation, too close to the end for the value; or the memory was allocated
    /// meanwhile.
    Inside {
        offset: u64,
        bytes: u64,
        at: Option<Place>,
    },
    /// The pointer lies in a freed allocation.
    Freed {
        offset: u64,
        bytes: u64,
        at: Option<Place>,
        freed: Option<Place>,
    },
    /// The pointer lies so many bytes behind the last byte of the live allocation in front.
    Behind {
        distance: u64,
        bytes: u64,
        at: Option<Place>,
    },
    /// Nothing is allocated in front.
    Nothing,
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made =
            |at: &Option<Place>| at.map_or_else(String::new, |at| format!(", allocated at {at}"));
        match self {
            Self::Inside { offset, bytes, at } => {
                write!(
                    f,
                    "byte {offset} of a live allocation of {bytes} bytes{}",
                    made(at)
                )
            }
            Self::Freed {
                offset,
                bytes,
                at,
                freed,
            } => {
                write!(
                    f,
                    "byte {offset} of an allocation of {bytes} bytes that was freed{}{}",
                    freed.map_or_else(String::new, |at| format!(" at {at}")),
                    made(at)
                )
            }
            Self::Behind {
                distance: 0,
                bytes,
                at,
            } => write!(f, "the end of an allocation of {bytes} bytes{}", made(at)),
            Self::Behind {
                distance,
                bytes,
                at,
            } => write!(
                f,
                "{distance} bytes past the end of an allocation of {bytes} bytes{}",
                made(at)
            ),
            Self::Nothing => f.write_str("nothing is allocated there, nor in front of it"),
        }
    }
}
