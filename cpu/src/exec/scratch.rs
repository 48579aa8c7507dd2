//! Memory of a running kernel: shared memory of a work-group, and private memory of each invocation.

use std::{alloc::Layout, ptr::NonNull};

/// Alignment of both parts, in bytes.
const ALIGNMENT: usize = 64;

/// Memory for one work-group at a time.
pub(super) struct Scratch {
    memory: Option<(NonNull<u8>, Layout)>,
    workgroup_bytes: usize,
    /// Copies of reduced buffers
    pub(super) copies: Vec<u64>,
}

impl Scratch {
    pub(super) const fn empty() -> Self {
        Self {
            memory: None,
            workgroup_bytes: 0,
            copies: Vec::new(),
        }
    }

    /// Makes room for a kernel. Old contents are lost if the memory has to grow.
    ///
    /// Returns `false` without memory.
    pub(super) fn reserve(&mut self, workgroup_bytes: u64, frame_bytes: u64) -> bool {
        let workgroup = workgroup_bytes.checked_next_multiple_of(ALIGNMENT as u64);
        let bytes = workgroup
            .and_then(|bytes| bytes.checked_add(frame_bytes))
            .and_then(|bytes| usize::try_from(bytes).ok());
        let (Some(workgroup), Some(bytes)) = (workgroup, bytes) else {
            return false;
        };
        self.workgroup_bytes = workgroup as usize;
        if self
            .memory
            .is_some_and(|(_, layout)| layout.size() >= bytes)
        {
            return true;
        }
        self.free();
        let Ok(layout) = Layout::from_size_align(bytes.max(ALIGNMENT), ALIGNMENT) else {
            return false;
        };
        // SAFETY: the layout is not empty.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        self.memory = NonNull::new(memory).map(|memory| (memory, layout));
        self.memory.is_some()
    }

    /// Work-group memory and frames, of the sizes reserved last.
    pub(super) fn parts(&mut self) -> Option<(NonNull<u8>, NonNull<u8>)> {
        let (memory, _) = self.memory?;
        // SAFETY: `reserve` made the memory at least as large as the first part.
        Some((memory, unsafe { memory.add(self.workgroup_bytes) }))
    }

    fn free(&mut self) {
        if let Some((memory, layout)) = self.memory.take() {
            // SAFETY: allocated by `reserve` with this layout, freed once.
            unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.free();
    }
}

// SAFETY: the memory belongs to the value alone.
unsafe impl Send for Scratch {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_apart() {
        let mut scratch = Scratch::empty();
        assert!(scratch.parts().is_none());
        assert!(scratch.reserve(100, 1000));
        let (workgroup, frames) = scratch.parts().unwrap();
        assert_eq!(frames.addr().get() - workgroup.addr().get(), 128);
        assert_eq!(workgroup.addr().get() % ALIGNMENT, 0);
        assert!(scratch.reserve(0, 16));
        assert!(!scratch.reserve(u64::MAX, 1));
        assert!(!scratch.reserve(64, u64::MAX - 64));
    }
}
