//! The parts of a launch: each feature is one part, in one file of this folder.
//!
//! *How it works.* A part is one feature's share of a submission. The steps of all parts are the methods of [`Part`]:
//!
//! 1. `check`, once until the launch is changed, and `ready`, before each submission: nothing is held, so both may
//!    wait.
//! 2. `begin` and `acquire`: memory, guards and locks, in the order of the list below. `Rank` is the last lock in hand
//!    when the part has acquired, and the ranks of the list ascend: the list *is* the lock order of ARCHITECTURE.md.
//! 3. With the queue in hand: `confirm` (nothing has changed meanwhile), `inherit` (the outcomes under the launch),
//!    `reserve` and `place` (values in the uniform ring, records), `identity` and `bind` (resources of bindings).
//! 4. `enter` and `copy_in`, the last steps that may refuse the launch.
//! 5. `before`, the dispatches, `after` in reverse order: the last part of the list is the closest to the kernel.
//! 6. `recorded`: the books of memory and outcomes, and the followers of the launch's end ([`Ending`]); `released`,
//!    without the queue; `follow_up`, with nothing held.
//!
//! A part is undone by its `Drop` until `recorded`: an attempt refused, overtaken or short of memory leaves no trace,
//! at whatever step. [`Parts`] is declared before the queue is locked, hence dropped after the unlock, and a `Drop` may
//! take the queue.
//!
//! Unused parts of a launch are `None` and cost one comparison in each step; no part is boxed. A new feature is one
//! file and one line of the list: the feature's setting (the launch's own, kept between submissions) is a field of
//! [`Settings`], with the setters in the part's file. `counter.rs` shows an example in a test.

mod arena;
mod arguments;
pub(in crate::launch) mod buffers;
mod calls;
mod cancel;
#[cfg(test)]
mod counter;
pub(super) mod globals;
mod heap;
mod list;
pub(in crate::launch) mod memory;
mod prints;
#[cfg(embedded)]
mod sanitizer;
pub(in crate::launch) mod scratch;
pub(in crate::launch) mod staging;
mod status;
pub(in crate::launch) mod system;
pub(in crate::launch) mod table;
mod timing;
pub(in crate::launch) mod undo;
mod waiting;

use std::cell::OnceCell;
use std::sync::Arc;

use smallvec::SmallVec;

pub(in crate::launch) use arena::Arena;
pub(in crate::launch) use list::{Parts, Settings};
pub(in crate::launch) use scratch::ScratchMemory;

use super::dispatch::Dispatches;
use super::{Launch, LaunchError};
use crate::device::DeviceShared;
use crate::device::completion_hook::CompletionHooks;
use crate::device::outcome::Outcome;
use crate::device::queue::{Batch, Recorder, Watch};
use crate::kernel::pipeline::KernelShared;
use crate::kernel::plan::Source;
use crate::memory::{SharedHeap, TextureArgument};

/// The last lock in hand after a part's `acquire`: the lock order of ARCHITECTURE.md, without the first lock, the
/// host's access to the heap, which no part takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Roots,
    HeapTurn,
    Queue,
}

/// Why an attempt to submit has ended without a launch.
pub(in crate::launch) enum Stop {
    Refused(LaunchError),
    /// There is no room yet for some of the arguments.
    Lacks(table::Missing),
    /// The heap has grown meanwhile, or others have taken the last status record.
    Overtaken,
    /// The grid has no invocations.
    Empty,
}

impl<E: Into<LaunchError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Values borrowed by the guards of parts.
pub(in crate::launch) struct Ground {
    pub(in crate::launch) device: Arc<DeviceShared>,
    buffers: buffers::Used,
    heap: OnceCell<SharedHeap>,
}

impl Ground {
    #[inline]
    pub(in crate::launch) fn of(launch: &Launch) -> Self {
        Self {
            device: Arc::clone(&launch.kernel.device),
            buffers: buffers::Used::of(launch),
            heap: OnceCell::new(),
        }
    }
}

/// A submission after `acquire` of all parts, for the later steps.
pub(in crate::launch) struct Submission<'a> {
    pub(in crate::launch) launch: &'a Launch,
    pub(in crate::launch) device: &'a Arc<DeviceShared>,
    /// The kernel, specialized for the launch.
    pub(in crate::launch) kernel: &'a KernelShared,
    pub(in crate::launch) dispatches: &'a Dispatches<'a>,
}

/// The places of bindings at dynamic offsets; 0 for a binding without one.
#[derive(Default)]
pub(in crate::launch) struct Places(SmallVec<[(Source, u32); 8]>);

impl Places {
    pub(in crate::launch) fn set(&mut self, source: Source, offset: u32) {
        match self.0.iter_mut().find(|(known, _)| *known == source) {
            Some((_, known)) => *known = offset,
            None => self.0.push((source, offset)),
        }
    }

    pub(in crate::launch) fn of(&self, source: Source) -> u32 {
        let found = self.0.iter().find(|(known, _)| *known == source);
        found.map_or(0, |(_, offset)| *offset)
    }
}

