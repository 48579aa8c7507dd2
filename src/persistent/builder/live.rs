//! How a server is put together whose kernel stays on the device, in leases.

use std::sync::{Arc, Mutex};

use super::plan::Plan;
use super::{PersistentKernelBuilder, fault};
use crate::device::resident::Resident;
use crate::device::{HostAccessPolicy, unique_id};
use crate::kernel::Kernel;
use crate::kernel::server::{self, ENTRY, ServerShape};
use crate::launch::Launch;
use crate::memory::{DeviceBuffer, SharedHeap};
use crate::persistent::arguments::Serves;
use crate::persistent::block::{Block, can_share};
use crate::persistent::callers::{Callers, Recipe};
use crate::persistent::core::Core;
use crate::persistent::corruption::Missed;
use crate::persistent::direct::{self, Direct};
use crate::persistent::error::ServerError;
use crate::persistent::frame::{Frame, places};
use crate::persistent::packed::Packer;
use crate::persistent::relay::Relay;
use crate::persistent::yielding::Yielding;
use crate::persistent::{PersistentKernel, Runner, State, spawn};

/// How handlers see the heap.
enum FollowedHeap {
    /// No handler follows pointers.
    None,
    /// Running kernels see the host's writes.
    Live(SharedHeap),
    /// Launches see the host's earlier writes: the device has memory of its own, or works on a copy.
    BetweenLaunches,
}

impl PersistentKernelBuilder {
    pub(super) fn start_live(
        self,
        plan: Plan,
        recipe: Recipe,
    ) -> Result<PersistentKernel, ServerError> {
        let splits_ports = self.device.capabilities().splits_ports();
        let plan = if splits_ports {
            plan.across_bus()
        } else {
            plan
        };
        let frame = self.frame(&plan)?;
        let kernel = self.polling_kernel(&plan, &frame)?;
        // No call takes any turns: the lease may have all turns.
        let has_all = !plan.calls && !kernel.shared.compiled.counts_turns;
        let most = match has_all {
            true => plan.most_without_turns(),
            false => plan.most,
        };
        let heap = match self.followed_heap(&kernel)? {
            FollowedHeap::None => None,
            FollowedHeap::Live(heap) => Some(heap),
            FollowedHeap::BetweenLaunches => return self.start_between_launches(plan, recipe),
        };
        let launch = self.polling_launch(&plan, &kernel, &frame)?;
        let packer = Packer::new(recipe.clone(), direct::most(&plan.handlers));
        // Where one call at a time is served, the handlers may rely on that.
        let beside = plan.together.is_none() && plan.servers() > 1;
        let direct = Direct::new(&self.device, packer, &plan.handlers, (self.route, beside));
        let mut core = Core::new(
            unique_id(),
            Some(self.device.clone()),
            frame,
            plan.handlers,
            self.policy,
            plan.turns,
        );
        core.heap = heap;
        core.sees_memory = !self.arguments.is_empty() || kernel.shared.compiled.globals.is_some();
        core.urgent = plan.urgent;
        core.direct = Some(direct);
        self.program.name().clone_into(&mut core.program);
        core.known = self.known;
        let core = Arc::new(core);
        let resident: Arc<dyn Resident> = Arc::clone(&core) as _;
        (self.device.shared.residents).add(Arc::downgrade(&resident));
        let relay = Relay {
            has_run: false,
            core: Arc::clone(&core),
            launch,
            most,
            has_loop_budget: plan.budget.is_some(),
            next: 0,
            missed: Missed::NONE,
            hidden: Missed::NONE,
            called: crate::clock::Instant::now(),
            left: None,
            yielding: Yielding::default(),
        };
        let callers = Callers::new(&core, recipe);
        let thread = spawn(Runner::Live(Box::new(relay)))?;
        Ok(PersistentKernel {
            device: self.device,
            core,
            relay: Mutex::new(State::Running(thread)),
            callers: Arc::new(callers),
        })
    }

