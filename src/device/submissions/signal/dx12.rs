//! Direct3D 12: a fence beside wgpu's own.

#![allow(unsafe_code)]

use wgpu::hal;
use wgpu::hal::Device as _;
use wgpu::hal::api::Dx12;
use wgpu::hal::dx12::{Device, Fence, Queue};

use super::fence::SignalApi;

impl SignalApi for Dx12 {
    fn is_usable(_fence: &Fence) -> bool {
        true
    }

    fn stage(queue: &Queue, fence: &Fence, number: u64) {
        queue.add_signal_fence(fence.raw_fence().clone(), number);
    }

    fn take_back(queue: &Queue, fence: &Fence) -> bool {
        queue.remove_signal_fence(fence.raw_fence())
    }

    fn reached(device: &Device, fence: &Fence) -> Result<u64, hal::DeviceError> {
        // SAFETY: the fence was created by this device and is not destroyed before its owner is dropped.
        match unsafe { device.get_fence_value(fence) } {
            // The value of `ID3D12Fence::GetCompletedValue` for a removed device.
            Ok(u64::MAX) => Err(hal::DeviceError::Lost),
            answer => answer,
        }
    }
}
