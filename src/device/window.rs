//! The window: a span of host address space in which all shared memory of a context lies.
//!
//! The base is a multiple of 4 GiB and the length at most 4 GiB, so the low word of an address *is*
//! the byte offset in the window: a kernel following a pointer subtracts nothing. The span is
//! reserved at once, and only that makes growth possible without moving anything. Pages are
//! *committed* when memory is needed and given back otherwise; a reserved page costs nothing.
//!
//! Devices use the same pages through [`import`](super::import). Such a use, like any other that
//! must not lose its memory, holds a [`Pinned`] range: pinned pages cannot be given back, and the
//! window outlives them.
//!
//! The span is cut out of one of twice its size. Where the address space of the process is limited it is asked for at
//! aligned places instead, and is as large as can be had.

// Mapping memory is done by the operating system, and mapped memory is reached through pointers.
#![allow(unsafe_code)]

mod system;

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rangemap::RangeSet;

use super::words::Words;
use crate::error_text::debug_by_text;

/// Why memory of a window could not be had or given back. Offsets count from the window's base.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The operating system, or a processor of less than 64 bits, has no such window.
    #[error(
        "an address window is not available on {system}; \
         use ordinary buffers, or a shared heap without host addresses"
    )]
    Unsupported {
        /// The operating system.
        system: &'static str,
    },
    /// A window must have between one byte and 4 GiB.
    #[error("an address window of {size} bytes: the size must be between 1 and {limit} bytes")]
    Size {
        /// The size asked for, in bytes.
        size: u64,
        /// The largest window, in bytes.
        limit: u64,
    },
    /// The process has not enough address space left, for example because of a resource limit.
    #[error(
        "reserving an address window of {size} bytes failed: {reason}; \
         ask for less, or raise the limit of the process's address space{}",
        if cfg!(unix) { " (ulimit -v)" } else { "" }
    )]
    Reserve {
        /// The size asked for, in bytes.
        size: u64,
        /// The operating system's words.
        reason: String,
    },
    /// The range is empty, does not lie in the window, or does not begin and end with a page.
    #[error(
        "bytes {start}..{end} of an address window: the range must be within its {size} bytes, \
         not empty, and made of whole pages of {page} bytes"
    )]
    Range {
        /// Where the range begins.
        start: u64,
        /// The end of the range.
        end: u64,
        /// The window's size, in bytes.
        size: u64,
        /// The size of a page, in bytes.
        page: u64,
    },
    /// The host has not enough memory left.
    #[error(
        "bytes {start}..{end} of an address window got no memory: {reason}; \
         free memory or ask for less"
    )]
    OutOfMemory {
        /// Where the range begins.
        start: u64,
        /// The end of the range.
        end: u64,
        /// The operating system's words.
        reason: String,
    },
    /// Part of the range has no memory.
    #[error("bytes {start}..{end} of an address window are not all committed; commit them first")]
    NotCommitted {
        /// Where the range begins.
        start: u64,
        /// The end of the range.
        end: u64,
    },
    /// A device, or another holder, still uses part of the range.
    #[error(
        "bytes {start}..{end} of an address window are still in use; \
         drop what imports them, let the devices finish, and try again"
    )]
    InUse {
        /// Where the range begins.
        start: u64,
        /// The end of the range.
        end: u64,
    },
}

debug_by_text!(WindowError {
    Unsupported,
    Size,
    Reserve,
    Range,
    OutOfMemory,
    NotCommitted,
    InUse,
});

/// A reserved span of host address space: see the module's page.
pub(crate) struct Window {
    base: NonNull<u8>,
    size: u64,
    page: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Readable and writable.
    committed: RangeSet<u64>,
    /// Not committed, but its pages may hold old contents.
    stale: RangeSet<u64>,
    /// In use; the same range may be there several times.
    pinned: Vec<Range<u64>>,
}

// SAFETY: `base` is the address of a mapping that belongs to the process, not to a thread, and that
// `self` owns.
unsafe impl Send for Window {}
// SAFETY: what `&Window` changes is changed under the lock; the memory itself is only reached through
// raw pointers, whose users answer for that, and through the atomics of `Pinned`.
unsafe impl Sync for Window {}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("base", &self.base)
            .field("size", &self.size)
            .field("committed", &self.committed_bytes())
            .finish_non_exhaustive()
    }
}

impl Window {
    /// The base of every window is a multiple of this, and no window is larger: 4 GiB.
    pub(crate) const ALIGNMENT: u64 = 1 << 32;

    /// Reserves `size` bytes, rounded up to whole pages. No page has memory yet.
    pub(crate) fn reserve(size: u64) -> Result<Arc<Self>, WindowError> {
        let page = system::page_size();
        let limit = Self::ALIGNMENT;
        if !(1..=limit).contains(&size) {
            return Err(WindowError::Size { size, limit });
        }
        // Both are at most 4 GiB, and a page is a power of two.
        let size = size.next_multiple_of(page);
        let base = system::reserve(size)?;
        Ok(Arc::new(Self {
            base,
            size,
            page,
            state: Mutex::default(),
        }))
    }

    /// Where the window begins: a multiple of 4 GiB below 2^48.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size of the window in bytes, whole pages.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The size of a page in bytes, a power of two.
    #[cfg(all(test, any(unix, windows), target_pointer_width = "64"))]
    pub(crate) fn page_size(&self) -> u64 {
        self.page
    }

