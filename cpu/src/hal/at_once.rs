//! Copies between a buffer and the host's memory, made at once by the calling thread while the device is idle: a submission of
//! wgpu takes longer than a copy of a few pages.
//!
//! # How it works
//! 1. The copy has the line of submissions to itself ([`Timeline::at_once`]): nothing runs, and submissions made meanwhile wait.
//!    So the copy comes behind everything submitted before, by any handle.
//! 2. wgpu may owe the device unsubmitted commands, such as `Queue::write_buffer`'s, to go with the next submission. Commands
//!    count from the start of their encoding to their place in line ([`Unsent`]), and with any such command, nothing is copied.
//! 3. Before the first use, wgpu clears memory taken for unwritten. A copy to a buffer would be cleared then. So a copy writes
//!    only bytes written by commands before ([`Buffer::is_written`]), known to wgpu as written. Unwritten bytes are zeros, as
//!    wgpu would have them read.
//!
//! [`Timeline::at_once`]: crate::exec::timeline::Timeline::at_once

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{Buffer, Device, command::SMALL_COPY};

/// How many encodings of a device are neither in line nor dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsent(Arc<AtomicUsize>);

impl Unsent {
    /// Counts an encoding from here on.
    pub(super) fn begin(&self) -> Arc<Encoding> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Arc::new(Encoding {
            unsent: self.clone(),
            is_counted: AtomicBool::new(true),
        })
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// Commands under encoding, or encoded and not submitted.
#[derive(Debug)]
pub(super) struct Encoding {
    unsent: Unsent,
    is_counted: AtomicBool,
}

impl Encoding {
    /// The commands are in line, or never will be.
    pub(super) fn sent(&self) {
        if self.is_counted.swap(false, Ordering::AcqRel) {
            self.unsent.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        self.sent();
    }
}

impl Device {
    /// Copies `count` bytes from byte `start` of a buffer on to `to`, behind everything submitted before. Returns `false`, and
    /// copies nothing, if earlier submissions have not ended, if something is encoded and not submitted, beyond the end of the
    /// buffer, for memory not the buffer's own, and on a lost device.
    ///
    /// # Safety
    /// The buffer must be of this device, and not mapped. `count` bytes from `to` on must be valid for writes, and accessed by
    /// nobody else.
    pub unsafe fn read_at_once(
        &self,
        buffer: &Buffer,
        start: u64,
        to: *mut u8,
        count: usize,
    ) -> bool {
        let Some(from) = buffer.own_range(start, count) else {
            return false;
        };
        // SAFETY: the range lies in the buffer, and nobody else accesses the buffer's memory while the line is the calling
        // thread's. The other bytes are the caller's alone.
        self.at_once(count, || unsafe { from.copy_to_nonoverlapping(to, count) })
    }

    /// Copies `bytes` to a buffer from byte `start` on, as [`Self::read_at_once`]. Returns `false` as well where no command has
    /// written all of the bytes before.
    ///
    /// # Safety
    /// The buffer must be of this device, and its memory not mapped.
    pub unsafe fn write_at_once(&self, buffer: &Buffer, start: u64, bytes: &[u8]) -> bool {
        let count = bytes.len();
        let Some(to) = buffer.own_range(start, count) else {
            return false;
        };
        buffer.is_written(start..start + count as u64)
            && self.at_once(count, || {
                // SAFETY: as above; the slice is of other memory, since the buffer's is given to nobody.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), count) };
            })
    }

    fn at_once(&self, count: usize, copy: impl FnOnce()) -> bool {
        let shared = self.shared();
        let is_small = count as u64 <= SMALL_COPY;
        shared
            .timeline
            .at_once(is_small, || shared.unsent.is_zero(), copy)
    }
}

#[cfg(test)]
mod tests {
    use wgpu_hal::{CommandEncoder as _, Device as _, Queue as _};
    use wgpu_types as wgt;

    use super::super::{CommandEncoder, Fence, Options, Queue, device::Shared};
    use super::*;

    struct Opened {
        device: Device,
        queue: Queue,
        fence: Fence,
    }

    impl Opened {
        fn new() -> Self {
            let shared = Arc::new(Shared::new(Arc::new(Options::default())));
            let device = Device::new(shared.clone());
            // SAFETY: the fence is of the same adapter.
            let fence = unsafe { device.create_fence() }.unwrap();
            Self {
                device,
                queue: Queue::new(shared),
                fence,
            }
        }

        fn buffer(&self, size: u64) -> Buffer {
            let descriptor = wgpu_hal::BufferDescriptor {
                label: None,
                size,
                usage: wgt::BufferUses::empty(),
                memory_flags: wgpu_hal::MemoryFlags::empty(),
            };
            // SAFETY: any size will do.
            unsafe { self.device.create_buffer(&descriptor) }.unwrap()
        }

