//! Undoing a launch: copies of the buffers that its kernel may write, from before the launch.

use std::sync::Arc;

use super::SystemError;
use crate::device::DeviceShared;
use crate::kernel::reflect::ArgumentKind;
use crate::launch::Launch;
use crate::launch::arguments::Given;
use crate::memory::places::{Place, copy};
use crate::memory::{BufferView, DeviceBuffer, MemoryError};

/// The buffers that a launch may write, each with a copy.
pub(super) struct Undo {
    device: Arc<DeviceShared>,
    copies: Vec<(BufferView, DeviceBuffer<u32>)>,
}

impl Undo {
    /// Whether the launch can be undone.
    ///
    /// # Errors
    /// [`SystemError::NotRepeatable`] where the kernel does what cannot be undone.
    pub(super) fn check(launch: &Launch) -> Result<(), SystemError> {
        Self::written(launch).map(|_| ())
    }

    /// Copies what the launch may write.
    ///
    /// # Errors
    /// [`SystemError::NotRepeatable`] where the kernel does what cannot be undone; [`SystemError::Memory`].
    pub(super) fn of(launch: &Launch) -> Result<Self, SystemError> {
        let mut undo = Self {
            device: Arc::clone(&launch.kernel.device),
            copies: Vec::new(),
        };
        for view in Self::written(launch)? {
            undo.keep(view)?;
        }
        Ok(undo)
    }

    /// The buffers that the launch may write.
    fn written(launch: &Launch) -> Result<Vec<&BufferView>, SystemError> {
        let compiled = &launch.kernel.shared.compiled;
        let refuse = |what| {
            Err(SystemError::NotRepeatable {
                kernel: launch.name(),
                what,
            })
        };
        let mut globals = compiled.globals.iter().flat_map(|all| &all.instances);
        if compiled.calls.is_some() {
            return refuse("it calls functions of the host");
        } else if compiled.prints.is_some() {
            return refuse("it prints");
        } else if globals.any(|(_, writable)| *writable) {
            return refuse("it writes device globals");
        }
        let mut written = Vec::new();
        // Buffers of the context stand for their memory on the device, once a launch was made.
        let is_migratable = |slot| (launch.settings.buffers.iter()).any(|one| one.slot == slot);
        let arguments = compiled.interface.arguments.iter().zip(&launch.given);
        for (slot, (info, given)) in arguments.enumerate() {
            match (&info.kind, given) {
                (
                    ArgumentKind::Storage { writable: true, .. },
                    Some(Given::Buffer { view, .. }),
                ) if !view.shared.is_heap && !is_migratable(slot) => written.push(view),
                (ArgumentKind::Storage { writable: true, .. }, Some(_)) => {
                    return refuse("it writes a buffer of the context, or the shared heap");
                }
                (
                    ArgumentKind::Texture {
                        binding: wgpu::BindingType::StorageTexture { .. },
                    },
                    _,
                ) => return refuse("it writes a texture"),
                _ => {}
            }
        }
        Ok(written)
    }

    fn keep(&mut self, view: &BufferView) -> Result<(), MemoryError> {
        let kept = DeviceBuffer::allocate(&self.device, view.bytes.div_ceil(4).max(1))?;
        self.moved(&view.place(), &of(&kept), view.bytes)?;
        self.copies.push((view.clone(), kept));
        Ok(())
    }

    /// Gives the buffers the contents from before.
    ///
    /// # Errors
    /// Those of copies.
    pub(super) fn restore(&self) -> Result<(), MemoryError> {
        for (view, kept) in &self.copies {
            self.moved(&of(kept), &view.place(), view.bytes)?;
        }
        Ok(())
    }

    fn moved(&self, from: &Place, to: &Place, bytes: u64) -> Result<(), MemoryError> {
        let mut queue = self.device.queue.lock(&self.device);
        let copied = copy(&mut queue, &self.device, from, to, bytes);
        queue.commit();
        copied
    }
}

fn of(kept: &DeviceBuffer<u32>) -> Place {
    Place::in_buffer(kept.raw(), 0, true)
}
