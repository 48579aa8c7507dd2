//! Commands on the instance of a declared variable.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::transfer::Target;
use super::{
    AccessKind, DeviceGlobal, GlobalError, HostReads, HostWrites, ScopeKind, WaitList, scope,
};
use crate::device::{Device, DeviceShared, Event};
use crate::memory::places::{Place, needed_of_target};
use crate::memory::{DeviceBuffer, MemoryError, Ptr, ReadBack};

/// A device global on a device, from [`DeviceGlobal::on`], with the events its next commands wait for.
///
/// Commands go into the device's open batch, in the order of its queue, and come back at once with an [`Event`] or a
/// [`ReadBack`]; `wait()` on either makes them blocking. Copies to and from a [`DeviceBuffer`] stay in the batch.
/// Ranges are checked before anything is recorded: a range reaching beyond the variable is [`GlobalError::Invalid`].
///
/// | SYCL | here |
/// | --- | --- |
/// | `copy(src, global, count, start)` | [`copy_in`](GlobalOn::copy_in) |
/// | `copy(global, dst, count, start)` | [`copy_out`](GlobalOn::copy_out) |
/// | `memcpy(global, src, bytes, offset)` | [`memcpy_in`](GlobalOn::memcpy_in) |
/// | `memcpy(dst, global, bytes, offset)` | [`memcpy_out`](GlobalOn::memcpy_out) |
/// | the same with USM pointers | [`copy_from_pointer`](GlobalOn::copy_from_pointer), [`copy_to_pointer`](GlobalOn::copy_to_pointer) |
/// | with `depEvent(s)` | [`after`](GlobalOn::after) |
#[must_use = "nothing happens until a command is called"]
pub struct GlobalOn<'a, T: 'static, A, S> {
    global: &'a DeviceGlobal<T, A, S>,
    device: Arc<DeviceShared>,
    after: WaitList<'a>,
}

impl<T, A, S> std::fmt::Debug for GlobalOn<'_, T, A, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GlobalOn")
            .field("global", &self.global)
            .field("device", &self.device.capabilities.name)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// Bytes of `count` elements. More than fit a number are beyond any variable, too.
pub(super) fn bytes_of<E>(count: usize) -> u64 {
    (count as u64).saturating_mul(size_of::<E>() as u64)
}

impl<'a, T: Pod, A: AccessKind, S: ScopeKind> GlobalOn<'a, T, A, S> {
    pub(super) fn new(global: &'a DeviceGlobal<T, A, S>, device: &Device) -> Self {
        let device = Arc::clone(&device.shared);
        Self {
            global,
            device,
            after: WaitList::default(),
        }
    }

    /// Lets the following commands wait for these events too, as [`Device::after`] does: the queue's order covers
    /// events of the same device, and the calling thread waits for events of other devices. A failed event of another
    /// device makes the command [`GlobalError::Dependency`].
    pub fn after(mut self, events: impl IntoIterator<Item = &'a Event>) -> Self {
        self.after.0.extend(events);
        self
    }

    pub(super) fn device_shared(&self) -> &Arc<DeviceShared> {
        &self.device
    }

    pub(super) fn name(&self) -> &'static str {
        self.global.name()
    }

    pub(super) fn target(&self, what: &'static str) -> Result<Target<'_>, GlobalError> {
        Target::of(&self.device, what, &self.global.declaration())
    }
}

impl<T: Pod, A: AccessKind> GlobalOn<'_, T, A, scope::PerDevice> {
    /// The variable's place on the device: a pointer for kernels of this device to follow (`usm_<Type>(p)`), for shared
    /// structures, and for [`Launch::pointer`](crate::Launch::pointer). The address stays the same during the life of
    /// the device. Kernels get the same with `usm_address(&variable)`.
    ///
    /// # Errors
    /// [`GlobalError::Conflict`]; [`GlobalError::Heap`] where the device lacks room.
    pub fn address(&self) -> Result<Ptr<T>, GlobalError> {
        let target = self.target("taking the address")?;
        match target.placed() {
            Some(placed) => {
                placed.escape();
                Ok(placed.address.cast())
            }
            None => Err(GlobalError::NoAddress {
                name: self.global.name().to_owned(),
            }),
        }
    }
}

