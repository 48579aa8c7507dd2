//! Copies between a device global and what else holds values: memory behind a pointer, a buffer of the context, another
//! device global.
//!
//! Copies on the device go through a buffer of the size of the copy, which carries the outcomes of the launches that
//! wrote the source: the account of good bytes is kept by whoever keeps the source and the target. The buffer costs a
//! second copy, in the same batch. Buffers of a context have their bytes wherever they were used last; copies with them
//! go through the host.

use bytemuck::Pod;

use super::typed::bytes_of;
use super::{AccessKind, GlobalError, GlobalOn, HostReads, HostWrites, ScopeKind};
use crate::device::Event;
use crate::memory::{Buffer, BufferError, DeviceBuffer, HeapError, MemoryError, Ptr};

impl<T: Pod, A: AccessKind, S: ScopeKind> GlobalOn<'_, T, A, S> {
    /// A buffer of the device for `count` elements on their way from or to element `start`.
    fn between<E: Pod>(
        &self,
        what: &'static str,
        start: usize,
        count: usize,
    ) -> Result<DeviceBuffer<E>, GlobalError> {
        // Before there is memory for nothing.
        (self.target(what)?).range(what, bytes_of::<E>(start), bytes_of::<E>(count))?;
        let buffer = DeviceBuffer::allocate(self.device_shared(), count as u64);
        buffer.map_err(|source| self.refused(source))
    }

    fn heap_refused(&self, source: HeapError) -> GlobalError {
        GlobalError::Heap {
            name: self.name().to_owned(),
            source,
        }
    }

    fn context_refused(&self, source: BufferError) -> GlobalError {
        GlobalError::ContextBuffer {
            name: self.name().to_owned(),
            source,
        }
    }
}

impl<T: Pod, A: HostReads, S: ScopeKind> GlobalOn<'_, T, A, S> {
    /// Copies `count` elements from element `start` on to memory behind `to`, in the heap or in the device's own
    /// memory, on the device. Zero elements are never an error.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_to_buffer`]; [`GlobalError::Heap`] for a pointer into no such memory, or with too few
    /// elements behind.
    pub fn copy_to_pointer<E: Pod>(
        &self,
        start: usize,
        to: Ptr<E>,
        count: usize,
    ) -> Result<Event, GlobalError> {
        let between = self.between::<E>("a copy to a pointer", start, count)?;
        let copied = self.copy_to_buffer(start, &between, 0, count)?;
        if count == 0 {
            return Ok(copied);
        }
        let copied = between.copy_to_heap(0, to, count as u64);
        copied.map_err(|source| self.heap_refused(source))
    }

    /// Copies `count` elements from element `start` on to a buffer of the context, from its element `to` on; waits until
    /// everything recorded before is done.
    ///
    /// # Errors
    /// As [`GlobalOn::read`]; [`GlobalError::Invalid`] beyond the end; [`GlobalError::ContextBuffer`] with the fault of
    /// the buffer.
    pub fn copy_to_context_buffer<E: Pod>(
        &self,
        start: usize,
        buffer: &Buffer<E>,
        to: usize,
        count: usize,
    ) -> Result<(), GlobalError> {
        let values = self.copy_out::<E>(start, count)?.wait();
        let values = values.map_err(|source| GlobalError::Read {
            name: self.name().to_owned(),
            source,
        })?;
        let written = buffer.write(to as u64, &values);
        let written = written.map_err(|source| self.context_refused(source));
        written.map(|_| ())
    }

    /// Copies `count` elements from element `start` on to another variable of the same device, from its element `to`
    /// on, on the device. Both may be one variable, and the ranges may overlap.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_to_buffer`], for either variable; [`GlobalError::Buffer`] with
    /// [`MemoryError::OtherDevice`] for variables of different devices.
    pub fn copy_to_global<E: Pod, U: Pod, B: HostWrites, R: ScopeKind>(
        &self,
        start: usize,
        other: &GlobalOn<'_, U, B, R>,
        to: usize,
        count: usize,
    ) -> Result<Event, GlobalError> {
        let (own, others) = (self.device_shared(), other.device_shared());
        if !std::sync::Arc::ptr_eq(own, others) {
            return Err(self.refused(MemoryError::OtherDevice {
                what: "a copy to another device global",
                first: own.capabilities.name.clone(),
                second: others.capabilities.name.clone(),
            }));
        }
        let between = self.between::<E>("a copy to another device global", start, count)?;
        self.copy_to_buffer(start, &between, 0, count)?;
        other.copy_from_buffer(to, &between, 0, count)
    }
}

impl<T: Pod, A: HostWrites, S: ScopeKind> GlobalOn<'_, T, A, S> {
    /// Copies `count` elements behind `from`, in the heap or in the device's own memory, to the elements from `start`
    /// on, on the device. Zero elements are never an error.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_to_pointer`].
    pub fn copy_from_pointer<E: Pod>(
        &self,
        start: usize,
        from: Ptr<E>,
        count: usize,
    ) -> Result<Event, GlobalError> {
        let between = self.between::<E>("a copy from a pointer", start, count)?;
        if count > 0 {
            let copied = between.copy_from_heap(0, from, count as u64);
            copied.map_err(|source| self.heap_refused(source))?;
        }
        self.copy_from_buffer(start, &between, 0, count)
    }

    /// Copies `count` elements of a buffer of the context, from its element `from` on, to the elements from `start` on.
    /// Waits for the bytes of the buffer.
    ///
    /// # Errors
    /// As [`GlobalOn::copy_in`]; [`GlobalError::ContextBuffer`] with the fault of the buffer.
    pub fn copy_from_context_buffer<E: Pod>(
        &self,
        start: usize,
        buffer: &Buffer<E>,
        from: usize,
        count: usize,
    ) -> Result<Event, GlobalError> {
        let from = from as u64;
        let values = buffer.read_range(from..from.saturating_add(count as u64));
        let values = values.map_err(|source| self.context_refused(source))?;
        self.copy_in(&values, start)
    }
}
