//! Buffers: memory of the host.

use std::{
    alloc::Layout,
    cell::Cell,
    fmt::{self, Write},
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use wgpu_hal as hal;

use super::DeviceResult;

/// The alignment of buffers in bytes: a line of the cache, never shared by two buffers.
const ALIGNMENT: usize = 64;

/// A buffer: a handle of memory, freed with the last handle.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
}

/// The owner of a buffer's memory: frees the memory.
enum Owner {
    /// The buffer itself
    Own {
        layout: Layout,
        /// Whether the host may map the memory
        mapped: bool,
        /// Bytes written by commands: one range of perhaps several
        written: Mutex<Range<u64>>,
    },
    /// The box keeps the memory alive
    #[expect(dead_code, reason = "kept for what its destructor does")]
    Lender(Box<dyn Send + Sync>),
    /// The holder of the [`Loan`]
    Loan {
        /// Whether the loan goes on. Held for reading during a copy
        lent: RwLock<bool>,
        /// The place of the first byte in the buffer
        first: u64,
    },
}

/// Memory lent to a buffer for a time ([`Buffer::lend`]). The drop ends the time: the drop waits for a copy under way, and later
/// copies find nothing to copy.
#[must_use = "a loan that is dropped has ended"]
#[derive(Debug)]
pub struct Loan(Buffer);

impl Drop for Loan {
    fn drop(&mut self) {
        if let Owner::Loan { lent, .. } = &self.0.memory.owner {
            *lent.write().unwrap_or_else(PoisonError::into_inner) = false;
        }
    }
}

/// The existing bytes of a range, kept there for the lifetime of the value.
pub(super) struct Bytes<'a> {
    start: *mut u8,
    /// In the range
    place: Range<usize>,
    /// Keeps a loan from ending
    _lent: Option<RwLockReadGuard<'a, bool>>,
}

impl Bytes<'_> {
    /// The bytes existing on both sides, at the same places: two pointers and a length.
    pub(super) fn common(&self, other: &Self) -> (*mut u8, *mut u8, usize) {
        let start = self.place.start.max(other.place.start);
        let end = self.place.end.min(other.place.end);
        // Bytes outside of both are never accessed.
        let at = |bytes: &Self| {
            bytes
                .start
                .wrapping_add(start.saturating_sub(bytes.place.start))
        };
        (at(self), at(other), end.saturating_sub(start))
    }
}

struct Memory {
    address: NonNull<u8>,
    bytes: u64,
    owner: Owner,
    /// Some of the bytes may not be there
    has_gaps: bool,
    label: Option<Box<str>>,
}

// SAFETY: the memory is plain bytes, accessed by kernels, copies and the host by the rules of wgpu: a writer is alone, or
// accesses atomically. The handle itself is never written to. A lender is `Send + Sync` by its type.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Own { layout, .. } = self.owner {
            // SAFETY: `address` was allocated with this layout by `Buffer::new`, and this is the last handle.
            unsafe { std::alloc::dealloc(self.address.as_ptr(), layout) };
        }
    }
}

impl Buffer {
    /// A buffer of zeros, for the host to map or not.
    ///
    /// # Errors
    /// [`hal::DeviceError::OutOfMemory`] if there is no such memory.
    pub(super) fn new(bytes: u64, mapped: bool) -> DeviceResult<Self> {
        let size = usize::try_from(bytes.max(1)).ok();
        let layout = size.and_then(|size| {
            let size = size.checked_next_multiple_of(ALIGNMENT)?;
            Layout::from_size_align(size, ALIGNMENT).ok()
        });
        let layout = layout.ok_or(hal::DeviceError::OutOfMemory)?;
        // SAFETY: the layout is not empty.
        let address = unsafe { std::alloc::alloc_zeroed(layout) };
        let address = NonNull::new(address).ok_or(hal::DeviceError::OutOfMemory)?;
        Ok(Self {
            memory: Arc::new(Memory {
                address,
                bytes,
                owner: Owner::Own {
                    layout,
                    mapped,
                    written: Mutex::new(0..0),
                },
                has_gaps: false,
                label: None,
            }),
        })
    }

