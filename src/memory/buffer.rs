//! Typed buffers of a single device.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::{Arc, Mutex};

use bytemuck::Pod;

use super::MemoryError;
use super::places::{Place, check_words, is_in_words};
use super::rect::rows::Rows;
use super::staging;
use crate::device::outcome::{Outcome, Taint};
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared, unique_id};

/// The usages of every buffer made by the runtime: all of compute's needs and nothing that would
/// move the buffer to another kind of memory.
pub(crate) const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::UNIFORM)
    .union(wgpu::BufferUsages::INDIRECT)
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// A buffer of `len` values of `T` in the memory of one device. Made by [`Device::zeroed`] and [`Device::buffer_from`].
///
/// The everyday buffer: what a program with one device needs. Where several devices, or a device and the host, work on
/// the same array in turns, or more arrays exist than fit on a device, take a [`Buffer`](crate::Buffer) of the context,
/// whose bytes travel by themselves.
///
/// Slices ([`DeviceBuffer::slice`]) that are apart may be given to one launch together, whichever of them its kernel
/// writes; slices with bytes in common only where the kernel writes neither
/// ([`LaunchError::Aliased`](crate::launch::LaunchError::Aliased)).
///
/// Handles are cheap to clone; the memory is freed when the last handle, and the last command using the memory, is
/// gone. Commands on buffers run in the order of their recording.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    pub(crate) shared: Arc<BufferShared>,
    pub(crate) len: u64,
    element: PhantomData<fn() -> T>,
}

pub(crate) struct BufferShared {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) raw: wgpu::Buffer,
    pub(crate) id: u64,
    /// The buffer is a part of the shared heap.
    pub(crate) is_heap: bool,
    /// Host and running kernels see the words at the same time ([`LiveBuffer`](super::live::LiveBuffer)).
    pub(crate) is_live: bool,
    /// The runtime has made the buffer for itself on an embedded device, never to be mapped.
    #[cfg(embedded)]
    pub(crate) is_own: bool,
    /// Shared by all buffers of the same memory.
    taint: Arc<Mutex<Taint>>,
}

impl BufferShared {
    pub(crate) fn new(
        device: &Arc<DeviceShared>,
        raw: wgpu::Buffer,
        id: u64,
        is_heap: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            raw,
            id,
            is_heap,
            is_live: false,
            #[cfg(embedded)]
            is_own: false,
            taint: Arc::default(),
        })
    }

    /// Another device's view of the same memory as `known`.
    pub(crate) fn beside(
        device: &Arc<DeviceShared>,
        raw: wgpu::Buffer,
        id: u64,
        known: &Self,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            raw,
            id,
            is_heap: false,
            is_live: false,
            #[cfg(embedded)]
            is_own: false,
            taint: Arc::clone(&known.taint),
        })
    }

    pub(crate) fn poison(&self, range: Range<u64>, outcome: &Arc<Outcome>) {
        lock(&self.taint).add(range, outcome);
    }

    pub(crate) fn overwritten(&self, range: &Range<u64>) {
        let mut taint = lock(&self.taint);
        if !taint.is_empty() {
            taint.overwrite(range);
        }
    }

    /// As [`Self::poison`], for rows.
    pub(crate) fn poison_rows(&self, rows: &Rows, outcome: &Arc<Outcome>) {
        lock(&self.taint).add_each((0..rows.count()).map(|row| rows.row(row)), outcome);
    }

    /// As [`Self::overwritten`], for rows.
    pub(crate) fn overwritten_rows(&self, rows: &Rows) {
        let rows = *rows;
        let mut taint = lock(&self.taint);
        taint.overwrite_each(|old| rows.meeting(old).map(move |row| rows.row(row)));
    }

    /// As [`Self::depends_on`], for rows.
    pub(crate) fn depends_on_rows(&self, rows: &Rows) -> Vec<Arc<Outcome>> {
        lock(&self.taint).touching_any(|old| !rows.meeting(old).is_empty())
    }

    /// Uncertainty of `range` passes to as many bytes of another buffer, from `at` on, the target of a copy.
    pub(crate) fn hand_taint(&self, range: &Range<u64>, to: &Self, at: u64) {
        let moved = lock(&self.taint).moved(range, at);
        *lock(&to.taint) = moved;
    }

    /// The launches of uncertain or bad outcome that wrote into `range`.
    pub(crate) fn depends_on(&self, range: &Range<u64>) -> Vec<Arc<Outcome>> {
        let mut taint = lock(&self.taint);
        if taint.is_empty() {
            Vec::new()
        } else {
            taint.touching(range)
        }
    }
}

impl Drop for BufferShared {
    fn drop(&mut self) {
        // Parts of the heap come and go with each launch; the heap reports when a part is really gone.
        if let (Some(tell), false) = (self.device.buffer_gone.get(), self.is_heap) {
            tell(&self.device, self.id);
        }
    }
}

impl std::fmt::Debug for BufferShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("bytes", &self.raw.size())
            .finish_non_exhaustive()
    }
}

impl<T> Clone for DeviceBuffer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            len: self.len,
            element: PhantomData,
        }
    }
}

