//! The allocation table: the end of allocated memory behind any pointer, for checked kernels.
//!
//! # How it works
//!
//! The heap hands out granules of 16 bytes. The table has a word for each: where the allocation ends that the granule
//! belongs to, as the byte offset behind the last byte asked for, or 0 where nothing is allocated.
//!
//! ```text
//! heap     | 20 bytes asked for  | free | 32 bytes            |
//! granules |     0    |     1    |   2  |     3    |     4    |
//! table    |    20    |    20    |   0  |    80    |    80    |
//! ```
//!
//! So a load and a comparison show for a value at any address whether all of the value lies in a live allocation,
//! whatever its size, to the byte; and the same word is the end of an array whose length the kernel does not know. The
//! origin of a pointer is unknown: arithmetic leading from the end of an allocation into the next one finds the latter
//! live.
//!
//! The table takes a quarter of the heap's bytes on the host, and as much on each device that runs such kernels. The
//! table is kept from the first such kernel on. A bit for each granule would take a thirty-second part, and would see
//! neither the end of an allocation within its last granule nor a structure across two allocations; two levels of bits
//! would cost two dependent loads.
//!
//! Freed allocations are remembered for a while, with the places of allocation and freeing in the program, for the
//! error of a failed launch.

mod copy;
mod whereabouts;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::Location;
use std::sync::{Arc, Weak};

pub(super) use copy::Upload;
use copy::{Change, TableCopy, record};
pub(crate) use whereabouts::Whereabouts;

use super::device_memory::{ADDRESS_MASK, DeviceMemory};
use super::{DeviceView, HeapError, HeapShared};
use crate::addresses::granules::HEAP_GRANULE;
use crate::addresses::region::Allocation;
use crate::device::queue::Decoder;
use crate::device::wait::lock;
use crate::device::{DeviceShared, ExecutionError};
use crate::memory::pointer::{PointerKind, Ptr};

/// A place in the program.
pub(crate) type Place = &'static Location<'static>;

/// Buffers in kernels' bindings, with identities for the bind-group cache.
type Bound = Vec<(u64, wgpu::Buffer)>;

/// Freed allocations that are remembered.
const REMEMBERED: usize = 4096;

/// A table, and its copies on devices.
pub(super) struct AllocationTable {
    granule: u64,
    words: Vec<u32>,
    /// The live allocations, by their offset.
    live: BTreeMap<u64, Known>,
    /// The last freed allocations, the latest at the end.
    freed: VecDeque<(u64, Known, Option<Place>)>,
    by_device: HashMap<u64, (Weak<DeviceShared>, TableCopy)>,
}

#[derive(Clone, Copy)]
struct Known {
    requested: u64,
    /// The place of the allocation; unknown for allocations older than the table, and for the runtime's own.
    at: Option<Place>,
}

/// An allocation, now or before, in the bytes of a table.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// The first byte, within the table's bytes.
    pub address: u64,
    /// The granted bytes.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested: u64,
}

impl From<&Allocation> for Block {
    fn from(allocation: &Allocation) -> Self {
        Self {
            address: allocation.address,
            size: allocation.size,
            requested: allocation.requested,
        }
    }
}

impl AllocationTable {
    /// A table with a word for each `granule` bytes.
    pub(super) fn new(granule: u64) -> Self {
        Self {
            granule,
            words: Vec::new(),
            live: BTreeMap::new(),
            freed: VecDeque::new(),
            by_device: HashMap::new(),
        }
    }

