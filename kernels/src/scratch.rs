//! Memory between the launches of a call, kept from call to call.

use tombolo::{Device, DeviceBuffer};

use crate::element::Element;
use crate::error::Error;
use crate::values::Values;

/// Buffers by number, each as long as the longest request so far. Too short a buffer is replaced; the runtime keeps the old
/// buffer for as long as a launch may use it.
#[derive(Debug)]
pub(crate) struct Scratch<T> {
    device: Device,
    buffers: Vec<Option<DeviceBuffer<T>>>,
}

impl<T: Element> Scratch<T> {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            buffers: Vec::new(),
        }
    }

    /// Exactly `len` values in buffer `index`, with the contents of the last call or zeros.
    pub(crate) fn values(&mut self, index: usize, len: u64) -> Result<Values<T>, Error> {
        if self.buffers.len() <= index {
            self.buffers.resize_with(index + 1, || None);
        }
        let buffer = match &self.buffers[index] {
            Some(buffer) if buffer.len() as u64 >= len => buffer,
            _ => {
                // At most the number of values in an argument, and such a number fits an address of the machine.
                let buffer = self.device.zeroed(len as usize)?;
                self.buffers[index].insert(buffer)
            }
        };
        Values::from(buffer).slice(..len)
    }
}
