//! How much memory a device can work with at once.
//!
//! wgpu does not tell, so the backends are asked themselves. An estimate on every device: nothing fails beyond the
//! size, but memory starts to move or allocations to be refused.

// Drivers are asked through wgpu-hal; the block gives its soundness argument.
#![allow(unsafe_code)]

/// Bytes that kernels of `device` can have in memory at once, where its interface tells:
///
/// - Vulkan: the largest heap of device-local memory, or the grant of `VK_EXT_memory_budget`;
/// - Metal: `recommendedMaxWorkingSetSize`;
/// - the embedded adapter: the machine's memory.
///
/// Direct3D, OpenGL and WebGPU tell nothing that is comparable.
pub(crate) fn working_set(device: &wgpu::Device) -> Option<u64> {
    match device.adapter_info().backend {
        #[cfg(vulkan)]
        wgpu::Backend::Vulkan => vulkan::working_set(device),
        #[cfg(all(feature = "metal", target_vendor = "apple"))]
        wgpu::Backend::Metal => {
            use objc2_metal::MTLDevice as _;
            // SAFETY: the hal device is only asked a question.
            let hal = unsafe { device.as_hal::<wgpu::hal::api::Metal>() }?;
            // Zero is the answer of devices that have no opinion.
            Some(hal.raw_device().recommendedMaxWorkingSetSize()).filter(|&bytes| bytes > 0)
        }
        #[cfg(embedded)]
        super::embedded::BACKEND => machine_memory(),
        _ => None,
    }
}

/// Bytes of the machine's memory, where the system can be asked.
pub(crate) fn machine_memory() -> Option<u64> {
    #[cfg(unix)]
    {
        // SAFETY: both are questions without preconditions.
        let (pages, bytes) = unsafe {
            (
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        u64::try_from(pages)
            .ok()?
            .checked_mul(u64::try_from(bytes).ok()?)
    }
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
        let mut status = MEMORYSTATUSEX {
            dwLength: size_of::<MEMORYSTATUSEX>() as u32,
            ..Default::default()
        };
        // SAFETY: a question, whose answer goes to a structure of the length that it tells.
        let answered = unsafe { GlobalMemoryStatusEx(&mut status) } != 0;
        answered.then_some(status.ullTotalPhys)
    }
    #[cfg(not(any(unix, windows)))]
    None
}

#[cfg(vulkan)]
mod vulkan {
    use ash::{ext, vk};
    use wgpu::hal::api::Vulkan;

    pub(super) fn working_set(device: &wgpu::Device) -> Option<u64> {
        // SAFETY: the hal device is only asked for its physical device.
        let hal = unsafe { device.as_hal::<Vulkan>() }?;
        let (shared, physical) = (hal.shared_instance(), hal.raw_physical_device());
        let instance = shared.raw_instance();
        // SAFETY: a question about a physical device of this instance.
        let version = unsafe { instance.get_physical_device_properties(physical) }.api_version;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        // ash panics on a call of a missing function; this function came with Vulkan 1.1.
        let asks_budget = version.min(shared.instance_api_version()) >= vk::API_VERSION_1_1
            // SAFETY: as above.
            && unsafe { instance.enumerate_device_extension_properties(physical) }
                .is_ok_and(|known| {
                    let is_it = |e: &vk::ExtensionProperties| {
                        e.extension_name_as_c_str() == Ok(ext::memory_budget::NAME)
                    };
                    known.iter().any(is_it)
                });
        let memory = if asks_budget {
            let mut properties =
                vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
            // SAFETY: as above; the structures are complete, and the driver knows the second one.
            unsafe { instance.get_physical_device_memory_properties2(physical, &mut properties) };
            properties.memory_properties
        } else {
            // SAFETY: as above.
            unsafe { instance.get_physical_device_memory_properties(physical) }
        };
        let heaps = memory.memory_heaps_as_slice();
        largest(heaps, &budget.heap_budget)
    }

    /// The largest device-local heap; a budget of zero is none.
    pub(super) fn largest(heaps: &[vk::MemoryHeap], budgets: &[u64]) -> Option<u64> {
        let local = heaps
            .iter()
            .zip(budgets)
            .filter(|(heap, _)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        local
            .map(|(heap, &budget)| match budget {
                0 => heap.size,
                budget => heap.size.min(budget),
            })
            .max()
            .filter(|&bytes| bytes > 0)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_largest_local_heap_counts_as_far_as_its_budget_goes() {
            let heap = |size, flags| vk::MemoryHeap { size, flags };
            let local = vk::MemoryHeapFlags::DEVICE_LOCAL;
            let host = vk::MemoryHeapFlags::empty();
            let heaps = [heap(900, host), heap(500, local), heap(200, local)];
            assert_eq!(largest(&heaps, &[0, 0, 0]), Some(500));
            assert_eq!(largest(&heaps, &[10, 100, 0]), Some(200));
            assert_eq!(largest(&heaps, &[10, 700, 0]), Some(500));
            assert_eq!(largest(&heaps[..1], &[0]), None);
            assert_eq!(largest(&[], &[]), None);
        }
    }
}