impl<T: Pod, A: HostReads, S: ScopeKind> GlobalOn<'_, T, A, S> {
    /// Reads the whole variable; waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`GlobalError::Read`] with the failure of the writing launch; [`GlobalError::Conflict`],
    /// [`GlobalError::SeveralModules`], [`GlobalError::Heap`].
    pub fn read(&self) -> Result<T, GlobalError> {
        let values = self.values::<T>("reading", 0, size_of::<T>() as u64)?;
        values.first().copied().ok_or_else(|| self.empty("reading"))
    }

    /// Starts reading the whole variable and returns at once.
    ///
    /// # Errors
    /// As [`GlobalOn::read`].
    pub fn read_back(&self) -> Result<ReadBack<T>, GlobalError> {
        let bytes = size_of::<T>() as u64;
        Ok(self
            .target("reading")?
            .read("reading", 0, bytes, &self.after)?
            .cast())
    }

    /// Starts copying `count` elements from element `start` on to the host. The size of an element must divide that of
    /// the variable, which the compiler checks.
    ///
    /// # Errors
    /// [`GlobalError::Invalid`] beyond the end; otherwise as [`GlobalOn::read`].
    pub fn copy_out<E: Pod>(&self, start: usize, count: usize) -> Result<ReadBack<E>, GlobalError> {
        const {
            assert!(
                divides::<E, T>(),
                "the size of the element must divide that of the variable"
            )
        }
        const WHAT: &str = "a copy to the host";
        let (start, bytes) = (bytes_of::<E>(start), bytes_of::<E>(count));
        Ok(self
            .target(WHAT)?
            .read(WHAT, start, bytes, &self.after)?
            .cast())
    }

    /// Starts copying `bytes` bytes from byte `offset` on to the host, at any alignment.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_out`].
    pub fn memcpy_out(&self, offset: usize, bytes: usize) -> Result<ReadBack<u8>, GlobalError> {
        const WHAT: &str = "a memcpy to the host";
        self.target(WHAT)?
            .read(WHAT, offset as u64, bytes as u64, &self.after)
    }

    /// Copies `count` elements from element `start` on into `buffer` from its element `to` on, on the device.
    ///
    /// # Errors
    /// [`GlobalError::Invalid`] beyond the end of the variable; [`GlobalError::Buffer`] with the fault of the buffer;
    /// [`GlobalError::NotOnDevice`] for a variable of image scope that no module names yet.
    pub fn copy_to_buffer<E: Pod>(
        &self,
        start: usize,
        buffer: &DeviceBuffer<E>,
        to: usize,
        count: usize,
    ) -> Result<Event, GlobalError> {
        const WHAT: &str = "a copy to a buffer";
        let start = bytes_of::<E>(start);
        let (range, place) = self.buffer_range(WHAT, buffer, to, count)?;
        if let Some(place) = &place {
            // The variable lies at a multiple of 4, and other data may follow.
            let needed = needed_of_target((start, false), place, range.end - range.start);
            (buffer.needs(WHAT, needed)).map_err(|source| self.refused(source))?;
        }
        let to = (&*buffer.shared, range, place.as_ref());
        (self.target(WHAT)?).read_into(WHAT, start, to, &self.after)
    }

    fn values<E: Pod>(
        &self,
        what: &'static str,
        start: u64,
        bytes: u64,
    ) -> Result<Vec<E>, GlobalError> {
        let target = self.target(what)?;
        let values = target.read(what, start, bytes, &self.after)?.cast();
        values.wait().map_err(|error| target.unreadable(error))
    }

    fn empty(&self, what: &'static str) -> GlobalError {
        let bytes = size_of::<T>() as u64;
        GlobalError::Invalid {
            name: self.global.name().to_owned(),
            what,
            start: 0,
            end: bytes,
            bytes,
        }
    }
}

