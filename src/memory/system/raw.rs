//! Memory behind an address that may lead nowhere, read and written by calls of the system that return errors.
//!
//! On Linux and Android a process reads and writes its own memory by `process_vm_readv` and `process_vm_writev`,
//! without further rights where the process is its own. Systems that forbid the calls altogether, and other systems,
//! have no such memory: every address is unreachable there.

use super::lends::Unreachable;

#[cfg(any(target_os = "linux", target_os = "android"))]
use libc::{process_vm_readv, process_vm_writev};

/// Reads all of `to` from `address` on.
///
/// # Errors
/// [`Unreachable`] where a byte is not there; `to` may have changed then.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn read(address: u64, to: &mut [u8]) -> Result<(), Unreachable> {
    let (local, remote) = vectors(to.as_mut_ptr(), to.len(), address);
    // SAFETY: the local vector is memory of the caller for that many bytes, which the call writes; the remote vector is
    // only a number, checked by the system.
    let read = unsafe { process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(read, to.len(), address)
}

/// Writes all of `from` from `address` on.
///
/// # Errors
/// [`Unreachable`] where a byte is not there or may not be written; some may have been written then.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn write(address: u64, from: &[u8]) -> Result<(), Unreachable> {
    let (local, remote) = vectors(from.as_ptr().cast_mut(), from.len(), address);
    // SAFETY: the local vector is memory of the caller for that many bytes, which the call reads; the lender of the
    // address answers for the memory there (`SystemMemory::lend_range`).
    let written = unsafe { process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(written, from.len(), address)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn vectors(local: *mut u8, len: usize, address: u64) -> (libc::iovec, libc::iovec) {
    let vector = |base: *mut libc::c_void| libc::iovec {
        iov_base: base,
        iov_len: len,
    };
    let remote = std::ptr::with_exposed_provenance_mut(address as usize);
    (vector(local.cast()), vector(remote))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn whole(count: isize, len: usize, address: u64) -> Result<(), Unreachable> {
    match usize::try_from(count) {
        Ok(count) if count == len => Ok(()),
        Ok(count) => Err(Unreachable {
            address: address.saturating_add(count as u64),
        }),
        Err(_) => Err(Unreachable { address }),
    }
}

/// No memory is reached by address alone on this system.
///
/// # Errors
/// [`Unreachable`], always.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn read(address: u64, _to: &mut [u8]) -> Result<(), Unreachable> {
    Err(Unreachable { address })
}

/// No memory is reached by address alone on this system.
///
/// # Errors
/// [`Unreachable`], always.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn write(address: u64, _from: &[u8]) -> Result<(), Unreachable> {
    Err(Unreachable { address })
}
