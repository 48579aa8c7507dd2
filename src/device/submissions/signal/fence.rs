//! A fence of wgpu-hal as a signal: the same for every backend whose submissions can signal one beside wgpu's own.

// wgpu-hal is unsafe throughout; every block gives its soundness argument.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use wgpu::hal::{self, Api, Device as _};

use super::{Gone, Signal};

/// A backend whose submissions can signal a fence beside wgpu's own.
pub(super) trait SignalApi: Api {
    /// Whether a fence of the queue at some number has all smaller numbers, from any thread's submissions.
    const IS_IN_ORDER: bool = true;

    /// Whether fences of this device can be signalled so.
    fn is_usable(fence: &Self::Fence) -> bool;

    /// Has the next submission signal the fence.
    fn stage(queue: &Self::Queue, fence: &Self::Fence, number: u64);

    /// Takes the staged signal back; true if no submission has taken it.
    fn take_back(queue: &Self::Queue, fence: &Self::Fence) -> bool;

    /// The highest signalled number.
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
        // SAFETY: as above; a never signalled number only lets the time run out.
        unsafe { device.wait(fence, number, Some(timeout)) }
    }

    /// Why the device is gone, where the device can say so: then wgpu lets go of work given up by the device as of
    /// finished work.
    fn loss(_device: &Self::Device) -> Option<String> {
        None
    }
}

/// The hal device, kept alive together with its wgpu device.
type HalDevice<A> = Box<dyn Deref<Target = <A as Api>::Device> + Send + Sync>;

/// A fence of wgpu-hal.
struct HalSignal<A: SignalApi> {
    device: HalDevice<A>,
    /// `None` only while being dropped.
    fence: Option<A::Fence>,
}

/// A signal of the device, where the backend is `A` and the driver has the needed functions.
pub(super) fn open<A: SignalApi>(device: &wgpu::Device) -> Option<Arc<dyn Signal>> {
    // SAFETY: the hal device makes, asks and destroys a fence of our own, from any thread as wgpu-hal allows; the hal
    // device is not destroyed.
    let hal = unsafe { device.as_hal::<A>() }?;
    let hal: HalDevice<A> = Box::new(hal);
    // SAFETY: as above.
    let fence = unsafe { hal.create_fence() }.ok()?;
    let signal = HalSignal::<A> {
        device: hal,
        fence: Some(fence),
    };
    let is_usable = signal.fence.as_ref().is_some_and(A::is_usable);
    is_usable.then(|| Arc::new(signal) as Arc<dyn Signal>)
}

impl<A: SignalApi> HalSignal<A> {
    fn on_queue(
        &self,
        queue: &wgpu::Queue,
        call: impl FnOnce(&A::Queue, &A::Fence) -> bool,
    ) -> bool {
        // SAFETY: the hal queue is only told a signal for the next submission.
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
            // Want of memory for the question: another question follows.
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

    fn is_in_order(&self) -> bool {
        A::IS_IN_ORDER
    }

    fn loss(&self) -> Option<String> {
        A::loss(&self.device)
    }
}

impl<A: SignalApi> Drop for HalSignal<A> {
    fn drop(&mut self) {
        if let Some(fence) = self.fence.take() {
            // SAFETY: this device made the fence. Every submission signalling the fence has a marker keeping this
            // value, and wgpu lets go of a marker only when the submission has ended; a staged signal is taken by the
            // submission following at once, or is taken back.
            unsafe { self.device.destroy_fence(fence) };
        }
    }
}
