//! Buffers that belong to a context: the bytes lie where they were last used, and are moved by the runtime.
//!
//! A [`Buffer`] is a part of a root ([`root`]). A root knows the places with the latest bytes of each range; the
//! planner ([`migrate`](super::migrate)) keeps these books and decides about moves. This module has memory made
//! ([`evict`]), makes the copies ([`carry`], [`export`], [`ahead`], over [`download`], [`hop`] and [`exchange`], with the books
//! of [`slots`], through the device's staging memory ([`staging`](super::staging)); from and to the host's memory itself where
//! that is lent to a device (`lent`)), keeps the host's side ([`host`], [`map`], [`read_back`]), and recovers after the loss of
//! a device ([`losses`]). Launches go through [`residency_guard`].
//!
//! - Everything is decided when a command is enqueued, with the buffer locked: the order of enqueuing is the order of
//!   versions.
//! - Enqueuing does not wait for bytes, except for bytes of batches still held back, for other devices where copies, fills
//!   and reads of the host touch common memory, for copies of the host's own bytes by an embedded device that has nothing
//!   to do, and, for 0.2 ms at most, for a device that runs on the host's processors.
//! - Bytes that a failed launch would have written are poisoned wherever they go, also on other devices and the host.

mod ahead;
mod between;
mod blocks;
mod carry;
mod common;
mod context;
mod device_allocation;
mod device_places;
mod download;
mod error;
mod evict;
mod exchange;
mod export;
mod fetch;
mod hop;
mod host;
#[cfg(embedded)]
mod lent;
mod losses;
mod map;
mod places;
mod read;
mod read_back;
pub(crate) mod residency_guard;
mod root;
mod settle;
mod slots;
mod statistics;
mod uploads;

#[cfg(test)]
mod tests_loss;
#[cfg(test)]
mod tests_places;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

pub(crate) use between::copy_between;
pub(crate) use blocks::Blocks;
pub use common::CommonMemory;
pub(crate) use context::ContextBuffers;
pub use error::BufferError;
pub use exchange::ExchangeMemory;
pub(crate) use exchange::SlotImports;
pub(crate) use hop::End;
pub use map::{MappedRead, MappedWrite};
pub use residency_guard::{ArgumentMoves, LaunchExplanation};
pub use statistics::{BufferMemory, BufferStatistics};

use self::residency_guard::PartView;
pub(crate) use self::root::Root;
use self::root::{Home, HostBytes};
use super::buffer::{BufferView, DeviceBuffer, bounds};
use super::heap::SharedHeap;
use super::live::LiveBuffer;
use super::pointer::Ptr;
use crate::device::Event;
use crate::extensions::ContextExtensions;

/// Where the bytes of a [`Buffer`] live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// As [`Placement::Device`], until devices hand the buffer to and fro: kernels run at full speed, and a program
    /// with one device at a time moves each byte once. A buffer of up to 256 MiB moves to memory common to its devices,
    /// where no more copies are made, if all of them work in the host's memory anyway
    /// ([`Capabilities::unified_memory`](crate::device::Capabilities)) and import it: after 8 launches in a row that
    /// write the buffer with half of the bytes or more from another device, with at most 8 other uses between two such
    /// launches. A device that only reads the results of another keeps memory of its own, and both work side by side; so do
    /// graphics processors that exchange edges. On devices that run on the host's processors, launches that take an edge
    /// count as well.
    /// Eviction ends the common memory, and the count begins anew. [`Launch::explain`](crate::Launch::explain) reports
    /// the common memory.
    #[default]
    Auto,
    /// Each device in use has memory of its own for the buffer, and bytes move between devices as needed.
    Device,
    /// In the context's heap ([`Context::heap`](crate::Context::heap)): devices that use the host's memory in place all
    /// see the same bytes, and nothing is moved. Commands of different devices on the same bytes wait for each other.
    /// Devices without import of host memory work with the heap's copy ([`SharedHeap::tier`](crate::SharedHeap::tier)).
    Shared,
}