impl<T: Pod, A: HostWrites, S: ScopeKind> GlobalOn<'_, T, A, S> {
    /// Writes the whole variable. The value is taken at once.
    ///
    /// # Errors
    /// [`GlobalError::Conflict`], [`GlobalError::SeveralModules`], [`GlobalError::Heap`].
    pub fn write(&self, value: &T) -> Result<Event, GlobalError> {
        let bytes = bytemuck::bytes_of(value);
        self.target("writing")?
            .write("writing", 0, bytes, &self.after)
    }

    /// Copies values of the host to the elements from `start` on. The values are taken at once. The size of an element
    /// must divide that of the variable, which the compiler checks:
    ///
    /// ```compile_fail,E0080
    /// use tombolo::{Device, DeviceGlobal};
    /// static TABLE: DeviceGlobal<[u32; 4]> = DeviceGlobal::new("table");
    /// fn copy(device: &Device) { let _ = TABLE.on(device).copy_in(&[[0u32; 3]], 0); }
    /// fn main() { std::hint::black_box(copy as fn(&Device)); }
    /// ```
    ///
    /// # Errors
    /// [`GlobalError::Invalid`] beyond the end; otherwise as [`GlobalOn::write`].
    pub fn copy_in<E: Pod>(&self, values: &[E], start: usize) -> Result<Event, GlobalError> {
        const {
            assert!(
                divides::<E, T>(),
                "the size of the element must divide that of the variable"
            )
        }
        const WHAT: &str = "a copy from the host";
        let bytes = bytemuck::cast_slice(values);
        self.target(WHAT)?
            .write(WHAT, bytes_of::<E>(start), bytes, &self.after)
    }

    /// Copies bytes of the host to the variable from byte `offset` on, at any alignment. The values are taken at once.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_in`].
    pub fn memcpy_in(&self, bytes: &[u8], offset: usize) -> Result<Event, GlobalError> {
        const WHAT: &str = "a memcpy from the host";
        self.target(WHAT)?
            .write(WHAT, offset as u64, bytes, &self.after)
    }

    /// Copies `count` elements of `buffer` from its element `from` on to the elements from `start` on, on the device.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_to_buffer`].
    pub fn copy_from_buffer<E: Pod>(
        &self,
        start: usize,
        buffer: &DeviceBuffer<E>,
        from: usize,
        count: usize,
    ) -> Result<Event, GlobalError> {
        const WHAT: &str = "a copy from a buffer";
        let (range, place) = self.buffer_range(WHAT, buffer, from, count)?;
        let needed = wgpu::BufferUsages::COPY_SRC;
        (buffer.needs(WHAT, needed)).map_err(|source| self.refused(source))?;
        let from = (&*buffer.shared, range, place.as_ref());
        (self.target(WHAT)?).write_from(WHAT, bytes_of::<E>(start), from, &self.after)
    }
}

impl<T: Pod, A: AccessKind, S: ScopeKind> GlobalOn<'_, T, A, S> {
    pub(super) fn refused(&self, source: MemoryError) -> GlobalError {
        GlobalError::Buffer {
            name: self.global.name().to_owned(),
            source,
        }
    }

    /// A range of elements in bytes, and its place unless empty.
    fn buffer_range<E: Pod>(
        &self,
        what: &'static str,
        buffer: &DeviceBuffer<E>,
        start: usize,
        count: usize,
    ) -> Result<(Range<u64>, Option<Place>), GlobalError> {
        const {
            assert!(
                divides::<E, T>(),
                "the size of the element must divide that of the variable"
            )
        }
        if !Arc::ptr_eq(&self.device, &buffer.shared.device) {
            return Err(self.refused(MemoryError::OtherDevice {
                what,
                first: self.device.capabilities.name.clone(),
                second: buffer.shared.device.capabilities.name.clone(),
            }));
        }
        let range = (buffer.byte_range(what, start as u64, count as u64))
            .map_err(|source| self.refused(source))?;
        let place = match range.is_empty() {
            true => None,
            false => Some((buffer.place(what, &range)).map_err(|source| self.refused(source))?),
        };
        Ok((range, place))
    }
}

impl<E: Pod, const N: usize, A: HostReads, S: ScopeKind> GlobalOn<'_, [E; N], A, S>
where
    [E; N]: Pod,
{
    /// Reads one element; waits until everything recorded before is done.
    ///
    /// # Errors
    /// [`GlobalError::Invalid`] beyond the end; otherwise as [`GlobalOn::read`].
    pub fn get(&self, index: usize) -> Result<E, GlobalError> {
        const WHAT: &str = "reading an element";
        let values = self.values::<E>(WHAT, bytes_of::<E>(index), size_of::<E>() as u64)?;
        values.first().copied().ok_or_else(|| self.empty(WHAT))
    }
}

impl<E: Pod, const N: usize, A: HostWrites, S: ScopeKind> GlobalOn<'_, [E; N], A, S>
where
    [E; N]: Pod,
{
    /// Writes one element.
    ///
    /// # Errors
    /// [`GlobalError::Invalid`] beyond the end; otherwise as [`GlobalOn::write`].
    pub fn set(&self, index: usize, value: &E) -> Result<Event, GlobalError> {
        const WHAT: &str = "writing an element";
        let bytes = bytemuck::bytes_of(value);
        self.target(WHAT)?
            .write(WHAT, bytes_of::<E>(index), bytes, &self.after)
    }
}

const fn divides<E, T>() -> bool {
    size_of::<E>() != 0 && size_of::<T>().is_multiple_of(size_of::<E>())
}
