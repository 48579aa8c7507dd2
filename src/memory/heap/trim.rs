//! Giving memory back: the end of the heap, when nothing lives there.
//!
//! The end goes back by `trim`, and by itself in an adaptive heap. What is imported cannot be given back under a
//! device, so that it waits for a moment in which nothing is in flight. Whatever touches the heap looks for such a
//! moment; there is no thread for it.

use super::mirror::Table;
use super::{FIRST_BYTES, GUARD_BYTES, HeapShared, HeapSize, SharedHeap, State};
use crate::device::submissions::Held;
use crate::device::wait::lock;

impl SharedHeap {
    /// Gives the memory behind the last allocation back to the system, but for what the heap starts with (16 MiB, or one segment), if no
    /// launch is in flight and the host has no access. Returns the bytes given back: 0 also where something still holds
    /// them, such as a [`Launch`](crate::Launch) with a pointer argument, and where another thread is about to launch or
    /// to move bytes of the heap; nothing is waited for. Addresses stay valid, and the heap grows again when necessary.
    /// Mappings of a device stay with the device. Devices that keep a copy of the heap give back as much of theirs.
    pub fn trim(&self) -> u64 {
        let shared = &self.shared;
        shared.look();
        // Whoever has the turn may be waiting for a launch, which may be waiting for this very thread.
        let table = shared.mirrors.try_write();
        table
            .and_then(|mut table| shared.trim(&mut table))
            .unwrap_or(0)
    }
}

impl HeapShared {
    /// No launch is recorded meanwhile, since the turn is held. `None` during a use of the heap.
    fn trim(&self, table: &mut Table) -> Option<u64> {
        // Callbacks of the program may run below, with the turn in hand.
        let _held = Held::new("a trim of the heap").ok()?;
        let (old, new) = {
            let mut state = lock(&self.state);
            state.settle();
            state.in_flight.retain(|_, batches| !batches.is_done());
            if state.host.is_some() || !state.in_flight.is_empty() {
                return None;
            }
            let old = state.committed;
            let needed = state.region.last().map_or(0, |last| last.end());
            let needed = needed.max(state.first_bytes(self.size.start()));
            let needed = needed.next_multiple_of(GUARD_BYTES);
            state.committed = old.min(needed);
            // Empty segments at the end would only tempt allocations away from the start. Blocks lie in a row, so only
            // the last one may go.
            loop {
                let mut blocks: Vec<_> = state.region.blocks().collect();
                let Some(last) = blocks.pop() else { break };
                if blocks.is_empty() || state.region.remove_block(last.id).is_err() {
                    break;
                }
                state.laid_out = last.base;
            }
            (old, state.committed)
        };
        self.shrink_mirrors(table, new);
        if new < old {
            self.let_go();
        }
        // Polling may run callbacks in need of the lock, so the lock was released. A thread that allocated meanwhile
        // has grown the heap again, and needs these bytes; none can while the lock is held here.
        let mut state = lock(&self.state);
        let (from, to) = (state.committed, state.backed);
        if from >= to {
            return Some(0);
        }
        // SAFETY: nothing is allocated from `from` on, and nobody can while the state is locked; no access of
        // the host, which would keep freed memory alive as long as it lives, and no launch was there above,
        // and since then the turn is held.
        #[allow(unsafe_code)]
        let gone = unsafe { self.memory.decommit(from..to) };
        match gone {
            Ok(bytes) => {
                state.backed = from;
                Some(bytes)
            }
            Err(error) => {
                // An import is still held: the memory stays, serves again later, or goes with the next trim.
                log::debug!("the heap keeps {} bytes: {error}", to - from);
                Some(0)
            }
        }
    }

    /// Has the devices release their imports; the rest is imported anew when needed.
    fn let_go(&self) {
        // The views stay, empty: the device is made to finish its uses of an old import, which arguments may hold,
        // before a new import.
        let mut let_go = Vec::new();
        for view in lock(&self.views).values_mut() {
            view.covered = 0;
            let segments = std::mem::take(&mut view.segments);
            let_go.extend(view.device().map(|device| (device, segments)));
        }
        for (device, segments) in let_go {
            if let Some(tell) = device.buffer_gone.get() {
                for (id, _) in &segments {
                    tell(&device, *id);
                }
            }
            drop(segments);
            // wgpu frees unused memory on a poll.
            device.submissions.collect();
        }
    }

    /// Contracts an adaptive heap that has had enough free for long enough.
    pub(super) fn contract(&self) {
        let HeapSize::Adaptive { contract_after, .. } = self.size else {
            return;
        };
        let now = (self.clock)();
        self.look_for_freed();
        {
            let mut state = lock(&self.state);
            state.settle();
            if !state.is_roomy(self.size.start()) {
                state.roomy_since = None;
                return;
            }
            let since = *state.roomy_since.get_or_insert(now);
            if now.saturating_duration_since(since) < contract_after {
                return;
            }
        }
        // The freeing thread may hold the turn; then the next thread to come along contracts the heap.
        let Some(mut table) = self.mirrors.try_write() else {
            return;
        };
        if self.trim(&mut table).is_some() {
            // A failed trim is not tried again at once.
            lock(&self.state).roomy_since = Some(now);
        }
    }
}

impl State {
    /// The remaining part of a heap that starts with so many bytes: these, or a segment if the usual start is larger.
    fn first_bytes(&self, start: u64) -> u64 {
        match start <= FIRST_BYTES {
            true => start.min(self.part),
            false => start.min(self.bound),
        }
    }

    /// Three quarters of the heap are free, and there is something to give back.
    fn is_roomy(&self, start: u64) -> bool {
        self.committed > self.first_bytes(start) && self.region.in_use() < self.committed / 4
    }
}
