//! Staging memory: mapped buffers for bytes on their way between the host and a device, kept for the next transfer.
//! Making a staging buffer costs more than filling it: new memory has to be given pages and zeroed, and where a driver
//! gives memory back at once (a discrete GPU does) every small read pays tens of milliseconds.
//!
//! # How it works
//! 1. Each direction has a shelf of its own, because wgpu maps memory either for reading or for writing: that of
//!    downloads is the device's (`device::staging`), which has copies to the host of its own.
//! 2. *Downloads*: a transfer takes unmapped memory, has the device copy into it, maps it, and gives it back unmapped.
//! 3. *Uploads*: a transfer takes mapped memory, fills and unmaps it, has the device copy out of it, and gives it back
//!    with the copying batch ([`End`]). The next transfer asks wgpu to map the memory again, as soon as the batch is
//!    submitted; wgpu maps the memory behind the batch's end, in the poll of a thread that waits or submits. No poll
//!    happens here: memory is asked for under locks that callbacks of the program may want.
//! 4. Copies within a device in need of a third buffer share one ([`Staging::scratch`]): the queue is in order.
//! 5. *Large* transfers go by pieces ([`pieces`]): while the device copies one piece, the host copies another, with
//!    several threads where the machine has enough ([`pump`]). All pieces have their place in line at once, so that a
//!    transfer is one command whatever other threads record; each piece gets its memory in its turn, so that a few
//!    pieces' memory serves for all ([`receive`], [`send`]).
//! 6. *Texels* go the same ways, with gaps between rows in the staging memory ([`rows`]).
//!
//! Every transfer of the runtime takes its memory here, so that [`TransferStatistics`] counts all staging memory ever
//! made.
//!
//! Parameters of the runtime's own kernels travel with the batch's uniforms.

mod coming;
mod filling;
mod pieces;
pub(crate) mod pump;
pub(crate) mod receive;
mod rows;
pub(crate) mod send;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use self::coming::{AWAIT_READ, Coming, Missing, check_submitted};
pub(crate) use self::filling::Filling;
#[cfg(embedded)]
pub(crate) use self::pieces::PIECE as LARGEST_SMALL;
pub(crate) use self::pieces::{PIECE, Piece, pieces};
pub(crate) use self::rows::{Band, Far, Rows, bands};

use super::MemoryError;
use super::buffers::End;
use crate::device::outcome::ExecutionError;
use crate::device::pinned::Unreachable;
use crate::device::staging::{Lent, Readiness, Shelf, size_class};
use crate::device::wait::{LostFlag, lock};
use crate::device::{Device, DeviceShared, capture};

/// A larger scratch buffer is not kept.
const KEPT_SCRATCH: u64 = 16 << 20;
/// The smallest scratch buffer.
const LEAST_SCRATCH: u64 = 64 << 10;

/// Figures of a device's transfers: memory made and reused. Counts begin with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransferStatistics {
    /// Staging buffers made: each is an allocation of the driver.
    pub staging_made: u64,
    /// Transfers with a kept staging buffer.
    pub staging_reused: u64,
    /// Bytes of staging buffers kept now, idle or until the end of the last transfer.
    pub staging_kept: u64,
    /// Arguments of launches copied to staging memory and back, because the adapter cannot bind the slice in place: the
    /// slice begins at an offset not allowed for bindings, or ends inside a word.
    pub staged_arguments: u64,
    /// Bytes of these arguments.
    pub staged_argument_bytes: u64,
    /// Bytes copied by the device from or to pinned memory ([`PinnedVec`](crate::buffers::PinnedVec)), without staging
    /// memory.
    pub pinned_bytes: u64,
    /// Bytes copied by the device from or to other memory of the host where it lies, without staging memory: by large transfers
    /// of the embedded adapter, those of a context's buffers between device and host among them.
    pub borrowed_bytes: u64,
    /// Bytes copied by threads of the program between its memory and a buffer, with neither staging memory nor a submission:
    /// by transfers of up to 4 MiB of the embedded adapter, while it has nothing to do.
    pub at_once_bytes: u64,
}

