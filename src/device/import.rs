//! Host memory as device memory: devices use pages of a [`Window`] in place, without a copy.
//!
//! wgpu allocates all memory of buffers itself. Vulkan's extension `VK_EXT_external_memory_host` makes device memory
//! out of host pages instead, and several devices, of different drivers too, may do so with the same pages. wgpu
//! neither asks for the extension nor knows of it; so a device is opened through wgpu-hal, which lets the extension be
//! added, and handed to wgpu. Everything else about such a device is as made by wgpu.
//!
//! # Who keeps what alive
//!
//! An imported buffer holds its pages ([`Window::pin`]) until wgpu has let go of the buffer *and* the last submission
//! using the buffer; wgpu calls back then. Hence pages under a device's memory cannot be given back, and it does not
//! matter whether the program, wgpu or a lost device ends the buffer first.
//!
//! # What wgpu does not know
//!
//! wgpu orders the uses of each buffer, but two buffers over the same pages count as two: launches
//! in a single submission that reach the same bytes through different imports of a device are not
//! ordered. Between submissions such writes are ordered. Devices are not ordered with each other at
//! all; wait for one before the other is launched, or communicate through atomics.
//!
//! Whether all sides really see each other's writes in such memory is not promised by the extension
//! alone; [`probe_import`] tries the import.

#![cfg_attr(not(any(vulkan, embedded)), allow(dead_code))]
#![cfg_attr(not(vulkan), allow(unused_variables))]

mod probe;
#[cfg(all(test, target_os = "linux", vulkan))]
mod tests;
#[cfg(vulkan)]
mod vulkan;

use std::ops::Range;
use std::sync::Arc;

#[cfg(embedded)]
use super::embedded;
use super::window::{Window, WindowError};
use crate::error_text::debug_by_text;

pub use probe::ImportFinding;
pub(crate) use probe::probe_import;

/// Why a device cannot use host memory in place.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The backend has no way to import host memory, or this build has not enabled the backend.
    #[error(
        "the {backend} backend does not import host memory; \
         a shared heap on this device uses memory of the device's own instead"
    )]
    Backend {
        /// The backend that was asked.
        backend: wgpu::Backend,
    },
    /// The device was opened without the extension: missing in the driver, turned off
    /// ([`DeviceOptions::import_host_memory`](crate::DeviceOptions::import_host_memory)), or the
    /// device was opened by other code.
    #[error(
        "the device was opened without {extension}: the driver lacks it, or it was not asked for \
         when the device was opened"
    )]
    Extension {
        /// The extension's name.
        extension: &'static str,
    },
    /// The range does not begin or end at the driver's alignment.
    #[error(
        "importing bytes {start}..{end} of an address window: both ends must be multiples of \
         {alignment} bytes on this device"
    )]
    Alignment {
        /// Where the range begins, from the window's base.
        start: u64,
        /// The end of the range.
        end: u64,
        /// The driver's alignment, in bytes.
        alignment: u64,
    },
    /// The range is longer than the device's limit for a buffer or an allocation.
    #[error(
        "importing {len} bytes of host memory: the device takes {limit} bytes at once; \
         import several shorter ranges"
    )]
    TooLong {
        /// The length asked for, in bytes.
        len: u64,
        /// The longest range that the device takes, in bytes.
        limit: u64,
    },
    /// The window has no memory there, or the range is outside of the window.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The driver would not keep the host's view and the device's the same by itself.
    #[error(
        "importing host memory: the driver offers it incoherently only, so host and kernels would \
         not see each other's writes; use memory of the device's own instead"
    )]
    NotCoherent,
    /// The driver refuses these pages: no import of such memory, or no second import.
    #[error(
        "importing bytes {start}..{end} of an address window: the driver refuses these pages \
         ({reason}); some drivers import the same pages only once per adapter"
    )]
    Refused {
        /// Where the range begins, from the window's base.
        start: u64,
        /// The end of the range.
        end: u64,
        /// The driver's error.
        reason: &'static str,
    },
    /// The device or the host has not enough memory, or may not lock as much.
    #[error("importing {len} bytes of host memory: out of memory; free buffers or import less")]
    OutOfMemory {
        /// The length asked for, in bytes.
        len: u64,
    },
    /// The driver, or wgpu, failed for another reason.
    #[error("importing host memory failed: {0}")]
    Driver(String),
}

debug_by_text!(ImportError {
    Backend,
    Extension,
    Alignment,
    TooLong,
    Window,
    NotCoherent,
    Refused,
    OutOfMemory,
    Driver,
});

/// A device's requirements for imported ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImportLimits {
    /// Both ends of a range must be multiples of this, in bytes: a power of two.
    pub(crate) alignment: u64,
    /// The longest range, in bytes. Bindings have a limit of their own, which is often lower.
    pub(crate) longest: u64,
}

/// How buffers over imported memory may be used.
pub(crate) const IMPORTED_USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::UNIFORM)
    .union(wgpu::BufferUsages::INDIRECT)
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// Opens a device as `wgpu::Adapter::request_device` does, and with the import of host memory where
/// `import` asks for the import and the driver supports it. [`import_limits`] tells the result.
///
/// # Errors
/// Those of `request_device`.
pub(crate) async fn request_device(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    import: bool,
) -> Result<Opened, wgpu::RequestDeviceError> {
    #[cfg(vulkan)]
    if import && let Some(opened) = vulkan::open(adapter, descriptor) {
        return opened;
    }
    #[cfg(not(vulkan))]
    let _ = import;
    let (device, queue) = adapter.request_device(descriptor).await?;
    Ok(Opened {
        device,
        queue,
        second_family: None,
    })
}

/// A device just opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// The family of a further queue of the driver's device, unknown to wgpu: see [`second_queue`](super::second_queue).
    pub(crate) second_family: Option<u32>,
}

/// The requirements of `device` for imported ranges, if import works at all.
///
/// # Errors
/// [`ImportError::Backend`] and [`ImportError::Extension`] without support.
pub(crate) fn import_limits(device: &wgpu::Device) -> Result<ImportLimits, ImportError> {
    match device.adapter_info().backend {
        #[cfg(vulkan)]
        wgpu::Backend::Vulkan => vulkan::limits(device),
        #[cfg(embedded)]
        embedded::BACKEND => embedded::import_limits(device),
        backend => Err(ImportError::Backend { backend }),
    }
}

/// Makes a buffer of `device` out of the memory of `range`, which must be committed. Nothing is
/// copied, and the contents of the memory stay. Its usages are [`IMPORTED_USAGE`].
///
/// The pages stay committed at least until the buffer and all references to the buffer are gone and
/// the device has finished using the pages.
///
/// # Errors
/// [`ImportError`], with the remedy.
pub(crate) fn import_host(
    device: &wgpu::Device,
    window: &Arc<Window>,
    range: Range<u64>,
    label: &str,
) -> Result<wgpu::Buffer, ImportError> {
    match device.adapter_info().backend {
        #[cfg(vulkan)]
        wgpu::Backend::Vulkan => vulkan::import(device, window, range, label),
        #[cfg(embedded)]
        embedded::BACKEND => embedded::import(device, window, range, label),
        backend => Err(ImportError::Backend { backend }),
    }
}
