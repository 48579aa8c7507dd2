//! Pinned memory: memory of the host from which devices copy, and to which they copy, without staging memory in between.
//!
//! # How it works
//! 1. A [`PinnedVec`] lies in address space of its own ([`Region`]), which every transfer finds by the address of the slice
//!    it is given: [`imports::span`]. So pinned memory needs no transfers of its own: the slices that
//!    [`DeviceBuffer::write`](crate::DeviceBuffer::write) and [`DeviceBuffer::read_into`](crate::DeviceBuffer::read_into)
//!    take anyway are enough.
//! 2. A device imports the memory at its first transfer, or at [`PinnedVec::import`], and keeps the import until the vector
//!    or the device is dropped ([`imports`]). wgpu keeps the pages until the last submission that uses them has ended.
//! 3. A transfer is one copy by the device, between the buffer and the import ([`direct`]). The transfer returns when the
//!    copy has ended, since the slice is borrowed no longer than that. A transfer that is given the vector itself returns at
//!    once, and gives the vector back with the end ([`transfer`]).
//!
//! Where a device cannot import the memory, or the bytes are no whole words, transfers go through staging memory as those
//! of any other slice do. [`PinnedVec::import`] reports why, and [`TransferStatistics`](crate::buffers::TransferStatistics)
//! counts the bytes that went directly.

#[cfg(embedded)]
pub(crate) mod borrowed;
pub(crate) mod direct;
mod imports;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use bytemuck::Pod;

pub(crate) use self::imports::Imports;
#[cfg(embedded)]
pub(crate) use self::imports::Span;
pub use self::transfer::{PinnedError, PinnedTransfer};

use super::MemoryError;
use crate::device::window::Window;
use crate::device::{Device, ImportError};

/// Imports begin and end at multiples of this: of what every driver asks for, which is a page of the system or 64 KiB.
const GRAIN: u64 = 64 << 10;

/// A vector in memory of the host that devices copy from and to directly. The length never changes.
///
/// Transfers between the slices of a pinned vector and a [`DeviceBuffer`](crate::DeviceBuffer) take no staging memory and
/// no copy by the host: [`read_into`](crate::DeviceBuffer::read_into) of any size, and large
/// [`write`](crate::DeviceBuffer::write)s to a device that has nothing else to do, which then return when the bytes are
/// there. [`write_pinned`](crate::DeviceBuffer::write_pinned) and [`read_pinned`](crate::DeviceBuffer::read_pinned) take the
/// vector and give it back with the end, so that nobody waits. The bytes have to be whole words of 4 bytes on both sides; others
/// go through staging memory.
///
/// Pages of the memory stay in the memory of the machine once a device has imported them; systems limit how much of that a
/// process may have.
///
/// ```no_run
/// use tombolo::Context;
///
/// let context = Context::new()?;
/// let device = context.device()?;
/// let mut picture = context.pinned_vec::<f32>(64 << 20)?;
/// picture[0] = 1.0;
/// let buffer = device.zeroed::<f32>(64 << 20)?;
/// buffer.write(0, &picture)?;
/// buffer.read_into(0, &mut picture)?;
/// # Ok::<(), tombolo::Error>(())
/// ```
pub struct PinnedVec<T: Pod> {
    /// None for a vector without a byte.
    region: Option<Arc<Region>>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> PinnedVec<T> {
    /// `len` zeroed values.
    ///
    /// # Errors
    /// [`MemoryError::Pinned`] for more than 4 GiB, and where the system has no memory or no address space of that size.
    pub fn zeroed(len: usize) -> Result<Self, MemoryError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let region = match bytes {
            0 => None,
            _ => Some(Region::new(bytes)?),
        };
        Ok(Self {
            region,
            len,
            element: PhantomData,
        })
    }

    /// Imports the memory for transfers of `device`, which the first transfer would do otherwise.
    ///
    /// # Errors
    /// [`ImportError`]: transfers of this device with this vector go through staging memory.
    pub fn import(&self, device: &Device) -> Result<(), ImportError> {
        match &self.region {
            Some(region) => imports::import(&device.shared, region).map(|_| ()),
            None => Ok(()),
        }
    }
}

impl<T: Pod> Deref for PinnedVec<T> {
    type Target = [T];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        let Some(region) = &self.region else {
            return &[];
        };
        // SAFETY: the region has committed memory for `len` values, zeroed or written as values of plain data since, and at
        // the start of a page, whose alignment is that of every such type. Devices write there only during a transfer that
        // has borrowed the slice mutably (`direct`), or that has the vector itself (`transfer`).
        unsafe { std::slice::from_raw_parts(region.start().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedVec<T> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(region) = &self.region else {
            return &mut [];
        };
        // SAFETY: as above; the vector is the only owner of the region's bytes, and borrowed mutably. Devices read there
        // only during a transfer that has borrowed the slice, or has the vector.
        unsafe { std::slice::from_raw_parts_mut(region.start().cast(), self.len) }
    }
}

impl<T: Pod> fmt::Debug for PinnedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedVec")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The memory of a pinned vector.
pub(super) struct Region {
    window: Arc<Window>,
    /// A multiple of [`GRAIN`].
    bytes: u64,
    imported: imports::Importers,
}

/// The regions of the process by their first addresses.
static REGIONS: RwLock<BTreeMap<usize, Weak<Region>>> = RwLock::new(BTreeMap::new());

impl Region {
    fn new(bytes: u64) -> Result<Arc<Self>, MemoryError> {
        let pinned = |reason| MemoryError::Pinned { bytes, reason };
        // A size beyond every window stays one.
        let whole = bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes);
        let window = Window::reserve(whole).map_err(pinned)?;
        window.commit(0..whole).map_err(pinned)?;
        let region = Arc::new(Self {
            window,
            bytes: whole,
            imported: imports::Importers::default(),
        });
        let mut regions = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(region.start().addr(), Arc::downgrade(&region));
        Ok(region)
    }

    fn start(&self) -> *mut u8 {
        self.window.base().as_ptr()
    }

    /// The region around `len` bytes at `start`, and where they begin in there.
    fn around(start: *const u8, len: usize) -> Option<(Arc<Self>, u64)> {
        let regions = REGIONS.read().unwrap_or_else(PoisonError::into_inner);
        let (first, region) = regions.range(..=start.addr()).next_back()?;
        let at = (start.addr() - first) as u64;
        let region = region.upgrade()?;
        // Before the region may go, whose end takes the lock.
        drop(regions);
        let end = at.checked_add(len as u64)?;
        (end <= region.bytes).then_some((region, at))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut regions = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        regions.remove(&self.start().addr());
        drop(regions);
        let start = self.start().addr();
        self.imported.forget(start);
    }
}
