//! Words of the heap read or written by a service for a waiting kernel.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::{AtomicView, HeapError, SharedHeap, State};
use crate::clock::Instant;
use crate::device::wait::lock;
use crate::memory::pointer::Ptr;

/// The longest wait of a service for a host with access to the heap, which usually is about to have read or written
/// some bytes.
const HOST_WAIT: Duration = Duration::from_millis(50);

impl SharedHeap {
    /// The words that hold the `bytes` bytes at `ptr`, as atomics: as [`SharedHeap::atomic_u32_slice`], but
    ///
    /// - a host with access to the heap is waited for a short time only: the host may be waiting for the caller;
    /// - a host still waiting for launches to get its access is no obstacle, since the host waits for the very caller;
    /// - a device with changes in a copy of the heap is an error, since waiting could be waiting for the caller; so is
    ///   a device with memory of its own that may use the heap, whose caches keep the reads of a running kernel (an
    ///   H200's do);
    /// - the last word may have bytes beyond the allocation's, which belong to nobody: the region grants multiples of
    ///   16 bytes.
    pub(crate) fn serve(
        &self,
        ptr: Ptr<u32>,
        bytes: u64,
    ) -> Result<AtomicView<[AtomicU32]>, HeapError> {
        const WHAT: &str = "an access by a service";
        let is_apart = |state: &State| state.in_flight.values().any(|batches| batches.is_apart);
        let deadline = Instant::now() + HOST_WAIT;
        let mut state = loop {
            let has_apart = is_apart(&lock(&self.shared.state));
            if has_apart {
                self.shared.look();
            }
            let state = lock(&self.shared.state);
            match state.host {
                Some(holder) if state.host_awaits.is_none() => {
                    drop(state);
                    let is_own = holder == std::thread::current().id();
                    if is_own || !self.shared.await_host(Some(deadline)) {
                        return Err(HeapError::HostAccess { what: WHAT });
                    }
                }
                _ => break state,
            }
        };
        let State {
            in_flight,
            host_awaits,
            ..
        } = &mut *state;
        // Not by asking the devices: the holder of a device may be the last one, and would then wait for the running
        // kernel, the caller.
        let awaited = host_awaits.iter_mut().flatten();
        let mut running = in_flight.values_mut().chain(awaited);
        let is_apart = running.any(|batches| batches.is_apart && !batches.is_done());
        if state.mirror_ahead || is_apart {
            return Err(HeapError::Unsupported {
                device: "a device".to_owned(),
                why: "it keeps a copy, or caches that do not follow what the host writes while kernels run"
                    .to_owned(),
            });
        }
        let (_, found) = self.shared.locate(&state, WHAT, ptr, bytes)?;
        state.add_view(found.id, size_of::<u32>(), WHAT, ptr.address())?;
        drop(state);
        self.held(ptr, bytes.div_ceil(4) as usize, found.id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memory::heap::HeapSize;

    #[test]
    fn services_see_what_lies_in_one_allocation_and_nothing_else() {
        let heap = SharedHeap::new(HeapSize::Bytes(64 << 20)).unwrap();
        let ptr = heap.alloc_zeroed::<u8>(10).unwrap().cast::<u32>();
        let view = heap.serve(ptr, 10).unwrap();
        assert_eq!(view.len(), 3);
        view[2].store(7, Ordering::Relaxed);
        drop(view);
        assert_eq!(heap.read(ptr.cast::<u8>().add(8), 1).unwrap(), [7]);
        for (ptr, bytes) in [
            (ptr, 11),
            (ptr.add(1), 7),
            (ptr.byte_add(64 << 20), 1),
            (ptr, u64::MAX),
        ] {
            let refused = heap.serve(ptr, bytes).map(|_| ());
            assert!(matches!(refused, Err(HeapError::NotAllocated { .. })));
        }
        let refused = heap.serve(ptr.byte_add(1), 4).map(|_| ());
        assert!(matches!(refused, Err(HeapError::Misaligned { .. })));
        let refused = heap.serve(Ptr::null(), 4).map(|_| ());
        assert!(matches!(refused, Err(HeapError::Null { .. })));
        let host = heap.host().unwrap();
        let refused = heap.serve(ptr, 4).map(|_| ());
        assert!(matches!(refused, Err(HeapError::HostAccess { .. })));
        drop(host);
        // A refusal left nothing behind.
        heap.write(ptr, &[1, 2]).unwrap();
        heap.free(ptr).unwrap();
        assert!(heap.serve(ptr, 4).is_err());
    }
}
