//! A sanitizer of kernels: checks of every access that a kernel makes, of what orders accesses, and of barriers.
//!
//! ```
//! use tombolo_cpu::{Api, Instance, Options, sanitizer::Checks};
//!
//! let mut options = Options::default();
//! options.sanitizer = Some(Checks::default());
//! // SAFETY: the instance is fresh and belongs to wgpu from here on.
//! let instance = unsafe { wgpu::Instance::from_hal::<Api>(Instance::new(options)) };
//! let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
//! let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
//! // ... submit, wait for the end, and ask:
//! // SAFETY: the device is only asked.
//! let findings = unsafe { device.as_hal::<Api>() }.unwrap().take_findings();
//! for finding in &findings {
//!     eprintln!("{finding}");
//! }
//! # assert!(findings.is_empty());
//! # drop(queue);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is found
//! - **Accesses out of bounds** ([`FindingKind::OutOfBounds`]): each index by which memory of any address space, a table of
//!   constants, an array of bindings, or a vector held as a value is reached, before the bounds policy clamps the index.
//!   Indices in text known to be too large are errors of naga, not findings.
//! - **Data races** ([`FindingKind::Race`]): two accesses of the same bytes by different invocations, one a write, not
//!   both atomic, with nothing to order them. `workgroupBarrier` orders work-group memory and `storageBarrier` orders
//!   storage, each for the invocations of one work-group only: as WGSL says. `subgroupBarrier` orders both for those of a
//!   subgroup. Between work-groups, what orders is the pair
//!   of fences of the memory model: `storageBarrier` before an atomic write in one work-group, and behind an atomic read
//!   of that value in the other. Races are found whether or not the schedule of this run shows a wrong result.
//! - **Barriers apart** ([`FindingKind::BarrierApart`]): invocations of a work-group that wait at different barriers, or that
//!   have ended while others wait.
//! - **Reads of unwritten memory** ([`FindingKind::Unwritten`]): reads of work-group memory that no invocation of the
//!   work-group has written, if the pipeline does not ask for zeros. WGSL defines memory without an initializer as zero,
//!   and programs count on that (a counter that begins with `atomicAdd`), so such reads of zeroed memory, and those of
//!   private variables without an initializer, are findings with [`Checks::unwritten`] only.
//! - **Overflow of indices** ([`FindingKind::IndexOverflow`]), with [`Checks::index_overflow`] only: an addition, a subtraction or
//!   a multiplication of `i32` or `u32` whose result does not fit, if an index is made of it. Operands are followed within
//!   the expression and through `let`, not through variables, parameters and components of vectors.
//!
//! # What is not found
//! - Storage that the host never wrote: buffers are zero by definition of WebGPU.
//! - Races with the host, and between dispatches: the queue orders dispatches, and the host's accesses are not seen.
//! - Accesses of texels: textures have no addresses that two bindings could share, and what is outside is defined.
//! - Overflow of integers that are no indices: WGSL defines it as wrapping, so a hash cannot be told from a mistake.
//! - The same barrier in different iterations of a loop, if every invocation waits as often.
//! - More than two unordered readers of the same bytes are not remembered: with fences between work-groups, a race with a
//!   third reader may be missed. Without such fences nothing is missed.
//!
//! # Cost
//! A kernel runs on one thread, one invocation at a time, with a call for each access: some 50 times slower. Shadow memory
//! is 14 bytes for each byte of storage that is touched and can be written. Bounds are always checked, so that what is out
//! of bounds does no harm. Without the option, nothing is emitted, and nothing is slower.

mod barriers;
mod clocks;
mod finding;
mod ledger;
mod monitor;
mod report;
mod shadow;
mod site;

pub use finding::{Access, Finding, FindingKind, Invocation, Side, Space, TextPlace};
pub use ledger::{Coverage, Line};
pub(crate) use ledger::{Ledger, Text};
pub(crate) use monitor::{Monitor, Watched, check, observing};
pub(crate) use site::{Accessed, Memory, Site, What};

/// What a sanitizer looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Checks {
    /// Indices that are too large (default: yes)
    pub bounds: bool,
    /// Accesses of different invocations that nothing orders (default: yes)
    pub races: bool,
    /// Invocations of a work-group that do not come to the same barriers (default: yes)
    pub barriers: bool,
    /// Reads of memory that is zero only because nobody has written there: private and work-group variables without an
    /// initializer (default: no; work-group memory that is not zeroed is checked in any case)
    pub unwritten: bool,
    /// Indices whose computation overflowed (default: no; WGSL defines it as wrapping, and hash tables count on that)
    pub index_overflow: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            bounds: true,
            races: true,
            barriers: true,
            unwritten: false,
            index_overflow: false,
        }
    }
}

/// What is emitted beside a kernel's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Instruments {
    pub(crate) checks: Option<Checks>,
    /// Whether executions of statements are counted
    pub(crate) coverage: bool,
}

impl Instruments {
    /// Whether anything is emitted.
    pub(crate) fn any(self) -> bool {
        self.checks.is_some() || self.coverage
    }
}
