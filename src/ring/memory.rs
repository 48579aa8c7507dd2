//! The memory of a ring.
//!
//! Where running kernels and the host see each other's writes (`Capabilities::live_calls`, as for ports), the ring lies
//! in live memory polled by kernels: on a device with memory of its own in the device's memory, reached by the host
//! through a window over the bus. Both sides then work on one and the same memory, so that no packet needs a checksum;
//! but the window combines writes and keeps no order among writes, so that the host has a full fence at both sides of
//! each word awaited by the kernel, and behind each look.
//!
//! Elsewhere the ring is an ordinary buffer of the device, with a copy in the host's memory. Items and counts are
//! written and read in the queue's order, between launches: a launch, or a slice of a server, finds the items put
//! before its submission, and the host finds the items put by ended launches.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::error::RingError;
use super::protocol::{MASK, RingWords, Shape};
use crate::device::Device;
use crate::memory::buffers::BufferArgument;
use crate::memory::{DeviceBuffer, LiveBuffer, host_memory};
use crate::rpc::OwnWords;

pub(super) enum RingMemory {
    Live {
        words: LiveBuffer,
        /// The words lie behind a window over the bus.
        is_far: bool,
    },
    Between {
        copy: OwnWords,
        buffer: DeviceBuffer<u32>,
    },
}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory")
            .field("words", &self.words().len())
            .field("is_live", &self.is_live())
            .finish()
    }
}

impl RingMemory {
    /// # Errors
    /// [`RingError::Live`], [`RingError::Memory`].
    pub fn new(device: &Device, shape: Shape) -> Result<Self, RingError> {
        let capabilities = device.capabilities();
        let memory = match capabilities.live_calls() {
            true => Self::Live {
                words: device.live(shape.len())?,
                is_far: capabilities.splits_ports(),
            },
            false => Self::Between {
                copy: OwnWords::new("a ring", shape.len())?,
                buffer: device.zeroed(shape.len())?,
            },
        };
        memory.publish(MASK, shape.slots - 1)?;
        Ok(memory)
    }

    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// The device, where looking at the ring does not run the recorded launches.
    pub fn device(&self) -> Option<Device> {
        match self {
            Self::Live { words, .. } => Some(words.device()),
            Self::Between { .. } => None,
        }
    }

    /// The memory as an argument of kernels.
    pub fn argument(&self) -> BufferArgument {
        match self {
            Self::Live { words, .. } => words.into(),
            Self::Between { buffer, .. } => buffer.into(),
        }
    }

    fn words(&self) -> &[AtomicU32] {
        match self {
            Self::Live { words, .. } => words.words(),
            Self::Between { copy, .. } => copy,
        }
    }
}

impl RingWords for RingMemory {
    type Error = RingError;

    fn look(&self, index: usize) -> Result<u32, RingError> {
        match self {
            Self::Live { words, is_far } => {
                let word = words.words().get(index);
                let seen = word.map_or(0, |word| word.load(Ordering::Acquire));
                if *is_far {
                    // Loads through the window may be made early.
                    fence(Ordering::SeqCst);
                }
                Ok(seen)
            }
            Self::Between { buffer, .. } => {
                let at = index as u64;
                let read = buffer.read_range(at..at + 1)?;
                Ok(read.first().copied().unwrap_or(0))
            }
        }
    }

    fn publish(&self, index: usize, value: u32) -> Result<(), RingError> {
        match self {
            Self::Live { words, is_far } => {
                if *is_far {
                    fence(Ordering::SeqCst);
                }
                if let Some(word) = words.words().get(index) {
                    word.store(value, Ordering::Release);
                }
                if *is_far {
                    // Sends the word.
                    fence(Ordering::SeqCst);
                }
            }
            Self::Between { buffer, .. } => {
                buffer.write(index as u64, &[value])?;
            }
        }
        Ok(())
    }

    fn get(&self, index: usize, words: &mut [u32]) {
        let from = self.words().get(index..).unwrap_or_default();
        for (to, from) in words.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    fn set(&self, index: usize, words: &[u32]) {
        let to = self.words().get(index..).unwrap_or_default();
        for (to, &word) in to.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    fn fetch(&self, range: Range<usize>) -> Result<(), RingError> {
        if let Self::Between { buffer, .. } = self {
            let read = buffer.read_range(range.start as u64..range.end as u64)?;
            self.set(range.start, &read);
        }
        Ok(())
    }

    fn send(&self, range: Range<usize>) -> Result<(), RingError> {
        if let Self::Between { buffer, .. } = self {
            let mut words: Vec<u32> = host_memory::zeroed("words of a ring", range.len())?;
            self.get(range.start, &mut words);
            buffer.write(range.start as u64, &words)?;
        }
        Ok(())
    }
}
