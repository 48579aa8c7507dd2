//! System allocations: memory of the host that a program lends to launches, whatever allocated the memory.
//!
//! *How it works.* [`SystemMemory`] keeps the lent ranges, by address ([`lends`]). For a launch pages of 4 KiB with
//! something lent are copied into frames of a pool on the device ([`frames`]); a table maps pages to frames for
//! kernels, and says which words of a page kernels may read and write ([`table`]). Afterwards words changed by the
//! kernel are written back, and no others ([`lends::Lends::write_back`]). The head of `src/launch/system/mod.rs` lists
//! the ways for pages to come; pages that come while the kernel runs have memory of their own ([`live`]).
//!
//! The embedded adapter runs kernels on the host's own processors: borrowed memory is used in place there
//! ([`in_place`]).
//!
//! *Why copies.* A device other than a CPU sees no memory that nobody has imported into the device, and a driver
//! imports whole allocations, not the target of any address. The reasons of the form are in
//! `docs/system-allocations.md`.
//!
//! *Safety.* Memory lent by a slice is borrowed as long as the [`SystemMemory`] lives, and launches with this memory
//! have ended when [`Launch::run_system`](crate::Launch::run_system) returns. The host reads and writes lent bytes
//! only. Memory lent by address alone ([`SystemMemory::lend_range`]) may not be there: calls of the system that return
//! errors read and write such memory ([`raw`]).

// The blocks read and write lent memory, and give their arguments.
#![allow(unsafe_code)]

pub(crate) mod frames;
pub(crate) mod in_place;
pub(crate) mod lends;
pub(crate) mod live;
pub(crate) mod pools;
pub(crate) mod prefetch;
mod raw;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;

use super::Ptr;
use lends::{Lends, Source};
use prefetch::History;

/// Bytes of a page: the unit in which memory comes and goes.
pub const PAGE_BYTES: u64 = 4096;
/// Words of a page.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES as usize / 4;

/// The default of [`SystemMemory::set_pool_bytes`].
const POOL_BYTES: u64 = 128 << 20;

/// What kernels may do with memory that is lent by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemAccess {
    /// Kernels read.
    Read,
    /// Kernels read and write.
    ReadWrite,
}

/// For people: the variant in words.
impl fmt::Display for SystemAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::ReadWrite => "read and write",
        })
    }
}

/// How pages come to a device that does not have all pages from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SystemTier {
    /// While the kernel runs: an invocation that misses a page waits, and goes on when the host has filled a frame. For
    /// devices with live memory ([`Capabilities::live_memory`](crate::device::Capabilities::live_memory)), and for lent
    /// ranges whose pages can be counted.
    Live,
    /// Between launches: the launch is repeated until no page is missing. On every device, for kernels whose effects
    /// can be undone.
    Sliced,
}

/// For people: the variant in words.
impl fmt::Display for SystemTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "while the kernel runs",
            Self::Sliced => "between launches",
        })
    }
}

/// Memory of the host lent to launches (SYCL: system allocations): slices, boxes, mapped files, memory of libraries.
///
/// Kernels made with [`TranslationMode::System`](crate::kernel::TranslationMode::System) follow pointers into this
/// memory, by the addresses of the host; [`Launch::run_system`](crate::Launch::run_system) runs such kernels. Lent
/// memory stays borrowed until the `SystemMemory` is dropped.
///
/// ```no_run
/// use tombolo::kernel::{KernelOptions, TranslationMode};
/// use tombolo::system::SystemMemory;
/// use tombolo::{Constants, Context, Program};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Context::new()?.device()?;
/// let program = Program::new("double.wgsl", "
///     alias Floats = array<f32>;
///     @group(0) @binding(0) var<uniform> values: usm_ptr;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < 1000u { let v = usm_Floats(values); v[id.x] *= 2.0; }
///     }")?;
/// let options = KernelOptions::default().pointers(TranslationMode::System);
/// let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
///
/// let mut values = vec![1.0f32; 1000];
/// let mut memory = SystemMemory::new();
/// let pointer = memory.lend_mut(&mut values);
/// kernel.launch().value("values", &pointer).invocations(1000).run_system(&mut memory)?;
/// drop(memory);
/// assert_eq!(values[999], 2.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SystemMemory<'a> {
    pub(crate) lends: Lends,
    pub(crate) pool_bytes: u64,
    pub(crate) in_place: bool,
    pub(crate) tier: Option<SystemTier>,
    pub(crate) wait_turns: Option<u32>,
    pub(crate) history: History,
    lent: PhantomData<&'a mut [u8]>,
}

