//! The memory of a context: the shared heap, and buffers for all devices.

use bytemuck::Pod;

use super::Context;
use crate::memory::{
    Buffer, BufferError, BufferStatistics, ExchangeMemory, HeapError, MemoryError, PinnedVec,
    Placement, Ptr, SharedHeap, host_memory,
};

impl Context {
    /// The heap shared by the host and the devices of this context; made on first use.
    ///
    /// # Errors
    /// [`HeapError::NoWindow`] where the system has no address space for a heap.
    pub fn heap(&self) -> Result<SharedHeap, HeapError> {
        self.shared.extensions.heap.heap()
    }

    /// A buffer of `len` zeroed values for every device of this context; for a single device there is
    /// [`Device::zeroed`](crate::Device::zeroed). Nothing is allocated before the first command using the buffer.
    ///
    /// # Errors
    /// [`BufferError::ZeroSized`].
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>, BufferError> {
        self.buffer_with(len, Placement::Auto)
    }

    /// The same as [`Context::zeroed`]: takes a length, where [`Device::buffer`](crate::Device::buffer) takes values. The
    /// buffer of a context with values is [`Context::buffer_from`].
    ///
    /// # Errors
    /// As [`Context::zeroed`].
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>, BufferError> {
        self.zeroed(len)
    }

    /// As [`Context::zeroed`], with a place for the bytes.
    ///
    /// # Errors
    /// As [`Context::zeroed`].
    pub fn buffer_with<T: Pod>(
        &self,
        len: usize,
        placement: Placement,
    ) -> Result<Buffer<T>, BufferError> {
        Buffer::new(&self.shared.extensions, len, placement, None)
    }

    /// A buffer with a copy of `values`, in memory of the host until used by a device.
    /// [`Device::buffer_from`](crate::Device::buffer_from) makes a buffer for a single device.
    ///
    /// # Errors
    /// As [`Context::zeroed`], and [`BufferError::Memory`] where the host has no memory for the copy.
    pub fn buffer_from<T: Pod + Send + Sync>(
        &self,
        values: &[T],
    ) -> Result<Buffer<T>, BufferError> {
        self.buffer_from_vec(host_memory::copied("a buffer", values)?)
    }

    /// A buffer with `values` as memory on the host, taken without a copy.
    ///
    /// # Errors
    /// As [`Context::zeroed`].
    pub fn buffer_from_vec<T: Pod + Send + Sync>(
        &self,
        values: Vec<T>,
    ) -> Result<Buffer<T>, BufferError> {
        self.buffer_from_vec_with(values, Placement::Auto)
    }

    /// As [`Context::buffer_from_vec`], with a place for the bytes.
    ///
    /// # Errors
    /// As [`Context::zeroed`].
    pub fn buffer_from_vec_with<T: Pod + Send + Sync>(
        &self,
        values: Vec<T>,
        placement: Placement,
    ) -> Result<Buffer<T>, BufferError> {
        let len = values.len();
        Buffer::new(
            &self.shared.extensions,
            len,
            placement,
            Some(Box::new(values)),
        )
    }

    /// A buffer over `len` values of this context's heap, in place (`use host pointer`): kernels following pointers to
    /// the values see the same memory. The allocation has to live as long as launches use the buffer.
    ///
    /// # Errors
    /// [`BufferError::Heap`] where the values do not lie in a single live allocation; [`BufferError::ZeroSized`].
    pub fn buffer_in<T: Pod>(&self, ptr: Ptr<T>, len: usize) -> Result<Buffer<T>, BufferError> {
        Buffer::in_heap(&self.shared.extensions, self.heap()?, ptr, len)
    }

    /// `len` zeroed values in memory for copies by devices, in both directions, without staging memory.
    ///
    /// # Errors
    /// As [`PinnedVec::zeroed`].
    pub fn pinned_vec<T: Pod>(&self, len: usize) -> Result<PinnedVec<T>, MemoryError> {
        PinnedVec::zeroed(len)
    }

    /// Counts of moved and unmoved bytes for all buffers of this context.
    pub fn buffer_statistics(&self) -> BufferStatistics {
        self.shared.extensions.buffers.statistics()
    }

    /// The host's memory through which the devices of this context pass bytes of buffers to each other. Nothing where
    /// they have no such memory: where a device imports none, bytes go through copies of the host.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = tombolo::Context::new()?;
    /// let device = context.device()?;
    /// println!("{} bytes wait for the next transfer", context.exchange_memory().idle_bytes);
    /// device.trim_buffer_blocks();
    /// # Ok(())
    /// # }
    /// ```
    pub fn exchange_memory(&self) -> ExchangeMemory {
        self.shared.extensions.buffers.exchange_memory()
    }
}
