//! How much may be written to files: by the program's quota, and by the system's limit for the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes left to be written.
#[derive(Debug)]
pub(super) struct Quota(AtomicU64);

impl Quota {
    pub fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes up to `wanted` bytes; how many.
    pub fn take(&self, wanted: usize) -> usize {
        let most = wanted as u64;
        let left = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left - left.min(most))
        });
        // The update never refuses, and returns the earlier value. No more than `wanted`, a `usize`.
        left.unwrap_or_default().min(most) as usize
    }

    /// Gives the unwritten bytes back.
    pub fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Has the current thread get an error when a file reaches the system's size limit (`RLIMIT_FSIZE`), instead of ending
/// the process: the signal waits for the thread, and goes with the thread.
pub(in crate::rpc) fn outlive_file_size_limit() {
    #[cfg(unix)]
    #[allow(unsafe_code)]
    // SAFETY: the set is the function's own, `sigemptyset` initialises the set before any read of the set, and the last
    // argument may be null.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        // Can only fail for an invalid first argument.
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
