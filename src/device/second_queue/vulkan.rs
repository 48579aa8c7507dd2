//! The second queue on Vulkan: the family, and a hal device over a driver's device that another one owns.

// Vulkan is reached through wgpu-hal; every block gives its soundness argument.
#![allow(unsafe_code)]

use ash::vk;
use wgpu::hal::{self, api::Vulkan};

use super::{Origin, refusal};
use crate::device::DeviceError;

/// wgpu-hal takes the first queue of this family.
const FAMILY_OF_WGPU: u32 = 0;

/// A family of queues that compute and do not draw, if the driver has one besides wgpu's, and if two queues of that driver
/// have been seen to work so.
///
/// wgpu's barriers name stages of graphics, which such a family lacks. NVIDIA's driver takes them; no other driver with such a
/// family was tried.
pub(crate) fn family(adapter: &hal::vulkan::Adapter) -> Option<u32> {
    let is_known = |driver| adapter.physical_device_capabilities().is_driver(driver);
    if !is_known(vk::DriverId::NVIDIA_PROPRIETARY) {
        return None;
    }
    let instance = adapter.shared_instance().raw_instance();
    let physical = adapter.raw_physical_device();
    // SAFETY: a question about a physical device of this instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let computes_alone = |flags: vk::QueueFlags| {
        flags.contains(vk::QueueFlags::COMPUTE) && !flags.contains(vk::QueueFlags::GRAPHICS)
    };
    (0..)
        .zip(&families)
        .find(|(index, family)| *index != FAMILY_OF_WGPU && computes_alone(family.queue_flags))
        .map(|(index, _)| index)
}

/// One queue of `family`.
pub(crate) fn queues(family: u32) -> vk::DeviceQueueCreateInfo<'static> {
    vk::DeviceQueueCreateInfo::default()
        .queue_family_index(family)
        .queue_priorities(&[1.0])
}

/// A wgpu device over the driver's device of `first`, with the first queue of `origin`'s family.
pub(super) fn open(
    first: &wgpu::Device,
    origin: &Origin,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), DeviceError> {
    let name = || origin.adapter.get_info().name;
    let gone = || refusal(name(), "the device is not of Vulkan");
    // SAFETY: adapter and device are only asked questions; the driver's device stays with `first`.
    let (adapter, owner) = unsafe {
        let adapter = origin.adapter.as_hal::<Vulkan>().ok_or_else(gone)?;
        (adapter, first.as_hal::<Vulkan>().ok_or_else(gone)?)
    };
    // Kept by the new device to its end, so that the driver's device outlives both.
    let kept = first.clone();
    // SAFETY: the driver's device was opened on this adapter with the features and limits of the descriptor (those of
    // `first`), with the extensions named and with a queue of the family (`queues`), which nobody else uses: the runtime
    // opens the second queue of a device once. The driver's device is not destroyed before the callback runs, because the callback
    // holds its owner; with a callback wgpu-hal does not destroy the driver's device itself.
    let opened = unsafe {
        adapter.device_from_raw(
            owner.raw_device().clone(),
            Some(Box::new(move || drop(kept))),
            owner.enabled_device_extensions(),
            descriptor.required_features,
            &descriptor.required_limits,
            &descriptor.memory_hints,
            origin.family,
            0,
        )
    };
    let opened = opened.map_err(|error| refusal(name(), error.to_string()))?;
    drop((owner, adapter));
    // SAFETY: the hal device is one of this adapter, with the features of the descriptor.
    let made = unsafe { (origin.adapter).create_device_from_hal::<Vulkan>(opened, descriptor) };
    made.map_err(|source| DeviceError::Open {
        adapter: name(),
        source,
    })
}
