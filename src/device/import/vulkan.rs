//! Importing host memory with `VK_EXT_external_memory_host`, on devices opened by wgpu-hal.

// Vulkan is called through plain function pointers; every block gives its soundness argument.
#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::sync::Arc;

use ash::{ext::external_memory_host, vk};
use wgpu::hal::{self, api::Vulkan};

use super::{IMPORTED_USAGE, ImportError, ImportLimits, Opened};
use crate::device::second_queue;
use crate::device::window::{Pinned, Window};

/// The hal device, kept alive together with its wgpu device.
type HalDevice = Box<dyn Deref<Target = hal::vulkan::Device> + Send + Sync>;

const EXTENSION: &str = "VK_EXT_external_memory_host";
const HOST_ALLOCATION: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// [`IMPORTED_USAGE`] in Vulkan's terms.
fn buffer_usage() -> vk::BufferUsageFlags {
    vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::UNIFORM_BUFFER
        | vk::BufferUsageFlags::INDIRECT_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST
}

/// Opens a device with the extension. `None` where imports are unavailable, or where wgpu itself
/// refuses the descriptor: the caller then asks wgpu for a plain device.
pub(super) fn open(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Option<Result<Opened, wgpu::RequestDeviceError>> {
    // Checks made by wgpu before opening a device, and repeated by no later code.
    let experimental = wgpu::Features::all_experimental_mask();
    let features = descriptor.required_features;
    let strict = wgpu::InstanceFlags::STRICT_WEBGPU_COMPLIANCE;
    if !adapter.features().contains(features)
        || !descriptor.required_limits.check_limits(&adapter.limits())
        || features.intersects(experimental) && !descriptor.experimental_features.is_enabled()
        || wgpu::InstanceFlags::from_env_or_default().contains(strict)
    {
        return None;
    }
    // SAFETY: the hal adapter is only asked questions and opened, and outlives neither.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }?;
    let capabilities = hal.physical_device_capabilities();
    // SwiftShader answers the question about imports only for other kinds of memory, and imports
    // all the same.
    let swiftshader = capabilities.is_driver(vk::DriverId::GOOGLE_SWIFTSHADER);
    if !capabilities.supports_extension(external_memory_host::NAME)
        || !has_vulkan_1_1(hal.shared_instance(), hal.raw_physical_device())
        || !(swiftshader || importable(&hal))
    {
        return None;
    }
    let attempt = |second_family: Option<u32>| {
        let add = move |arguments: hal::vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| {
            if !arguments.extensions.contains(&external_memory_host::NAME) {
                arguments.extensions.push(external_memory_host::NAME);
            }
            if let Some(family) = second_family {
                (arguments.queue_create_infos).push(second_queue::vulkan::queues(family));
            }
        };
        // SAFETY: features and limits are within the adapter's, as checked above. The callback adds an extension known to
        // the driver and a queue of a family that the driver has, and takes nothing away.
        let opened = unsafe {
            hal.open_with_callback(
                features,
                &descriptor.required_limits,
                &descriptor.memory_hints,
                Some(Box::new(add)),
            )
        };
        opened.map(|opened| (opened, second_family))
    };
    let wanted = second_queue::vulkan::family(&hal);
    let opened = match attempt(wanted) {
        Err(error) if wanted.is_some() => {
            let name = adapter.get_info().name;
            log::warn!("{name}: no device with a second queue ({error}); opening one without it");
            attempt(None)
        }
        opened => opened,
    };
    match opened {
        Ok((opened, second_family)) => {
            // SAFETY: the hal device was opened on this adapter, with the features of the descriptor.
            let made = unsafe { adapter.create_device_from_hal::<Vulkan>(opened, descriptor) };
            Some(made.map(|(device, queue)| Opened {
                device,
                queue,
                second_family,
            }))
        }
        Err(error) => {
            let name = adapter.get_info().name;
            log::warn!("{name}: no device with {EXTENSION} ({error}); opening one without it");
            None
        }
    }
}

/// Whether the functions used here exist: all came with Vulkan 1.1, as did the base of the
/// extension. ash panics on a call of a missing function.
fn has_vulkan_1_1(instance: &hal::vulkan::InstanceShared, physical: vk::PhysicalDevice) -> bool {
    // SAFETY: a question about a physical device of this instance.
    let properties = unsafe {
        instance
            .raw_instance()
            .get_physical_device_properties(physical)
    };
    properties.api_version.min(instance.instance_api_version()) >= vk::API_VERSION_1_1
}

/// Whether the driver reports that buffers can be made over host memory. Needs Vulkan 1.1.
fn importable(adapter: &hal::vulkan::Adapter) -> bool {
    let question = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(buffer_usage())
        .handle_type(HOST_ALLOCATION);
    let mut answer = vk::ExternalBufferProperties::default();
    let instance = adapter.shared_instance().raw_instance();
    let physical = adapter.raw_physical_device();
    // SAFETY: a question about a physical device of this instance, with Vulkan 1.1 (the caller's check); the structures
    // are complete.
    unsafe {
        instance.get_physical_device_external_buffer_properties(physical, &question, &mut answer);
    }
    let features = answer.external_memory_properties.external_memory_features;
    features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE)
}

