//! Signals: how a backend tells a thread, cheaply and without wgpu's locks, that it is worth asking wgpu.
//!
//! wgpu has one way to wait, `Device::poll` with `PollType::Wait`. That holds a lock of the device while it blocks, and
//! asserts in a race with other polls and submissions (wgpu-core 30.0.1, `Device::maintain`: the value of the fence is
//! read before the queue is found empty). So the runtime never waits that way. Where wgpu-hal lets a submission signal
//! something beside wgpu's own fence, it signals a fence of the runtime's own with the number of the submission:
//!
//! | backend | what a submission signals | how a thread waits |
//! | --- | --- | --- |
//! | Vulkan with timeline semaphores | a timeline semaphore | `vkWaitSemaphores` |
//! | Direct3D 12 | an `ID3D12Fence` | an event of the fence |
//! | Metal | an `MTLSharedEvent` | by looking, at growing distances |
//! | embedded | a fence of the adapter | on the fence |
//! | others | nothing | by polling wgpu, at growing distances |
//!
//! A signal proves nothing. What is staged is taken by whichever submission reaches the driver next, which may be one of
//! the program's own, made on another thread: then the signal comes too early, and the thread goes on to ask wgpu. So a
//! signal that is wrong, or not there, costs time and nothing else. It is a witness of three other things: that a
//! submission has *not* reached the driver (what was staged is still there); that the device is gone as its driver sees
//! it; and, by that, that wgpu may be polled without a panic.
//!
//! Another backend of wgpu-hal plugs in by implementing `fence::SignalApi`, and with a line in [`open`].

use std::sync::Arc;
use std::time::Duration;

#[cfg(all(feature = "dx12", windows))]
mod dx12;
#[cfg(embedded)]
mod embedded;
#[cfg(signals)]
mod fence;
#[cfg(all(feature = "metal", target_vendor = "apple"))]
mod metal;
#[cfg(vulkan)]
mod vulkan;

/// The driver says that the device is gone: nothing of it runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// A fence of the runtime's own that submissions signal.
pub(super) trait Signal: Send + Sync {
    /// Has the next submission of the queue signal `number`, which is more than what was staged before. False where
    /// that is not to be had.
    fn stage(&self, queue: &wgpu::Queue, number: u64) -> bool;

    /// Takes back what was staged; true if no submission has taken it.
    fn take_back(&self, queue: &wgpu::Queue) -> bool;

    /// The highest number that was signalled.
    fn reached(&self) -> Result<u64, Gone>;

    /// Waits until `number` is signalled; false if `timeout` came first.
    fn wait(&self, number: u64, timeout: Duration) -> Result<bool, Gone>;

    /// Why the device is gone, where it can say so.
    fn loss(&self) -> Option<String>;
}

/// The signal of a device, where its backend has one.
pub(super) fn open(device: &wgpu::Device) -> Option<Arc<dyn Signal>> {
    match device.adapter_info().backend {
        #[cfg(vulkan)]
        wgpu::Backend::Vulkan => fence::open::<wgpu::hal::api::Vulkan>(device),
        #[cfg(all(feature = "dx12", windows))]
        wgpu::Backend::Dx12 => fence::open::<wgpu::hal::api::Dx12>(device),
        #[cfg(all(feature = "metal", target_vendor = "apple"))]
        wgpu::Backend::Metal => fence::open::<wgpu::hal::api::Metal>(device),
        #[cfg(embedded)]
        crate::device::embedded::BACKEND => fence::open::<tombolo_cpu::Api>(device),
        _ => None,
    }
}
