//! Places, and sets of them.

use std::fmt;

use super::MigrateError;

/// Where bytes can be: the host, or a device of the context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(u8);

impl Place {
    /// The host's own memory: place 0.
    pub const HOST: Self = Self(0);
    /// How many places a context can have, the host included.
    pub const LIMIT: u32 = 64;

    /// Place `index`: 0 is the host, 1 and up are devices.
    pub const fn new(index: u32) -> Result<Self, MigrateError> {
        if index < Self::LIMIT {
            Ok(Self(index as u8))
        } else {
            Err(MigrateError::TooManyPlaces {
                index,
                limit: Self::LIMIT,
            })
        }
    }

    /// 0 for the host, 1 and up for devices.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Whether this is the host.
    #[must_use]
    pub const fn is_host(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("the host"),
            device => write!(f, "device {device}"),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.0)
    }
}

/// A set of places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Places(u64);

impl Places {
    /// No place.
    pub const EMPTY: Self = Self(0);

    /// Every place that there can be.
    pub const EVERY: Self = Self(u64::MAX);

    /// One place.
    #[must_use]
    pub const fn of(place: Place) -> Self {
        Self(1 << place.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `place` is among them.
    #[must_use]
    pub const fn contains(self, place: Place) -> bool {
        self.0 & (1 << place.0) != 0
    }

    /// Those of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The places outside of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Adds one.
    pub const fn insert(&mut self, place: Place) {
        self.0 |= 1 << place.0;
    }

    /// All of them, in rising order.
    pub fn iter(self) -> impl Iterator<Item = Place> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let lowest = left.trailing_zeros() as u8;
                left &= left - 1;
                Place(lowest)
            })
        })
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut set = Self::EMPTY;
        places.into_iter().for_each(|place| set.insert(place));
        set
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Place::index))
            .finish()
    }
}