    /// The table is for so many bytes now.
    pub(super) fn grow(&mut self, bytes: u64) {
        let words = (bytes / self.granule) as usize;
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    /// Kernels are told that the block ends at `end`.
    pub(super) fn allocated(&mut self, block: Block, end: u64, at: Option<Place>) {
        let known = Known {
            requested: block.requested,
            at,
        };
        self.live.insert(block.address, known);
        // Both kinds of memory are addressed by a word.
        self.set(
            block,
            u32::try_from(end).unwrap_or(u32::MAX),
            Change::Allocated,
        );
    }

    pub(super) fn freed(&mut self, block: Block, at: Option<Place>) {
        if let Some(known) = self.live.remove(&block.address) {
            if self.freed.len() == REMEMBERED {
                self.freed.pop_front();
            }
            self.freed.push_back((block.address, known, at));
        }
        self.set(block, 0, Change::Freed);
    }

    fn set(&mut self, block: Block, end: u32, change: Change) {
        let first = (block.address / self.granule) as usize;
        let last = (block.address + block.size).div_ceil(self.granule) as usize;
        let Some(words) = self.words.get_mut(first..last) else {
            return;
        };
        words.fill(end);
        self.by_device.retain(|_, (owner, copy)| {
            let owner = owner.upgrade();
            if let Some(device) = &owner {
                copy.change(device, &self.words, first..last, change);
            }
            owner.is_some()
        });
    }

    /// The buffers of the table on `device`, and the commands to record before the buffers hold all of the table.
    pub(super) fn on(
        &mut self,
        device: &Arc<DeviceShared>,
    ) -> Result<(Bound, Vec<Upload>), HeapError> {
        let entry = self.by_device.entry(device.id);
        let (_, copy) = entry.or_insert_with(|| (Arc::downgrade(device), TableCopy::default()));
        copy.cover(device, &self.words)?;
        Ok((copy.buffers(), copy.take_stale(device, &self.words)))
    }

    /// Has the next launch on `device` make its copy anew.
    pub(super) fn forget_copy(&mut self, device: &DeviceShared) {
        self.by_device.remove(&device.id);
    }

    /// The allocation, now or before, at an offset from the heap's base.
    pub(super) fn whereabouts(&self, offset: u64) -> Whereabouts {
        let before = self.live.range(..=offset).next_back();
        if let Some((start, known)) = before
            && offset < start + known.requested
        {
            return Whereabouts::Inside {
                offset: offset - start,
                bytes: known.requested,
                at: known.at,
            };
        }
        let latest = self.freed.iter().rev();
        let mut latest =
            latest.filter(|(start, known, _)| (*start..start + known.requested).contains(&offset));
        if let Some((start, known, freed)) = latest.next() {
            return Whereabouts::Freed {
                offset: offset - start,
                bytes: known.requested,
                at: known.at,
                freed: *freed,
            };
        }
        match before {
            Some((start, known)) => Whereabouts::Behind {
                distance: offset - start - known.requested,
                bytes: known.requested,
                at: known.at,
            },
            None => Whereabouts::Nothing,
        }
    }
}

/// A place that the program would look at: none of the runtime's own.
pub(super) fn place(at: Place) -> Option<Place> {
    let own = file!().strip_suffix("memory/heap/allocation_table.rs");
    let is_own = own.is_some_and(|own| at.file().starts_with(own));
    (!is_own).then_some(at)
}

impl HeapShared {
    /// Keeps a table from now on.
    fn track(&self) {
        let mut state = lock(&self.state);
        state.settle();
        let mut kept = lock(&self.table);
        if kept.is_some() {
            return;
        }
        let mut table = AllocationTable::new(HEAP_GRANULE);
        table.grow(state.committed);
        let live = state.region.allocations();
        for one in live.filter(|one| !state.deferred.contains(&one.id)) {
            let end = one.address + one.requested;
            table.allocated(Block::from(&one), end, None);
        }
        *kept = Some(table);
    }

