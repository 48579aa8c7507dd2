//! How a server is put together whose calls travel in slices.

use std::sync::{Arc, Mutex};

use super::plan::Plan;
use super::{PersistentKernelBuilder, fault};
use crate::device::{HostAccessPolicy, unique_id};
use crate::kernel::server::packing::Packing;
use crate::kernel::server::{SLICE_ENTRY, SLICE_HEADER, write_slice};
use crate::persistent::arguments::Serves;
use crate::persistent::callers::{Callers, Recipe};
use crate::persistent::core::Core;
use crate::persistent::driver::SlicedRelay;
use crate::persistent::error::ServerError;
use crate::persistent::frame::Frame;
#[cfg(test)]
use crate::persistent::frame::places;
use crate::persistent::packed::Packer;
use crate::persistent::sliced::{Answering, Slices, Slot};
use crate::persistent::{PersistentKernel, Runner, State, spawn};

/// Slices on their way at once: a running one, and a gathered one.
const SLOTS: usize = 2;

impl PersistentKernelBuilder {
    pub(super) fn start_sliced(
        self,
        plan: Plan,
        recipe: Recipe,
    ) -> Result<PersistentKernel, ServerError> {
        let Plan {
            handlers,
            layout,
            urgent,
            ..
        } = plan;
        let device = &self.device;
        let shape = recipe.shape.fit(&handlers);
        let text = write_slice(&handlers, &shape).map_err(fault)?;
        #[cfg(test)]
        let text = match self.spoil {
            Some(spoil) => spoil(text, &places(layout, 1)),
            None => text,
        };
        let program = self.program.extended(&text)?;
        let kernel = device.kernel_with(&program, SLICE_ENTRY, &self.constants, self.options)?;
        self.takes_no_lent_memory(&kernel)?;
        let most = (layout.ports / 2).max(1);
        let packer = Packer::new(recipe.clone(), most);
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            let requests = device.zeroed::<u32>(SLICE_HEADER + layout.ports * shape.given)?;
            let answers = Answering::new(device, layout.ports * shape.taken)?;
            let mut launch = kernel
                .launch()
                .workgroups(1)
                .host_access(HostAccessPolicy::Refuse)
                .buffer("tombolo_requests", &requests)
                .buffer("tombolo_answers", &answers.memory);
            if let Some(services) = &self.services {
                launch = launch.shared_services(Arc::clone(services));
            }
            launch = self.arguments.give(launch, Serves::AllHandlers);
            launch.validate()?;
            slots.push(Slot {
                requests,
                launch,
                answers,
                packs: Vec::new(),
                packed: Answering::new(device, Packing::words(&handlers, most))?,
            });
        }
        let mut core = Core::new(
            unique_id(),
            Some(device.clone()),
            Frame::on_host(layout)?,
            handlers,
            self.policy,
            shape.turns,
        );
        core.urgent = urgent;
        self.program.name().clone_into(&mut core.program);
        core.known = self.known;
        core.packer = Some(packer);
        core.slices = Some(Mutex::new(Slices::new(shape, slots)));
        if (kernel.shared.compiled.heap).is_some_and(|heap| heap.follows) {
            // A calling holder of the heap is told so. Each slice sees all of the heap.
            let heap = device
                .heap()
                .map_err(|error| ServerError::Launch(error.into()))?;
            core.heap = Some(heap);
        }
        let core = Arc::new(core);
        let callers = Callers::new(&core, recipe);
        let thread = spawn(Runner::Sliced(SlicedRelay(Arc::clone(&core))))?;
        Ok(PersistentKernel {
            device: self.device,
            core,
            relay: Mutex::new(State::Running(thread)),
            callers: Arc::new(callers),
        })
    }
}
