//! The second queue of a device, which joins the context as any device does.

use super::join_heap;
use crate::device::{Device, DeviceError};

impl Device {
    /// Another device on the same card, with a queue of its own: kernels of both run at the same time, and a kernel that
    /// stays on one, as a server's does, does not keep launches on the other waiting. All calls give the same device.
    ///
    /// There is one with NVIDIA's driver, on cards with a family of queues that computes and does not draw
    /// ([`Device::has_second_queue`]); drivers of other makers were not tried. The queue computes alone: on
    /// [`Device::raw`] of the second device begin no render pass, and give a surface to neither of the two. A function of the host that
    /// serves a kernel of one of the two waits for neither ([`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler)). Apart from the common card the two are two devices:
    /// each has its own buffers, kernels and order of commands; [`Buffer`](crate::Buffer)s of the context move between them,
    /// and the heap is seen by both.
    ///
    /// # Errors
    /// [`DeviceError::SecondQueue`] where there is none, also on the second queue itself; [`DeviceError::Open`].
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = tombolo::Context::new()?.device()?;
    /// // A server there does not stand in the way of launches here.
    /// let for_servers = match device.has_second_queue() {
    ///     true => device.second_queue()?,
    ///     false => device.clone(),
    /// };
    /// # let _ = for_servers; Ok(()) }
    /// ```
    pub fn second_queue(&self) -> Result<Device, DeviceError> {
        self.shared.second_queue.get(&self.shared, join_heap)
    }

    /// Whether [`Device::second_queue`] has a queue to give.
    pub fn has_second_queue(&self) -> bool {
        self.shared.second_queue.exists()
    }
}
