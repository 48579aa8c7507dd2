//! Giving memory back: the end of the heap, when nothing lives there.

use std::time::Instant;

use super::{GUARD_BYTES, HeapShared, HeapSize, SharedHeap, State};
use crate::device::wait::lock;

impl SharedHeap {
    /// Gives the memory at the end of the heap back to the system, as far as nothing is allocated there
    /// and no launch is in flight. Returns the bytes given back; addresses stay valid, and the heap grows
    /// again when it has to.
    pub fn trim(&self) -> u64 {
        self.shared.trim()
    }
}

impl HeapShared {
    fn trim(&self) -> u64 {
        let (old, new) = {
            let mut state = lock(&self.state);
            state.settle();
            state.in_flight.retain(|_, last| !last.is_done());
            if state.host.is_some() || !state.in_flight.is_empty() {
                return 0;
            }
            let old = state.committed;
            // Blocks lie one behind the other, so that only the last one may go.
            loop {
                let mut blocks: Vec<_> = state.region.blocks().collect();
                let Some(last) = blocks.pop() else { break };
                if blocks.is_empty() || last.in_use > 0 {
                    break;
                }
                if state.region.remove_block(last.id).is_err() {
                    break;
                }
                state.committed = last.base;
            }
            (old, state.committed)
        };
        if new >= old {
            return 0;
        }
        // The devices let go of what they imported; they import the rest when they need it.
        let views: Vec<_> = lock(&self.views).drain().map(|(_, view)| view).collect();
        let mut devices = Vec::new();
        for view in views {
            let Some(device) = view.device() else {
                continue;
            };
            if let Some(tell) = device.buffer_gone.get() {
                for (id, _) in &view.segments {
                    tell(&device, *id);
                }
            }
            devices.push(device);
        }
        for device in &devices {
            // wgpu frees what is no longer used when it is polled.
            let _ = device.raw.poll(wgpu::PollType::Poll);
        }
        let from = new.next_multiple_of(self.window.page_size().max(GUARD_BYTES));
        // Polling may run callbacks that want the lock, so it was let go above. Who allocated meanwhile has
        // grown the heap again, and needs these bytes; nobody can while it is held here.
        let state = lock(&self.state);
        if state.committed != new {
            return 0;
        }
        match self.window.decommit(from..old) {
            Ok(()) => old - from,
            Err(error) => {
                // Somebody still holds an import: the memory stays, and serves again later.
                log::debug!("the heap keeps {} bytes: {error}", old - from);
                0
            }
        }
    }

    /// Contracts an adaptive heap that has had enough free for long enough.
    pub(super) fn contract(&self) {
        let HeapSize::Adaptive { contract_after } = self.size else {
            return;
        };
        let due = {
            let mut state = lock(&self.state);
            if state.is_roomy() {
                let since = *state.roomy_since.get_or_insert_with(Instant::now);
                since.elapsed() >= contract_after
            } else {
                state.roomy_since = None;
                false
            }
        };
        if due {
            lock(&self.state).roomy_since = None;
            self.trim();
        }
    }
}

impl State {
    /// Three quarters of the heap are free.
    fn is_roomy(&self) -> bool {
        self.region.stats().in_use < self.committed / 4
    }
}
