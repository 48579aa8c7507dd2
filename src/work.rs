//! Work that invocations share: a bounded queue in a device's memory.
//!
//! The queue is a bounded ring of slots with a number each: equal to a ticket, the slot is free for the put with that
//! ticket; one more, the slot holds the item for the take with that ticket. Drawing a ticket moves the tail or head on
//! by one, only while the slot is ready. So an invocation that stops anywhere, for good or for a while, delays its own
//! item and no other; no invocation is assumed to run because another does. A count of open items goes up before an
//! item can be seen and down when `work_done` is called: 0 is the end. A launch that takes nothing while items are
//! left is an error, not one more launch. The kernel's side is `shaders/work.wgsl`.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::device::{Device, WaitError};
use crate::error_text::debug_by_text;
use crate::kernel::ProgramBuilder;
use crate::launch::{Launch, LaunchError};
use crate::memory::{DeviceBuffer, MemoryError, ReadError};
use crate::template::Template;

const WORK: &str = include_str!("../shaders/work.wgsl");
/// The variable of the queue.
const NAME: &str = "tombolo_work";
/// Attempts at a ticket, each failing only because another invocation has drawn a ticket: more than there are
/// invocations at a time.
const TURNS: usize = 1 << 20;
/// Words of the header, in which the head, the tail and the count lie apart.
const HEADER: usize = 64;
const HEAD: usize = 0;
const TAIL: usize = 16;
const LEFT: usize = 32;
const SLOTS: usize = 48;
/// Words of a slot, and the first of its item.
const SLOT: usize = 8;
const ITEM: usize = 4;
/// The most slots.
const MOST: usize = 1 << 24;

/// A queue of work in a device's memory: the invocations of a launch take items, work, and put the resulting items, for
/// whichever invocation comes next. Idle work-groups take items found by others, which spreads work that cannot be
/// divided beforehand.
///
/// A program made by [`ProgramBuilder::work_queue`] has these functions; an item is a `vec4<u32>`, in which a pointer takes
/// two words:
///
/// - `work_take() -> WorkItem`: takes an item if one is ready (`found`), which is `item`.
/// - `work_done()`: marks a taken item as done, behind the last `work_put` for the item.
/// - `work_put(item) -> bool`: puts an item; `false` if there is no room. The reaction is then up to the kernel:
///   working on the item at once, for example.
/// - `work_left() -> u32`: items that are not done. Not 0 while anybody works.
///
/// Every item is taken exactly once. No invocation waits for another: no graphics processor promises that a work-group
/// runs while another one waits. So an invocation without work leaves, as does an invocation that has used up its loop
/// budget where drivers have such limits, and [`WorkQueue::run`] launches the kernel until nothing is left.
///
/// ```
/// use std::time::Duration;
/// use tombolo::{Constants, Context, Program, work::WorkQueue};
///
/// let device = Context::new()?.device()?;
/// // Counts the nodes of a binary tree: node `n` has the children `2n` and `2n + 1`.
/// let program = Program::builder().source("tree.wgsl", "
///     @group(0) @binding(0) var<storage, read_write> count: atomic<u32>;
///     @compute @workgroup_size(64) fn main() {
///         for (var turn = 0u; turn < 100u; turn++) {
///             let work = work_take();
///             if !work.found { break; }
///             atomicAdd(&count, 1u);
///             if work.item.x < 512u {
///                 let left = work_put(vec4(work.item.x * 2u, 0u, 0u, 0u));
///                 let right = work_put(vec4(work.item.x * 2u + 1u, 0u, 0u, 0u));
///             }
///             work_done();
///         }
///     }").work_queue().build()?;
/// let kernel = device.kernel(&program, "main", &Constants::new())?;
/// let (queue, count) = (WorkQueue::new(&device, 1024)?, device.buffer(&[0u32])?);
/// queue.fill(&[[1, 0, 0, 0]])?;
/// let mut launch = kernel.launch().buffer("count", &count).work_queue(&queue).workgroups(4);
/// queue.run(&mut launch, Duration::from_secs(60))?;
/// assert_eq!(count.read()?, [1023]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct WorkQueue {
    buffer: DeviceBuffer<u32>,
    slots: usize,
}