/// The hal device, if opened with the extension.
fn device_with_extension(device: &wgpu::Device) -> Result<HalDevice, ImportError> {
    // SAFETY: the hal device is used to create and destroy a buffer and an allocation, as Vulkan allows from any
    // thread; the hal device is not destroyed.
    let hal = unsafe { device.as_hal::<Vulkan>() }.ok_or(ImportError::Backend {
        backend: wgpu::Backend::Vulkan,
    })?;
    if !hal
        .enabled_device_extensions()
        .contains(&external_memory_host::NAME)
        || !has_vulkan_1_1(hal.shared_instance(), hal.raw_physical_device())
    {
        return Err(ImportError::Extension {
            extension: EXTENSION,
        });
    }
    Ok(Box::new(hal))
}

pub(super) fn limits(device: &wgpu::Device) -> Result<ImportLimits, ImportError> {
    let hal = device_with_extension(device)?;
    Ok(limits_of(&hal, &device.limits()))
}

fn limits_of(hal: &HalDevice, limits: &wgpu::Limits) -> ImportLimits {
    let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
    let mut allocation = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut host)
        .push_next(&mut allocation);
    // SAFETY: a question about the device's physical device, with Vulkan 1.1, the function and the extension
    // (`device_with_extension`).
    unsafe {
        hal.shared_instance()
            .raw_instance()
            .get_physical_device_properties2(hal.raw_physical_device(), &mut properties);
    }
    let alignment = host.min_imported_host_pointer_alignment.max(1);
    let longest = limits
        .max_buffer_size
        .min(allocation.max_memory_allocation_size);
    ImportLimits {
        alignment,
        longest: longest - longest % alignment,
    }
}

/// A buffer over imported memory, and its pages.
struct Imported {
    device: HalDevice,
    buffer: vk::Buffer,
    /// Null until the import has succeeded.
    memory: vk::DeviceMemory,
    pages: Pinned,
}

impl Drop for Imported {
    fn drop(&mut self) {
        let device = self.device.raw_device();
        // SAFETY: both handles were made by `device`, kept alive by `self`, and are unused: either wgpu was never given
        // the buffer, or wgpu has let go of the buffer, after the last submission using it. The pages are released
        // after the memory object: fields are dropped behind the call.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        }
    }
}

pub(super) fn import(
    device: &wgpu::Device,
    window: &Arc<Window>,
    range: Range<u64>,
    label: &str,
) -> Result<wgpu::Buffer, ImportError> {
    let hal = device_with_extension(device)?;
    let pages = window.pin(range.clone())?;
    let (len, limits) = (pages.len(), limits_of(&hal, &device.limits()));
    let aligned = |offset: u64| offset.is_multiple_of(limits.alignment);
    if !aligned(range.start) || !aligned(range.end) || !aligned(pages.as_ptr().addr().get() as u64)
    {
        return Err(ImportError::Alignment {
            start: range.start,
            end: range.end,
            alignment: limits.alignment,
        });
    }
    if len > limits.longest {
        return Err(ImportError::TooLong {
            len,
            limit: limits.longest,
        });
    }
    let refused = |error| refusal(error, &range, len);

    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HOST_ALLOCATION);
    let info = vk::BufferCreateInfo::default()
        .size(len)
        .usage(buffer_usage())
        .sharing_mode(vk::SharingMode::EXCLUSIVE)
        .push_next(&mut external);
    // SAFETY: the device is alive; the size is neither zero nor above the device's limit, and
    // `open` has asked the driver for buffers of this kind.
    let buffer = unsafe { hal.raw_device().create_buffer(&info, None) }.map_err(refused)?;
    let mut imported = Imported {
        device: hal,
        buffer,
        memory: vk::DeviceMemory::null(),
        pages,
    };
    let memory_type = memory_type(&imported, len).map_err(|problem| match problem {
        Problem::Vulkan(error) => refused(error),
        Problem::NotCoherent => ImportError::NotCoherent,
        Problem::Refused(reason) => ImportError::Refused {
            start: range.start,
            end: range.end,
            reason,
        },
    })?;
    let mut pointer = vk::ImportMemoryHostPointerInfoEXT::default()
        .handle_type(HOST_ALLOCATION)
        .host_pointer(imported.pages.as_ptr().as_ptr().cast());
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(len)
        .memory_type_index(memory_type)
        .push_next(&mut pointer);
    let raw = imported.device.raw_device();
    // SAFETY: pointer and length are multiples of the driver's alignment (checked above); the memory behind them is
    // host memory, readable and writable, and stays so while pinned, until `Imported` has freed the memory object. The
    // memory type is from the driver's list for this pointer.
    imported.memory = unsafe { raw.allocate_memory(&info, None) }.map_err(refused)?;
    // SAFETY: both are new and belong to this device; the memory has the size asked for by the buffer and a type
    // allowed by the buffer, and the offset is zero.
    unsafe { raw.bind_buffer_memory(buffer, imported.memory, 0) }.map_err(refused)?;

    // The callback runs inside wgpu, possibly under wgpu's locks. Allowed: the callback calls only Vulkan and the
    // window, and is never the last holder of the wgpu device, since the ending wgpu buffer holds the wgpu device as
    // well.
    let release = Box::new(move || drop(imported));
    // SAFETY: the callback holds the buffer's owner, so the buffer outlives the handle; wgpu never maps a buffer
    // without a MAP usage.
    let handle = unsafe { hal::vulkan::Buffer::from_raw_externally_owned(buffer, release) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some(label),
        size: len,
        usage: IMPORTED_USAGE,
        mapped_at_creation: false,
    };
    // SAFETY: the handle belongs to this device and was created with all usages of the descriptor;
    // the memory is initialised, as committed pages are, and the size is not zero.
    let adopt = || unsafe { device.create_buffer_from_hal::<Vulkan>(handle, &descriptor) };
    match crate::device::capture(device, adopt) {
        (buffer, None) => Ok(buffer),
        (_, Some(error)) => Err(ImportError::Driver(error.to_string())),
    }
}

