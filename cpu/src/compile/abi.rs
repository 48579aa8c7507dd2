//! The agreement between emitted code and the code calling it.

use std::ffi::c_void;

use super::host::HostFn;

/// A kernel: runs one work-group.
///
/// # Safety
/// The group must describe memory as the kernel was compiled for, see [`Group`].
pub(crate) type KernelFn = unsafe extern "C" fn(*mut Group) -> u32;

/// The result of a kernel when the work-group is done.
pub(crate) const DONE: u32 = 0;
/// The result of a kernel told to stop.
pub(crate) const STOPPED: u32 = 1;

/// Called by a kernel in a loop with a possibly long run, with the reason ([`POLL_STOP`] and so on). A result other
/// than zero tells the kernel to return [`STOPPED`].
pub(crate) type PollFn = unsafe extern "C" fn(*mut Group, u32) -> u32;

/// The stop word is set.
pub(crate) const POLL_STOP: u32 = 0;
/// The kernel has done nothing but look at memory for somebody else to change.
pub(crate) const POLL_WAITS: u32 = 1;
/// Passes of a waiting loop between two such calls: some dozens of nanoseconds.
pub(crate) const PASSES_WAITING: u32 = 32;
/// The kernel works, and may wait for somebody else as well.
pub(crate) const POLL_SHARES: u32 = 2;

/// A bound resource: a buffer, or a descriptor of something else.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundResource {
    pub(crate) address: *mut u8,
    pub(crate) bytes: u64,
    /// Elements of the run-time sized array
    pub(crate) length: u32,
    /// The greatest index into the array, zero for an empty one
    pub(crate) last: u32,
}

/// The argument of a kernel. Everything but the ids stays the same for a dispatch.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Group {
    /// An entry for each binding used by the kernel
    pub(crate) resources: *const BoundResource,
    pub(crate) immediates: *const u32,
    /// Tables of constants, back to back
    pub(crate) tables: *const u8,
    /// Memory shared by the invocations of the group
    pub(crate) workgroup: *mut u8,
    /// Memory of the invocations
    pub(crate) frames: *mut u8,
    /// Set when somebody wants the kernel to call `poll`
    pub(crate) stop: *const u32,
    pub(crate) poll: PollFn,
    /// [`FUNCTIONS`](super::host::FUNCTIONS)
    pub(crate) functions: *const HostFn,
    /// The argument of `poll`; kernels pass it on
    pub(crate) runtime: *mut c_void,
    pub(crate) id: [u32; 3],
    pub(crate) count: [u32; 3],
    /// 1 if no other thread accesses the memory of the kernel's [reductions](super::Reduction) meanwhile; else 0
    pub(crate) apart: u32,
    /// The passes that a waiting loop counts as made at its start
    pub(crate) waited: u32,
}
