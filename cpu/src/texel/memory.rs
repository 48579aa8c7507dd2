//! The bytes of a texture, as all invocations and the host share them.
//!
//! Several threads read and write one storage texture at a time, so that every access is atomic, and relaxed: plain moves on all
//! relevant machines. A texel of 8 or 16 bytes moves in parts of 4 bytes; a race between whole texels may mix the texels, as on a
//! GPU.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The memory of texels.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    words: &'a [AtomicU64],
}

/// An atomic integer as the unit of a view of [`Memory`].
///
/// # Safety
/// The type has the size and alignment of an integer of at most 8 bytes, allows any bits, and is
/// changed through shared references by atomic instructions only.
unsafe trait Atom {}
// SAFETY: the standard library's atomic integers fulfil all demands of the trait.
unsafe impl Atom for AtomicU8 {}
// SAFETY: as above.
unsafe impl Atom for AtomicU16 {}
// SAFETY: as above.
unsafe impl Atom for AtomicU32 {}
// SAFETY: as above.
unsafe impl Atom for AtomicU64 {}

impl<'a> Memory<'a> {
    /// Memory over `words`. An owner of plain memory makes the slice by `from_raw_parts`: aligned to 8 bytes, a length rounded up
    /// to 8 bytes.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        size_of_val(self.words)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The integer at a byte offset; none out of bounds or without alignment.
    fn at<A: Atom>(&self, offset: usize) -> Option<&'a A> {
        let end = offset.checked_add(size_of::<A>())?;
        if end > self.len() || !offset.is_multiple_of(align_of::<A>()) {
            return None;
        }
        // SAFETY: the bytes are within the slice; the slice lives for 'a and is aligned to 8 bytes; the offset keeps the
        // alignment of `A`. `AtomicU64` has interior mutability over all its bytes, and every access through `A` is atomic.
        // Accesses of a texture have a single size, the size of its format's parts, so that differently sized accesses never
        // race.
        Some(unsafe { &*self.words.as_ptr().cast::<u8>().add(offset).cast::<A>() })
    }

    /// The 32-bit integer at an offset, for atomic operations on texels.
    pub fn word(&self, offset: usize) -> Option<&'a AtomicU32> {
        self.at(offset)
    }

    /// The 64-bit integer at an offset, for atomic operations on texels.
    pub fn double_word(&self, offset: usize) -> Option<&'a AtomicU64> {
        self.at(offset)
    }

    /// The texel of `bytes` bytes (1, 2, 4, 8 or 16) at an offset, the first byte lowest; none out of
    /// bounds.
    pub fn read(&self, offset: usize, bytes: u32) -> Option<[u32; 4]> {
        let mut texel = [0; 4];
        match bytes {
            1 => texel[0] = self.at::<AtomicU8>(offset)?.load(Relaxed).into(),
            2 => texel[0] = self.at::<AtomicU16>(offset)?.load(Relaxed).into(),
            _ => {
                for (index, part) in texel.iter_mut().enumerate().take(bytes as usize / 4) {
                    *part = self.word(offset.checked_add(4 * index)?)?.load(Relaxed);
                }
            }
        }
        Some(texel)
    }

    /// Writes a texel; none, and nothing written, out of bounds.
    pub fn write(&self, offset: usize, bytes: u32, texel: [u32; 4]) -> Option<()> {
        match bytes {
            1 => self.at::<AtomicU8>(offset)?.store(texel[0] as u8, Relaxed),
            2 => self
                .at::<AtomicU16>(offset)?
                .store(texel[0] as u16, Relaxed),
            _ => {
                let parts = bytes as usize / 4;
                // The last part first: where it is in bounds, all are.
                for index in (0..parts).rev() {
                    self.word(offset.checked_add(4 * index)?)?
                        .store(texel[index], Relaxed);
                }
            }
        }
        Some(())
    }
}
