//! Live memory: a buffer that the host and a running kernel see at the same time.
//!
//! wgpu itself has no such thing: a buffer is either mapped by the host or in use by the device.
//! wgpu-hal has, because every backend can keep host-visible memory mapped for good. So this module
//! allocates through wgpu-hal, keeps the host's pointer, and hands wgpu a buffer to bind, copy and
//! track like any other, but never to map.
//!
//! # Who owns the memory
//!
//! wgpu destroys *every* buffer of a lost or destroyed device, regardless of holders of the
//! `wgpu::Buffer`, and `wgpu::Buffer::destroy` may be called through any clone. If wgpu owned the
//! memory, the pointer held here would then dangle, and reading it from safe code would be
//! undefined behaviour. Each backend therefore keeps something alive that wgpu cannot destroy:
//!
//! | backend | what wgpu gets | what keeps the pointer valid |
//! | --- | --- | --- |
//! | Vulkan | a second handle to the buffer, not owning it | the buffer and its allocation, freed once host *and* device have let go |
//! | Direct3D 12 | the buffer | a further reference to the resource, whose mapping lives as long as it does |
//! | Metal | the buffer | a further reference to the buffer, whose memory is mapped as long as it lives |
//! | embedded | a second handle to the buffer | the buffer: its memory is freed with the last handle |
//! | OpenGL, WebGPU | (not supported) | |
//!
//! OpenGL copies on mapping, and WebGPU has no memory of this kind.
//!
//! This module provides coherently mapped memory. Mutual visibility of writes between a *running*
//! kernel and the host is up to the driver (Metal, for example, promises visibility only between
//! command buffers), and is measured at the opening of a device.
//!
//! # What is promised
//!
//! None of these interfaces promises that both sides really see each other's writes; Apple's documentation rules it
//! out in so many words. The start-up probe measures it before anything is built on live memory.

// Every block gives its soundness argument.
#![allow(unsafe_code)]
// Without a backend with live memory in the build, no value is ever made.
#![cfg_attr(not(live_memory), allow(dead_code))]

#[cfg(live_memory)]
mod recipe;

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use super::words::Words;
use crate::error_text::debug_by_text;

/// Why live memory could not be had.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The backend has no live memory, or this build has not enabled the backend.
    #[error(
        "live memory is not available on the {backend} backend; \
         exchange data between launches with ordinary buffers instead"
    )]
    Unsupported {
        /// The backend that was asked.
        backend: wgpu::Backend,
    },
    /// The size is zero, or more than one buffer of the device may have.
    #[error("live memory of {size} bytes: the size must be between 1 and {limit} bytes")]
    Size {
        /// The size asked for, in bytes.
        size: u64,
        /// The largest buffer that the device allows (`max_buffer_size`), in bytes.
        limit: u64,
    },
    /// The device or the host has not enough memory left.
    #[error("live memory of {size} bytes: out of memory; free buffers or ask for less")]
    OutOfMemory {
        /// The size asked for, in bytes.
        size: u64,
    },
    /// The driver offers only mapped memory that has to be flushed by hand.
    #[error(
        "live memory: the driver maps it incoherently, so a running kernel and the host would not \
         see each other's writes; exchange data between launches with ordinary buffers instead"
    )]
    NotCoherent,
    /// The device is gone.
    #[error("live memory: the device was lost: {reason}; open it again to go on")]
    DeviceLost {
        /// Why, as far as is known.
        reason: String,
    },
    /// The driver refused for another reason.
    #[error("live memory: the driver failed: {0}")]
    Hal(String),
}

debug_by_text!(LiveError {
    Unsupported,
    Size,
    OutOfMemory,
    NotCoherent,
    DeviceLost,
    Hal,
});

/// The owner of the mapped memory after wgpu has destroyed its buffer.
type KeepAlive = Box<dyn Any + Send + Sync>;

/// Host-coherent memory, mapped for good: visible to both sides during launches.
///
/// Words are read and written atomically: the only access without an agreement with the kernels
/// using the memory. The memory is zeroed at creation, and stays valid for the host until this
/// value is dropped, even if the device is lost before.
pub(crate) struct LiveBuffer {
    // Dropped before `_keep`: see the module's page.
    buffer: wgpu::Buffer,
    ptr: NonNull<u8>,
    len: u64,
    _keep: KeepAlive,
}

// SAFETY: `ptr` is a mapping of device memory, bound to no thread, that `_keep` keeps valid for
// `len` bytes. All other fields are `Send`.
unsafe impl Send for LiveBuffer {}
// SAFETY: through `&LiveBuffer` the memory is accessed by atomic operations alone.
unsafe impl Sync for LiveBuffer {}

impl fmt::Debug for LiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveBuffer")
            .field("ptr", &self.as_ptr())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Who polls a live buffer. The reader matters where the device has memory of its own: a processor's caches of the
/// other side's memory do not follow writes there. On an NVIDIA H200 a running kernel never sees host writes into host
/// memory the kernel has read before, with whatever fences and atomics; the host sees the kernel's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The host reads the kernels' writes: memory of the host.
    Host,
    /// Running kernels read the host's writes, and the host reads theirs, though slowly: memory of the device where the
    /// device has its own.
    Kernel,
}

impl LiveBuffer {
    /// Allocates `size` bytes, rounded up to a multiple of four, all zero, usable by kernels as
    /// storage, uniforms and indirect grids, and by copies in both directions.
    ///
    /// # Errors
    ///
    /// [`LiveError`], with the remedy.
    pub(crate) fn new(
        device: &wgpu::Device,
        backend: wgpu::Backend,
        reader: Reader,
        size: u64,
        label: &str,
    ) -> Result<LiveBuffer, LiveError> {
        match backend {
            #[cfg(vulkan)]
            wgpu::Backend::Vulkan => {
                recipe::create::<wgpu::hal::api::Vulkan>(device, backend, reader, size, label)
            }
            #[cfg(all(feature = "dx12", windows))]
            wgpu::Backend::Dx12 => {
                recipe::create::<wgpu::hal::api::Dx12>(device, backend, reader, size, label)
            }
            #[cfg(all(feature = "metal", target_vendor = "apple"))]
            wgpu::Backend::Metal => {
                recipe::create::<wgpu::hal::api::Metal>(device, backend, reader, size, label)
            }
            #[cfg(embedded)]
            crate::device::embedded::BACKEND => {
                recipe::create::<tombolo_cpu::Api>(device, backend, reader, size, label)
            }
            _ => {
                // Where no backend is compiled in, nothing else would use these.
                let _ = (device, reader, size, label);
                Err(LiveError::Unsupported { backend })
            }
        }
    }

    /// The same memory as a wgpu buffer, with usages `STORAGE | UNIFORM | INDIRECT | COPY_SRC | COPY_DST`.
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where the memory begins in the host's address space. Valid for [`LiveBuffer::len`] bytes
    /// while `self` lives; kernels may write it at any time.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

// SAFETY: `len` bytes from `ptr` on are one mapping, which lives as long as `self`, and is aligned to more than
// four bytes (checked on creation). Through `&self` words are accessed atomically only.
unsafe impl Words for LiveBuffer {
    fn span(&self) -> (NonNull<u8>, u64) {
        (self.ptr, self.len)
    }
}
