//! A second queue of a card, as a device of its own: kernels of both run at the same time.
//!
//! wgpu takes one queue of the driver's device. Two devices of the driver, or two queues of the family that draws, take turns
//! on a card: a kernel that stays, as a server's does, keeps all launches of the others waiting. A queue of a family that
//! only computes runs beside. Measured on an H200 (driver 580), a short launch and its wait beside a kernel that stays, of
//! one work-group, against the same launch alone:
//!
//! | the kernel that stays, and the short launch | |
//! | --- | --- |
//! | two queues of the family that computes | 1.17 |
//! | one queue of each family | 1.00 and 1.03 |
//! | two queues of the family that draws | waits for the end |
//! | two devices of the driver | waits for the end |
//!
//! So on NVIDIA's driver a device is opened with one queue more, of a family that computes and does not draw; and
//! [`Device::second_queue`](super::Device::second_queue) makes a second wgpu device over the same device of the driver and that
//! queue. wgpu and the runtime take the two for two devices: neither orders one's commands with the other's, and buffers
//! move between them as between any two.

#[cfg(vulkan)]
pub(crate) mod vulkan;

use std::sync::{Mutex, OnceLock};

use super::open::open_second;
use super::wait::lock;
use super::{Device, DeviceError, DeviceShared};

/// The second queue of a device, opened when it is first asked for.
#[derive(Default)]
pub(crate) struct SecondQueue {
    /// Unset where there is none.
    origin: OnceLock<Origin>,
    /// Kept until the first device's end: the driver's queue may have a single user.
    opened: Mutex<Option<Device>>,
}

/// Where the queue comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) adapter: wgpu::Adapter,
    /// The queue's family; the queue is the family's first.
    #[cfg_attr(not(vulkan), expect(dead_code, reason = "only Vulkan has families"))]
    pub(crate) family: u32,
}

impl SecondQueue {
    /// Notes that the driver's device was opened with a queue of `family`.
    pub(crate) fn is_of(&self, adapter: &wgpu::Adapter, family: u32) {
        let adapter = adapter.clone();
        // A device is opened once.
        let _ = self.origin.set(Origin { adapter, family });
    }

    /// Whether there is a second queue, opened or not.
    pub(crate) fn exists(&self) -> bool {
        self.origin.get().is_some()
    }

    /// The device of the second queue of `first`; `joins` is called once, with the new device.
    ///
    /// # Errors
    /// [`DeviceError::SecondQueue`].
    pub(crate) fn get(
        &self,
        first: &DeviceShared,
        joins: impl FnOnce(&Device),
    ) -> Result<Device, DeviceError> {
        let Some(origin) = self.origin.get() else {
            return Err(refusal(first.capabilities.name.clone(), why_none(first)));
        };
        let mut opened = lock(&self.opened);
        if let Some(device) = &*opened {
            return Ok(device.clone());
        }
        let device = open_second(first, origin)?;
        joins(&device);
        *opened = Some(device.clone());
        Ok(device)
    }
}

fn refusal(device: String, why: impl Into<String>) -> DeviceError {
    let why = why.into();
    DeviceError::SecondQueue { device, why }
}

fn why_none(first: &DeviceShared) -> &'static str {
    match first.capabilities.backend {
        wgpu::Backend::Vulkan if first.adapter.is_none() => {
            "the device was opened by other code, without a queue of a family that only computes"
        }
        wgpu::Backend::Vulkan => {
            "its driver is not NVIDIA's, or has no family of queues that only computes; or the device is a second queue \
             itself, or was opened without the import of host memory"
        }
        _ => "its backend gives a program one queue",
    }
}

/// Makes a wgpu device over the second queue.
///
/// # Errors
/// [`DeviceError::SecondQueue`], [`DeviceError::Open`].
pub(crate) fn open(
    first: &wgpu::Device,
    origin: &Origin,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), DeviceError> {
    #[cfg(vulkan)]
    let opened = vulkan::open(first, origin, descriptor);
    #[cfg(not(vulkan))]
    let opened = {
        let _ = (first, descriptor);
        Err(refusal(
            origin.adapter.get_info().name,
            "the build has no Vulkan",
        ))
    };
    opened
}
