//! Memory behind an address that may lead nowhere, read and written by calls of the system that return errors.
//!
//! On Linux and Android a process reads and writes its own memory by `process_vm_readv` and `process_vm_writev`,
//! without further rights where the process is its own. Where these are forbidden or missing, as in some containers, and on
//! other Unix systems, bytes go through a pipe ([`pipe`]): the system copies them between its buffer and the address, and
//! says where it cannot. Systems without either have no such memory: every address is unreachable there.

use super::lends::Unreachable;

#[cfg(unix)]
mod pipe;

/// Reads all of `to` from `address` on.
///
/// # Errors
/// [`Unreachable`] where a byte is not there; `to` may have changed then.
pub(super) fn read(address: u64, to: &mut [u8]) -> Result<(), Unreachable> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(done) = vectored::read(address, to) {
        return done;
    }
    #[cfg(unix)]
    return pipe::read(address, to);
    #[cfg(not(unix))]
    {
        let _ = to;
        Err(Unreachable { address })
    }
}

/// Writes all of `from` from `address` on.
///
/// # Errors
/// [`Unreachable`] where a byte is not there or may not be written; some may have been written then.
pub(super) fn write(address: u64, from: &[u8]) -> Result<(), Unreachable> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(done) = vectored::write(address, from) {
        return done;
    }
    #[cfg(unix)]
    return pipe::write(address, from);
    #[cfg(not(unix))]
    {
        let _ = from;
        Err(Unreachable { address })
    }
}

/// The calls of Linux; `None` where the system has none for this process.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod vectored {
    use libc::{process_vm_readv, process_vm_writev};

    use super::Unreachable;

    pub fn read(address: u64, to: &mut [u8]) -> Option<Result<(), Unreachable>> {
        let (local, remote) = vectors(to.as_mut_ptr(), to.len(), address);
        // SAFETY: the local vector is memory of the caller for that many bytes, which the call writes; the remote vector is
        // only a number, checked by the system.
        let read = unsafe { process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        whole(read, to.len(), address)
    }

    pub fn write(address: u64, from: &[u8]) -> Option<Result<(), Unreachable>> {
        let (local, remote) = vectors(from.as_ptr().cast_mut(), from.len(), address);
        // SAFETY: the local vector is memory of the caller for that many bytes, which the call reads; the lender of the
        // address answers for the memory there (`SystemMemory::lend_range`).
        let written = unsafe { process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
        whole(written, from.len(), address)
    }

    fn vectors(local: *mut u8, len: usize, address: u64) -> (libc::iovec, libc::iovec) {
        let vector = |base: *mut libc::c_void| libc::iovec {
            iov_base: base,
            iov_len: len,
        };
        let remote = std::ptr::with_exposed_provenance_mut(address as usize);
        (vector(local.cast()), vector(remote))
    }

    fn whole(count: isize, len: usize, address: u64) -> Option<Result<(), Unreachable>> {
        match usize::try_from(count) {
            Ok(count) if count == len => Some(Ok(())),
            Ok(count) => Some(Err(Unreachable {
                address: address.saturating_add(count as u64),
            })),
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM | libc::ESRCH) => None,
                _ => Some(Err(Unreachable { address })),
            },
        }
    }
}
