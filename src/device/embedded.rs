//! The adapter of this project, which runs kernels on the host's processors: no driver, and the same memory for both
//! sides.

// Memory of the host is handed to the adapter; the blocks give the soundness arguments.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use tombolo_cpu::Api;

use super::import::{IMPORTED_USAGE, ImportError, ImportLimits};
use super::window::Window;

/// The backend of the adapter in wgpu's eyes: none of the known backends.
pub(crate) const BACKEND: wgpu::Backend = wgpu::Backend::Noop;

/// The alignment of ranges of host memory: whole pages of any system, more than the adapter asks for.
const IMPORT_ALIGNMENT: u64 = 4096;

/// An instance of wgpu with this adapter and no other.
pub(crate) fn instance() -> wgpu::Instance {
    let instance = tombolo_cpu::Instance::default();
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    unsafe { wgpu::Instance::from_hal::<Api>(instance) }
}

/// The adapter's requirements for imported ranges. Every device imports: buffers are the host's memory anyway.
pub(super) fn import_limits(device: &wgpu::Device) -> Result<ImportLimits, ImportError> {
    // SAFETY: the hal device is not used: the question is whether it is one of this adapter.
    if unsafe { device.as_hal::<Api>() }.is_none() {
        return Err(ImportError::Backend { backend: BACKEND });
    }
    let longest = device.limits().max_buffer_size;
    Ok(ImportLimits {
        alignment: IMPORT_ALIGNMENT,
        longest: longest - longest % IMPORT_ALIGNMENT,
    })
}

/// A buffer over committed memory of a window.
pub(super) fn import(
    device: &wgpu::Device,
    window: &Arc<Window>,
    range: Range<u64>,
    label: &str,
) -> Result<wgpu::Buffer, ImportError> {
    let limits = import_limits(device)?;
    let pages = window.pin(range)?;
    let len = pages.len();
    if len > limits.longest {
        return Err(ImportError::TooLong {
            len,
            limit: limits.longest,
        });
    }
    let address = pages.as_ptr();
    // SAFETY: the pages are readable and writable memory of `len` bytes as long as they are pinned, which the buffer
    // keeps them; the host accesses them by atomic operations, or while no kernel runs that writes them.
    let buffer = unsafe { tombolo_cpu::Buffer::from_host(address, len, Box::new(pages)) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some(label),
        size: len,
        usage: IMPORTED_USAGE,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the memory is initialised, as committed
    // pages are, and the size is not zero.
    let adopt = || unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor) };
    match super::capture(device, adopt) {
        (buffer, None) => Ok(buffer),
        (_, Some(error)) => Err(ImportError::Driver(error.to_string())),
    }
}

/// A buffer over `bytes` bytes of the host's address space from `address` on, which keeps `keeper`. Some of the bytes may
/// belong to others, or not be there: kernels bound to the buffer must reach those alone that are the caller's.
///
/// # Errors
/// wgpu's own words.
pub(crate) fn over_window(
    device: &wgpu::Device,
    address: u64,
    bytes: u64,
    keeper: Box<dyn Send + Sync>,
) -> Result<wgpu::Buffer, String> {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let start = std::ptr::NonNull::new(start).ok_or("a window begins at null")?;
    // SAFETY: bytes that kernels reach are valid while the buffer is used: the table of the only kernels that are bound to it
    // names no others (`memory::system::in_place`). A page that is not there ends its kernel.
    let buffer = unsafe { tombolo_cpu::Buffer::from_host(start, bytes, keeper) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some("tombolo window"),
        size: bytes,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the size is not zero, and the memory that
    // kernels reach is initialised.
    let adopt = || unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor) };
    match super::capture(device, adopt) {
        (buffer, None) => Ok(buffer),
        (_, Some(error)) => Err(error.to_string()),
    }
}
