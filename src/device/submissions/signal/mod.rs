//! Signals: a backend's word for ends, without wgpu's locks: a hint to ask wgpu, and of its own worth where proven.
//!
//! wgpu has one way to wait, `Device::poll` with `PollType::Wait`. wgpu's wait holds a lock of the device while
//! blocking, and asserts in a race with other polls and submissions (wgpu-core 30.0.1, `Device::maintain`: the value of
//! the fence is read before the queue is found empty). So the runtime never waits that way. Where wgpu-hal lets a
//! submission signal another object beside wgpu's own fence, the submission signals a fence of the runtime's own with
//! its number:
//!
//! | backend | what a submission signals | how a thread waits |
//! | --- | --- | --- |
//! | Vulkan with timeline semaphores | a timeline semaphore | `vkWaitSemaphores` |
//! | Direct3D 12 | an `ID3D12Fence` | an event of the fence |
//! | Metal | an `MTLSharedEvent` | by looking, at growing distances |
//! | embedded | a fence of the adapter | on the fence |
//! | others | nothing | by polling wgpu, at growing distances |
//!
//! A staged signal is taken by the next submission to reach the driver, possibly one of the program's own, made on
//! another thread: then the signal comes too early. So a signal proves the end of a batch only where the batch's own
//! submission is known to have taken it ([`order`](super::order)), and where signals come in order: Vulkan ("Semaphore
//! Signaling": the first scope of a signal has all that was submitted before), Direct3D 12 (the queue signals a fence
//! behind everything before) and the embedded adapter. Else wgpu is asked, and a signal that is wrong, or not there,
//! costs time and nothing else.
//!
//! The signal is a witness of three other things: a submission has *not* reached the driver (its staged data is still
//! there); the device is gone in its driver's eyes; and, by the latter, wgpu may be polled without a panic.
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

/// The driver reports the device as gone: no part of it runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// A fence of the runtime's own that submissions signal.
pub(super) trait Signal: Send + Sync {
    /// Has the next submission of the queue signal `number`, larger than any staged before. False where that is not to
    /// be had.
    fn stage(&self, queue: &wgpu::Queue, number: u64) -> bool;

    /// Takes the staged signal back; true if no submission has taken it.
    fn take_back(&self, queue: &wgpu::Queue) -> bool;

    /// The highest number that was signalled.
    fn reached(&self) -> Result<u64, Gone>;

    /// Waits until `number` is signalled; false if `timeout` came first.
    fn wait(&self, number: u64, timeout: Duration) -> Result<bool, Gone>;

    /// Whether a number is signalled when everything has ended that was submitted up to the submission that signals it.
    fn is_in_order(&self) -> bool;

    /// Why the device is gone, where it can say so.
    fn loss(&self) -> Option<String>;
}

/// The signal of a device, where the backend has one.
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