impl Default for SystemMemory<'_> {
    fn default() -> Self {
        Self {
            lends: Lends::default(),
            pool_bytes: POOL_BYTES,
            in_place: true,
            tier: None,
            wait_turns: None,
            history: History::default(),
            lent: PhantomData,
        }
    }
}

impl<'a> SystemMemory<'a> {
    /// Nothing is lent yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lends values to kernels for reading, and returns their address.
    pub fn lend<T: Pod>(&mut self, values: &'a [T]) -> Ptr<T> {
        let start = values.as_ptr().expose_provenance() as u64;
        let range = start..start + size_of_val(values) as u64;
        self.lends.add(range, SystemAccess::Read, Source::Borrowed);
        Ptr::from_address(start)
    }

    /// Lends values to kernels for reading and writing, and returns their address.
    pub fn lend_mut<T: Pod>(&mut self, values: &'a mut [T]) -> Ptr<T> {
        let bytes = size_of_val(values) as u64;
        let start = values.as_mut_ptr().expose_provenance() as u64;
        let range = start..start + bytes;
        (self.lends).add(range, SystemAccess::ReadWrite, Source::Borrowed);
        Ptr::from_address(start)
    }

    /// As [`SystemMemory::lend`], for a single value: a node of a structure that pointers hold together.
    pub fn lend_value<T: Pod>(&mut self, value: &'a T) -> Ptr<T> {
        self.lend(std::slice::from_ref(value))
    }

    /// As [`SystemMemory::lend_mut`], for a single value.
    pub fn lend_value_mut<T: Pod>(&mut self, value: &'a mut T) -> Ptr<T> {
        self.lend_mut(std::slice::from_mut(value))
    }

    /// Lends `bytes` bytes at an address that comes from elsewhere: memory of a C library, of an allocator, or an
    /// address that a kernel shall try. The memory need not be there. The host reads and writes by calls of the system
    /// that return errors; a kernel that reaches an absent page fails its launch.
    ///
    /// # Safety
    /// Until the last launch with this `SystemMemory` has returned, no Rust code may rely on the memory keeping its
    /// values if `access` is [`SystemAccess::ReadWrite`], and nothing may write the memory without synchronization,
    /// else kernels read any values: the memory belongs to no reference that says otherwise.
    pub unsafe fn lend_range(&mut self, start: u64, bytes: u64, access: SystemAccess) -> Ptr<u8> {
        let range = start..start.saturating_add(bytes);
        self.lends.add(range, access, Source::Address);
        Ptr::from_address(start)
    }

    /// Lends everything in the process's address space: kernels follow any pointer.
    ///
    /// # Safety
    /// As [`SystemMemory::lend_range`], for all memory that kernels reach.
    pub unsafe fn lend_process(&mut self, access: SystemAccess) {
        self.lends.add(0..u64::MAX, access, Source::Address);
    }

    /// Sets how many bytes of the device's memory hold pages during a launch (default: 128 MiB, and never more than the
    /// device binds at once). Of a launch that touches more, pages make room for others while the kernel runs, or the
    /// grid runs in parts; [`SystemError::PoolFull`](crate::system::SystemError::PoolFull) where neither helps.
    pub fn set_pool_bytes(&mut self, bytes: u64) {
        self.pool_bytes = bytes;
    }

    /// Sets whether kernels use borrowed memory in place on devices that are the host's own processor (default: true,
    /// with an effect on the embedded adapter, on Unix). Such memory takes no room in the pool.
    pub fn set_in_place(&mut self, in_place: bool) {
        self.in_place = in_place;
    }

    /// Sets how pages come (default: `None`). With a tier, no memory is used in place, and not all pages are fetched
    /// before the launch. Without a tier, both are done where possible; else pages come while the kernel runs where the
    /// device has live memory, but on devices that ration turns of loops only for kernels whose launch cannot be
    /// repeated. A launch in [`SystemTier::Live`] that runs out of frames goes on in [`SystemTier::Sliced`], if the
    /// launch can be repeated.
    pub fn set_tier(&mut self, tier: Option<SystemTier>) {
        self.tier = tier;
    }

    /// Sets how many turns of a loop an invocation waits for a page in [`SystemTier::Live`], or a group of invocations
    /// for all of its pages where the device rations turns. At most 7/8 of a ration are used (default: 2^28, or the
    /// 7/8). An invocation without its page goes on with zeros. The launch is then repeated in [`SystemTier::Sliced`]
    /// where the device rations turns and the launch can be repeated, and fails with
    /// [`SystemError::Unanswered`](crate::system::SystemError::Unanswered) otherwise.
    pub fn set_wait_turns(&mut self, turns: Option<u32>) {
        self.wait_turns = turns;
    }

    /// Lent bytes.
    pub fn lent_bytes(&self) -> u64 {
        self.lends.bytes()
    }
}
