//! A sanitizer of kernels: checks of every access of a kernel, of the order of accesses, and of barriers.
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
//! # Findings
//! - **Accesses out of bounds** ([`FindingKind::OutOfBounds`]): each index into memory of any address space, a table of
//!   constants, an array of bindings, or a vector held as a value, before the bounds policy clamps the index. Indices in text
//!   known to be too large are errors of naga, not findings.
//! - **Data races** ([`FindingKind::Race`]): two accesses of the same bytes by different invocations, at least one a write, not
//!   both atomic, with nothing to order them. `workgroupBarrier` orders work-group memory and `storageBarrier` orders storage,
//!   each for the invocations of a single work-group only: as WGSL says. `subgroupBarrier` orders both for the invocations of a
//!   subgroup. Between work-groups, the pair of fences of the memory model orders: `storageBarrier` before an atomic write in one
//!   work-group, and behind an atomic read of the written value in the other. Races are found whether or not the schedule of the
//!   run shows a wrong result.
//! - **Barriers apart** ([`FindingKind::BarrierApart`]): invocations of a work-group waiting at different barriers, or ended
//!   while others wait.
//! - **Reads of unwritten memory** ([`FindingKind::Unwritten`]): reads of work-group memory not written by any invocation of the
//!   work-group, if the pipeline does not ask for zeros. WGSL defines memory without an initializer as zero, and programs count
//!   on the zeros (a counter beginning with `atomicAdd`), so such reads of zeroed memory, and reads of private variables without
//!   an initializer, are findings with [`Checks::unwritten`] only.
//! - **Overflow of indices** ([`FindingKind::IndexOverflow`]), with [`Checks::index_overflow`] only: an addition, a subtraction
//!   or a multiplication of `i32` or `u32` with an overflowing result, if the result becomes part of an index. Operands are
//!   followed within the expression and through `let`, not through variables, parameters and components of vectors.
//!
//! # Not found
//! - Storage never written by the host: buffers are zero by definition of WebGPU.
//! - Races with the host, and between dispatches: the queue orders dispatches, and the host's accesses are not seen.
//! - Accesses of texels: textures have no addresses for two bindings to share, and accesses outside are defined.
//! - Overflow of integers other than indices: WGSL defines overflow as wrapping, so a hash cannot be told from a mistake.
//! - The same barrier in different iterations of a loop, if every invocation waits as often.
//! - More than two unordered readers of the same bytes are not remembered: with fences between work-groups, a race with a
//!   third reader may be missed. Without such fences nothing is missed.
//!
//! # Cost
//! A kernel runs on one thread, one invocation at a time, with a call for each access: some 50 times slower. Shadow memory is 14
//! bytes for each touched byte of writable storage. Bounds are always checked, so that accesses out of bounds do no harm. Without
//! the option, nothing is emitted, and nothing is slower.

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

/// Choice of a sanitizer's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Checks {
    /// Indices out of bounds (default: yes)
    pub bounds: bool,
    /// Unordered accesses of different invocations (default: yes)
    pub races: bool,
    /// Invocations of a work-group at different barriers (default: yes)
    pub barriers: bool,
    /// Reads of memory zero only for lack of writes: private and work-group variables without an initializer (default: no;
    /// work-group memory without zeroing is checked in any case)
    pub unwritten: bool,
    /// Indices from overflowed computations (default: no; WGSL defines overflow as wrapping, and hash tables count on wrapping)
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

/// Instruments emitted beside a kernel's own work.
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
