//! The bindings of the runtime's own variables: in a bind group not used by the program, so the program's groups stay
//! unchanged, or else behind the program's last binding.

use std::collections::BTreeMap;

use naga::{Module, ResourceBinding};

use super::passes::globals::is_global;
use super::passes::pointers::{HeapMemory, LivePlaces};

/// Bindings for the runtime's additions to a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuntimeBindings {
    group: u32,
    first: u32,
}

impl RuntimeBindings {
    /// Chooses the bindings for a module that has only the program's own variables.
    pub(crate) fn of(module: &Module, max_bind_groups: u32) -> Self {
        // A binding beyond all limits of devices is reported as such where the device is known.
        const BEYOND: u32 = 1 << 31;
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        let bindings = (module.global_variables.iter())
            .filter_map(|(_, variable)| variable.binding.as_ref())
            .filter(|binding| !is_global(binding));
        for binding in bindings {
            let next = used.entry(binding.group).or_default();
            if binding.binding < BEYOND {
                *next = (*next).max(binding.binding + 1);
            }
        }
        match (0..max_bind_groups).find(|group| !used.contains_key(group)) {
            Some(group) => Self { group, first: 0 },
            None => {
                let group = max_bind_groups.saturating_sub(1);
                let first = used.get(&group).copied().unwrap_or(0);
                Self { group, first }
            }
        }
    }

    /// For modules to which nothing can be added.
    pub(crate) fn none() -> Self {
        Self {
            group: u32::MAX,
            first: 0,
        }
    }

    fn at(&self, index: u32) -> ResourceBinding {
        ResourceBinding {
            group: self.group,
            binding: self.first + index,
        }
    }

    /// The status record.
    pub(crate) fn status(&self) -> ResourceBinding {
        self.at(0)
    }

    /// The parameters of a tiled grid.
    pub(crate) fn grid(&self) -> ResourceBinding {
        self.at(1)
    }

    /// Where the heap lies.
    pub(crate) fn heap_info(&self) -> ResourceBinding {
        self.at(2)
    }

    /// The arena of the arguments without a separate binding.
    pub(crate) fn table(&self) -> ResourceBinding {
        self.at(3)
    }

    /// The memory of the kernel's device globals.
    pub(crate) fn globals(&self) -> ResourceBinding {
        self.at(4)
    }

    /// The record buffer of kernels that print.
    pub(crate) fn print(&self) -> ResourceBinding {
        self.at(5)
    }

    /// The ports through which the kernel calls the host.
    pub(crate) fn calls(&self) -> ResourceBinding {
        self.at(6)
    }

    /// The memory for the kernel's posts, where separate.
    pub(crate) fn posts(&self) -> ResourceBinding {
        self.at(7)
    }

    /// The memory read for delays while waiting for an answer.
    pub(crate) fn backoff(&self) -> ResourceBinding {
        self.at(8)
    }

    /// The scratch memory of spilled private arrays.
    pub(crate) fn scratch(&self) -> ResourceBinding {
        self.at(9)
    }

    /// A segment of the heap.
    pub(crate) fn segment(&self, index: u32) -> ResourceBinding {
        self.at(10 + index)
    }

    /// Several segments of the heap, or the buffers behind: parts of the allocation table.
    pub(crate) fn segments(&self, range: std::ops::Range<u32>) -> Vec<ResourceBinding> {
        range.map(|index| self.segment(index)).collect()
    }

    /// The pool, the table and the faults of a kernel that follows pointers into lent memory, in the place of segments, and
    /// the places of pages where the kernel waits for pages: with barriers, turns that are rationed, frames that are taken
    /// away.
    pub(crate) fn system(&self, live: Option<[bool; 3]>) -> HeapMemory {
        let [pool, table, faults, places, backoff] =
            [0, 1, 2, 3, 4].map(|index| self.segment(index));
        HeapMemory::System {
            pool,
            table,
            faults,
            status: self.status(),
            live: live.map(|[barriers, rationed, evicts]| LivePlaces {
                places,
                barriers,
                evicts,
                backoff: rationed.then_some(backoff),
            }),
        }
    }

    /// True for the bindings of the runtime.
    pub(crate) fn owns(&self, binding: &ResourceBinding) -> bool {
        binding.group == self.group && binding.binding >= self.first
    }
}
