//! From pointers to allocations: the conditions for following a pointer.

use super::{HeapError, HeapShared, Hold, State};
use crate::addresses::region::Allocation;
use crate::device::wait::lock;
use crate::memory::pointer::{PointerKind, Ptr};

impl HeapShared {
    /// Checks that `bytes` bytes at `ptr` lie in a live allocation and are aligned for a `T`; gives their offset from
    /// the heap's base.
    pub(crate) fn check_live<T>(
        &self,
        what: &'static str,
        ptr: Ptr<T>,
        bytes: u64,
    ) -> Result<u64, HeapError> {
        let state = lock(&self.state);
        self.locate(&state, what, ptr, bytes)
            .map(|(offset, _)| offset)
    }

    /// As [`Self::check_live`], with the allocation.
    pub(super) fn locate<T>(
        &self,
        state: &State,
        what: &'static str,
        ptr: Ptr<T>,
        bytes: u64,
    ) -> Result<(u64, Allocation), HeapError> {
        let address = ptr.address();
        match ptr.kind() {
            PointerKind::Null => return Err(HeapError::Null { what }),
            PointerKind::Device => return Err(HeapError::DeviceMemory { what, address }),
            PointerKind::Shared => {}
        }
        if !address.is_multiple_of(align_of::<T>() as u64) {
            return Err(HeapError::Misaligned {
                what,
                address,
                align: align_of::<T>() as u64,
                element: std::any::type_name::<T>(),
            });
        }
        let offset = address.wrapping_sub(self.base());
        let inside = self.find_live(state, address).filter(|found| {
            // `find_live` has found the address at or behind the allocation's start.
            let end = (offset - found.address).checked_add(bytes);
            end.is_some_and(|end| end <= found.requested)
        });
        match inside {
            Some(found) => Ok((offset, found)),
            None => Err(HeapError::NotAllocated {
                what,
                address,
                bytes,
            }),
        }
    }

    /// Checks that the host may borrow `bytes` bytes at `ptr`, as [`Self::check_live`] does, and that there is no other
    /// claim to them. Mirrors lack what the host writes.
    pub(super) fn check_host<T>(
        &self,
        what: &'static str,
        ptr: Ptr<T>,
        bytes: u64,
        writes: bool,
    ) -> Result<u64, HeapError> {
        let mut state = lock(&self.state);
        let (offset, found) = self.locate(&state, what, ptr, bytes)?;
        let address = ptr.address();
        match state.holds.get(&found.id) {
            None => {
                if writes {
                    state.host_wrote(offset..offset + bytes);
                }
                Ok(offset)
            }
            Some(Hold::Atomics { .. }) => Err(HeapError::AtomicView { what, address }),
            Some(Hold::Owned) => Err(HeapError::Owned { what, address }),
        }
    }

    pub(super) fn find_live(&self, state: &State, address: u64) -> Option<Allocation> {
        let offset = address.checked_sub(self.base())?;
        let found = state.region.find(offset)?;
        // Memory waiting to be freed is gone for everybody else.
        let alive = !state.deferred.contains(&found.id);
        (alive && offset - found.address < found.requested).then_some(found)
    }
}
