//! Buffers that belong to a context: their bytes are wherever they were last used, and move by themselves.
//!
//! A [`Buffer`] is a part of a root ([`root`]), which knows for every range of bytes where the latest ones are: the
//! books are kept by the planner ([`migrate`](super::migrate)), which also decides what moves. This room has the memory
//! made ([`evict`]), makes the copies ([`carry`], over [`download`], [`hop`] and [`exchange`], through the device's staging memory ([`staging`](super::staging))), and keeps the host's side
//! ([`host`], [`map`]); [`losses`] sees to what is left when a device is gone. Launches go through [`residency_guard`].
//!
//! - Everything is decided when a command is enqueued, with the buffer locked: the order of enqueuing is the order of
//!   versions.
//! - Nobody waits for bytes when a command is enqueued, but for those of batches that are themselves still held back, and
//!   for other devices where copies, fills and reads of the host touch memory that these have in common.
//! - What a failed launch would have written is poisoned wherever it goes, also on other devices and the host.

mod blocks;
mod carry;
mod common;
mod context;
mod device_allocation;
mod download;
mod error;
mod evict;
mod exchange;
mod hop;
mod host;
mod losses;
mod map;
pub(crate) mod residency_guard;
mod root;
mod settle;
mod statistics;

#[cfg(test)]
mod tests_loss;

use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

pub(crate) use blocks::Blocks;
pub use common::CommonMemory;
pub(crate) use context::ContextBuffers;
pub use error::BufferError;
pub(crate) use hop::End;
pub use map::{MappedRead, MappedWrite};
pub use residency_guard::{ArgumentMoves, LaunchExplanation};
pub use statistics::{BufferMemory, BufferStatistics};

use self::residency_guard::PartView;
pub(crate) use self::root::{BufferExtensions, Root};
use self::root::{Home, HostBytes};
use super::buffer::{BufferView, DeviceBuffer, bounds};
use super::heap::SharedHeap;
use super::live::LiveBuffer;
use super::pointer::Ptr;
use crate::device::Event;

/// Where the bytes of a [`Buffer`] live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// As [`Placement::Device`]: kernels are as fast as they can be there, and a program that uses one device at a time
    /// moves each byte once. But a buffer of up to 256 MiB that devices hand to and fro goes to memory that they have in
    /// common, and moves no more, if all of them work in the host's memory anyway
    /// ([`Capabilities::unified_memory`](crate::device::Capabilities)) and import it: after 8 launches in a row that write it and for
    /// which half of it or more came from another device, with no more than 8 launches that use it between two of these.
    /// Devices of which one reads what the other has made keep memory of their own, and work side by side. It stays there
    /// until it is evicted, and then begins anew. [`Launch::explain`](crate::Launch::explain) says so.
    #[default]
    Auto,
    /// Each device that uses the buffer has memory of its own for it, and bytes move between them as needed.
    Device,
    /// In the context's heap ([`Context::heap`](crate::Context::heap)): devices that use the host's memory in place all
    /// see the same bytes, and nothing is moved. Commands of different devices that meet there wait for each other.
    /// Devices that cannot import memory work with the heap's copy ([`SharedHeap::tier`](crate::SharedHeap::tier)).
    Shared,
}