/// For people: the variant in words.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "decided by the runtime",
            Self::Device => "in memory of each device",
            Self::Shared => "in the shared heap",
        })
    }
}

/// A buffer of `len` values of `T`, or a part of such a buffer, that belongs to a [`Context`](crate::Context): all the
/// context's devices use the buffer, and submitting a launch brings the needed bytes to its device. Made by
/// [`Context::zeroed`](crate::Context::zeroed) and [`Context::buffer_from`](crate::Context::buffer_from).
///
/// The buffer for arrays that several devices, or a device and the host, work on in turns, and for arrays that may have
/// to leave a full device. A program with one device takes a [`DeviceBuffer`], which is memory of that device, has no
/// books to keep, and has commands for rectangles.
///
/// Making a buffer allocates nothing. A device gets memory for the whole buffer, whatever part is used there, with the
/// first command on the buffer; without room, and with nothing else to move to the host, the command is refused. The
/// latest places are known for each byte: a device that only reads makes no version, so any number of devices may have
/// the same bytes; a launch that may write ([`ArgumentKind::Storage`](crate::kernel::ArgumentKind), `writable`) makes
/// all bytes of its part new.
///
/// Handles are cheap to clone. Parts ([`Buffer::slice`]) are the same buffer: writes through one part are seen through
/// every other, and different devices may work on disjoint parts at the same time, with no moves in between.
///
/// There are no commands for [rectangles](crate::buffers::Rect), as a [`DeviceBuffer`] has them: the latest bytes of each
/// row may be in another place, so that a rectangle is as many parts as rows. Copy it row by row, with
/// `from.slice(row)?.copy_to(&to.slice(row)?)`, which moves no other bytes, or read the range that has all rows.
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

/// A buffer argument of a launch: a [`Buffer`] of the context or a part of it, a [`DeviceBuffer`], a slice of a
/// [`DeviceBuffer`], or live words.
#[derive(Debug, Clone)]
pub struct BufferArgument(pub(crate) Passing);

#[derive(Debug, Clone)]
pub(crate) enum Passing {
    /// Memory of one device.
    Here(BufferView),
    /// A part of a context's buffer, to be brought to the launch's device.
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
        extensions: &Arc<ContextExtensions>,
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
        extensions: &Arc<ContextExtensions>,
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

    /// Values in the buffer or part.
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

    /// A part of the buffer, in elements; parts of parts are parts. A part may begin anywhere: where an adapter cannot
    /// bind at the part's offset, the launch works on a staged copy, and only the bytes of the part come back.
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
    /// [`BufferError::ElementSize`] if the bytes are no whole number of values; [`BufferError::ZeroSized`].
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

    /// Figures of moved and avoided bytes for the whole buffer. Zeros in a callback of wgpu run by a command on this
    /// buffer.
    pub fn statistics(&self) -> BufferStatistics {
        let Some(state) = self.root.look() else {
            return BufferStatistics::default();
        };
        BufferStatistics {
            moves: state.residency.counters(),
            ..state.statistics
        }
    }

    /// The places with the latest bytes of this part, in words and as ranges of bytes of the whole buffer; bytes never
    /// written, and discarded bytes, are left out. Empty in a callback of wgpu run by a command on this buffer.
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
        let names = |content| match content {
            super::migrate::Content::At(places) => places
                .iter()
                .map(|place| state.devices.name_of(place).to_string())
                .collect(),
            super::migrate::Content::Lost(place) => {
                vec![format!("lost with {}", state.devices.name_of(place))]
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
    /// The moves made for this launch, with reasons: see [`Launch::explain`](crate::Launch::explain). `None` for
    /// commands without a buffer of the context.
    pub fn explanation(&self) -> Option<&LaunchExplanation> {
        self.hook()
    }
}