/// The driver's error for `len` bytes of `range`, in the words of imports.
fn refusal(error: vk::Result, range: &Range<u64>, len: u64) -> ImportError {
    match error {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_TOO_MANY_OBJECTS => ImportError::OutOfMemory { len },
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => ImportError::Refused {
            start: range.start,
            end: range.end,
            reason: "not importable",
        },
        other => ImportError::Driver(other.to_string()),
    }
}

enum Problem {
    Vulkan(vk::Result),
    NotCoherent,
    Refused(&'static str),
}

/// The type of memory to import the pages as: coherent, and cached by the host if there is a choice.
fn memory_type(imported: &Imported, len: u64) -> Result<u32, Problem> {
    use vk::MemoryPropertyFlags as Flags;
    let (hal, device) = (&imported.device, imported.device.raw_device());
    let instance = hal.shared_instance().raw_instance();
    // SAFETY: the buffer is alive and belongs to the device.
    let wanted = unsafe { device.get_buffer_memory_requirements(imported.buffer) };
    if wanted.size > len {
        return Err(Problem::Refused(
            "a buffer needs more memory than its pages",
        ));
    }
    let mut offered = vk::MemoryHostPointerPropertiesEXT::default();
    // ash has no wrapper for this function.
    let functions = external_memory_host::Device::new(instance, device);
    // SAFETY: the device was opened with the extension, so the function is there; the pointer is
    // aligned as the driver asks and names host memory; the structure is complete.
    unsafe {
        (functions.fp().get_memory_host_pointer_properties_ext)(
            device.handle(),
            HOST_ALLOCATION,
            imported.pages.as_ptr().as_ptr().cast(),
            &mut offered,
        )
    }
    .result()
    .map_err(Problem::Vulkan)?;
    // SAFETY: a question about the physical device of this device.
    let memory =
        unsafe { instance.get_physical_device_memory_properties(hal.raw_physical_device()) };
    // Types with other properties need features absent when the device was opened.
    let known =
        Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT | Flags::HOST_CACHED;
    let usable = offered.memory_type_bits & wanted.memory_type_bits;
    let types: Vec<(u32, Flags)> = (0_u32..)
        .zip(memory.memory_types_as_slice())
        .filter(|(index, _)| usable & (1 << index) != 0)
        .map(|(index, kind)| (index, kind.property_flags))
        .filter(|(_, flags)| known.contains(*flags))
        .collect();
    if types.is_empty() {
        return Err(Problem::Refused("no type of memory fits them"));
    }
    types
        .iter()
        .filter(|(_, flags)| flags.contains(Flags::HOST_VISIBLE | Flags::HOST_COHERENT))
        .max_by_key(|(index, flags)| {
            (
                flags.contains(Flags::HOST_CACHED),
                std::cmp::Reverse(*index),
            )
        })
        .map(|(index, _)| *index)
        .ok_or(Problem::NotCoherent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_driver_are_told_apart() {
        let of = |error| refusal(error, &(4096..12_288), 8192);
        for error in [
            vk::Result::ERROR_OUT_OF_HOST_MEMORY,
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            vk::Result::ERROR_TOO_MANY_OBJECTS,
        ] {
            assert_eq!(of(error), ImportError::OutOfMemory { len: 8192 });
        }
        assert!(matches!(
            of(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE),
            ImportError::Refused {
                start: 4096,
                end: 12_288,
                ..
            }
        ));
        let lost = vk::Result::ERROR_DEVICE_LOST;
        assert_eq!(of(lost), ImportError::Driver(lost.to_string()));
    }
}
