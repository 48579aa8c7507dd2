//! The memory of ports within the host's reach at all times, for both directions of calls: one memory of host and
//! kernels, a memory for the writes of each side, or memory of the host alone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::port::layout::LINE;
use super::port::words::{ClientWords, HostWords, Words, through};
use crate::device::live::{LiveBuffer, Reader};
use crate::device::words::Words as _;
use crate::device::{DeviceShared, LiveError};
use crate::memory::{MemoryError, host_memory};

/// Ports, and their belongings, as words. Reads are of kernels' writes, writes are for kernels to read.
pub(crate) enum PortMemory {
    /// Host and running kernels see the same words.
    Live(LiveBuffer),
    /// Two memories with a place for each word: `down` for the host's writes, where kernels poll, and `up` for the
    /// kernels' writes, where the host polls.
    Split { down: LiveBuffer, up: LiveBuffer },
    /// Words unseen by kernels.
    Host(OwnWords),
}

/// Words shared by threads of the host.
#[derive(Clone, Default)]
pub(crate) struct OwnWords(Arc<Vec<AtomicU32>>);

impl OwnWords {
    /// `len` words, all 0, in untouched memory. `what` names their use.
    ///
    /// # Errors
    /// [`MemoryError::HostMemory`].
    pub fn new(what: &'static str, len: usize) -> Result<Self, MemoryError> {
        Ok(Self(Arc::new(host_memory::zeroed(what, len)?)))
    }
}

impl Deref for OwnWords {
    type Target = HostWords;

    fn deref(&self) -> &HostWords {
        &self.0
    }
}

through!(OwnWords, [], []);

impl PortMemory {
    /// Live memory of a device; `up` is the label of the second memory, where the device is to have two.
    pub(crate) fn on_device(
        device: &DeviceShared,
        bytes: u64,
        down: &'static str,
        up: &'static str,
    ) -> Result<Self, LiveError> {
        let backend = device.capabilities.backend;
        let make = |reader, label| LiveBuffer::new(&device.raw, backend, reader, bytes, label);
        let memory = make(Reader::Kernel, down)?;
        Ok(match device.capabilities.splits_ports() {
            false => Self::Live(memory),
            true => Self::Split {
                down: memory,
                up: make(Reader::Host, up)?,
            },
        })
    }

    /// The host's writes.
    pub(crate) fn down(&self) -> &HostWords {
        match self {
            Self::Live(live) => live.words(),
            Self::Split { down, .. } => down.words(),
            Self::Host(words) => words,
        }
    }

    /// The kernels' writes.
    pub(crate) fn up(&self) -> &HostWords {
        match self {
            Self::Live(live) => live.words(),
            Self::Split { up, .. } => up.words(),
            Self::Host(words) => words,
        }
    }

    pub(crate) fn is_split(&self) -> bool {
        matches!(self, Self::Split { .. })
    }

    /// The buffer of the host's writes, and the buffer of the kernels' writes where separate.
    pub(crate) fn buffers(&self) -> [Option<&wgpu::Buffer>; 2] {
        match self {
            Self::Live(live) => [Some(live.buffer()), None],
            Self::Split { down, up } => [Some(down.buffer()), Some(up.buffer())],
            Self::Host(_) => [None, None],
        }
    }
}

impl Words for PortMemory {
    fn load(&self, index: usize) -> u32 {
        self.up().load(index)
    }

    fn store(&self, index: usize, value: u32) {
        if self.is_split() {
            // Windows over the bus combine writes, and keep no order without a fence; the second fence sends the word.
            fence(Ordering::SeqCst);
            self.down().store(index, value);
            fence(Ordering::SeqCst);
        } else {
            self.down().store(index, value);
        }
    }

    fn store_among(&self, index: usize, words: &[u32; LINE], among: u32) {
        if self.is_split() {
            // All words of a line for the price of a single word.
            fence(Ordering::SeqCst);
            self.down().store_among(index, words, among);
            fence(Ordering::SeqCst);
        } else {
            self.down().store_among(index, words, among);
        }
    }

    fn is_sealed(&self) -> bool {
        self.is_split()
    }

    fn load_all(&self, index: usize, words: &mut [u32]) {
        self.up().load_all(index, words);
    }

    fn store_all(&self, index: usize, words: &[u32]) {
        self.down().store_all(index, words);
    }

    fn differing(&self, index: usize, known: &[AtomicU32; LINE]) -> u32 {
        self.up().differing(index, known)
    }
}
