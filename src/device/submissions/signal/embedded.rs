//! The embedded adapter: a fence of its own beside wgpu's.

use std::time::Duration;

use tombolo_cpu::{Api, Device, Fence, Queue};
use wgpu::hal;

use super::fence::SignalApi;

impl SignalApi for Api {
    fn is_usable(_fence: &Fence) -> bool {
        true
    }

    fn stage(queue: &Queue, fence: &Fence, number: u64) {
        queue.signal_with_next(fence, number);
    }

    fn take_back(queue: &Queue, fence: &Fence) -> bool {
        queue.take_back(fence)
    }

    fn reached(device: &Device, fence: &Fence) -> Result<u64, hal::DeviceError> {
        let reached = fence.value();
        // Behind the value: a device is lost before what it gives up is signalled.
        match device.loss() {
            None => Ok(reached),
            Some(_) => Err(hal::DeviceError::Lost),
        }
    }

    fn wait(
        device: &Device,
        fence: &Fence,
        number: u64,
        timeout: Duration,
    ) -> Result<bool, hal::DeviceError> {
        fence.wait(number, Some(timeout));
        Ok(Self::reached(device, fence)? >= number)
    }

    fn loss(device: &Device) -> Option<String> {
        device.loss().map(|loss| loss.to_string())
    }
}
