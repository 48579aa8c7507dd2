//! Words that the host and kernels use at the same time, wherever their memory comes from.

// Every block gives its soundness argument.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory that is seen as words, one at a time.
///
/// # Safety
///
/// As long as the value lives, [`Words::span`] is the same, and so many bytes from there on may be read and
/// written, begin with a multiple of four, and are accessed on the host by atomic operations alone while
/// anybody asks for words.
pub(crate) unsafe trait Words {
    /// The first byte, and how many there are.
    fn span(&self) -> (NonNull<u8>, u64);

    /// Reads the word at `offset` bytes from the beginning, acquiring writes made before its store. `None` if the
    /// offset is no multiple of four or the word does not lie in the memory.
    fn load_u32(&self, offset: u64) -> Option<u32> {
        Some(word(self, offset)?.load(Ordering::Acquire))
    }

    /// Writes the word at `offset` bytes from the beginning, releasing this thread's earlier writes. `None` if the
    /// offset is no multiple of four or the word does not lie in the memory.
    fn store_u32(&self, offset: u64, value: u32) -> Option<()> {
        word(self, offset)?.store(value, Ordering::Release);
        Some(())
    }

    /// All words, for those who use many.
    fn words(&self) -> &[AtomicU32] {
        let (start, len) = self.span();
        let len = usize::try_from(len / 4).unwrap_or(0);
        // SAFETY: so many bytes may be read and written for as long as `self` lives, and are aligned and accessed by
        // atomic operations alone while `self` is borrowed; whoever implements the trait vouches for it.
        unsafe { std::slice::from_raw_parts(start.cast::<AtomicU32>().as_ptr(), len) }
    }
}

fn word<W: Words + ?Sized>(words: &W, offset: u64) -> Option<&AtomicU32> {
    let (start, len) = words.span();
    if !offset.is_multiple_of(4) || offset.checked_add(4)? > len {
        return None;
    }
    let offset = usize::try_from(offset).ok()?;
    // SAFETY: the word lies in the span, aligned, and whoever implements the trait vouches for the rest.
    Some(unsafe { AtomicU32::from_ptr(start.add(offset).cast::<u32>().as_ptr()) })
}