/// A range of a buffer, as an argument of a launch: `buffer.slice(0..1024)`.
#[derive(Debug, Clone)]
pub struct BufferView {
    pub(crate) shared: Arc<BufferShared>,
    /// First byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    pub(crate) element_bytes: usize,
    pub(crate) element: &'static str,
    /// The address, for parts of the shared heap; 0 elsewhere.
    pub(crate) address: u64,
    /// Elements asked for beyond the end of the buffer, reported when the launch is checked.
    pub(crate) out_of_range: Option<(u64, u64, u64)>,
    /// Whether the bytes behind the last one, up to the end of its word, are unused.
    pub(crate) padded: bool,
}

impl BufferView {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    /// Whether a kernel given whole words from a multiple of `alignment` on, itself a multiple of 4, gets exactly these
    /// bytes and unused ones.
    pub(crate) fn is_bindable(&self, alignment: u32) -> bool {
        self.offset.is_multiple_of(u64::from(alignment)) && is_in_words(&self.range(), self.padded)
    }

    /// The bytes, for a transfer.
    pub(crate) fn place(&self) -> Place {
        Place::in_buffer(&self.shared.raw, self.offset, self.padded)
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for BufferView {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        buffer.slice(..)
    }
}

impl From<&BufferView> for BufferView {
    fn from(view: &BufferView) -> Self {
        view.clone()
    }
}

/// Resolves any range expression against `len` elements, without checking its end.
pub(crate) fn bounds(range: impl RangeBounds<u64>, len: u64) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    start..end
}