/// A buffer of `len` values of `T` that belongs to a [`Context`](crate::Context), or a part of one: the context's devices
/// all use it, and the bytes that a launch needs are brought to its device when it is submitted.
///
/// Making a buffer allocates nothing. A device gets memory for it (for the whole of it, whatever part is used there) when
/// the first command uses it; if there is no room, and nothing else can be moved to the host, that command is refused.
/// What is known to be latest is kept for each byte: a device that only reads makes no version, so any number of them may
/// have the same bytes; a launch that may write ([`ArgumentKind::Storage`](crate::kernel::ArgumentKind), `writable`) makes all
/// bytes of its part new.
///
/// Handles are cheap to clone. Parts ([`Buffer::slice`]) are the same buffer: what is written through one is seen through
/// every other, and disjoint parts may be worked on by different devices at the same time, with nothing moving in between.
///
/// ```no_run
/// # use tombolo::{Constants, Context, Program};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// let (one, other) = (context.device_at(0)?, context.device_at(1)?);
/// # let program = Program::new("double.wgsl", "
/// #     @group(0) @binding(0) var<storage, read_write> values: array<f32>;
/// #     @compute @workgroup_size(64)
/// #     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
/// #         if id.x < arrayLength(&values) { values[id.x] *= 2.0; }
/// #     }")?;
/// let values = context.buffer_from_vec(vec![1.0f32; 1 << 20])?;
/// let (left, right) = (values.slice(..1 << 19)?, values.slice(1 << 19..)?);
/// for (device, half) in [(&one, &left), (&other, &right)] {
///     let kernel = device.kernel(&program, "main", &Constants::new())?;
///     kernel.launch().buffer("values", half).invocations(1 << 19).submit()?;
/// }
/// assert!(values.read()?.iter().all(|&value| value == 2.0));
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T> {
    root: Arc<Root>,
    /// First byte.
    offset: u64,
    len: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self {
            root: Arc::clone(&self.root),
            ..*self
        }
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// What a launch may be given for a buffer: a [`Buffer`] of the context or a part of it, a [`DeviceBuffer`], a slice of
/// one, or live words.
#[derive(Debug, Clone)]
pub struct BufferArgument(pub(crate) Passing);

#[derive(Debug, Clone)]
pub(crate) enum Passing {
    /// It lies on one device.
    Here(BufferView),
    /// It lies wherever it was last used.
    Wherever(PartView),
}

impl From<BufferView> for BufferArgument {
    fn from(view: BufferView) -> Self {
        Self(Passing::Here(view))
    }
}

impl From<&BufferView> for BufferArgument {
    fn from(view: &BufferView) -> Self {
        Self(Passing::Here(view.clone()))
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for BufferArgument {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self(Passing::Here(buffer.into()))
    }
}

impl From<&LiveBuffer> for BufferArgument {
    fn from(live: &LiveBuffer) -> Self {
        Self(Passing::Here(live.into()))
    }
}

impl<T: Pod> From<&Buffer<T>> for BufferArgument {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(Passing::Wherever(buffer.part()))
    }
}

impl<T: Pod> From<Buffer<T>> for BufferArgument {
    fn from(buffer: Buffer<T>) -> Self {
        (&buffer).into()
    }
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(
        extensions: &BufferExtensions,
        len: usize,
        placement: Placement,
        host: Option<Box<dyn HostBytes>>,
    ) -> Result<Self, BufferError> {
        let bytes = bytes_of::<T>(len)?;
        Ok(Self::over(
            Root::new(extensions, bytes, placement, host),
            len as u64,
        ))
    }

    pub(crate) fn in_heap(
        extensions: &BufferExtensions,
        heap: SharedHeap,
        ptr: Ptr<T>,
        len: usize,
    ) -> Result<Self, BufferError> {
        let bytes = bytes_of::<T>(len)?;
        heap.shared.check_live("a buffer", ptr, bytes)?;
        let home = Home::Heap {
            heap: Some(heap),
            ptr: ptr.cast(),
            owned: false,
        };
        Ok(Self::over(
            Root::with_home(extensions, bytes, home, None),
            len as u64,
        ))
    }

    fn over(root: Arc<Root>, len: u64) -> Self {
        Self {
            root,
            offset: 0,
            len,
            element: PhantomData,
        }
    }

    /// Values in the buffer, or in this part of it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when the buffer holds no values, as a part never does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where this part begins in the whole buffer, in bytes.
    pub fn byte_offset(&self) -> u64 {
        self.offset
    }

    /// A part of the buffer, in elements; parts of parts are parts. It may begin anywhere: where an adapter cannot bind
    /// at that place, the launch works on a copy in a place where it can, and only the bytes of the part come back.
    ///
    /// # Errors
    /// [`BufferError::EmptyPart`], [`BufferError::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, BufferError> {
        let range = self.elements("a part", range)?;
        if range.is_empty() {
            return Err(BufferError::EmptyPart {
                at: range.start,
                len: self.len,
            });
        }
        Ok(Self {
            root: Arc::clone(&self.root),
            offset: self.offset + range.start * size_of::<T>() as u64,
            len: range.end - range.start,
            element: PhantomData,
        })
    }

    /// The same bytes as values of another type.
    ///
    /// # Errors
    /// [`BufferError::ElementSize`] if they are no whole number of them; [`BufferError::ZeroSized`].
    pub fn cast<U: Pod>(&self) -> Result<Buffer<U>, BufferError> {
        bytes_of::<U>(0)?;
        let range = self.bytes();
        let bytes = range.end - range.start;
        if !bytes.is_multiple_of(size_of::<U>() as u64) {
            return Err(BufferError::ElementSize {
                start: range.start,
                end: range.end,
                element: std::any::type_name::<U>(),
                element_bytes: size_of::<U>(),
            });
        }
        Ok(Buffer {
            root: Arc::clone(&self.root),
            offset: self.offset,
            len: bytes / size_of::<U>() as u64,
            element: PhantomData,
        })
    }

    /// What was moved for the whole buffer, and what was not. Zeros in a callback of wgpu that a command on this buffer
    /// runs.
    pub fn statistics(&self) -> BufferStatistics {
        let Some(state) = self.root.look() else {
            return BufferStatistics::default();
        };
        BufferStatistics {
            moves: state.residency.counters(),
            ..state.statistics
        }
    }

    /// Where the bytes of this part are latest, in words and as ranges of bytes of the whole buffer; what was never
    /// written, and what was discarded, is left out. Nothing in a callback of wgpu that a command on this buffer runs.
    pub fn whereabouts(&self) -> Vec<(Range<u64>, Vec<String>)> {
        let Some(state) = self.root.look() else {
            return Vec::new();
        };
        let part = self.bytes();
        let contents = state.residency.contents();
        let clipped = contents.map(|(range, content)| {
            let range = range.start.max(part.start)..range.end.min(part.end);
            (range, content)
        });
        let context = self.root.context();
        let names = |content| match content {
            super::migrate::Content::At(places) => {
                places.iter().map(|place| context.name_of(place)).collect()
            }
            super::migrate::Content::Lost(place) => {
                vec![format!("lost with {}", context.name_of(place))]
            }
            super::migrate::Content::Undefined => Vec::new(),
        };
        let inside = clipped.filter(|(range, _)| range.start < range.end);
        inside
            .map(|(range, content)| (range, names(content)))
            .collect()
    }

    /// The bytes of this part, in the whole buffer.
    fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.len * size_of::<T>() as u64
    }

    fn part(&self) -> PartView {
        let range = self.bytes();
        PartView {
            root: Arc::clone(&self.root),
            offset: range.start,
            bytes: range.end - range.start,
            element_bytes: size_of::<T>(),
            element: std::any::type_name::<T>(),
        }
    }

    /// Checks a range of elements.
    fn elements(
        &self,
        what: &'static str,
        range: impl RangeBounds<u64>,
    ) -> Result<Range<u64>, BufferError> {
        let range = bounds(range, self.len);
        if range.start > range.end || range.end > self.len {
            return Err(BufferError::OutOfRange {
                what,
                start: range.start,
                end: range.end,
                len: self.len,
            });
        }
        Ok(range)
    }

    /// The bytes of a range of elements, in the whole buffer.
    fn byte_range(
        &self,
        what: &'static str,
        range: impl RangeBounds<u64>,
    ) -> Result<Range<u64>, BufferError> {
        let range = self.elements(what, range)?;
        let element = size_of::<T>() as u64;
        Ok(self.offset + range.start * element..self.offset + range.end * element)
    }
}

fn bytes_of<T>(len: usize) -> Result<u64, BufferError> {
    let element = std::any::type_name::<T>();
    if size_of::<T>() == 0 {
        return Err(BufferError::ZeroSized { element });
    }
    let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
    // No address space has so many.
    bytes
        .filter(|bytes| *bytes <= i64::MAX as u64)
        .ok_or(BufferError::OutOfRange {
            what: "a buffer",
            start: 0,
            end: len as u64,
            len: i64::MAX as u64 / size_of::<T>() as u64,
        })
}

impl Event {
    /// What was moved for this launch, and why: see [`Launch::explain`](crate::Launch::explain). `None` for commands that
    /// used no buffer of the context.
    pub fn explanation(&self) -> Option<&LaunchExplanation> {
        self.hook()
    }
}
