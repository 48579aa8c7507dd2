//! What emitted code and the code that calls it agree on.

use std::ffi::c_void;

use super::host::HostFn;

/// A kernel: runs one work-group.
///
/// # Safety
/// The group must describe memory as the kernel was compiled for, see [`Group`].
pub(crate) type KernelFn = unsafe extern "C" fn(*mut Group) -> u32;

/// What a kernel returns when the work-group is done.
pub(crate) const DONE: u32 = 0;
/// What a kernel returns when it was told to stop.
pub(crate) const STOPPED: u32 = 1;

/// Called by a kernel in a loop that may run long, with the reason ([`POLL_STOP`] and so on). A
/// result other than zero tells the kernel to return [`STOPPED`].
pub(crate) type PollFn = unsafe extern "C" fn(*mut Group, u32) -> u32;

/// The stop word is set.
pub(crate) const POLL_STOP: u32 = 0;
/// The kernel has done nothing but look at memory that somebody else is to change.
pub(crate) const POLL_WAITS: u32 = 1;
/// Passes of a loop that waits, between two such calls: some dozens of nanoseconds.
pub(crate) const PASSES_WAITING: u32 = 32;
/// The kernel works, and may wait for somebody else as well.
pub(crate) const POLL_SHARES: u32 = 2;

/// What is bound: a buffer, or a descriptor of something else.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundResource {
    pub(crate) address: *mut u8,
    pub(crate) bytes: u64,
    /// Elements of the run-time sized array
    pub(crate) length: u32,
    /// The greatest index into that array, zero for an empty one
    pub(crate) last: u32,
}

/// What a kernel is called with. Everything but the ids stays the same for a dispatch.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Group {
    /// One for each binding that the kernel uses
    pub(crate) resources: *const BoundResource,
    pub(crate) immediates: *const u32,
    /// Tables of constants, one behind the other
    pub(crate) tables: *const u8,
    /// Memory that the invocations of the group share
    pub(crate) workgroup: *mut u8,
    /// Memory of the invocations
    pub(crate) frames: *mut u8,
    /// Set when somebody wants the kernel to call `poll`
    pub(crate) stop: *const u32,
    pub(crate) poll: PollFn,
    /// [`FUNCTIONS`](super::host::FUNCTIONS)
    pub(crate) functions: *const HostFn,
    /// What `poll` needs; kernels pass it on
    pub(crate) runtime: *mut c_void,
    pub(crate) id: [u32; 3],
    pub(crate) count: [u32; 3],
    /// One if no other thread accesses what the kernel's [reductions](super::Reduction) are made of meanwhile; else zero
    pub(crate) apart: u32,
    /// The passes that a loop that waits counts as made when it begins
    pub(crate) waited: u32,
}
