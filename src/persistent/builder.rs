//! How a server is put together.

mod sliced;

use std::sync::{Arc, Mutex};

use super::block::{Block, can_share};
use super::callers::{Callers, Recipe};
use super::core::Core;
use super::corruption::Missed;
use super::error::ServerError;
use super::frame::{Frame, places};
use super::policy::LeasePolicy;
use super::relay::Relay;
use super::{PersistentKernel, Runner, State, spawn};
use crate::device::resident::Resident;
use crate::device::{Device, HostAccessPolicy, LoopGuardPolicy, unique_id};
use crate::kernel::server::{self, ENTRY, HandlerFault, ServerShape, SliceShape};
use crate::kernel::{Constants, KernelOptions, Program};
use crate::memory::DeviceBuffer;
use crate::rpc::HostServices;
use crate::rpc::port::layout::{MAX_PAYLOAD, PortLayout};

/// The least words of a port, in each direction: two cache lines with their prefix.
const LEAST_PAYLOAD: usize = 28;
/// The most ports: places in the bell.
pub(super) const MAX_PORTS: usize = 1 << 15;
/// The most devices whose kernels may call.
const MAX_CALLERS: usize = 16;
/// The most lanes that serve calls by themselves.
const MAX_LANES: usize = 64;
/// Turns of loops per call by default on adapters without a budget: a second on a software adapter, and so less than
/// the time after which a lease serving no calls counts as stuck.
const TURNS: u32 = 1 << 25;
/// Turns after which a lease ends on such an adapter: before the count comes to its end.
const MOST: u32 = 1 << 31;
/// Turns of a ration kept for the end of a lease and for what a compiler may add.
const RESERVE: u32 = 4_096;

/// A server in the making; from [`PersistentKernel::builder`].
#[must_use = "nothing is served until `start` is called"]
pub struct PersistentKernelBuilder {
    device: Device,
    program: Program,
    handlers: Vec<(String, bool)>,
    group: u32,
    constants: Constants,
    options: KernelOptions,
    services: Option<Arc<crate::rpc::Services>>,
    ports: usize,
    policy: LeasePolicy,
    turns: Option<u32>,
    lanes: Option<usize>,
    callers: usize,
    /// Has the written kernel misbehave.
    #[cfg(test)]
    pub(super) spoil: Option<fn(String, &server::Places) -> String>,
}

impl PersistentKernel {
    /// A server on `device` whose handlers are functions of `program`.
    pub fn builder(device: &Device, program: &Program) -> PersistentKernelBuilder {
        PersistentKernelBuilder {
            device: device.clone(),
            program: program.clone(),
            handlers: Vec::new(),
            group: 64,
            constants: Constants::new(),
            options: KernelOptions::default(),
            services: None,
            ports: 64,
            policy: LeasePolicy::of(device.capabilities()),
            turns: None,
            lanes: None,
            callers: 0,
            #[cfg(test)]
            spoil: None,
        }
    }
}

fn fault(fault: HandlerFault) -> ServerError {
    ServerError::Handler {
        handler: fault.handler,
        why: fault.why,
    }
}

/// After how many turns a lease ends, and how many a call may take.
fn share(budget: Option<u32>, wanted: Option<u32>, calls: bool) -> (u32, u32) {
    match budget {
        None => (MOST, wanted.unwrap_or(TURNS).clamp(1, TURNS)),
        Some(budget) => {
            let all = budget.saturating_sub(RESERVE);
            let turns = wanted.unwrap_or(all / 2).clamp(1, (all / 8 * 7).max(1));
            // A caller waiting for the host gets nearly all of the budget.
            let most = all.saturating_sub(turns);
            (
                (if calls { most.min(all / 16) } else { most }).max(1),
                turns,
            )
        }
    }
}

impl PersistentKernelBuilder {
    /// Lets a function of the program be called. One invocation serves each call.
    pub fn handler(self, name: &str) -> Self {
        self.add(name, false)
    }

    /// Registers a function run by a whole work-group together, with barriers and memory of the work-group if wanted.
    /// The first parameter is a `u32`, the number of the invocation in its group, not given by callers; the result is
    /// that of invocation 0. The writes of all invocations are there when the call returns.
    ///
    /// One call at a time is served by a server with such a handler. Loops with barriers inside are not ended by
    /// [`PersistentKernelBuilder::turns`].
    pub fn group_handler(self, name: &str) -> Self {
        self.add(name, true)
    }

