//! Mapped memory that stays while the host reads or writes the bytes.
//!
//! A view of mapped memory keeps wgpu's buffer, and no more. Once a device is destroyed, or lost to a lack of memory,
//! the next poll that finds the queue empty, on any thread, gives the memory of all buffers back to the driver
//! (wgpu-core 30.0.1, `Device::release_gpu_resources`), and views lead nowhere. Only wgpu's lock for destroying
//! resources prevents such a release: [`wgpu::Buffer::as_hal`] holds the lock for reading, and says whether the memory
//! is still there. So bytes are looked at with the lock's guard in hand.
//!
//! Other threads wait for the lock once one of them destroys something, and a thread must not take the lock twice: no
//! call of wgpu while memory is pinned, and no wait for other threads.

#![allow(unsafe_code)]

/// Why mapped memory cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreachable {
    /// The memory is gone with its device. The finder may be the first: the loss is told behind the end of the memory.
    #[error("its device was destroyed or lost")]
    Gone,
    /// The memory is not mapped, in wgpu's words.
    #[error("{0}")]
    Refused(String),
}

impl Unreachable {
    /// Why wgpu has given no view of a buffer.
    pub(crate) fn of(
        device: &wgpu::Device,
        buffer: &wgpu::Buffer,
        error: &wgpu::MapRangeError,
    ) -> Self {
        match pinned(device, buffer, || ()) {
            Err(gone) => gone,
            Ok(()) => Self::Refused(error.to_string()),
        }
    }
}

/// Calls `look` while the memory of a mapped buffer stays where it is. A view is made before. `look` is as short as a
/// copy, and neither calls wgpu nor waits for a thread that may.
///
/// # Errors
/// [`Unreachable::Gone`].
#[cfg_attr(
    not(any(live_memory, gles)),
    expect(
        unused_macros,
        unused_variables,
        reason = "no backend of the build has guards"
    )
)]
pub(crate) fn pinned<T>(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    look: impl FnOnce() -> T,
) -> Result<T, Unreachable> {
    // A guard of another backend than the buffer's is none, and wgpu's handles do not cheaply tell which is theirs.
    macro_rules! try_backend {
        ($api:ty) => {
            // SAFETY: the raw buffer is held, and neither used nor destroyed.
            if let Some(guard) = unsafe { buffer.as_hal::<$api>() } {
                let looked = look();
                drop(guard);
                return Ok(looked);
            }
        };
    }
    #[cfg(vulkan)]
    try_backend!(wgpu::hal::api::Vulkan);
    #[cfg(embedded)]
    try_backend!(tombolo_cpu::Api);
    #[cfg(all(feature = "metal", target_vendor = "apple"))]
    try_backend!(wgpu::hal::api::Metal);
    #[cfg(all(feature = "dx12", windows))]
    try_backend!(wgpu::hal::api::Dx12);
    #[cfg(gles)]
    try_backend!(wgpu::hal::api::Gles);
    match is_known(device.adapter_info().backend) {
        true => Err(Unreachable::Gone),
        // A browser has one thread and keeps the bytes itself. What else the program has built wgpu with is unknown here.
        false => Ok(look()),
    }
}

/// Whether [`pinned`] has asked for a guard of the backend.
fn is_known(backend: wgpu::Backend) -> bool {
    match backend {
        wgpu::Backend::Vulkan => cfg!(vulkan),
        wgpu::Backend::Metal => cfg!(all(feature = "metal", target_vendor = "apple")),
        wgpu::Backend::Dx12 => cfg!(all(feature = "dx12", windows)),
        wgpu::Backend::Gl => cfg!(gles),
        #[cfg(embedded)]
        crate::device::embedded::BACKEND => true,
        _ => false,
    }
}