/// Numbers that differ for different bound resources.
pub(in crate::launch) type Identity = SmallVec<[u64; 8]>;

/// A bound resource.
pub(in crate::launch) enum Resource<'a> {
    Buffer {
        id: u64,
        buffer: &'a wgpu::Buffer,
        start: u64,
        bytes: u64,
    },
    /// The queue's status buffer.
    Status,
    /// So many bytes of the uniform ring, at the binding's place.
    Ring(u64),
    Texture(&'a TextureArgument),
    Sampler(&'a wgpu::Sampler),
}

impl<'a> Resource<'a> {
    /// All bytes of a buffer.
    fn whole(id: u64, buffer: &'a wgpu::Buffer) -> Self {
        Self::Buffer {
            id,
            buffer,
            start: 0,
            bytes: buffer.size(),
        }
    }
}

/// The outcomes that decide about a launch, each once.
#[derive(Default)]
pub(in crate::launch) struct Inherits(pub(in crate::launch) Vec<Arc<Outcome>>);

impl Inherits {
    fn add(&mut self, outcomes: Vec<Arc<Outcome>>) {
        for outcome in outcomes {
            if !self.0.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                self.0.push(outcome);
            }
        }
    }
}

/// A recorded launch, with the followers of its end.
pub(in crate::launch) struct Ending {
    pub(in crate::launch) batch: Arc<Batch>,
    /// The outcome of the launch; `None` for a launch that cannot fail and inherits nothing uncertain.
    pub(in crate::launch) outcome: Option<Arc<Outcome>>,
    /// The outcome of bytes lost on the way back from staging memory, if any.
    pub(in crate::launch) lost: Option<Arc<Outcome>>,
    pub(in crate::launch) watch: Option<Watch>,
    pub(in crate::launch) hooks: CompletionHooks,
}

/// One feature of a launch. Every step does nothing by default.
trait Part<'s>: Sized {
    /// The last lock in hand after [`Part::acquire`], or [`Part::place`] for what needs the queue.
    const RANK: Rank;

    /// Checks the program's input, once until the launch is changed. Nothing is held.
    fn check(_launch: &mut Launch) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Before each attempt to submit. Nothing is held: may wait, and run callbacks of the program.
    fn ready(_launch: &Launch) -> Result<(), LaunchError> {
        Ok(())
    }

    /// After the launch. Nothing is held.
    fn follow_up(_launch: &Launch) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Before any move or lock: refuses pointless attempts.
    fn begin(_launch: &Launch) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Acquires everything for the part but the queue; `None` for launches without use for the part. Earlier parts of
    /// the list have acquired. May change where the launch's arguments are, and then has the launch checked again.
    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop>;

    /// Whether the acquired state still holds, with the queue in hand.
    fn confirm(&self) -> bool {
        true
    }

    /// Adds the outcomes on which the launch depends.
    fn inherit(&mut self, _to: &Submission<'_>, _inherits: &mut Inherits) {}

    /// Whether the launch's end must be known even without inherited outcomes.
    fn follows(&self) -> bool {
        false
    }

    /// Bytes in the uniform ring.
    fn reserve(&self, _to: &Submission<'_>, _queue: &Recorder<'_>) -> usize {
        0
    }

    /// Takes places in the ring, and other resources of the queue.
    fn place(
        &mut self,
        _to: &Submission<'_>,
        _queue: &mut Recorder<'_>,
        _places: &mut Places,
    ) -> Result<(), Stop> {
        Ok(())
    }

    /// Adds numbers that differ where [`Part::bind`] has other answers for an unchanged launch.
    fn identity(&self, _identity: &mut Identity) {}

    /// The resource of a binding; `None` where the binding is another part's.
    fn bind<'a>(&'a self, _to: &Submission<'a>, _source: Source) -> Option<Resource<'a>> {
        None
    }

    /// Enters memory for the launch. The last check: refuses conflicts with the copies.
    fn enter(
        &mut self,
        _to: &Submission<'_>,
        _queue: &mut Recorder<'_>,
        _outcome: Option<&Arc<Outcome>>,
    ) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Records copies to the part's own memory: a launch refused here has changed nothing.
    fn copy_in(
        &mut self,
        _to: &Submission<'_>,
        _queue: &mut Recorder<'_>,
    ) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Records commands before the dispatches.
    fn before(&mut self, _to: &Submission<'_>, _queue: &mut Recorder<'_>) {}

    /// Records commands behind the dispatches, in reverse order of the parts. An error means that bytes are lost.
    fn after(
        &mut self,
        _to: &Submission<'_>,
        _queue: &mut Recorder<'_>,
    ) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Enters the launch into the books. `Drop` undoes nothing from here on.
    fn recorded(&mut self, _to: &Submission<'_>, _ending: &mut Ending) {}

    /// As [`Part::recorded`], without the queue.
    fn released(&mut self, _to: &Submission<'_>, _ending: &mut Ending) {}
}
