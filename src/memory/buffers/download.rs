//! Bytes of a device on their way to the host: copied into mappable memory, in pieces, so that the host can go on with
//! the first one while the device copies the next.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::device::outcome::ExecutionError;
use crate::device::submissions::{Batch, Progress, Submissions, in_handler};
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture};
use crate::memory::buffer::{BufferShared, MemoryError};
use crate::memory::staging;

/// Bytes of one piece: enough that what a piece costs by itself does not show.
const PIECE: u64 = 8 << 20;

/// How the mapping of a piece ended.
type Mapping = Arc<(Mutex<Option<Result<(), String>>>, Condvar)>;

/// One piece, submitted and on its way.
pub(super) struct Download {
    submissions: Arc<Submissions>,
    owner: Weak<DeviceShared>,
    batch: Arc<Batch>,
    staging: wgpu::Buffer,
    mapping: Mapping,
    /// The bytes of the buffer.
    pub range: Range<u64>,
}

/// wgpu's refusal of a copy, which may be its way to say that the device is gone.
pub(super) fn refused(device: &DeviceShared, error: &wgpu::Error) -> MemoryError {
    match device.lost.check() {
        Err(lost) => MemoryError::Execution(Arc::new(lost)),
        Ok(()) => MemoryError::Refused {
            what: "a copy to the host",
            message: error.to_string(),
        },
    }
}

/// Why bytes did not arrive.
pub(super) enum Missed {
    Deadline,
    /// They come when the thread that asks has answered a call.
    InHandler(ExecutionError),
    Failed(ExecutionError),
}

impl Download {
    /// Starts to bring down `range`, which is not empty, of what begins at `base` of a wgpu buffer. Commands that were recorded before and are not
    /// submitted yet need not be waited for, unless `after_recorded` says that they write there.
    pub(super) fn start(
        buffer: &BufferShared,
        base: u64,
        range: Range<u64>,
        after_recorded: bool,
    ) -> Result<Vec<Self>, MemoryError> {
        let device = &buffer.device;
        device.lost.check().map_err(Arc::new)?;
        if after_recorded {
            device.flush()?;
        }
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at / 4 * 4 + PIECE).min(range.end);
            pieces.push(Self::piece(buffer, base, at..end)?);
            at = end;
        }
        Ok(pieces)
    }

    fn piece(buffer: &BufferShared, base: u64, range: Range<u64>) -> Result<Self, MemoryError> {
        let device = &buffer.device;
        // Whole words are copied; what surrounds the range is left out by whoever takes the bytes.
        let words = range.start / 4 * 4..range.end.next_multiple_of(4);
        let bytes = words.end - words.start;
        let staging = staging::of(device).download(device, "a copy to the host", bytes)?;
        // Held, so that nothing is recorded in between that was not looked at.
        let mut queue = device.queue.lock(device);
        let (commands, error) = capture(&device.raw, || {
            let mut encoder = (device.raw)
                .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
            encoder.copy_buffer_to_buffer(&buffer.raw, base + words.start, &staging, 0, bytes);
            encoder.finish()
        });
        if let Some(error) = error {
            return Err(refused(device, &error));
        }
        let batch = queue.submit_now(commands)?;
        drop(queue);
        let mapping = Mapping::default();
        let told = Arc::clone(&mapping);
        let ((), error) = capture(&device.raw, || {
            staging.map_async(wgpu::MapMode::Read, 0..bytes, move |result| {
                *lock(&told.0) = Some(result.map_err(|error| error.to_string()));
                told.1.notify_all();
            });
        });
        if let Some(error) = error {
            return Err(refused(device, &error));
        }
        Ok(Self {
            submissions: Arc::clone(&device.submissions),
            owner: Arc::downgrade(device),
            batch,
            staging,
            mapping,
            range,
        })
    }

    /// Those of its device.
    pub(super) fn submissions(&self) -> &Arc<Submissions> {
        &self.submissions
    }

    /// The copy.
    pub(super) fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Waits for the bytes and hands them to `use_them`; once.
    pub(super) fn take(
        &self,
        deadline: Option<Instant>,
        use_them: impl FnOnce(&[u8]),
    ) -> Result<(), Missed> {
        // What was on its way when the device was lost counts as lost with it.
        if let Some(reason) = self.submissions.lost().get() {
            return Err(Missed::Failed(ExecutionError::DeviceLost { reason }));
        }
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        match self.submissions.wait(&self.batch, left) {
            Progress::Done => {}
            Progress::Pending => return Err(Missed::Deadline),
            Progress::InHandler => {
                let error = in_handler("a copy to the host");
                return Err(Missed::InHandler(error));
            }
            Progress::Lost(reason) => {
                return Err(Missed::Failed(ExecutionError::DeviceLost { reason }));
            }
        }
        // Another thread's poll may have collected the callback and not yet run it.
        let mut mapped = lock(&self.mapping.0);
        while mapped.is_none() {
            if Arc::strong_count(&self.mapping) == 1 {
                // wgpu drops the callbacks of a poll that another one has overtaken; whether the memory is mapped is seen
                // below.
                break;
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(Missed::Deadline);
            }
            if let Some(reason) = self.submissions.lost().get() {
                return Err(Missed::Failed(ExecutionError::DeviceLost { reason }));
            }
            // The memory is mapped by the first poll behind the end of the batch.
            drop(mapped);
            self.submissions.collect();
            mapped = lock(&self.mapping.0);
            if mapped.is_some() {
                break;
            }
            let waited = self
                .mapping
                .1
                .wait_timeout(mapped, Duration::from_millis(1));
            mapped = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let refused = |message| {
            Missed::Failed(match self.submissions.lost().get() {
                Some(reason) => ExecutionError::DeviceLost { reason },
                None => ExecutionError::Refused { message },
            })
        };
        if let Some(Err(message)) = mapped.take() {
            return Err(refused(message));
        }
        drop(mapped);
        let skip = self.range.start % 4;
        let end = skip + (self.range.end - self.range.start);
        let seen = match self.staging.get_mapped_range(0..end.next_multiple_of(4)) {
            Ok(view) => {
                use_them(&view[skip as usize..end as usize]);
                Ok(())
            }
            Err(error) => Err(refused(error.to_string())),
        };
        self.staging.unmap();
        if let (Some(device), Ok(())) = (self.owner.upgrade(), &seen) {
            staging::of(&device).give_download(self.staging.clone());
        }
        seen
    }
}