    /// Sets the invocations of a work-group (default 64) for [`PersistentKernelBuilder::group_handler`]: 8, 16, 32, … as
    /// many as the device has in a group.
    pub fn group_size(mut self, invocations: u32) -> Self {
        self.group = invocations;
        self
    }

    fn add(mut self, name: &str, together: bool) -> Self {
        self.handlers.retain(|(known, _)| known != name);
        self.handlers.push((name.to_owned(), together));
        self
    }

    /// Sets the values of the program's overrides.
    pub fn constants(mut self, constants: Constants) -> Self {
        self.constants = constants;
        self
    }

    /// Sets how the kernel is compiled.
    pub fn options(mut self, options: KernelOptions) -> Self {
        self.options = options;
        self
    }

    /// The services whose functions the handlers call. They have to live as long as calls are made.
    pub fn services(mut self, services: &HostServices) -> Self {
        self.services = Some(Arc::clone(&services.shared));
        self
    }

    /// Sets the number of ports (default 64): the most calls on their way at once. More callers wait for each other.
    pub fn ports(mut self, ports: usize) -> Self {
        self.ports = ports;
        self
    }

    /// Sets how many invocations serve calls side by side (1 to 64), each with ports of its own. Default: 1 where a
    /// processor runs kernels, whose invocations take turns anyway, and 32 elsewhere. Adapters with a loop budget have
    /// 1: a group of lanes shares the budget, and no lane knows what the others have taken. With 1 no call of a thread
    /// runs beside another one. In slices it means nothing: all calls of a slice run beside each other.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Sets how the server takes turns with everything else on the device.
    pub fn leases(mut self, policy: LeasePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Limits the turns of all loops of a call together; a call with more turns is ended, and fails with
    /// [`CallError::TooManyTurns`](crate::CallError::TooManyTurns). So no handler keeps the device for good. Default:
    /// 2^25, or half of the adapter's loop budget, if any; up to seven eighths of the budget are possible there. Fewer
    /// make for longer leases.
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Lets kernels of up to so many other devices call, too (default 0, at most 16; [`Launch::server`](crate::Launch::server)).
    /// Kernels of the server's own device always may, as far as they do not wait.
    pub fn callers(mut self, devices: usize) -> Self {
        self.callers = devices;
        self
    }

    /// The parts for serving kernels of the same device.
    fn recipe(&self, turns: u32, together: Option<u32>, payload: usize) -> Recipe {
        Recipe {
            program: self.program.clone(),
            constants: self.constants.clone(),
            options: self.options,
            services: self.services.clone(),
            shape: SliceShape {
                given: 0,
                taken: 0,
                turns,
                fails: self.program.may_fail(),
                together,
                group: self.program.free_group(),
            },
            payload,
        }
    }

    /// Compiles the polling kernel and starts the server. It is launched by the first call.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(self) -> Result<PersistentKernel, ServerError> {
        let device = &self.device;
        let capabilities = device.capabilities();
        if self.ports == 0 || self.ports > MAX_PORTS {
            return Err(ServerError::Ports {
                ports: self.ports,
                limit: MAX_PORTS,
            });
        }
        if self.callers > MAX_CALLERS {
            return Err(ServerError::Callers {
                callers: self.callers,
                limit: MAX_CALLERS,
            });
        }
        if self.handlers.is_empty() {
            return Err(ServerError::NoHandlers);
        }
        let handlers = server::declarations(&self.program, &self.handlers).map_err(fault)?;
        let mut payload = LEAST_PAYLOAD;
        for handler in &handlers {
            let words = handler.argument_words().max(handler.result_words());
            if words > MAX_PAYLOAD {
                return Err(ServerError::TooLong {
                    handler: handler.signature.name.clone(),
                    bytes: words * 4,
                    limit: MAX_PAYLOAD * 4,
                });
            }
            payload = payload.max(words);
        }
        let layout = PortLayout::new(self.ports, payload);
        let budget = match device.shared.options.loop_guard {
            LoopGuardPolicy::Budget(budget) => {
                Some(budget.min(capabilities.loop_budget().unwrap_or(budget)))
            }
            LoopGuardPolicy::WhereNeeded | LoopGuardPolicy::Off => (capabilities
                .needs_loop_guard())
            .then(|| capabilities.loop_budget().unwrap_or(65_535)),
        };
        // Groups of lanes share their budget, and take turns, where processors run kernels.
        let together = handlers
            .iter()
            .any(|handler| handler.cooperative)
            .then_some(self.group);
        let limits = &device.shared.limits;
        let limit =
            (limits.max_compute_workgroup_size_x).min(limits.max_compute_invocations_per_workgroup);
        if let Some(size) = together
            && !(size.is_power_of_two() && (8..=limit).contains(&size))
        {
            return Err(ServerError::GroupSize { size, limit });
        }
        let limit = if budget.is_some() { 1 } else { MAX_LANES };
        if let Some(lanes) = self.lanes
            && !(1..=limit).contains(&lanes)
        {
            return Err(ServerError::Lanes { lanes, limit });
        }
        let lanes = match (together, self.lanes) {
            (Some(_), _) => 1,
            (None, Some(lanes)) => lanes,
            (None, None) if capabilities.software || budget.is_some() => 1,
            (None, None) => 32,
        };
        let calls = self.program.calls_host();
        let (mut most, turns) = share(budget, self.turns, calls);
        let recipe = self.recipe(turns, together, payload);
        let no_callers = |why: String| ServerError::NoKernelsCall {
            device: device.name().to_owned(),
            why,
        };
        if self.callers > 0 {
            can_share(capabilities).map_err(no_callers)?;
        }
        if !capabilities.live_calls() {
            return self.start_sliced(handlers, layout, recipe);
        }
        let frame = match self.callers {
            0 => Frame::new(&device.shared, layout, lanes)?,
            areas => {
                let framed = Frame::with_callers(&device.shared, layout, lanes, areas);
                framed.map_err(|error| no_callers(error.to_string()))?
            }
        };
        let shape = ServerShape {
            turns,
            lanes,
            apart: together.is_none() && capabilities.invocations_take_turns(),
            together,
            split: capabilities.splits_ports(),
            has_loop_budget: capabilities.is_lavapipe(),
            rotates: budget.is_some(),
            fails: self.program.may_fail(),
            calls,
            group: self.program.free_group(),
            remote_clients: frame.block().map(Block::places),
        };
        let text = server::write(&handlers, &places(layout, lanes), &shape).map_err(fault)?;
        #[cfg(test)]
        let text = match self.spoil {
            Some(spoil) => spoil(text, &places(layout, lanes)),
            None => text,
        };
        let program = self.program.extended(&text)?;
        let kernel = device.kernel_with(&program, ENTRY, &self.constants, self.options)?;
        if let (Some(budget), false, false) = (budget, calls, kernel.shared.compiled.counts_turns) {
            // No call takes any turns: the lease may have them all.
            most = (budget / 8 * 7).saturating_sub(RESERVE);
        }
        let follows = (kernel.shared.compiled.heap).is_some_and(|heap| heap.follows);
        let heap = match follows {
            true => Some(
                device
                    .heap()
                    .map_err(|error| ServerError::Launch(error.into()))?,
            ),
            false => None,
        };
        if let Some(heap) = &heap
            && (!capabilities.unified_memory || heap.shared.is_mirrored(&device.shared))
        {
            return Err(ServerError::Pointers {
                device: device.name().to_owned(),
            });
        }
        // The relay tries again automatically, and calls meanwhile name the holder of the heap.
        let groups = if shape.apart { lanes as u32 } else { 1 };
        let mut launch = (kernel.launch().workgroups(groups)).host_access(HostAccessPolicy::Refuse);
        let mut buffers = Vec::new();
        let names = ["tombolo_server", "tombolo_answers"];
        for (name, raw) in names.into_iter().zip(frame.buffers()) {
            if let Some(raw) = raw {
                let buffer = DeviceBuffer::<u32>::wrap(&device.shared, raw.clone(), raw.size() / 4);
                launch = launch.buffer(name, &buffer);
                buffers.push(buffer);
            }
        }
        if let Some(services) = self.services {
            launch = launch.shared_services(services);
        }
        launch.validate()?;
        let mut core = Core::new(
            unique_id(),
            Some(device.clone()),
            frame,
            handlers,
            self.policy,
            turns,
        );
        core.heap = heap;
        let core = Arc::new(core);
        let resident: Arc<dyn Resident> = Arc::clone(&core) as _;
        (device.shared.residents).add(Arc::downgrade(&resident));
        let relay = Relay {
            core: Arc::clone(&core),
            launch,
            buffers,
            most,
            has_loop_budget: budget.is_some(),
            next: 0,
            missed: Missed::NONE,
            hidden: Missed::NONE,
            called: std::time::Instant::now(),
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
}

impl std::fmt::Debug for PersistentKernelBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersistentKernelBuilder")
            .field("device", &self.device.name())
            .field("handlers", &self.handlers)
            .finish_non_exhaustive()
    }
}
