//! The work-groups of one dispatch.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::Thread,
};

use super::loss::Loss;
use crate::compile::{Kernel, abi::BoundResource};

/// Pieces into which a dispatch is cut for each thread, so that threads that are fast get more of them.
const PIECES: u64 = 8;

/// The most work-groups of a piece.
const MAX_PIECE: u64 = 256;

/// A dispatch that runs.
pub(crate) struct Grid {
    pub(crate) kernel: Arc<Kernel>,
    /// In the order of [`Kernel::bindings`]
    pub(crate) buffers: Vec<BoundResource>,
    pub(crate) immediates: Arc<[u32]>,
    pub(crate) count: [u32; 3],
    pub(crate) zero_workgroup: bool,
    /// Set when kernels of the device are to stop
    pub(crate) stop: Arc<AtomicU32>,
    total: u64,
    /// Work-groups that are claimed at once. What waits behind a work-group that was suspended would wait with it, so that
    /// kernels that may wait are claimed one work-group at a time.
    piece: u64,
    /// The first work-group that nobody has claimed
    next: AtomicU64,
    /// Work-groups that have not ended
    left: AtomicU64,
    failure: OnceLock<Loss>,
    /// Who waits for the end
    owner: Thread,
}

// SAFETY: `buffers` hold addresses of memory that the commands keep alive, which wgpu allows kernels to access from any
// thread; everything else is `Send` and `Sync` by itself.
unsafe impl Send for Grid {}
// SAFETY: as above.
unsafe impl Sync for Grid {}

/// What a dispatch consists of.
pub(crate) struct Dispatch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) buffers: Vec<BoundResource>,
    pub(crate) immediates: Arc<[u32]>,
    pub(crate) count: [u32; 3],
    pub(crate) zero_workgroup: bool,
}

impl Grid {
    /// A dispatch whose end the calling thread will wait for, cut for so many threads.
    pub(super) fn new(dispatch: Dispatch, stop: Arc<AtomicU32>, threads: u64) -> Self {
        let Dispatch {
            kernel,
            buffers,
            immediates,
            count,
            zero_workgroup,
        } = dispatch;
        let total = count
            .iter()
            .fold(1u64, |total, &extent| total.saturating_mul(extent.into()));
        Self {
            buffers,
            immediates,
            count,
            zero_workgroup,
            stop,
            total,
            piece: if kernel.waits {
                1
            } else {
                (total / (PIECES * threads.max(1))).clamp(1, MAX_PIECE)
            },
            next: AtomicU64::new(0),
            left: AtomicU64::new(total),
            failure: OnceLock::new(),
            owner: std::thread::current(),
            kernel,
        }
    }

    /// Takes the next work-groups, which the caller must run or [`Self::end`].
    pub(super) fn claim(&self) -> Option<Range<u64>> {
        // Looking first keeps the counter from growing on and on.
        if !self.is_open() {
            return None;
        }
        let start = self.next.fetch_add(self.piece, Ordering::Relaxed);
        let end = start.saturating_add(self.piece).min(self.total);
        (start < end).then_some(start..end)
    }

    /// Whether there are work-groups that nobody has claimed.
    pub(super) fn is_open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.total
    }

    /// Says that so many claimed work-groups have ended.
    pub(super) fn end(&self, groups: u64) {
        if groups > 0 && self.left.fetch_sub(groups, Ordering::AcqRel) == groups {
            self.owner.unpark();
        }
    }

    /// Whether all work-groups have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Claims what is left, so that nobody runs it.
    pub(super) fn abandon(&self) {
        let next = self.next.swap(self.total, Ordering::Relaxed);
        self.end(self.total.saturating_sub(next));
    }

    /// Abandons the dispatch with a reason, which loses the device. The first reason stays.
    ///
    /// Work-groups that run are told to stop: they may wait for the one that has failed.
    pub(super) fn fail(&self, loss: Loss) {
        // Somebody else's reason came first, and is told.
        let _ = self.failure.set(loss);
        self.stop.store(1, Ordering::Relaxed);
        self.abandon();
    }

    pub(super) fn failure(&self) -> Option<&Loss> {
        self.failure.get()
    }

    /// Whether kernels are to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// The `workgroup_id` of a work-group.
    pub(super) fn id(&self, group: u64) -> [u32; 3] {
        let [x, y, _] = self.count.map(u64::from);
        [
            (group % x) as u32,
            (group / x % y) as u32,
            (group / x / y) as u32,
        ]
    }
}
