//! The kernels for slices of calls of a single function, as used by batches. Each is compiled for the first batch of
//! its function, on the calling thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::arguments::Serves;
use super::callers::Recipe;
use super::core::Core;
use crate::device::HostAccessPolicy;
use crate::device::wait::lock;
use crate::kernel::Kernel;
use crate::kernel::server::packing::Packing;
use crate::kernel::server::{SLICE_ENTRY, write_packed};
use crate::launch::{Launch, LaunchError};
use crate::memory::DeviceBuffer;

/// Builds the kernels.
pub(super) struct Packer {
    recipe: Recipe,
    /// Calls of a slice at most.
    pub most: usize,
    /// By the numbers of the functions. While a kernel is compiled the others are to be had.
    kernels: Mutex<HashMap<u32, Arc<Place>>>,
}

/// Where such a kernel is when it is needed first.
type Place = Mutex<Option<Arc<Packed>>>;

/// Such a kernel.
pub(super) struct Packed {
    pub opcode: u32,
    kernel: Kernel,
    pub packing: Packing,
}

/// A launch of such a kernel.
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

    /// Work-groups for so many calls.
    pub fn groups(&self, calls: usize) -> u32 {
        self.recipe.shape.groups(calls)
    }

    /// The kernel for the given function of the server.
    pub fn packed(&self, core: &Core, opcode: u32) -> Result<Arc<Packed>, LaunchError> {
        let place = Arc::clone(lock(&self.kernels).entry(opcode).or_default());
        let mut place = lock(&place);
        if let Some(known) = &*place {
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
        let packed = Arc::new(Packed {
            opcode,
            kernel,
            packing,
        });
        *place = Some(Arc::clone(&packed));
        Ok(packed)
    }

    /// A launch of such a kernel with the memory of a slot. Compiles nothing: the asking thread has the slices.
    pub fn pack(
        &self,
        packed: &Packed,
        requests: &DeviceBuffer<u32>,
        answers: &DeviceBuffer<u32>,
    ) -> Pack {
        let mut launch = (packed.kernel.launch())
            .workgroups(1)
            .host_access(HostAccessPolicy::Refuse)
            .buffer("tombolo_requests", requests)
            .buffer("tombolo_answers", answers);
        if let Some(services) = &self.recipe.services {
            launch = launch.shared_services(Arc::clone(services));
        }
        launch = self.recipe.arguments.give(launch, Serves::OneHandler);
        Pack {
            opcode: packed.opcode,
            packing: packed.packing,
            launch,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::context::Context;
    use crate::device::{DeviceOptions, hooks};
    use crate::kernel::Program;
    use crate::persistent::PersistentKernel;

    #[test]
    fn while_one_function_is_compiled_others_are_called() {
        let _alone = hooks::alone();
        let minute = Duration::from_secs(60);
        let options = DeviceOptions {
            live_memory: false,
            ..DeviceOptions::default()
        };
        let device = Context::new().unwrap().device_at_with(0, options).unwrap();
        let source = "
            fn next(x: u32) -> u32 { return x + 1u; }
            fn twice(x: u32) -> u32 { return 2u * x; }";
        let program = Program::new("server.wgsl", source).unwrap();
        let server = PersistentKernel::builder(&device, &program);
        let server = server.handler("next").handler("twice").start().unwrap();
        let next = server.function::<(u32,), u32>("next").unwrap();
        let twice = server.function::<(u32,), u32>("twice").unwrap();
        assert_eq!(twice.call_all(&[(1,)]).unwrap(), [2]);
        // Another thread compiles the other kernel, for as long as needed.
        let packer = server.core.packer.as_ref().unwrap();
        let opcode = next.callee().handler.opcode();
        let place = Arc::clone(lock(&packer.kernels).entry(opcode).or_default());
        let compiling = lock(&place);
        let (sender, receiver) = mpsc::channel();
        let waiting = {
            let (next, sender) = (next.clone(), sender.clone());
            std::thread::spawn(move || {
                let _ = sender.send(next.call_all(&[(7,)]));
            })
        };
        let others = std::thread::spawn(move || {
            for x in 0..20 {
                assert_eq!(next.call_timeout(&(x,), minute).unwrap(), x + 1);
                assert_eq!(twice.call_all(&[(x,); 3]).unwrap(), [2 * x; 3]);
            }
            let _ = sender.send(Ok(Vec::new()));
        });
        let first = receiver.recv_timeout(minute).unwrap();
        assert_eq!(first.unwrap(), [0u32; 0]);
        drop(compiling);
        let second = receiver.recv_timeout(minute).unwrap();
        assert_eq!(second.unwrap(), [8]);
        waiting.join().unwrap();
        others.join().unwrap();
    }
}