/// The staging memory of a device.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    uploads: Mutex<Shelf<Upload>>,
    scratch: Mutex<Option<wgpu::Buffer>>,
    made: AtomicU64,
    reused: AtomicU64,
    staged_arguments: AtomicU64,
    staged_argument_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
    borrowed_bytes: AtomicU64,
    at_once_bytes: AtomicU64,
}

/// Memory of an upload, given back.
struct Upload {
    memory: wgpu::Buffer,
    state: Using,
}

enum Using {
    /// A batch copies out of the memory, and may not have ended.
    Device(End),
    /// The mapping is under way; set to the success once known.
    Mapping(Arc<Mutex<Option<bool>>>),
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Upload").field(&self.memory.size()).finish()
    }
}

/// The staging memory of a device.
pub(crate) fn of(device: &DeviceShared) -> &Staging {
    &device.extensions.memory.staging
}

/// Makes a buffer of the runtime's own.
///
/// # Errors
/// [`MemoryError::OutOfMemory`], [`MemoryError::Refused`] with the command's name.
pub(crate) fn make(
    device: &DeviceShared,
    what: &'static str,
    descriptor: &wgpu::BufferDescriptor<'_>,
) -> Result<wgpu::Buffer, MemoryError> {
    let (buffer, error) = capture(&device.raw, || device.raw.create_buffer(descriptor));
    match error {
        None => Ok(buffer),
        Some(error) => Err(refusal(device, what, descriptor.size, &error)),
    }
}

/// An unmapped, mappable buffer of at least `bytes` bytes, for a device to copy into.
///
/// # Errors
/// As [`make`].
pub(crate) fn download(
    device: &DeviceShared,
    what: &'static str,
    bytes: u64,
) -> Result<Lent, MemoryError> {
    let most = device.limits.max_buffer_size;
    let take = || device.downloads.take(&device.raw, most, bytes);
    let (memory, error) = capture(&device.raw, take);
    match error {
        None => Ok(memory),
        Some(error) => Err(refusal(device, what, bytes, &error)),
    }
}

/// A new buffer of `size` bytes that begins with `first` and is zero behind that.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_filled(
    device: &DeviceShared,
    what: &'static str,
    label: &'static str,
    usage: wgpu::BufferUsages,
    size: u64,
    first: &[u8],
) -> Result<wgpu::Buffer, MemoryError> {
    let descriptor = wgpu::BufferDescriptor {
        label: Some(label),
        size: size.next_multiple_of(4),
        usage,
        // wgpu clears memory that is mapped at its creation.
        mapped_at_creation: true,
    };
    let buffer = make(device, what, &descriptor)?;
    match first.is_empty() {
        true => buffer.unmap(),
        false => fill_and_unmap(device, what, &buffer, (0, first.len()), |filling| {
            filling.write(0, first)
        })?,
    }
    Ok(buffer)
}

