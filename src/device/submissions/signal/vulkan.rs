//! Vulkan: a timeline semaphore beside wgpu's own.

use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan::Fence;

use super::fence::SignalApi;

impl SignalApi for Vulkan {
    fn is_usable(fence: &Fence) -> bool {
        // A pool of fences, where the driver has no timeline semaphores, is wgpu-hal's own to signal.
        matches!(fence, Fence::TimelineSemaphore(_))
    }

    fn stage(queue: &Self::Queue, fence: &Fence, number: u64) {
        if let Fence::TimelineSemaphore(semaphore) = fence {
            queue.add_signal_semaphore(*semaphore, Some(number));
        }
    }

    fn take_back(queue: &Self::Queue, fence: &Fence) -> bool {
        match fence {
            Fence::TimelineSemaphore(semaphore) => queue.remove_signal_semaphore(*semaphore),
            Fence::FencePool(_) => false,
        }
    }
}
