//! Live memory: a buffer that the host and a running kernel see at the same time.
//!
//! wgpu itself has no such thing: a buffer is either mapped by the host or in use by the device.
//! wgpu-hal has, because every backend can keep host-visible memory mapped for good. So this room
//! allocates through wgpu-hal, keeps the host's pointer, and hands wgpu a buffer that it binds,
//! copies and tracks like any other, and never maps.
//!
//! # Who owns the memory
//!
//! wgpu destroys *every* buffer of a device that was lost or destroyed, whoever still holds the
//! `wgpu::Buffer`, and `wgpu::Buffer::destroy` may be called through any clone. If wgpu owned the
//! memory, the pointer held here would then dangle, and reading it from safe code would be
//! undefined behaviour. Each backend therefore keeps something alive that wgpu cannot destroy:
//!
//! | backend | what wgpu gets | what keeps the pointer valid |
//! | --- | --- | --- |
//! | Vulkan | a second handle to the buffer, not owning it | the buffer and its allocation, freed once host *and* device have let go |
//! | Direct3D 12 | the buffer | a further reference to the resource, whose mapping lives as long as it does |
//! | Metal | the buffer | a further reference to the buffer, whose memory is mapped as long as it lives |
//! | OpenGL, WebGPU | (not supported) | |
//!
//! OpenGL copies on mapping, and WebGPU has no memory of this kind.
//!
//! This room provides memory that is mapped coherently. Whether a *running* kernel and the host see
//! each other's writes in it is up to the driver (Metal, for one, promises it only between command
//! buffers), so it is measured when a device is opened.

// Every block says why it is sound.
#![allow(unsafe_code)]
// Where no backend of the build has live memory, the recipe has no caller.
#![cfg_attr(
    not(any(
        vulkan,
        all(feature = "dx12", windows),
        all(feature = "metal", target_vendor = "apple")
    )),
    allow(dead_code, unused_imports)
)]

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use wgpu::hal::{self, Api, Device as _};

use super::capture;
use super::words::Words;

/// Why live memory could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// The driver refused for another reason.
    #[error("live memory: the driver failed: {0}")]
    Hal(String),
}

/// The hal device, kept alive together with the wgpu device that it belongs to.
type HalDevice<A> = Box<dyn Deref<Target = <A as Api>::Device> + Send + Sync>;

/// What keeps the mapped memory alive when wgpu has destroyed its buffer.
type KeepAlive = Box<dyn Any + Send + Sync>;

/// A backend that can share ownership of a mapped buffer with wgpu.
trait LiveApi: Api {
    /// Creates the buffer that is to be mapped and shared; and with it, where the hal buffer does
    /// not reveal it later, what will keep the mapping valid.
    ///
    /// # Safety
    ///
    /// As for `wgpu::hal::Device::create_buffer`; and the size in `descriptor` is not zero, not
    /// above the device's limit, and the usages contain `MAP_READ` and not `MAP_WRITE`.
    unsafe fn allocate(
        device: &Self::Device,
        descriptor: &hal::BufferDescriptor<'_>,
    ) -> Result<(Self::Buffer, Option<KeepAlive>), hal::DeviceError> {
        // SAFETY: the caller vouches for what this function asks for.
        let owner = unsafe { device.create_buffer(descriptor) }?;
        Ok((owner, None))
    }

    /// Splits `owner` into the handle that wgpu is given and what keeps its mapping valid.
    ///
    /// # Safety
    ///
    /// `owner` and `held` come from one call of [`LiveApi::allocate`] with `device`, and `owner` is
    /// mapped. The caller gives the returned buffer to the wgpu device that `device` belongs to, and
    /// to nothing else.
    unsafe fn share(
        device: HalDevice<Self>,
        owner: Self::Buffer,
        held: Option<KeepAlive>,
    ) -> (Self::Buffer, KeepAlive);
}

#[cfg(vulkan)]
mod vulkan {
    use std::sync::Arc;

    use super::{Api, HalDevice, KeepAlive, LiveApi, hal};
    use hal::Device as _;

    /// A hal buffer that is destroyed when its last holder lets go.
    struct Owned<A: Api> {
        device: HalDevice<A>,
        /// `None` only while being dropped.
        buffer: Option<A::Buffer>,
    }

    impl<A: Api> Drop for Owned<A> {
        fn drop(&mut self) {
            if let Some(buffer) = self.buffer.take() {
                // SAFETY: `device` created `buffer` and is still alive, being a field of `self`.
                // Both holders are gone: the host's `LiveBuffer`, and wgpu's second handle, which
                // wgpu destroys only once no submission uses it. So nobody can use the buffer.
                unsafe { self.device.destroy_buffer(buffer) };
            }
        }
    }