/// What can go wrong with a queue of work.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// There is no such queue.
    #[error("a queue of {slots} items: choose from 2 to {limit}")]
    Size {
        /// The size that was wanted.
        slots: usize,
        /// The most that is possible.
        limit: usize,
    },
    /// There are more items than slots.
    #[error(
        "{items} items do not fit into a queue of {slots}: make it larger, or fill it in parts"
    )]
    TooMany {
        /// The items.
        items: usize,
        /// The slots of the queue.
        slots: usize,
    },
    /// A launch has taken nothing, and yet something is left: an item was taken and `work_done` was never called for it,
    /// or the kernel does not take items.
    #[error(
        "{left} items are left, and a launch has taken none: was `work_done` called for every item that was taken?"
    )]
    Stalled {
        /// Items that are not done.
        left: u32,
    },
    /// The work took too long.
    #[error("{left} items are left after {waited:?}")]
    Deadline {
        /// Items that are not done.
        left: u32,
        /// How long it was worked.
        waited: Duration,
    },
    /// The kernel could not be launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A launch failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// There is no memory for the queue, or it could not be written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The queue could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

debug_by_text!(WorkError {
    Size,
    TooMany,
    Stalled,
    Deadline,
    Launch,
    Wait,
    Memory,
    Read,
});

impl WorkQueue {
    /// An empty queue for so many items, rounded up to a power of two.
    ///
    /// # Errors
    /// [`WorkError::Size`]; [`WorkError::Memory`].
    pub fn new(device: &Device, slots: usize) -> Result<Self, WorkError> {
        if !(2..=MOST).contains(&slots) {
            return Err(WorkError::Size { slots, limit: MOST });
        }
        let slots = slots.next_power_of_two();
        let queue = Self {
            buffer: device.zeroed(HEADER + slots * SLOT)?,
            slots,
        };
        queue.fill(&[])?;
        Ok(queue)
    }

    /// Items that fit in.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Replaces whatever is in the queue, behind everything launched before.
    ///
    /// # Errors
    /// [`WorkError::TooMany`]; [`WorkError::Memory`].
    pub fn fill(&self, items: &[[u32; 4]]) -> Result<(), WorkError> {
        if items.len() > self.slots {
            return Err(WorkError::TooMany {
                items: items.len(),
                slots: self.slots,
            });
        }
        let count = items.len() as u32;
        let mut words = vec![0; HEADER + self.slots * SLOT];
        for (place, value) in [(TAIL, count), (LEFT, count), (SLOTS, self.slots as u32)] {
            words[place] = value;
        }
        for (index, slot) in words[HEADER..].chunks_exact_mut(SLOT).enumerate() {
            slot[0] = index as u32;
            if let Some(item) = items.get(index) {
                slot[0] += 1;
                slot[ITEM..].copy_from_slice(item);
            }
        }
        self.buffer.write(0, &words)?;
        Ok(())
    }

    /// Items that are not done, behind everything launched before.
    ///
    /// # Errors
    /// [`WorkError::Read`].
    pub fn left(&self) -> Result<u32, WorkError> {
        Ok(self.progress()?.1)
    }

    /// The tickets drawn for items so far, and the items that are not done.
    fn progress(&self) -> Result<(u32, u32), ReadError> {
        let words = self.buffer.read_range(0..HEADER as u64)?;
        let word = |place: usize| words.get(place).copied().unwrap_or(0);
        Ok((word(HEAD), word(LEFT)))
    }

    /// Launches the kernel, which has this queue, until nothing is left; returns the number of launches.
    ///
    /// # Errors
    /// [`WorkError::Stalled`], [`WorkError::Deadline`] behind the launch in which `time` was over, and what a launch fails
    /// of.
    pub fn run(&self, launch: &mut Launch, time: Duration) -> Result<u32, WorkError> {
        let begun = Instant::now();
        let mut known = self.progress()?;
        let mut launches = 0;
        while known.1 > 0 {
            launch.submit()?.wait()?;
            launches += 1;
            let now = self.progress()?;
            if now == known {
                return Err(WorkError::Stalled { left: now.1 });
            }
            known = now;
            let waited = begun.elapsed();
            if known.1 > 0 && waited >= time {
                return Err(WorkError::Deadline {
                    left: known.1,
                    waited,
                });
            }
        }
        Ok(launches)
    }
}

impl ProgramBuilder {
    /// Lets the program's kernels share work through a [`WorkQueue`], which their launches are given by
    /// [`Launch::work_queue`].
    pub fn work_queue(self) -> Self {
        let text = |binding: &str| {
            Template::new(WORK)
                .set("binding", binding)
                .set("turns", TURNS)
                .fill()
        };
        self.behind("queue".to_owned(), NAME.to_owned(), Arc::new(text))
    }
}

impl Launch {
    /// Gives the queue that the kernel's invocations share ([`ProgramBuilder::work_queue`]).
    pub fn work_queue(self, queue: &WorkQueue) -> Self {
        self.buffer(NAME, &queue.buffer)
    }
}