    /// The same with a label. Before the buffer has further handles.
    pub(super) fn labelled(mut self, label: Option<&str>) -> Self {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            memory.label = label.map(Box::from);
        }
        self
    }

    /// The label of wgpu's descriptor, if any, unless the instance discards labels.
    pub fn label(&self) -> Option<&str> {
        self.memory.label.as_deref()
    }

    /// A buffer in existing memory: shared by kernels and host, without copies.
    ///
    /// `lender` is dropped when the last handle of the buffer is gone and no command uses the buffer any more.
    ///
    /// # Safety
    /// `bytes` bytes from `address` on, or the part reached by kernels and commands, must be valid for reads and writes of any
    /// thread until `lender` is dropped, and aligned to the strictest type accessed by kernels there (32 bytes are enough for
    /// any). Nobody may access the bytes without atomic operations while a writing command runs.
    pub unsafe fn from_host(
        address: NonNull<u8>,
        bytes: u64,
        lender: Box<dyn Send + Sync>,
    ) -> Self {
        Self::over(address, bytes, Owner::Lender(lender), false)
    }

    /// A buffer in existing memory, for copies from and to other buffers, as long as the loan lives. The buffer itself may live
    /// longer, as wgpu's handles do.
    ///
    /// The first byte of the memory is byte `first` of the buffer. wgpu copies whole words; bytes in front of the first and
    /// behind the last are left out of copies.
    ///
    /// # Safety
    /// Until the loan is dropped, `bytes` bytes from `address` on must be valid for reads of any thread if the buffer is a source
    /// of copies, and for writes if the buffer is a target; nobody else may write the bytes meanwhile, nor read written bytes.
    /// For any other command the buffer has no bytes.
    pub unsafe fn lend(address: NonNull<u8>, bytes: u64, first: u64) -> (Self, Loan) {
        let lent = RwLock::new(true);
        let buffer = Self::over(address, bytes, Owner::Loan { lent, first }, false);
        (buffer.clone(), Loan(buffer))
    }

    /// As [`Buffer::from_host`], over a part of the address space where some bytes may be missing, or belong to others. Commands
    /// with the buffer bound to a kernel of several lanes are refused: a lane switched off by a branch loads from any place under
    /// its index.
    ///
    /// # Safety
    /// As for [`Buffer::from_host`], for the bytes reached by invocations run one after the other.
    pub unsafe fn from_address_space(
        address: NonNull<u8>,
        bytes: u64,
        lender: Box<dyn Send + Sync>,
    ) -> Self {
        Self::over(address, bytes, Owner::Lender(lender), true)
    }

    fn over(address: NonNull<u8>, bytes: u64, owner: Owner, has_gaps: bool) -> Self {
        Self {
            memory: Arc::new(Memory {
                address,
                bytes,
                owner,
                has_gaps,
                label: None,
            }),
        }
    }

    /// Whether somebody beside the device may look at the memory while kernels run.
    pub(super) fn is_shared(&self) -> bool {
        match self.memory.owner {
            Owner::Own { mapped, .. } => mapped,
            Owner::Lender(_) | Owner::Loan { .. } => true,
        }
    }

    /// Whether some of the bytes may not be there.
    pub(super) fn has_gaps(&self) -> bool {
        self.memory.has_gaps
    }

    /// The start of the memory. The memory stays there as long as a handle of the buffer lives. Writes of kernels to a buffer not
    /// for the host to map may arrive there at the end of the dispatch alone.
    pub fn address(&self) -> NonNull<u8> {
        self.memory.address
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// The bytes of a range for a copy; `None` beyond the end, and for memory whose loan has ended.
    pub(super) fn copied(&self, range: Range<u64>) -> Option<Bytes<'_>> {
        let Owner::Loan { lent, first } = &self.memory.owner else {
            let (start, count) = self.place(range)?;
            return Some(Bytes {
                start,
                place: 0..count,
                _lent: None,
            });
        };
        let lent = lent.read().unwrap_or_else(PoisonError::into_inner);
        let end = first + self.memory.bytes;
        let part = range.start.max(*first)..range.end.min(end);
        if !*lent || part.start >= part.end {
            return None;
        }
        let (start, count) = self.place(part.start - first..part.end - first)?;
        let skipped = (part.start - range.start) as usize;
        Some(Bytes {
            start,
            place: skipped..skipped + count,
            _lent: Some(lent),
        })
    }

    /// Notes a range written by a command, known to wgpu as written.
    pub(super) fn written(&self, range: &Range<u64>) {
        if let Owner::Own { written, .. } = &self.memory.owner {
            let mut known = written.lock().unwrap_or_else(PoisonError::into_inner);
            if range.start <= known.end && known.start <= range.end {
                *known = known.start.min(range.start)..known.end.max(range.end);
            } else if range.end - range.start > known.end - known.start {
                *known = range.clone();
            }
        }
    }

    /// Whether commands are known to have written all of a range.
    pub(super) fn is_written(&self, range: Range<u64>) -> bool {
        let Owner::Own { written, .. } = &self.memory.owner else {
            return false;
        };
        let known = written.lock().unwrap_or_else(PoisonError::into_inner);
        known.start <= range.start && range.end <= known.end
    }

    /// The place of `count` bytes from byte `start` on; `None` beyond the end, and for memory not the buffer's own.
    pub(super) fn own_range(&self, start: u64, count: usize) -> Option<*mut u8> {
        let end = start.checked_add(count as u64)?;
        match self.memory.owner {
            Owner::Own { .. } => self.place(start..end).map(|(place, _)| place),
            Owner::Lender(_) | Owner::Loan { .. } => None,
        }
    }

    /// A range of the buffer as a pointer and a length; `None` beyond its end, and for memory on loan.
    pub(super) fn range(&self, range: Range<u64>) -> Option<(*mut u8, usize)> {
        match self.memory.owner {
            Owner::Loan { .. } => None,
            Owner::Own { .. } | Owner::Lender(_) => self.place(range),
        }
    }

    fn place(&self, range: Range<u64>) -> Option<(*mut u8, usize)> {
        if range.start > range.end || range.end > self.memory.bytes {
            return None;
        }
        // SAFETY: the range lies inside the memory of the buffer.
        let start = unsafe { self.memory.address.as_ptr().add(range.start as usize) };
        Some((start, (range.end - range.start) as usize))
    }
}