    /// The bytes that have memory.
    pub(crate) fn committed_bytes(&self) -> u64 {
        total(&self.lock().committed)
    }

    /// The offset of `address`, if inside the window (committed or not).
    #[cfg(all(test, any(unix, windows), target_pointer_width = "64"))]
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base.as_ptr().addr() as u64)?;
        (offset < self.size).then_some(offset)
    }

    /// Gives the pages of `range` memory that is readable, writable and zero. Pages with memory already keep their
    /// memory and contents.
    pub(crate) fn commit(&self, range: Range<u64>) -> Result<(), WindowError> {
        self.check(&range)?;
        let mut state = self.lock();
        let gaps: Vec<_> = state.committed.gaps(&range).collect();
        for (done, gap) in gaps.iter().enumerate() {
            let stale = state.stale.overlaps(gap);
            // SAFETY: the gap lies in the window (checked above), is made of whole pages like all
            // ranges here, and is not committed, so nobody may use what is in it.
            if let Err(reason) = unsafe { system::commit(self.at(gap.start), gap) } {
                for gap in &gaps[..=done] {
                    // SAFETY: as above; the ranges were not recorded as committed.
                    unsafe { self.give_back(&mut state, gap) };
                }
                return Err(WindowError::OutOfMemory {
                    start: range.start,
                    end: range.end,
                    reason,
                });
            }
            if stale {
                // SAFETY: the pages are writable since just now, and nobody uses them yet.
                unsafe {
                    self.at(gap.start)
                        .write_bytes(0, (gap.end - gap.start) as usize)
                };
            }
        }
        state.stale.remove(range.clone());
        state.committed.insert(range);
        Ok(())
    }

    /// Gives the memory of `range` back; its addresses stay reserved. Pages without memory may be
    /// among them.
    ///
    /// Pointers into the range must not be used from here on: code dereferencing such a pointer
    /// must pin its range, or know by other means that no thread makes this call.
    pub(crate) fn decommit(&self, range: Range<u64>) -> Result<(), WindowError> {
        self.check(&range)?;
        let mut state = self.lock();
        let meets = |pinned: &Range<u64>| pinned.start < range.end && range.start < pinned.end;
        if state.pinned.iter().any(meets) {
            return Err(WindowError::InUse {
                start: range.start,
                end: range.end,
            });
        }
        // SAFETY: the range is made of whole pages of the window, and nobody has pinned any of them.
        unsafe { self.give_back(&mut state, &range) };
        state.committed.remove(range);
        Ok(())
    }

    /// Ends access to `range`, and records the range as stale unless the system has dropped its contents.
    ///
    /// # Safety
    /// The range is made of whole pages of the window, and is unused.
    unsafe fn give_back(&self, state: &mut State, range: &Range<u64>) {
        // SAFETY: the caller's promise.
        if unsafe { system::decommit(self.at(range.start), range) } {
            state.stale.remove(range.clone());
        } else {
            state.stale.insert(range.clone());
        }
    }

    /// Keeps `range`, which must be committed, from being given back while the answer lives.
    pub(crate) fn pin(self: &Arc<Self>, range: Range<u64>) -> Result<Pinned, WindowError> {
        self.check(&range)?;
        let mut state = self.lock();
        if state.committed.gaps(&range).next().is_some() {
            return Err(WindowError::NotCommitted {
                start: range.start,
                end: range.end,
            });
        }
        state.pinned.push(range.clone());
        drop(state);
        Ok(Pinned {
            window: Arc::clone(self),
            range,
        })
    }

    fn check(&self, range: &Range<u64>) -> Result<(), WindowError> {
        let whole = |offset: u64| offset.is_multiple_of(self.page);
        if range.is_empty() || range.end > self.size || !whole(range.start) || !whole(range.end) {
            return Err(WindowError::Range {
                start: range.start,
                end: range.end,
                size: self.size,
                page: self.page,
            });
        }
        Ok(())
    }

    /// The address of `offset`, which must lie in the window.
    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.size);
        // SAFETY: the window is one mapping of `size` bytes, and every caller has checked that the
        // offset lies in it. No overflow, because a window exists on 64-bit systems only.
        unsafe { self.base.add(offset as usize) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers in a set.
fn total(set: &RangeSet<u64>) -> u64 {
    set.iter().map(|range| range.end - range.start).sum()
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `base` and `size` are those of the reservation, and nobody uses it any more: pinned
        // ranges hold the window, and other users of its pointers have to.
        unsafe { system::release(self.base, self.size) };
    }
}

/// A committed range of a window, not given back during the life of this value.
pub(crate) struct Pinned {
    window: Arc<Window>,
    range: Range<u64>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&self.range).finish()
    }
}

impl Pinned {
    /// Where the range begins. Valid for reads and writes of [`Pinned::len`] bytes while this lives;
    /// kernels may write there at any time.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.window.at(self.range.start)
    }

    /// The length in bytes: whole pages, at least one.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

// SAFETY: the range is committed as long as `self` lives, and begins with a page. Whoever makes references
// of other kinds to memory of a window must know that no `Pinned` of it is asked for its words meanwhile.
unsafe impl Words for Pinned {
    fn span(&self) -> (NonNull<u8>, u64) {
        (self.as_ptr(), self.len())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        if let Some(index) = state.pinned.iter().position(|range| *range == self.range) {
            state.pinned.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests;
