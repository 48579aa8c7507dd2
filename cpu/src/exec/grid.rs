//! The work-groups of a dispatch.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread::Thread,
};

use smallvec::SmallVec;

use super::{loss::Loss, reduction::Reductions};
use crate::{
    compile::{Kernel, abi::BoundResource},
    sanitizer::Monitor,
    schedule::Permutation,
};

/// Pieces of a dispatch per thread, so that fast threads get more pieces.
const PIECES: u64 = 8;

/// The most work-groups of a piece.
const MAX_PIECE: u64 = 256;

/// A running dispatch.
pub(crate) struct Grid {
    pub(crate) kernel: Arc<Kernel>,
    /// In the order of [`Kernel::bindings`]
    pub(crate) buffers: Vec<BoundResource>,
    pub(super) reductions: Reductions,
    pub(crate) immediates: Arc<[u32]>,
    pub(crate) count: [u32; 3],
    pub(crate) zero_workgroup: bool,
    /// The monitor called by an instrumented kernel
    pub(super) monitor: Option<Arc<Monitor>>,
    /// The order of work-groups, if decided by a seed
    order: Option<Permutation>,
    /// Set when kernels of the device are to stop
    pub(crate) stop: Arc<AtomicU32>,
    total: u64,
    /// Work-groups claimed at once. Work-groups claimed with a suspended one would wait behind it, so kernels that may
    /// wait are claimed one work-group at a time.
    piece: u64,
    /// The first unclaimed work-group
    next: AtomicU64,
    /// Work-groups not ended yet
    left: AtomicU64,
    failure: OnceLock<Loss>,
    /// The thread in wait for the end
    owner: Thread,
}

// SAFETY: `buffers` hold addresses of memory kept alive by the commands, and wgpu lets kernels access the memory from
// any thread; all other fields are `Send` and `Sync`.
unsafe impl Send for Grid {}
// SAFETY: as above.
unsafe impl Sync for Grid {}

/// A dispatch: the kernel, its resources, and the count of work-groups.
pub(crate) struct Dispatch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) buffers: Vec<BoundResource>,
    /// Buffers used by the kernel for a [reduction](crate::compile::Reduction), and seen by nobody else
    pub(crate) reduced: SmallVec<[usize; 2]>,
    pub(crate) immediates: Arc<[u32]>,
    pub(crate) count: [u32; 3],
    pub(crate) zero_workgroup: bool,
    pub(crate) monitor: Option<Arc<Monitor>>,
    /// A seed for the order of work-groups
    pub(crate) schedule: Option<u64>,
}

impl Grid {
    /// A dispatch with the calling thread in wait for the end, cut for `threads` threads.
    pub(super) fn new(dispatch: Dispatch, stop: Arc<AtomicU32>, threads: u64) -> Self {
        let Dispatch {
            kernel,
            buffers,
            reduced,
            immediates,
            count,
            zero_workgroup,
            monitor,
            schedule,
        } = dispatch;
        let total = count
            .iter()
            .fold(1u64, |total, &extent| total.saturating_mul(extent.into()));
        Self {
            reductions: Reductions::new(&kernel, &buffers, &reduced, total, threads),
            buffers,
            immediates,
            count,
            zero_workgroup,
            monitor,
            order: schedule.map(|seed| Permutation::new(seed, total)),
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

    /// Claims the next work-groups. The caller must run them or [`Self::end`] the claim.
    pub(super) fn claim(&self) -> Option<Range<u64>> {
        // Looking first keeps the counter from growing on and on.
        if !self.is_open() {
            return None;
        }
        let start = self.next.fetch_add(self.piece, Ordering::Relaxed);
        let end = start.saturating_add(self.piece).min(self.total);
        (start < end).then_some(start..end)
    }

    /// Whether there are unclaimed work-groups.
    pub(super) fn is_open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.total
    }

    /// Notes the end of claimed work-groups.
    pub(super) fn end(&self, groups: u64) {
        if groups > 0 && self.left.fetch_sub(groups, Ordering::AcqRel) == groups {
            self.owner.unpark();
        }
    }

    /// Whether all work-groups have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Claims all remaining work-groups without running any.
    pub(super) fn abandon(&self) {
        let next = self.next.swap(self.total, Ordering::Relaxed);
        self.end(self.total.saturating_sub(next));
    }

    /// Abandons the dispatch with a reason, and loses the device. The first reason stays.
    ///
    /// Running work-groups are stopped: some may wait for the failed one.
    pub(super) fn fail(&self, loss: Loss) {
        // An earlier reason is reported.
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

    /// Whether a seed decides the order of work-groups.
    pub(super) fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// The `workgroup_id` of the work-group at a place of the order.
    pub(super) fn id_at(&self, place: u64) -> [u32; 3] {
        self.id(self.order.as_ref().map_or(place, |order| order.at(place)))
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