    /// Adds the tables of live allocations, and of earlier ones, to a view. The launch with these bindings has to be
    /// recorded next.
    pub(crate) fn add_tables(
        &self,
        device: &Arc<DeviceShared>,
        view: &mut DeviceView,
    ) -> Result<(), HeapError> {
        self.track();
        let committed = self.committed()?;
        let (buffers, mut stale) = {
            let mut table = lock(&self.table);
            let Some(table) = table.as_mut() else {
                return Ok(());
            };
            table.grow(committed);
            table.on(device)?
        };
        view.tables = buffers;
        let own = match view.own.is_empty() {
            true => Ok(()),
            false => DeviceMemory::table(device).map(|(own, own_stale)| {
                stale.extend(own_stale);
                view.own_table = own;
            }),
        };
        let recorded = own.and_then(|()| record(device, stale));
        if recorded.is_err() {
            // Words that did not get there are not known as stale any more: the next launch makes the copies anew.
            if let Some(table) = lock(&self.table).as_mut() {
                table.forget_copy(device);
            }
            DeviceMemory::forget_table_copy(device);
        }
        recorded
    }

    /// Notes that something was allocated. The state is locked.
    pub(super) fn note_allocated(
        &self,
        allocation: &Allocation,
        committed: u64,
        at: Option<Place>,
    ) {
        if let Some(table) = lock(&self.table).as_mut() {
            table.grow(committed);
            let end = allocation.address + allocation.requested;
            table.allocated(allocation.into(), end, at);
        }
    }

    /// Notes the freeing of an allocation, whenever the memory comes back. The state is locked.
    pub(super) fn note_freed(&self, allocation: &Allocation, at: Option<Place>) {
        if let Some(table) = lock(&self.table).as_mut() {
            table.freed(allocation.into(), at);
        }
    }

    /// The allocation at the address of a pointer, now or before; `None` where no table is kept, or the pointer leads
    /// elsewhere.
    fn whereabouts(&self, device: Option<&DeviceShared>, address: u64) -> Option<Whereabouts> {
        let unified = device.is_none_or(|device| device.capabilities.unified_memory);
        let address = match Ptr::<u8>::from_address(address).kind() {
            PointerKind::Device if unified => address & ADDRESS_MASK,
            PointerKind::Device => return DeviceMemory::whereabouts(device?, address),
            _ => address,
        };
        let offset = address.checked_sub(self.base())?;
        let table = lock(&self.table);
        let table = table.as_ref()?;
        let span = table.words.len() as u64 * table.granule;
        (offset < span).then(|| table.whereabouts(offset))
    }