    impl LiveApi for hal::api::Vulkan {
        unsafe fn share(
            device: HalDevice<Self>,
            owner: Self::Buffer,
            _held: Option<KeepAlive>,
        ) -> (Self::Buffer, KeepAlive) {
            // SAFETY: the handle is not destroyed through this copy; `Owned` does that, last.
            let raw = unsafe { owner.raw_handle() };
            let owned = Arc::new(Owned::<Self> {
                device,
                buffer: Some(owner),
            });
            let held_by_wgpu = Arc::clone(&owned);
            // The callback runs inside wgpu, possibly under its locks. It may, because `Owned`
            // calls only the hal device, and never is the last holder of the wgpu device: the wgpu
            // buffer whose drop runs the callback holds that device as well.
            let release = Box::new(move || drop(held_by_wgpu));
            // SAFETY: the callback holds `owned`, so `raw` and its memory outlive the handle.
            let handle = unsafe { hal::vulkan::Buffer::from_raw_externally_owned(raw, release) };
            (handle, Box::new(owned))
        }
    }
}

#[cfg(all(feature = "dx12", windows))]
impl LiveApi for hal::api::Dx12 {
    unsafe fn share(
        _device: HalDevice<Self>,
        owner: Self::Buffer,
        _held: Option<KeepAlive>,
    ) -> (Self::Buffer, KeepAlive) {
        // SAFETY: the resource is used through this reference only to keep it, and with it the
        // mapping, alive; a Direct3D resource keeps the heap that it is placed in alive.
        let resource = unsafe { owner.raw_resource() }.clone();
        (owner, Box::new(resource))
    }
}

/// wgpu-hal does not hand out the buffers that it creates on Metal, so this creates one that it is
/// then given, and gives it the same buffer twice: once for wgpu, and once to hold.
#[cfg(all(feature = "metal", target_vendor = "apple"))]
impl LiveApi for hal::api::Metal {
    unsafe fn allocate(
        device: &Self::Device,
        descriptor: &hal::BufferDescriptor<'_>,
    ) -> Result<(Self::Buffer, Option<KeepAlive>), hal::DeviceError> {
        use objc2_metal::{MTLDevice as _, MTLResourceOptions};

        // More than can be addressed is more than there is.
        let bytes = usize::try_from(descriptor.size).map_err(|_| hal::DeviceError::OutOfMemory)?;
        // What wgpu-hal chooses for MAP_READ: shared, and served by the host's cache. The buffer
        // gets no label, because that alone would take one more crate.
        let options =
            MTLResourceOptions::StorageModeShared | MTLResourceOptions::CPUCacheModeDefaultCache;
        let raw = device
            .raw_device()
            .newBufferWithLength_options(bytes, options)
            .ok_or(hal::DeviceError::OutOfMemory)?;
        // SAFETY: `raw` holds `size` bytes, and so says this handle. It is only ever dropped, which
        // releases one reference.
        let held = unsafe { hal::metal::Device::buffer_from_raw(raw.clone(), descriptor.size) };
        // SAFETY: `raw` was created by this device and holds `size` bytes.
        let owner = unsafe { hal::metal::Device::buffer_from_raw(raw, descriptor.size) };
        Ok((owner, Some(Box::new(held))))
    }

    unsafe fn share(
        _device: HalDevice<Self>,
        owner: Self::Buffer,
        held: Option<KeepAlive>,
    ) -> (Self::Buffer, KeepAlive) {
        // A shared Metal buffer is mapped from its creation to its end, so the reference will do.
        (owner, Box::new(held))
    }
}

/// Host-coherent memory, mapped for good: both sides see it while kernels run.
///
/// Words are read and written atomically; that is the only access that needs no agreement with the
/// kernels that use the memory. The memory is zeroed when it is created, and it stays valid for the
/// host until this value is dropped, even if the device is lost before.
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

/// Who polls a live buffer. It matters where the device has memory of its own: what a processor's caches hold of the
/// other's memory does not follow what is written there. On an NVIDIA H200 a running kernel never sees what the host
/// writes into memory of the host that it has read before, with whatever fences and atomics; the host sees what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The host reads what kernels write: memory of the host.
    Host,
    /// Running kernels read what the host writes, which also sees what they write, though slowly: memory of the
    /// device where it has its own.
    Kernel,
}

impl LiveBuffer {
    /// Allocates `size` bytes, rounded up to a multiple of four, all zero, usable by kernels as
    /// storage, uniforms and indirect grids, and by copies in both directions.
    ///
    /// # Errors
    ///
    /// [`LiveError`], which says what to do instead.
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
                create::<hal::api::Vulkan>(device, backend, reader, size, label)
            }
            #[cfg(all(feature = "dx12", windows))]
            wgpu::Backend::Dx12 => create::<hal::api::Dx12>(device, backend, reader, size, label),
            #[cfg(all(feature = "metal", target_vendor = "apple"))]
            wgpu::Backend::Metal => create::<hal::api::Metal>(device, backend, reader, size, label),
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

