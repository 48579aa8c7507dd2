//! Metal: a shared event beside wgpu's own.

use std::thread;
use std::time::Duration;

use objc2_metal::MTLSharedEvent as _;
use wgpu::hal;
use wgpu::hal::api::Metal;
use wgpu::hal::metal::{Device, Fence, Queue};

use super::fence::SignalApi;
use crate::clock::Instant;
use crate::device::pace::Pace;

impl SignalApi for Metal {
    /// Command buffers that have nothing in common may run at once, and signal in any order.
    const IS_IN_ORDER: bool = false;

    fn is_usable(fence: &Fence) -> bool {
        fence.raw_shared_event().is_some()
    }

    fn stage(queue: &Queue, fence: &Fence, number: u64) {
        if let Some(event) = fence.raw_shared_event() {
            use objc2::Message as _;
            queue.add_signal_event(event.retain(), number);
        }
    }

    fn take_back(queue: &Queue, fence: &Fence) -> bool {
        (fence.raw_shared_event()).is_some_and(|event| queue.remove_signal_event(event))
    }

    fn reached(_device: &Device, fence: &Fence) -> Result<u64, hal::DeviceError> {
        Ok(fence
            .raw_shared_event()
            .map_or(0, |event| event.signaledValue()))
    }

    /// By looking: `waitUntilSignaledValue:timeoutMS:` is not there on all systems that have shared events.
    fn wait(
        device: &Device,
        fence: &Fence,
        number: u64,
        timeout: Duration,
    ) -> Result<bool, hal::DeviceError> {
        let end = Instant::now() + timeout;
        let mut pace = Pace::default();
        loop {
            if Self::reached(device, fence)? >= number {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(pace.next().min(left));
        }
    }
}
