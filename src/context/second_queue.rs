//! The second queue of a device, a device of the context like any other.

use super::join_heap;
use crate::device::{Device, DeviceError};

impl Device {
    /// Another device on the same card, with a queue of its own: kernels of both devices run at the same time, and a
    /// kernel staying on one device, such as a server's, does not keep launches on the other waiting. All calls give the
    /// same device.
    ///
    /// NVIDIA's driver has a second queue, on cards with a family of queues for computing alone
    /// ([`Device::has_second_queue`]); drivers of other makers were not tried. On [`Device::raw`] of the second device
    /// begin no render pass, and give a surface to neither of the two. A function of the host serving a kernel of either
    /// device waits for neither ([`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler)). Apart from
    /// the common card the two are two devices, each with buffers, kernels and an order of commands of its own;
    /// [`Buffer`](crate::Buffer)s of the context move between the two, and the heap is seen by both.
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