/// The one recipe for all backends: create, map, zero, and let wgpu adopt the buffer.
fn create<A: LiveApi>(
    device: &wgpu::Device,
    backend: wgpu::Backend,
    reader: Reader,
    size: u64,
    label: &str,
) -> Result<LiveBuffer, LiveError> {
    let limit = device.limits().max_buffer_size;
    let len = size
        .checked_next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)
        .filter(|len| (1..=limit).contains(len))
        .ok_or(LiveError::Size { size, limit })?;
    let bytes = usize::try_from(len).map_err(|_| LiveError::Size { size, limit })?;

    // SAFETY: the hal device is used to create, map and destroy one buffer that is ours, all of
    // which wgpu-hal allows from any thread; it is not destroyed.
    let hal = unsafe { device.as_hal::<A>() }.ok_or(LiveError::Unsupported { backend })?;
    let hal: HalDevice<A> = Box::new(hal);

    // Only there is it known what the usages lead to.
    let has_own_memory = device.adapter_info().device_type == wgpu::DeviceType::DiscreteGpu;
    let over_the_bus =
        reader == Reader::Kernel && has_own_memory && backend == wgpu::Backend::Vulkan;
    let descriptor = hal::BufferDescriptor {
        label: Some(label),
        size: len,
        // MAP_READ alone asks for memory that the host's cache serves, which is what makes polling
        // cheap; MAP_WRITE asks for the device's memory in a window over the bus, or else for
        // write-combined memory. The mapping may be written in any case: no supported backend maps
        // read-only.
        usage: match over_the_bus {
            true => wgpu::BufferUses::MAP_READ | wgpu::BufferUses::MAP_WRITE,
            false => wgpu::BufferUses::MAP_READ,
        } | wgpu::BufferUses::STORAGE_READ_ONLY
            | wgpu::BufferUses::STORAGE_READ_WRITE
            | wgpu::BufferUses::UNIFORM
            | wgpu::BufferUses::INDIRECT
            | wgpu::BufferUses::COPY_SRC
            | wgpu::BufferUses::COPY_DST,
        memory_flags: hal::MemoryFlags::PREFER_COHERENT,
    };
    // SAFETY: the size is neither zero nor above the device's limit; the usages are all known, and
    // Vulkan, which alone gets MAP_WRITE beside MAP_READ, allocates for both.
    let (owner, held) = unsafe { A::allocate(&hal, &descriptor) }.map_err(|e| failure(e, size))?;
    // SAFETY: the buffer was created with MAP_READ, and the range is all of it.
    let mapping = match unsafe { hal.map_buffer(&owner, 0..len) } {
        Ok(mapping) if mapping.is_coherent && mapping.ptr.cast::<u32>().is_aligned() => mapping,
        refused => {
            // SAFETY: nothing has used the buffer; destroying it also ends the mapping.
            unsafe { hal.destroy_buffer(owner) };
            return Err(match refused {
                Ok(_) => LiveError::NotCoherent,
                Err(error) => failure(error, size),
            });
        }
    };
    // Fresh device memory may hold anything, and wgpu takes an adopted buffer as initialised.
    // SAFETY: the mapping is valid for `len` bytes, and no kernel knows of it yet.
    unsafe { mapping.ptr.write_bytes(0, bytes) };

    // SAFETY: `hal` created `owner` together with `held`, `owner` is mapped, and the handle goes to
    // `device` right below.
    let (handle, keep) = unsafe { A::share(hal, owner, held) };
    let adopted = wgpu::BufferDescriptor {
        label: Some(label),
        size: len,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::UNIFORM
            | wgpu::BufferUsages::INDIRECT
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    // SAFETY: the handle belongs to this device; the descriptor asks for no more than the buffer
    // was created with; the memory is initialised, and the size is not zero.
    let adopt = || unsafe { device.create_buffer_from_hal::<A>(handle, &adopted) };
    let (buffer, error) = capture(device, adopt);
    if let Some(error) = error {
        return Err(LiveError::Hal(error.to_string()));
    }
    Ok(LiveBuffer {
        buffer,
        ptr: mapping.ptr,
        len,
        _keep: keep,
    })
}

fn failure(error: hal::DeviceError, size: u64) -> LiveError {
    match error {
        hal::DeviceError::OutOfMemory => LiveError::OutOfMemory { size },
        other => LiveError::Hal(other.to_string()),
    }
}
