//! The known state of a range of bytes.

use super::{Place, Places};

/// A place's state of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Held {
    /// Nothing that was ever part of the buffer.
    Nothing,
    /// An older version, so many versions behind the latest; 15 stands for 15 or more. A version held only by its
    /// writer does not count.
    Behind(u8),
    /// Partly nothing, and partly older versions, which are so many versions behind at most.
    Mixed(u8),
    /// The latest version.
    Current,
}

impl Held {
    /// The state of two ranges together.
    pub(super) fn and(self, other: Self) -> Self {
        use Held::{Behind, Current, Mixed, Nothing};
        match (self, other) {
            (Nothing, Nothing) => Nothing,
            (Current, Current) => Current,
            (Behind(a), Behind(b)) => Behind(a.max(b)),
            (a, b) => {
                let count = |held| match held {
                    Behind(n) | Mixed(n) => n,
                    Nothing | Current => 0,
                };
                Mixed(count(a).max(count(b)))
            }
        }
    }
}

/// The contents of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// Never written, or discarded.
    Undefined,
    /// The latest bytes are at these places.
    At(Places),
    /// The latest bytes were only at this place, which was lost.
    Lost(Place),
}

/// The known state of a range with content. Equal neighbours are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The places with the latest version; empty if lost.
    pub current: Places,
    /// Where the latest version was lost.
    pub lost: Option<Place>,
    lags: Lags,
}

impl Extent {
    /// The content after `writers`, places with the same memory, wrote over `before`.
    pub fn written(before: Option<Self>, writers: Places) -> Self {
        let mut lags = Lags::default();
        if let Some(before) = before {
            lags = before.lags;
            // The replaced version has never been seen elsewhere: no place falls behind.
            if before.current != writers {
                lags.fall_behind();
                for place in before.current.iter() {
                    lags.set(place, 1);
                }
            }
            for place in writers.iter() {
                lags.set(place, 0);
            }
        }
        Self {
            current: writers,
            lost: None,
            lags,
        }
    }

    /// The places `gained` got the latest version.
    pub fn copied(mut self, gained: Places) -> Self {
        self.current = self.current.union(gained);
        for place in gained.iter() {
            self.lags.set(place, 0);
        }
        self
    }

    /// The memory of `places` is gone.
    pub fn dropped(mut self, places: Places) -> Self {
        self.current = self.current.without(places);
        for place in places.iter() {
            self.lags.set(place, 0);
        }
        self
    }

    /// Whether giving up the memory of `places` would lose the latest version.
    pub fn is_only_at(&self, places: Places) -> bool {
        !self.current.is_empty() && self.current.without(places).is_empty()
    }

    pub fn content(&self) -> Content {
        match self.lost {
            Some(place) => Content::Lost(place),
            None => Content::At(self.current),
        }
    }

    pub fn held(&self, place: Place) -> Held {
        match self.lags.get(place) {
            _ if self.current.contains(place) => Held::Current,
            0 => Held::Nothing,
            lag => Held::Behind(lag),
        }
    }
}

/// Four bits for each place: 0 without an older version, else how many versions the place is behind, 15 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lags([u64; 4]);

impl Lags {
    const PER_WORD: u32 = 16;
    /// The lowest bit of each.
    const ONES: u64 = 0x1111_1111_1111_1111;

    fn get(&self, place: Place) -> u8 {
        let index = place.index();
        let word = self.0[(index / Self::PER_WORD) as usize];
        (word >> (index % Self::PER_WORD * 4) & 15) as u8
    }

    fn set(&mut self, place: Place, lag: u8) {
        let index = place.index();
        let shift = index % Self::PER_WORD * 4;
        let word = &mut self.0[(index / Self::PER_WORD) as usize];
        *word = *word & !(15 << shift) | u64::from(lag & 15) << shift;
    }

    /// Adds 1 to all that are neither 0 nor 15.
    fn fall_behind(&mut self) {
        for word in &mut self.0 {
            let some = *word | *word >> 1 | *word >> 2 | *word >> 3;
            let full = *word & *word >> 1 & *word >> 2 & *word >> 3;
            *word += some & !full & Self::ONES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_count_up_to_fifteen_and_apart_from_each_other() {
        let place = |index| Place::new(index).expect("a place");
        let mut lags = Lags::default();
        lags.set(place(15), 1);
        lags.set(place(16), 14);
        lags.set(place(63), 3);
        for _ in 0..3 {
            lags.fall_behind();
        }
        for index in 0..64 {
            let expected = match index {
                15 => 4,
                16 => 15,
                63 => 6,
                _ => 0,
            };
            assert_eq!(lags.get(place(index)), expected, "place {index}");
        }
    }
}
