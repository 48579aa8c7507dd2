//! Memory allocated by kernels: the books of `malloc` and `free` ([`memory`](super::memory)), by offsets in the
//! arena, and the list for the host.

use slotmap::SecondaryMap;

use super::status::FreeStatus;
use crate::addresses::region::{Allocation, AllocationId, GRANULE, Region, RegionOptions};
use crate::memory::Ptr;

/// Memory allocated by kernels with `malloc` and not freed
/// ([`HostServices::kernel_allocations`](crate::HostServices::kernel_allocations)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct KernelAllocations {
    /// The allocations not freed by any kernel, in the order of the `malloc`s.
    pub live: Vec<KernelAllocation>,
    /// Bytes asked for by all live allocations together.
    pub bytes: u64,
    /// The most bytes live at a time.
    pub peak_bytes: u64,
    /// Successful `malloc`s so far.
    pub made: u64,
    /// `malloc`s answered with null: without room, or of no bytes.
    pub refused: u64,
    /// Bytes for kernels, as given to
    /// [`HostServicesBuilder::memory`](crate::calls::HostServicesBuilder::memory).
    pub capacity: u64,
}

/// Memory allocated by a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAllocation {
    /// The result of `malloc`.
    pub pointer: Ptr<u8>,
    /// Bytes asked for.
    pub bytes: u64,
    /// The number of the `malloc` among all successful ones, from 0 on.
    pub order: u64,
}

/// The books of an arena.
pub(super) struct Books {
    region: Region,
    /// The order of each live allocation.
    orders: SecondaryMap<AllocationId, u64>,
    bytes: u64,
    peak: u64,
    made: u64,
    refused: u64,
}

impl Books {
    /// Of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let mut region = Region::new(RegionOptions::default().with_lookup(true));
        // Less than a granule has no room for anything.
        let _ = region.add_block(0, bytes);
        Self {
            region,
            orders: SecondaryMap::new(),
            bytes: 0,
            peak: 0,
            made: 0,
            refused: 0,
        }
    }

    /// The offset of new memory, or `None` where there is no room.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let Ok(found) = self.region.allocate(bytes, GRANULE) else {
            self.refused += 1;
            return None;
        };
        self.orders.insert(found.id, self.made);
        self.made += 1;
        self.bytes += found.requested;
        self.peak = self.peak.max(self.bytes);
        Some(found.address)
    }

    /// Frees the allocation beginning at an offset.
    pub fn free(&mut self, at: u64) -> FreeStatus {
        match self.find(at) {
            Some(found) if at == found.address => match self.region.free(found.id) {
                Ok(_) => {
                    self.orders.remove(found.id);
                    self.bytes = self.bytes.saturating_sub(found.requested);
                    FreeStatus::Done
                }
                Err(_) => FreeStatus::Unknown,
            },
            Some(_) => FreeStatus::Interior,
            None => FreeStatus::Unknown,
        }
    }

    /// The allocation with a byte.
    pub fn find(&self, at: u64) -> Option<Allocation> {
        self.region.find(at)
    }

    /// The list for the host, of an arena of `capacity` bytes at `base`.
    pub fn list(&self, base: Ptr<u8>, capacity: u64) -> KernelAllocations {
        let live = self.orders.iter().filter_map(|(id, &order)| {
            let found = self.region.get(id)?;
            Some(KernelAllocation {
                pointer: base.byte_add(found.address),
                bytes: found.requested,
                order,
            })
        });
        let mut live: Vec<_> = live.collect();
        live.sort_unstable_by_key(|allocation| allocation.order);
        KernelAllocations {
            live,
            bytes: self.bytes,
            peak_bytes: self.peak,
            made: self.made,
            refused: self.refused,
            capacity,
        }
    }

    /// The warning about memory not freed by any kernel, if there is such memory.
    pub fn leak(&self) -> Option<String> {
        let (count, bytes) = (self.orders.len(), self.bytes);
        (count > 0).then(|| {
            format!(
                "services end with {count} allocations of kernels ({bytes} bytes) that no kernel has freed: \
                 HostServices::kernel_allocations lists them"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u64 = 2048;

    #[derive(Debug, Clone)]
    enum Step {
        Allocate(u64),
        /// The live allocation of a number, from some byte on.
        Free(usize, u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u64..300).prop_map(Step::Allocate),
            (0usize..8, prop_oneof![4 => Just(0u64), 1 => 1u64..40])
                .prop_map(|(n, skip)| Step::Free(n, skip)),
        ]
    }

    proptest! {
        /// The model is a list of allocations not freed.
        #[test]
        fn the_books_agree_with_a_list(steps in prop::collection::vec(any_step(), 1..60)) {
            let base = Ptr::<u8>::from_address(1 << 20);
            let mut books = Books::new(CAPACITY);
            let mut model: Vec<(u64, u64, u64)> = Vec::new();
            let (mut made, mut refused, mut peak) = (0, 0, 0);
            for step in steps {
                match step {
                    Step::Allocate(bytes) => match books.allocate(bytes) {
                        Some(at) => {
                            prop_assert!(at + bytes <= CAPACITY);
                            prop_assert!(model.iter().all(|&(other, size, _)| at + bytes <= other || other + size <= at));
                            model.push((at, bytes, made));
                            made += 1;
                        }
                        None => refused += 1,
                    },
                    Step::Free(n, skip) => if let Some(&(at, ..)) = model.get(n) {
                        let of = |&(start, size, _): &(u64, u64, u64)| {
                            (start..start + size.next_multiple_of(GRANULE)).contains(&(at + skip))
                        };
                        let owner = model.iter().position(of);
                        let expected = match owner {
                            Some(owner) if model[owner].0 == at + skip => FreeStatus::Done,
                            Some(_) => FreeStatus::Interior,
                            None => FreeStatus::Unknown,
                        };
                        prop_assert_eq!(books.free(at + skip), expected);
                        if let (Some(owner), FreeStatus::Done) = (owner, expected) {
                            model.remove(owner);
                        }
                    },
                }
                let bytes = model.iter().map(|allocation| allocation.1).sum::<u64>();
                peak = peak.max(bytes);
                let live: Vec<_> = model.iter().map(|&(at, bytes, order)| KernelAllocation {
                    pointer: base.byte_add(at),
                    bytes,
                    order,
                }).collect();
                let expected = KernelAllocations { live, bytes, peak_bytes: peak, made, refused, capacity: CAPACITY };
                prop_assert_eq!(books.list(base, CAPACITY), expected);
                prop_assert_eq!(books.leak().is_some(), !model.is_empty());
            }
        }
    }

    #[test]
    fn what_is_said_at_the_end() {
        let mut books = Books::new(CAPACITY);
        assert_eq!(books.leak(), None);
        let first = books.allocate(100).unwrap();
        books.allocate(7).unwrap();
        books.allocate(30).unwrap();
        assert_eq!(books.free(first), FreeStatus::Done);
        let said = books.leak().unwrap();
        assert!(
            said.contains("2 allocations of kernels (37 bytes)"),
            "{said}"
        );
    }
}