        fn encoder(&self) -> CommandEncoder {
            let descriptor = wgpu_hal::CommandEncoderDescriptor {
                label: None,
                queue: &self.queue,
            };
            // SAFETY: the queue is of the same device.
            unsafe { self.device.create_command_encoder(&descriptor) }.unwrap()
        }

        fn read(&self, buffer: &Buffer, start: u64, count: usize) -> Option<Vec<u8>> {
            let mut bytes = vec![0xee; count];
            // SAFETY: the buffer is of the device, and the vector the function's own.
            let is_read =
                unsafe { (self.device).read_at_once(buffer, start, bytes.as_mut_ptr(), count) };
            assert!(is_read || bytes.iter().all(|&byte| byte == 0xee));
            is_read.then_some(bytes)
        }

        fn write(&self, buffer: &Buffer, start: u64, bytes: &[u8]) -> bool {
            // SAFETY: the buffer is of the device.
            unsafe { self.device.write_at_once(buffer, start, bytes) }
        }

        /// Clears a range, with a look at the readable bytes while the commands are encoded.
        fn clear(&self, buffer: &Buffer, range: std::ops::Range<u64>) {
            let mut encoder = self.encoder();
            // SAFETY: the commands are encoded and submitted in the order of wgpu-hal.
            unsafe {
                encoder.begin_encoding(None).unwrap();
                assert_eq!(self.read(buffer, 0, 1), None, "commands are being encoded");
                encoder.clear_buffer(buffer, range);
                let commands = encoder.end_encoding().unwrap();
                assert_eq!(self.read(buffer, 0, 1), None, "and not submitted");
                let fence = (&self.fence, 1);
                self.queue.submit(&[&commands], &[], fence).unwrap();
                self.device.wait(&self.fence, 1, None).unwrap();
                assert!(self.read(buffer, 0, 1).is_some());
            }
        }
    }

    #[test]
    fn bytes_are_written_at_once_that_commands_have_written() {
        let opened = Opened::new();
        let buffer = opened.buffer(64);
        assert!(!opened.write(&buffer, 0, &[7; 4]), "wgpu would clear them");
        assert_eq!(opened.read(&buffer, 0, 64), Some(vec![0; 64]));
        opened.clear(&buffer, 8..24);
        for (start, count, is_written) in [
            (8, 16, true),
            (9, 3, true),
            (7, 4, false),
            (20, 5, false),
            (60, 8, false),
        ] {
            let bytes = vec![start as u8; count];
            assert_eq!(opened.write(&buffer, start, &bytes), is_written, "{start}");
        }
        let mut expected = vec![0; 64];
        expected[8..24].fill(8);
        expected[9..12].fill(9);
        assert_eq!(opened.read(&buffer, 0, 64), Some(expected));
        assert_eq!(opened.read(&buffer, 60, 5), None, "beyond the end");
        // Adjoining ranges are one.
        opened.clear(&buffer, 24..64);
        assert!(opened.write(&buffer, 8, &[5; 56]));
    }

    #[test]
    fn what_is_encoded_and_given_up_is_waited_for_no_more() {
        let opened = Opened::new();
        let buffer = opened.buffer(16);
        let mut encoder = opened.encoder();
        // SAFETY: the encoder is used in the order of wgpu-hal.
        unsafe {
            encoder.begin_encoding(None).unwrap();
            assert_eq!(opened.read(&buffer, 0, 1), None);
            encoder.discard_encoding();
            assert!(opened.read(&buffer, 0, 1).is_some());
            encoder.begin_encoding(None).unwrap();
            let commands = encoder.end_encoding().unwrap();
            assert_eq!(opened.read(&buffer, 0, 1), None);
            drop(commands);
            assert!(opened.read(&buffer, 0, 1).is_some());
            encoder.begin_encoding(None).unwrap();
            drop(encoder);
        }
        assert!(opened.read(&buffer, 0, 1).is_some());
    }

    #[test]
    fn memory_of_others_is_not_copied_at_once() {
        let opened = Opened::new();
        let bytes = Arc::new(vec![7u8; 16]);
        let address = std::ptr::NonNull::from(bytes.as_slice()).cast();
        // SAFETY: the vector lives as long as its handle, the lender; nobody writes.
        let buffer = unsafe { Buffer::from_host(address, 16, Box::new(bytes)) };
        assert_eq!(opened.read(&buffer, 0, 16), None);
        assert!(!opened.write(&buffer, 0, &[1]));
    }
}
