//! Giving up the memory of a place.

use std::ops::Range;

use super::plan::{Plan, Planner, Why};
use super::residency::{Residency, clip, push};
use super::routes::Routes;
use super::{MigrateError, Place, Places};

/// The steps for giving up a buffer's memory at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Eviction {
    /// Ranges to drop at once: current at the place and elsewhere, too.
    pub clean: Vec<Range<u64>>,
    /// The copies to the host that must come first. Commit them before [`Residency::evicted`].
    pub plan: Plan,
    /// Bytes not movable to the host, being in the host's own memory already.
    pub kept: Vec<Range<u64>>,
}

impl Residency {
    /// The steps for giving up the memory at `place`: older versions are dropped, and the latest bytes present nowhere
    /// else are copied to the host first.
    #[must_use]
    pub fn evictable(&self, place: Place, routes: &Routes) -> Eviction {
        let memory = self.memory_of(place);
        let host = memory.contains(Place::HOST);
        let mut planner = Planner::new(self, routes);
        let (mut clean, mut kept) = (Vec::new(), Vec::new());
        for (range, extent) in self.extents.iter() {
            if extent.current.common(memory).is_empty() {
                continue;
            }
            if !extent.current.without(memory).is_empty() {
                push(&mut clean, range.clone());
            } else if host {
                push(&mut kept, range.clone());
            } else {
                planner.copy(
                    range.clone(),
                    extent.current,
                    Places::of(Place::HOST),
                    &|_| Why::Evicted { from: place },
                );
            }
        }
        let mut plan = planner.finish();
        if !host && !plan.whole.is_empty() && plan.whole.without(memory).is_empty() {
            plan.whole_buffer = self.len();
            plan.whole = plan.whole.union(self.memory_of(Place::HOST));
        }
        Eviction { clean, plan, kept }
    }

    /// The buffer's memory for `range` at `place` was given up, older versions included, and with it the same memory
    /// under the name of other places.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OnlyCopy`] if latest bytes are nowhere else, and [`MigrateError::OutOfRange`]; nothing is
    /// forgotten then.
    pub fn evicted(&mut self, place: Place, range: Range<u64>) -> Result<(), MigrateError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let memory = self.memory_of(place);
        let mut only = Vec::new();
        for (part, extent) in self.extents.overlapping(range.clone()) {
            if extent.is_only_at(memory) {
                push(&mut only, clip(part, &range));
            }
        }
        if !only.is_empty() {
            return Err(MigrateError::OnlyCopy {
                place,
                ranges: only,
            });
        }
        self.drop_memory(memory, range);
        Ok(())
    }
}
