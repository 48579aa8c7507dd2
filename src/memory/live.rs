//! Live words: memory that the host and a running kernel see at the same time.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::buffer::{BufferView, DeviceBuffer};
use crate::device::live::{LiveBuffer as Mapped, LiveError, Reader};
use crate::device::words::Words;
use crate::device::{Aspect, Device};

/// 32-bit words in host-coherent memory, mapped for good: kernels reach the words as a storage buffer, and the host
/// reads and writes at any time, also during launches.
///
/// Host accesses are atomic, with acquire and release order; kernels use `atomic<u32>` for words with concurrent
/// changes. A read sees the words arrived by then, without flushing or waiting. [`Aspect::LiveMemory`] is the probe's
/// measurement of timely mutual visibility between host and kernels. The words stay readable for the host when the
/// device is lost.
///
/// Where the device has memory of its own the words lie there, in a window over the bus: the host's reads are slow. A
/// kernel polling a word until the host has written it needs a `storageBarrier()` between two looks, since an
/// `atomicLoad` alone may go on giving a cached value of the word. A word should have a writer on a single side, with
/// `atomicStore`, and a reader on the other: no atomic of a kernel is atomic for the host. Calls
/// ([`HostServices`](crate::HostServices)) take care of that by themselves.
#[derive(Debug)]
pub struct LiveBuffer {
    words: Mapped,
    buffer: DeviceBuffer<u32>,
}

impl Device {
    /// Makes `len` zeroed live words.
    ///
    /// # Errors
    /// [`LiveError::Unsupported`] on devices without [`Aspect::LiveMemory`], or opened with
    /// [`DeviceOptions::live_memory`](crate::DeviceOptions::live_memory) off; [`LiveError::Size`];
    /// [`LiveError::OutOfMemory`]; [`LiveError::DeviceLost`].
    pub fn live(&self, len: usize) -> Result<LiveBuffer, LiveError> {
        let shared = &self.shared;
        let backend = shared.capabilities.backend;
        if !self.has(Aspect::LiveMemory) {
            return Err(LiveError::Unsupported { backend });
        }
        if let Some(reason) = shared.lost.get() {
            return Err(LiveError::DeviceLost { reason });
        }
        let bytes = (len as u64).saturating_mul(4);
        let words = Mapped::new(&shared.raw, backend, Reader::Kernel, bytes, "live words")?;
        let buffer = DeviceBuffer::live(shared, words.buffer().clone(), len as u64);
        Ok(LiveBuffer { words, buffer })
    }
}

impl LiveBuffer {
    /// Number of words.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// True when there are no words, which [`Device::live`] never returns.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Reads a word now; `None` beyond the end.
    pub fn load(&self, index: usize) -> Option<u32> {
        self.words.load_u32((index as u64).checked_mul(4)?)
    }

    /// Writes a word now; `None` beyond the end.
    pub fn store(&self, index: usize, value: u32) -> Option<()> {
        self.words.store_u32((index as u64).checked_mul(4)?, value)
    }

    /// All words, for those who use many.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        self.words.words()
    }

    /// The words as a buffer, for transfers in the queue's order.
    pub fn as_buffer(&self) -> &DeviceBuffer<u32> {
        &self.buffer
    }

    /// The device that the words belong to.
    pub fn device(&self) -> Device {
        Device {
            shared: Arc::clone(&self.buffer.shared.device),
        }
    }
}

impl From<&LiveBuffer> for BufferView {
    fn from(live: &LiveBuffer) -> Self {
        (&live.buffer).into()
    }
}