thread_local! {
    /// Takes the handle of a printed buffer while [`of_binding`] waits for the handle.
    static CAUGHT: Cell<Catch> = const { Cell::new(Catch::Nothing) };
}

enum Catch {
    Nothing,
    Waiting,
    Buffer(Buffer),
}

/// The buffer of a binding.
///
/// wgpu-hal 30 keeps the handle to itself: the field is private to the crate, and no method returns the handle. Public is
/// `Debug`, printing the buffer by the *buffer's* `Debug`, written below. So the binding is printed, to nowhere, and the buffer
/// leaves its handle on the way.
///
/// Returns `None` if `Debug` of the binding did not print the buffer.
pub(super) fn of_binding(binding: &hal::BufferBinding<'_, Buffer>) -> Option<Buffer> {
    struct Nowhere;
    impl Write for Nowhere {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    CAUGHT.set(Catch::Waiting);
    // Writing to nowhere does not fail, and the catch says whether the rest went well.
    let _ = write!(Nowhere, "{binding:?}");
    match CAUGHT.replace(Catch::Nothing) {
        Catch::Buffer(buffer) => Some(buffer),
        Catch::Nothing | Catch::Waiting => None,
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(CAUGHT.replace(Catch::Nothing), Catch::Nothing) {
            CAUGHT.set(Catch::Buffer(self.clone()));
            return Ok(());
        }
        f.debug_struct("Buffer")
            .field("address", &self.memory.address)
            .field("bytes", &self.memory.bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_gives_its_buffer() {
        let buffer = Buffer::new(256, false).unwrap();
        let binding =
            hal::BufferBinding::new_unchecked(&buffer, 16, wgpu_types::BufferSize::new(32));
        let found = of_binding(&binding).unwrap();
        assert!(Arc::ptr_eq(&found.memory, &buffer.memory));
        assert!(format!("{buffer:?}").contains("bytes: 256"));
    }

    #[test]
    fn memory_that_is_lent_goes_back() {
        let lent = Arc::new(vec![7u8; 64]);
        let address = NonNull::from(lent.as_slice()).cast();
        // SAFETY: the vector lives as long as its handle, the lender; nobody writes.
        let buffer = unsafe { Buffer::from_host(address, 64, Box::new(lent.clone())) };
        assert_eq!(Arc::strong_count(&lent), 2);
        assert_eq!(buffer.range(1..65), None);
        assert_eq!(buffer.range(8..64).map(|(_, bytes)| bytes), Some(56));
        drop(buffer);
        assert_eq!(Arc::strong_count(&lent), 1);
    }

    /// Counts by kernels there must not wait for the end of a dispatch.
    #[test]
    fn the_host_may_see_what_it_maps_or_lends() {
        assert!(!Buffer::new(64, false).unwrap().is_shared());
        assert!(Buffer::new(64, true).unwrap().is_shared());
        let mut bytes = [7u8; 64];
        let address = NonNull::from(&mut bytes).cast();
        // SAFETY: the bytes are not accessed at all.
        let lent = unsafe { Buffer::from_host(address, 64, Box::new(())) };
        assert!(lent.is_shared());
    }

    #[test]
    fn a_loan_ends_while_handles_of_its_buffer_live() {
        let mut bytes = [7u8; 16];
        let address = NonNull::from(&mut bytes).cast();
        // SAFETY: nobody else accesses the bytes before the loan is dropped.
        let (buffer, loan) = unsafe { Buffer::lend(address, 16, 0) };
        let other = buffer.clone();
        assert_eq!(buffer.range(0..16), None, "for copies alone");
        let copied = buffer.copied(4..16).unwrap();
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| drop(loan));
            // SAFETY: the loan cannot end before the bytes are let go of.
            unsafe { copied.start.write_bytes(9, copied.place.len()) };
            drop(copied);
            ended.join().unwrap();
        });
        assert!(buffer.copied(4..16).is_none() && other.copied(0..16).is_none());
        drop((buffer, other));
        assert_eq!(bytes, [7, 7, 7, 7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
    }

    #[test]
    fn copies_leave_out_what_is_not_there() {
        let whole = Buffer::new(32, false).unwrap();
        let mut bytes = [0u8; 9];
        let address = NonNull::from(&mut bytes).cast();
        for first in 0..4usize {
            // SAFETY: the bytes are not accessed at all.
            let (lent, _loan) = unsafe { Buffer::lend(address, 9, first as u64) };
            let (from, to) = (whole.copied(4..16).unwrap(), lent.copied(0..12).unwrap());
            let end = (first + 9).min(12);
            assert_eq!(to.place, first..end);
            let (source, target, count) = from.common(&to);
            assert_eq!((target, count), (address.as_ptr(), end - first));
            let at = source.addr() - whole.address().addr().get();
            assert_eq!(at, 4 + first);
            assert!(lent.copied(16..20).is_none());
        }
    }

    #[test]
    fn more_than_there_is_is_out_of_memory() {
        assert!(matches!(
            Buffer::new(u64::MAX, false),
            Err(hal::DeviceError::OutOfMemory)
        ));
        assert!(matches!(
            Buffer::new(1 << 62, false),
            Err(hal::DeviceError::OutOfMemory)
        ));
    }
}