    /// The words of the server, which other devices share if their kernels call.
    fn frame(&self, plan: &Plan) -> Result<Frame, ServerError> {
        let device = &self.device.shared;
        if self.callers > 0 && can_share(&device.capabilities).is_ok() {
            let shared = Frame::with_callers(device, plan.layout, plan.servers(), self.callers);
            match shared {
                Ok(frame) => return Ok(frame),
                Err(error) => log::warn!(
                    "kernels of other devices call the server on {} through the host: {error}",
                    self.device.name()
                ),
            }
        }
        Ok(Frame::new(device, plan.layout, plan.servers())?.polled(plan.polls))
    }

    fn polling_kernel(&self, plan: &Plan, frame: &Frame) -> Result<Kernel, ServerError> {
        let capabilities = self.device.capabilities();
        let shape = ServerShape {
            turns: plan.turns,
            groups: plan.groups,
            lanes: plan.lanes,
            urgent: plan.urgent,
            batches: plan.has_batches(),
            together: plan.together,
            split: capabilities.splits_ports(),
            polls: plan.polls,
            has_loop_budget: capabilities.is_lavapipe(),
            rotates: plan.budget.is_some(),
            fails: self.program.may_fail(),
            asks: self.program.asks_cancelled(),
            calls: plan.calls,
            group: self.program.free_group(),
            remote_clients: frame.block().map(Block::places),
        };
        let places = places(plan.layout, plan.servers());
        let text = server::write(&plan.handlers, &places, &shape).map_err(fault)?;
        #[cfg(test)]
        let text = match self.spoil {
            Some(spoil) => spoil(text, &places),
            None => text,
        };
        let program = self.program.extended(&text)?;
        let kernel = (self.device).kernel_with(&program, ENTRY, &self.constants, self.options)?;
        self.takes_no_lent_memory(&kernel)?;
        Ok(kernel)
    }

    /// The heap, if handlers follow pointers.
    fn followed_heap(&self, kernel: &Kernel) -> Result<FollowedHeap, ServerError> {
        let device = &self.device;
        if !(kernel.shared.compiled.heap).is_some_and(|heap| heap.follows) {
            return Ok(FollowedHeap::None);
        }
        let heap = device.heap();
        let heap = heap.map_err(|error| ServerError::Launch(error.into()))?;
        if !device.capabilities().unified_memory || heap.shared.is_mirrored(&device.shared) {
            return Ok(FollowedHeap::BetweenLaunches);
        }
        Ok(FollowedHeap::Live(heap))
    }

    /// Serves in slices, each a launch seeing the whole heap.
    fn start_between_launches(
        self,
        plan: Plan,
        recipe: Recipe,
    ) -> Result<PersistentKernel, ServerError> {
        log::info!(
            "calls to the server on {} travel in slices: handlers follow pointers, and running kernels do not see what \
             the host writes into the shared heap",
            self.device.name()
        );
        self.start_sliced(plan, recipe)
    }

    /// The launch of a lease, with the server's words and arguments.
    fn polling_launch(
        &self,
        plan: &Plan,
        kernel: &Kernel,
        frame: &Frame,
    ) -> Result<Launch, ServerError> {
        let device = &self.device.shared;
        // The relay tries again automatically, and calls meanwhile name the holder of the heap.
        let mut launch =
            (kernel.launch().workgroups(plan.groups as u32)).host_access(HostAccessPolicy::Refuse);
        let names = ["tombolo_server", "tombolo_answers"];
        for (name, raw) in names.into_iter().zip(frame.buffers()) {
            if let Some(raw) = raw {
                let buffer = DeviceBuffer::<u32>::wrap(device, raw.clone(), raw.size() / 4);
                launch = launch.buffer(name, &buffer);
            }
        }
        if let Some(services) = &self.services {
            launch = launch.shared_services(Arc::clone(services));
        }
        launch = self.arguments.give(launch, Serves::AllHandlers);
        launch.validate()?;
        Ok(launch)
    }
}
