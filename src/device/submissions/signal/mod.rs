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
//! | others | nothing | by polling wgpu, at growing distances |
//!
//! A signal proves nothing. What is staged is taken by whichever submission reaches the driver next, which may be one of
//! the program's own, made on another thread: then the signal comes too early, and the thread goes on to ask wgpu. So a
//! signal that is wrong, or not there, costs time and nothing else. It is a witness of three other things: that a
//! submission has *not* reached the driver (what was staged is still there); that the device is gone as its driver sees
//! it; and, by that, that wgpu may be polled without a panic.
//!
//! Another backend of wgpu-hal plugs in by implementing [`SignalApi`], and with a line in [`open`].

// wgpu-hal is unsafe throughout; every block says why it is sound.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use wgpu::hal::{self, Api, Device as _};

#[cfg(all(feature = "dx12", windows))]
mod dx12;
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
}

/// A backend whose submissions can signal a fence beside wgpu's own.
pub(super) trait SignalApi: Api {
    /// Whether fences of this device can be signalled so.
    fn is_usable(fence: &Self::Fence) -> bool;

    /// Has the next submission signal the fence.
    fn stage(queue: &Self::Queue, fence: &Self::Fence, number: u64);

    /// Takes that back; true if no submission has taken it.
    fn take_back(queue: &Self::Queue, fence: &Self::Fence) -> bool;

    /// The highest number that was signalled.
    fn reached(device: &Self::Device, fence: &Self::Fence) -> Result<u64, hal::DeviceError> {
        // SAFETY: the fence was created by this device and is not destroyed before its owner is dropped.
        unsafe { device.get_fence_value(fence) }
    }

    /// Waits for a number, false if `timeout` came first.
    fn wait(
        device: &Self::Device,
        fence: &Self::Fence,
        number: u64,
        timeout: Duration,
    ) -> Result<bool, hal::DeviceError> {
        // SAFETY: as above; a number that is never signalled only lets the time run out.
        unsafe { device.wait(fence, number, Some(timeout)) }
    }
}

/// The hal device, kept alive together with the wgpu device that it belongs to.
type HalDevice<A> = Box<dyn Deref<Target = <A as Api>::Device> + Send + Sync>;

/// A fence of wgpu-hal.
struct HalSignal<A: SignalApi> {
    device: HalDevice<A>,
    /// `None` only while being dropped.
    fence: Option<A::Fence>,
}

impl<A: SignalApi> HalSignal<A> {
    fn open(device: &wgpu::Device) -> Option<Arc<dyn Signal>> {
        // SAFETY: the hal device makes, asks and destroys a fence that is ours, from any thread as wgpu-hal allows; it
        // is not destroyed.
        let hal = unsafe { device.as_hal::<A>() }?;
        let hal: HalDevice<A> = Box::new(hal);
        // SAFETY: as above.
        let fence = unsafe { hal.create_fence() }.ok()?;
        let signal = Self {
            device: hal,
            fence: Some(fence),
        };
        let is_usable = signal.fence.as_ref().is_some_and(A::is_usable);
        is_usable.then(|| Arc::new(signal) as Arc<dyn Signal>)
    }

    fn on_queue(
        &self,
        queue: &wgpu::Queue,
        call: impl FnOnce(&A::Queue, &A::Fence) -> bool,
    ) -> bool {
        // SAFETY: the hal queue is only told what to signal with the next submission.
        let hal = unsafe { queue.as_hal::<A>() };
        match (hal, &self.fence) {
            (Some(hal), Some(fence)) => call(&hal, fence),
            _ => false,
        }
    }

    fn ask<T>(
        &self,
        otherwise: T,
        call: impl FnOnce(&A::Device, &A::Fence) -> Result<T, hal::DeviceError>,
    ) -> Result<T, Gone> {
        let Some(fence) = &self.fence else {
            return Ok(otherwise);
        };
        match call(&self.device, fence) {
            Ok(answer) => Ok(answer),
            Err(hal::DeviceError::Lost) => Err(Gone),
            // Want of memory for the question: it is asked again.
            Err(error) => {
                log::debug!("a signal could not be asked: {error}");
                Ok(otherwise)
            }
        }
    }
}

impl<A: SignalApi> Signal for HalSignal<A> {
    fn stage(&self, queue: &wgpu::Queue, number: u64) -> bool {
        self.on_queue(queue, |queue, fence| {
            A::stage(queue, fence, number);
            true
        })
    }

    fn take_back(&self, queue: &wgpu::Queue) -> bool {
        self.on_queue(queue, A::take_back)
    }

    fn reached(&self) -> Result<u64, Gone> {
        self.ask(0, A::reached)
    }

    fn wait(&self, number: u64, timeout: Duration) -> Result<bool, Gone> {
        self.ask(false, |device, fence| {
            A::wait(device, fence, number, timeout)
        })
    }
}

impl<A: SignalApi> Drop for HalSignal<A> {
    fn drop(&mut self) {
        if let Some(fence) = self.fence.take() {
            // SAFETY: this device made the fence. Every submission that signals it has a marker that holds this value,
            // and wgpu lets go of a marker only when the submission has ended; what is staged is taken by the
            // submission that follows at once, or is taken back.
            unsafe { self.device.destroy_fence(fence) };
        }
    }
}

/// The signal of a device, where its backend has one.
pub(super) fn open(device: &wgpu::Device) -> Option<Arc<dyn Signal>> {
    match device.adapter_info().backend {
        #[cfg(vulkan)]
        wgpu::Backend::Vulkan => HalSignal::<hal::api::Vulkan>::open(device),
        #[cfg(all(feature = "dx12", windows))]
        wgpu::Backend::Dx12 => HalSignal::<hal::api::Dx12>::open(device),
        #[cfg(all(feature = "metal", target_vendor = "apple"))]
        wgpu::Backend::Metal => HalSignal::<hal::api::Metal>::open(device),
        _ => None,
    }
}
