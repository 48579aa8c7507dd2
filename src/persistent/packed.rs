//! The kernels that serve slices of calls of one function, which batches travel in. Each is compiled when the first batch of
//! its function comes, on the thread that calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::callers::Recipe;
use super::core::Core;
use crate::device::wait::lock;
use crate::kernel::Kernel;
use crate::kernel::server::packing::Packing;
use crate::kernel::server::{SLICE_ENTRY, write_packed};
use crate::launch::{Launch, LaunchError};
use crate::memory::DeviceBuffer;

/// Builds them.
pub(super) struct Packer {
    recipe: Recipe,
    /// Calls of a slice at most.
    pub most: usize,
    /// By the numbers of the functions.
    kernels: Mutex<HashMap<u32, Arc<Packed>>>,
}

/// Such a kernel.
pub(super) struct Packed {
    kernel: Kernel,
    pub packing: Packing,
}

/// A launch of one.
pub(super) struct Pack {
    pub opcode: u32,
    pub packing: Packing,
    pub launch: Launch,
}

impl Packer {
    pub fn new(recipe: Recipe, most: usize) -> Self {
        Self {
            recipe,
            most,
            kernels: Mutex::default(),
        }
    }

    /// The kernel for that function of the server.
    pub fn packed(&self, core: &Core, opcode: u32) -> Result<Arc<Packed>, LaunchError> {
        let mut kernels = lock(&self.kernels);
        if let Some(known) = kernels.get(&opcode) {
            return Ok(Arc::clone(known));
        }
        let refused = |message: &str| LaunchError::Refused {
            kernel: SLICE_ENTRY.to_owned(),
            message: message.to_owned(),
        };
        let Some(device) = &core.device else {
            return Err(refused("the server is on no device"));
        };
        let handler = core.handlers.iter().find(|one| one.opcode() == opcode);
        let handler = handler.ok_or_else(|| refused("the server has no such function"))?;
        let recipe = &self.recipe;
        let packing = Packing::of(handler, &core.handlers, self.most);
        let text = write_packed(handler, packing, &recipe.shape);
        let text = text.map_err(|fault| refused(&fault.why))?;
        let kernel = (recipe.program.extended(&text))
            .and_then(|program| {
                device.kernel_with(&program, SLICE_ENTRY, &recipe.constants, recipe.options)
            })
            .map_err(|error| LaunchError::from(Box::new(error)))?;
        let packed = Arc::new(Packed { kernel, packing });
        kernels.insert(opcode, Arc::clone(&packed));
        Ok(packed)
    }

    /// A launch of such a kernel with the memory of a slot.
    pub fn pack(
        &self,
        core: &Core,
        opcode: u32,
        requests: &DeviceBuffer<u32>,
        answers: &DeviceBuffer<u32>,
    ) -> Result<Pack, LaunchError> {
        let packed = self.packed(core, opcode)?;
        let mut launch = (packed.kernel.launch())
            .workgroups(1)
            .buffer("tombolo_requests", requests)
            .buffer("tombolo_answers", answers);
        if let Some(services) = &self.recipe.services {
            launch = launch.shared_services(Arc::clone(services));
        }
        Ok(Pack {
            opcode,
            packing: packed.packing,
            launch,
        })
    }
}