impl Device {
    /// Makes a buffer of `len` zeroed values. [`Context::zeroed`](crate::Context::zeroed) makes one for all devices of a
    /// context.
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`], [`MemoryError::OutOfMemory`], [`MemoryError::ZeroSized`];
    /// [`MemoryError::Execution`] where the device is lost.
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, MemoryError> {
        DeviceBuffer::allocate(&self.shared, len as u64)
    }

    /// As [`Device::zeroed`], with a label: the name in the driver's debug layers, in debuggers of graphics and in wgpu's own
    /// messages. Buffers without a label are all called `tombolo buffer` there.
    ///
    /// # Errors
    /// As [`Device::zeroed`].
    pub fn zeroed_labelled<T: Pod>(
        &self,
        label: &str,
        len: usize,
    ) -> Result<DeviceBuffer<T>, MemoryError> {
        DeviceBuffer::allocate_labelled(&self.shared, Some(label), len as u64)
    }

    /// Makes a buffer with a copy of `values`. Takes values, where [`Context::buffer`](crate::Context::buffer) takes a
    /// length: [`Device::buffer_from`] and [`Context::buffer_from`](crate::Context::buffer_from) are called alike.
    ///
    /// # Errors
    /// As [`Device::zeroed`].
    pub fn buffer<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, MemoryError> {
        let buffer = self.zeroed(values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// As [`Device::buffer`], with a label for debuggers: see [`Device::zeroed_labelled`].
    ///
    /// # Errors
    /// As [`Device::zeroed`].
    pub fn buffer_labelled<T: Pod>(
        &self,
        label: &str,
        values: &[T],
    ) -> Result<DeviceBuffer<T>, MemoryError> {
        let buffer = self.zeroed_labelled(label, values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// The same as [`Device::buffer`], under the name of its likeness on a context,
    /// [`Context::buffer_from`](crate::Context::buffer_from).
    ///
    /// # Errors
    /// As [`Device::zeroed`].
    pub fn buffer_from<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, MemoryError> {
        self.buffer(values)
    }

    /// Takes a wgpu buffer of this device over, as `size / size_of::<T>()` values of `T`. The
    /// buffer stays usable outside; call [`Device::flush`] before the program's own commands use
    /// the buffer.
    ///
    /// # Errors
    /// [`MemoryError::ElementSize`] when its size is no multiple of the element's. Missing usages
    /// are reported by the commands in need of them.
    pub fn import<T: Pod>(&self, raw: wgpu::Buffer) -> Result<DeviceBuffer<T>, MemoryError> {
        let element_bytes = size_of::<T>();
        let bytes = raw.size();
        if element_bytes == 0 {
            return Err(MemoryError::ZeroSized {
                element: std::any::type_name::<T>(),
            });
        }
        if !bytes.is_multiple_of(element_bytes as u64) {
            return Err(MemoryError::ElementSize {
                bytes,
                element: std::any::type_name::<T>(),
                element_bytes,
            });
        }
        Ok(DeviceBuffer::wrap(
            &self.shared,
            raw,
            bytes / element_bytes as u64,
        ))
    }
}

impl<T: Pod> DeviceBuffer<T> {
    pub(crate) fn wrap(device: &Arc<DeviceShared>, raw: wgpu::Buffer, len: u64) -> Self {
        Self {
            shared: BufferShared::new(device, raw, unique_id(), false),
            len,
            element: PhantomData,
        }
    }

    /// Around live words.
    pub(super) fn live(device: &Arc<DeviceShared>, raw: wgpu::Buffer, len: u64) -> Self {
        Self {
            shared: Arc::new(BufferShared {
                device: Arc::clone(device),
                raw,
                id: unique_id(),
                is_heap: false,
                is_live: true,
                #[cfg(embedded)]
                is_own: false,
                taint: Arc::default(),
            }),
            len,
            element: PhantomData,
        }
    }

    pub(crate) fn allocate(device: &Arc<DeviceShared>, len: u64) -> Result<Self, MemoryError> {
        Self::allocate_labelled(device, None, len)
    }

    fn allocate_labelled(
        device: &Arc<DeviceShared>,
        label: Option<&str>,
        len: u64,
    ) -> Result<Self, MemoryError> {
        let name = || device.capabilities.name.clone();
        let element = size_of::<T>() as u64;
        if element == 0 {
            return Err(MemoryError::ZeroSized {
                element: std::any::type_name::<T>(),
            });
        }
        let limit = device.limits.max_buffer_size;
        let bytes = len.saturating_mul(element);
        if bytes > limit {
            return Err(MemoryError::TooLarge {
                bytes,
                limit,
                device: name(),
            });
        }
        // wgpu copies and clears whole words, and binds nothing of size zero.
        let size = bytes.next_multiple_of(4).max(4);
        let raw = staging::make(
            device,
            "creating a buffer",
            &wgpu::BufferDescriptor {
                label: label.or(Some("tombolo buffer")),
                size,
                usage: USAGE,
                mapped_at_creation: false,
            },
        )?;
        device.submissions.made(&raw).map_err(Arc::new)?;
        Ok(Self {
            shared: Arc::new(BufferShared {
                device: Arc::clone(device),
                raw,
                id: unique_id(),
                is_heap: false,
                is_live: false,
                #[cfg(embedded)]
                is_own: device.capabilities.backend == crate::device::embedded::BACKEND,
                taint: Arc::default(),
            }),
            len,
            element: PhantomData,
        })
    }

    /// Values in the buffer.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when the buffer holds no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The wgpu buffer, for the program's own commands. Call [`Device::flush`] first.
    pub fn raw(&self) -> &wgpu::Buffer {
        &self.shared.raw
    }

    /// The device that the buffer belongs to.
    pub fn device(&self) -> Device {
        Device {
            shared: Arc::clone(&self.shared.device),
        }
    }

    /// A range of the buffer, in elements, as an argument of a launch, which checks the bounds. The range may begin and
    /// end at any byte: where the adapter cannot bind the range, because of its offset or an end inside a word of 4
    /// bytes, the launch works on a copy, and exactly the bytes of the range come back
    /// ([`TransferStatistics::staged_arguments`](crate::buffers::TransferStatistics::staged_arguments) counts such arguments).
    pub fn slice(&self, range: impl RangeBounds<u64>) -> BufferView {
        let range = bounds(range, self.len);
        let element = size_of::<T>() as u64;
        let fits = range.start <= range.end && range.end <= self.len;
        let start = range.start.min(self.len);
        BufferView {
            shared: Arc::clone(&self.shared),
            offset: start * element,
            bytes: range.end.min(self.len).saturating_sub(start) * element,
            element_bytes: size_of::<T>(),
            element: std::any::type_name::<T>(),
            address: 0,
            out_of_range: (!fits).then_some((range.start, range.end, self.len)),
            padded: self.is_padded(range.end.min(self.len) * element),
        }
    }

    /// Whether nothing lies behind byte `end` of the buffer in its word, which is all there.
    fn is_padded(&self, end: u64) -> bool {
        end == self.len * size_of::<T>() as u64 && end.next_multiple_of(4) <= self.shared.raw.size()
    }

    /// Where a range of bytes lies, which is not empty. Behind the last element there is only padding.
    ///
    /// # Errors
    /// [`MemoryError::Misaligned`].
    pub(crate) fn place(
        &self,
        what: &'static str,
        range: &Range<u64>,
    ) -> Result<Place, MemoryError> {
        check_words(what, range, self.shared.raw.size())?;
        let padded = self.is_padded(range.end);
        Ok(Place::in_buffer(&self.shared.raw, range.start, padded))
    }

    /// Declares the contents good again after a failed launch, whatever the contents: the error of
    /// a read is dropped.
    pub fn clear_error(&self) {
        self.shared.overwritten(&(0..u64::MAX));
    }

    /// Checks an element range and turns the range into bytes.
    pub(crate) fn byte_range(
        &self,
        what: &'static str,
        start: u64,
        count: u64,
    ) -> Result<Range<u64>, MemoryError> {
        let end = start.saturating_add(count);
        if end > self.len {
            return Err(MemoryError::OutOfRange {
                what,
                start,
                end,
                len: self.len,
            });
        }
        let element = size_of::<T>() as u64;
        Ok(start * element..end * element)
    }

    pub(crate) fn needs(
        &self,
        what: &'static str,
        needed: wgpu::BufferUsages,
    ) -> Result<(), MemoryError> {
        let usage = self.shared.raw.usage();
        if usage.contains(needed) {
            Ok(())
        } else {
            Err(MemoryError::MissingUsage {
                what,
                needed,
                usage,
            })
        }
    }
}