/// Has `fill` write so many bytes from byte `at` of mapped memory on, which is below 4, and zeros to the rest of the words;
/// unmaps the memory in any case.
fn fill_and_unmap(
    device: &DeviceShared,
    what: &'static str,
    memory: &wgpu::Buffer,
    (at, bytes): (u64, usize),
    fill: impl FnOnce(&mut Filling<'_>) -> Result<(), Unreachable>,
) -> Result<(), MemoryError> {
    let (filled, error) = capture(&device.raw, || {
        let filling = Filling::begin(&device.raw, memory, at as usize, bytes);
        let filled = filling.and_then(|mut filling| fill(&mut filling));
        memory.unmap();
        filled
    });
    let message = match (error, filled) {
        (None, Ok(())) => return Ok(()),
        (_, Err(Unreachable::Gone)) => {
            return Err(MemoryError::Execution(Arc::new(gone(&device.lost))));
        }
        (Some(error), _) => error.to_string(),
        (None, Err(Unreachable::Refused(message))) => message,
    };
    Err(MemoryError::Refused { what, message })
}

/// The error for memory that is gone with its device, which may not be known to be lost yet.
pub(crate) fn gone(lost: &LostFlag) -> ExecutionError {
    let reason = lost.get().unwrap_or_else(|| Unreachable::Gone.to_string());
    ExecutionError::DeviceLost { reason }
}

/// The error for wgpu's refusal of memory: the device's loss, if the device is lost.
pub(crate) fn refusal(
    device: &DeviceShared,
    what: &'static str,
    bytes: u64,
    error: &wgpu::Error,
) -> MemoryError {
    match (device.lost.check(), error) {
        (Err(lost), _) => MemoryError::Execution(Arc::new(lost)),
        (Ok(()), wgpu::Error::OutOfMemory { .. }) => MemoryError::OutOfMemory {
            bytes,
            device: device.capabilities.name.clone(),
        },
        (Ok(()), error) => MemoryError::Refused {
            what,
            message: error.to_string(),
        },
    }
}

impl Upload {
    /// Asks wgpu to map the memory after the last transfer, once the transfer is submitted.
    fn reclaim(&mut self, device: &DeviceShared) {
        let Using::Device(end) = &self.state else {
            return;
        };
        if !end.is_submitted() {
            return;
        }
        let mapped = Arc::new(Mutex::new(None));
        let told = Arc::clone(&mapped);
        let ((), error) = capture(&device.raw, || {
            self.memory
                .map_async(wgpu::MapMode::Write, .., move |result| {
                    *lock(&told) = Some(result.is_ok());
                });
        });
        if error.is_some() {
            *lock(&mapped) = Some(false);
        }
        self.state = Using::Mapping(mapped);
    }

    /// Whether the memory is mapped.
    fn readiness(&self) -> Readiness {
        let Using::Mapping(mapped) = &self.state else {
            return Readiness::Busy;
        };
        let is_mapped = *lock(mapped);
        match is_mapped {
            Some(true) => Readiness::Ready,
            Some(false) => Readiness::Gone,
            // Another thread's poll has collected the callback and not yet run it.
            None if Arc::strong_count(mapped) > 1 => Readiness::Busy,
            // A callback dropped without a run says nothing about the memory.
            None => Readiness::Gone,
        }
    }
}

impl Staging {
    fn count(&self, is_new: bool) {
        let counter = match is_new {
            true => &self.made,
            false => &self.reused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A mapped buffer of at least `bytes` bytes with undefined contents, for the host to fill and a device to copy out
    /// of.
    ///
    /// # Errors
    /// As [`make`].
    pub(crate) fn upload(
        &self,
        device: &DeviceShared,
        what: &'static str,
        bytes: u64,
    ) -> Result<wgpu::Buffer, MemoryError> {
        let kept = {
            // All kept memory, so that each buffer is mapped by the time of being the oldest.
            self.reclaim(device);
            let mut uploads = lock(&self.uploads);
            uploads.take(bytes, |kept| kept.readiness())
        };
        self.count(kept.is_none());
        match kept {
            Some(kept) => Ok(kept.memory),
            None => make(
                device,
                what,
                &wgpu::BufferDescriptor {
                    label: Some("tombolo upload"),
                    size: size_class(bytes, device.limits.max_buffer_size),
                    usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                    mapped_at_creation: true,
                },
            ),
        }
    }

    /// Asks wgpu to map the memory of submitted transfers after their ends.
    pub(crate) fn reclaim(&self, device: &DeviceShared) {
        lock(&self.uploads).each(|kept| kept.reclaim(device));
    }

    /// Memory of [`Self::upload`] with `bytes` from byte `at` on, which is below 4, and zeros in the rest of the words;
    /// unmapped.
    ///
    /// # Errors
    /// As [`make`].
    pub(crate) fn filled(
        &self,
        device: &DeviceShared,
        what: &'static str,
        at: u64,
        bytes: &[u8],
    ) -> Result<wgpu::Buffer, MemoryError> {
        let end = (at + bytes.len() as u64).next_multiple_of(4);
        let memory = self.upload(device, what, end)?;
        fill_and_unmap(device, what, &memory, (at, bytes.len()), |filling| {
            filling.write(0, bytes)
        })?;
        Ok(memory)
    }

    /// Memory of [`Self::upload`] with the rows that lie in `bytes` without gaps, and zeros behind each; unmapped.
    ///
    /// # Errors
    /// As [`make`].
    pub(crate) fn filled_rows(
        &self,
        device: &DeviceShared,
        what: &'static str,
        rows: Rows,
        bytes: &[u8],
    ) -> Result<wgpu::Buffer, MemoryError> {
        let memory = self.upload(device, what, rows.spread())?;
        let spread = rows.spread() as usize;
        fill_and_unmap(device, what, &memory, (0, spread), |filling| {
            filling.write_rows(rows, bytes)
        })?;
        Ok(memory)
    }

    /// Takes a buffer of [`Self::upload`] back, unmapped; no copy reads the buffer after `end`.
    pub(crate) fn give_upload(&self, memory: wgpu::Buffer, end: End) {
        let bytes = memory.size();
        let state = Using::Device(end);
        let gone = lock(&self.uploads).give(Upload { memory, state }, bytes);
        drop(gone);
    }

    /// A buffer of at least `bytes` bytes with undefined contents, for copies and kernels of one command. All commands
    /// share the buffer: use it with the queue held, and leave nothing in it for the next command.
    ///
    /// # Errors
    /// As [`make`].
    pub(crate) fn scratch(
        &self,
        device: &DeviceShared,
        bytes: u64,
    ) -> Result<wgpu::Buffer, MemoryError> {
        let mut scratch = lock(&self.scratch);
        if let Some(kept) = scratch.as_ref().filter(|kept| kept.size() >= bytes) {
            self.count(false);
            return Ok(kept.clone());
        }
        self.count(true);
        let size = size_class(bytes.max(LEAST_SCRATCH), device.limits.max_buffer_size);
        let made = make(
            device,
            "a copy on a device",
            &wgpu::BufferDescriptor {
                label: Some("tombolo scratch"),
                size,
                usage: wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            },
        )?;
        if size <= KEPT_SCRATCH {
            *scratch = Some(made.clone());
        }
        Ok(made)
    }

    /// Counts an argument copied by a launch.
    pub(crate) fn staged_argument(&self, bytes: u64) {
        self.staged_arguments.fetch_add(1, Ordering::Relaxed);
        (self.staged_argument_bytes).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of pinned memory moved without staging memory.
    pub(crate) fn count_pinned(&self, bytes: u64) {
        self.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of borrowed memory moved without staging memory.
    #[cfg(embedded)]
    pub(crate) fn count_borrowed(&self, bytes: u64) {
        self.borrowed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that a thread of the program has copied, from or to the memory of a buffer.
    #[cfg(embedded)]
    pub(crate) fn count_at_once(&self, bytes: u64) {
        self.at_once_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Drops all kept memory.
    pub(crate) fn trim(&self, device: &DeviceShared) {
        device.downloads.clear();
        let uploads = lock(&self.uploads).clear();
        let scratch = lock(&self.scratch).take();
        drop((uploads, scratch));
    }
}

impl Device {
    /// Figures of staging memory for transfers between the host and this device, and for copies on the device.
    pub fn transfer_statistics(&self) -> TransferStatistics {
        let staging = of(&self.shared);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [made, reused] = self.shared.downloads.counts();
        let scratch = lock(&staging.scratch)
            .as_ref()
            .map_or(0, wgpu::Buffer::size);
        TransferStatistics {
            staging_made: made + read(&staging.made),
            staging_reused: reused + read(&staging.reused),
            staging_kept: self.shared.downloads.bytes() + lock(&staging.uploads).bytes() + scratch,
            staged_arguments: read(&staging.staged_arguments),
            staged_argument_bytes: read(&staging.staged_argument_bytes),
            pinned_bytes: read(&staging.pinned_bytes),
            borrowed_bytes: read(&staging.borrowed_bytes),
            at_once_bytes: read(&staging.at_once_bytes),
        }
    }
}
