//! The recipe for live memory: created, mapped and zeroed through wgpu-hal, and then adopted by wgpu.
//!
//! Compiled where a backend of the build has live memory.

use std::ops::Deref;

use wgpu::hal::{self, Api, Device as _};

use super::{KeepAlive, LiveBuffer, LiveError, Reader};
use crate::device::capture;

/// The hal device, kept alive together with its wgpu device.
pub(super) type HalDevice<A> = Box<dyn Deref<Target = <A as Api>::Device> + Send + Sync>;

/// A backend able to share ownership of a mapped buffer with wgpu.
pub(super) trait LiveApi: Api {
    /// Creates the buffer to be mapped and shared; and with it, where the hal buffer does not
    /// reveal the mapping later, the owner of the mapping.
    ///
    /// # Safety
    ///
    /// As for `wgpu::hal::Device::create_buffer`; and the size in `descriptor` is not zero, not
    /// above the device's limit, and the usages contain `MAP_READ` and not `MAP_WRITE`.
    unsafe fn allocate(
        device: &Self::Device,
        descriptor: &hal::BufferDescriptor<'_>,
    ) -> Result<(Self::Buffer, Option<KeepAlive>), hal::DeviceError> {
        // SAFETY: the caller vouches for the conditions of this function.
        let owner = unsafe { device.create_buffer(descriptor) }?;
        Ok((owner, None))
    }

    /// Splits `owner` into wgpu's handle and the owner of the mapping.
    ///
    /// # Safety
    ///
    /// `owner` and `held` come from one call of [`LiveApi::allocate`] with `device`, and `owner` is mapped. The caller
    /// gives the returned buffer to the wgpu device of `device`, and to nothing else.
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

    /// A hal buffer destroyed when its last holder lets go.
    struct Owned<A: Api> {
        device: HalDevice<A>,
        /// `None` only while being dropped.
        buffer: Option<A::Buffer>,
    }

    impl<A: Api> Drop for Owned<A> {
        fn drop(&mut self) {
            if let Some(buffer) = self.buffer.take() {
                // SAFETY: `device` created `buffer` and is still alive, being a field of `self`. Both holders are gone:
                // the host's `LiveBuffer`, and wgpu's second handle, destroyed by wgpu only once no submission uses the
                // buffer. So nobody can use the buffer.
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
            // SAFETY: the handle is not destroyed through this copy, but by `Owned`, last.
            let raw = unsafe { owner.raw_handle() };
            let owned = Arc::new(Owned::<Self> {
                device,
                buffer: Some(owner),
            });
            let held_by_wgpu = Arc::clone(&owned);
            // The callback runs inside wgpu, possibly under wgpu's locks. Running there is allowed, because `Owned`
            // calls only the hal device, and never is the last holder of the wgpu device: the wgpu buffer whose drop
            // runs the callback holds the wgpu device as well.
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
        // SAFETY: the resource is used through this reference only to keep the resource alive, and so the mapping; a
        // placed Direct3D resource keeps its heap alive.
        let resource = unsafe { owner.raw_resource() }.clone();
        (owner, Box::new(resource))
    }
}

/// wgpu-hal does not hand out its buffers on Metal, so this function creates the buffer, and passes the buffer to
/// wgpu-hal twice: once for wgpu, and once to hold.
#[cfg(all(feature = "metal", target_vendor = "apple"))]
impl LiveApi for hal::api::Metal {
    unsafe fn allocate(
        device: &Self::Device,
        descriptor: &hal::BufferDescriptor<'_>,
    ) -> Result<(Self::Buffer, Option<KeepAlive>), hal::DeviceError> {
        use objc2_metal::{MTLDevice as _, MTLResourceOptions};

        // More than can be addressed is more than there is.
        let bytes = usize::try_from(descriptor.size).map_err(|_| hal::DeviceError::OutOfMemory)?;
        // wgpu-hal's choice for MAP_READ: shared, and served by the host's cache. The buffer gets
        // no label, because a label would take another crate.
        let options =
            MTLResourceOptions::StorageModeShared | MTLResourceOptions::CPUCacheModeDefaultCache;
        let raw = device
            .raw_device()
            .newBufferWithLength_options(bytes, options)
            .ok_or(hal::DeviceError::OutOfMemory)?;
        // SAFETY: `raw` holds `size` bytes, as this handle says. The handle is only ever dropped, releasing a single
        // reference.
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
        // A shared Metal buffer is mapped from creation to end: a reference is enough.
        (owner, Box::new(held))
    }
}

#[cfg(embedded)]
impl LiveApi for tombolo_cpu::Api {
    unsafe fn share(
        _device: HalDevice<Self>,
        owner: Self::Buffer,
        _held: Option<KeepAlive>,
    ) -> (Self::Buffer, KeepAlive) {
        // Handles of the same buffer: the memory lives as long as any handle.
        (owner.clone(), Box::new(owner))
    }
}

/// The one recipe for all backends: create, map, zero, and let wgpu adopt the buffer.
pub(super) fn create<A: LiveApi>(
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

    // SAFETY: the hal device is used to create, map and destroy a buffer of our own, as wgpu-hal allows from any
    // thread; the hal device is not destroyed.
    let hal = unsafe { device.as_hal::<A>() }.ok_or(LiveError::Unsupported { backend })?;
    let hal: HalDevice<A> = Box::new(hal);

    // The effect of the usages is known only there.
    let has_own_memory = device.adapter_info().device_type == wgpu::DeviceType::DiscreteGpu;
    let over_the_bus =
        reader == Reader::Kernel && has_own_memory && backend == wgpu::Backend::Vulkan;
    let descriptor = hal::BufferDescriptor {
        label: Some(label),
        size: len,
        // MAP_READ alone asks for memory served by the host's cache, which makes polling cheap;
        // MAP_WRITE asks for the device's memory in a window over the bus, or else for
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_memory_is_called_one() {
        let of = |error| failure(error, 64);
        assert_eq!(
            of(hal::DeviceError::OutOfMemory),
            LiveError::OutOfMemory { size: 64 }
        );
        for error in [hal::DeviceError::Lost, hal::DeviceError::Unexpected] {
            let words = error.to_string();
            assert_eq!(of(error), LiveError::Hal(words));
        }
    }
}