    /// A verdict with the allocation behind a pointer.
    pub(crate) fn explained(
        self: &Arc<Self>,
        device: &Arc<DeviceShared>,
        decode: &Decoder,
    ) -> Decoder {
        let (heap, device, decode) = (Arc::clone(self), Arc::downgrade(device), decode.clone());
        Arc::new(move |record| {
            decode(record).map_err(|mut error| {
                if let ExecutionError::Pointer { address, found, .. } = &mut error {
                    let device = device.upgrade();
                    let told = heap.whereabouts(device.as_deref(), *address);
                    *found = told.map_or_else(Arc::default, |told| Arc::new(told.to_string()));
                }
                error
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::addresses::region::{GRANULE, Region, RegionOptions};

    const BYTES: u64 = 4096;

    fn table() -> AllocationTable {
        let mut table = AllocationTable::new(HEAP_GRANULE);
        table.grow(BYTES);
        table
    }

    fn add(table: &mut AllocationTable, made: &Allocation, at: Option<Place>) {
        let end = made.address + made.requested;
        table.allocated(made.into(), end, at);
    }

    fn region() -> Region {
        let mut region = Region::new(RegionOptions::default().with_lookup(true));
        region.add_block(GRANULE, BYTES - GRANULE).unwrap();
        region
    }

    /// A checked kernel's computation: whether `bytes` bytes at `offset` lie in a live allocation, and how many do.
    fn asks(table: &AllocationTable, offset: u32, bytes: u32) -> (bool, u32) {
        let end = table.words.get((offset >> 4) as usize).copied();
        let end = end.unwrap_or(0);
        let rest = end - end.min(offset);
        (rest >= bytes, rest)
    }

    proptest! {
        /// The model knows the allocations by heart.
        #[test]
        fn every_byte_is_known(steps in prop::collection::vec((any::<bool>(), 1u64..200, any::<prop::sample::Index>()), 1..60)) {
            let mut region = region();
            let mut table = table();
            let mut live: Vec<Allocation> = Vec::new();
            for (frees, bytes, which) in steps {
                if frees && !live.is_empty() {
                    let gone = live.swap_remove(which.index(live.len()));
                    region.free(gone.id).unwrap();
                    table.freed((&gone).into(), None);
                } else if let Ok(made) = region.allocate(bytes, 16) {
                    add(&mut table, &made, None);
                    live.push(made);
                }
            }
            for offset in (0..BYTES as u32).step_by(2) {
                let inside = live.iter().find(|one| {
                    (one.address..one.address + one.requested).contains(&u64::from(offset))
                });
                let rest = inside.map_or(0, |one| one.address + one.requested - u64::from(offset));
                for bytes in [1, 2, 4, 8, 12, 16, 40, 100] {
                    let expected = (u64::from(bytes) <= rest, rest as u32);
                    prop_assert_eq!(asks(&table, offset, bytes), expected, "{} bytes at {}", bytes, offset);
                }
                match (inside, table.whereabouts(offset.into())) {
                    (Some(one), Whereabouts::Inside { offset: at, bytes, .. }) => {
                        prop_assert_eq!((one.address + at, one.requested), (u64::from(offset), bytes));
                    }
                    (None, Whereabouts::Inside { .. }) | (Some(_), _) => prop_assert!(false, "{}", offset),
                    (None, _) => {}
                }
            }
            // A table that is begun later is the same.
            let mut later = self::table();
            for one in region.allocations() {
                add(&mut later, &one, None);
            }
            prop_assert_eq!(later.words, table.words);
        }
    }

    #[test]
    fn addresses_are_told_by_what_was_there() {
        let mut region = region();
        let mut table = table();
        let here = Location::caller();
        let [first, second, third] = [20, 64, 32].map(|bytes| {
            let made = region.allocate(bytes, 16).unwrap();
            add(&mut table, &made, Some(here));
            made
        });
        region.free(second.id).unwrap();
        table.freed((&second).into(), Some(here));
        let told = |table: &AllocationTable, offset: u64| table.whereabouts(offset).to_string();
        let place = format!("allocated at {here}");
        assert_eq!(
            told(&table, 0),
            "nothing is allocated there, nor in front of it"
        );
        assert_eq!(
            told(&table, first.address + 16),
            format!("byte 16 of a live allocation of 20 bytes, {place}")
        );
        assert_eq!(
            told(&table, first.address + 20),
            format!("the end of an allocation of 20 bytes, {place}")
        );
        assert_eq!(
            told(&table, first.address + 24),
            format!("4 bytes past the end of an allocation of 20 bytes, {place}")
        );
        assert_eq!(
            told(&table, second.address + 8),
            format!("byte 8 of an allocation of 64 bytes that was freed at {here}, {place}")
        );
        assert_eq!(
            told(&table, third.address + 1032),
            format!("1000 bytes past the end of an allocation of 32 bytes, {place}")
        );
        // Memory in use again counts as its new allocation.
        let again = region.allocate(48, 16).unwrap();
        assert_eq!(again.address, second.address);
        add(&mut table, &again, None);
        assert_eq!(
            told(&table, second.address + 8),
            "byte 8 of a live allocation of 48 bytes"
        );
    }

    #[test]
    fn what_was_freed_is_forgotten_in_the_end() {
        let mut region = region();
        let mut table = table();
        for _ in 0..2 * REMEMBERED {
            let made = region.allocate(16, 16).unwrap();
            add(&mut table, &made, None);
            region.free(made.id).unwrap();
            table.freed((&made).into(), None);
        }
        assert_eq!(table.freed.len(), REMEMBERED);
        assert!(table.live.is_empty());
        assert!(table.words.iter().all(|word| *word == 0));
    }
}
