//! Giving a place to another device.

use std::ops::Range;

use super::residency::{Residency, push};
use super::{MigrateError, Place, Places};

impl Residency {
    /// Forgets all about a place, which may be another device's from now on: its older versions, its versions that are
    /// elsewhere, too, and its part in a memory common to several places. Commands there that are not yet finished stay
    /// known: in common memory as commands of another of its places.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OnlyCopy`] if latest bytes are nowhere else, and [`MigrateError::Lost`] if losses are told under
    /// the place's name ([`Residency::rename_losses`]); nothing is forgotten then.
    pub fn vacate(&mut self, place: Place) -> Result<(), MigrateError> {
        let only = self.ranges_where(|extent| extent.is_only_at(Places::of(place)));
        if !only.is_empty() {
            return Err(MigrateError::OnlyCopy {
                place,
                ranges: only,
            });
        }
        let ranges = self.losses_at(place);
        if !ranges.is_empty() {
            return Err(MigrateError::Lost { place, ranges });
        }
        let others = self.memory_of(place).without(Places::of(place));
        if let Some(other) = others.iter().next() {
            self.uses.rename(place, other);
        }
        self.leave_memories(place);
        self.drop_memory(Places::of(place), 0..self.len());
        Ok(())
    }

    /// The ranges whose latest bytes were lost with this place.
    #[must_use]
    pub fn losses_at(&self, place: Place) -> Vec<Range<u64>> {
        self.ranges_where(|extent| extent.lost == Some(place))
    }

    /// Tells the losses of a place under the name of another one: for lost devices of one name.
    pub fn rename_losses(&mut self, from: Place, to: Place) {
        self.update(0..self.len(), |before| {
            before.map(|mut extent| {
                if extent.lost == Some(from) {
                    extent.lost = Some(to);
                }
                extent
            })
        });
        self.restamp();
    }

    fn ranges_where(&self, is: impl Fn(&super::extent::Extent) -> bool) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (range, _) in self.extents.iter().filter(|(_, extent)| is(extent)) {
            push(&mut ranges, range.clone());
        }
        ranges
    }
}
