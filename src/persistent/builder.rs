//! How a server is put together.

use std::sync::{Arc, Mutex};

use super::core::Core;
use super::error::ServerError;
use super::frame::{Frame, places};
use super::policy::LeasePolicy;
use super::relay::Relay;
use super::{PersistentKernel, State, spawn};
use crate::device::resident::Resident;
use crate::device::{Device, unique_id};
use crate::kernel::server::{self, ENTRY, HandlerFault, ServerShape};
use crate::kernel::{Constants, KernelOptions, Program};
use crate::memory::DeviceBuffer;
use crate::rpc::HostServices;
use crate::rpc::port::layout::{MAX_PAYLOAD, PortLayout};

/// Words that ports have at least, in each direction: two cache lines with their prefix.
const LEAST_PAYLOAD: usize = 28;
/// The most ports: places in the bell.
const MAX_PORTS: usize = 1 << 15;
/// Turns that a lease on an adapter without a budget may take.
const UNLIMITED: u32 = 0xffff_0000;

/// A server in the making; from [`PersistentKernel::builder`].
#[must_use = "nothing is served until `start` is called"]
pub struct PersistentKernelBuilder {
    device: Device,
    program: Program,
    handlers: Vec<String>,
    constants: Constants,
    options: KernelOptions,
    services: Option<Arc<crate::rpc::Services>>,
    ports: usize,
    policy: LeasePolicy,
}

impl PersistentKernel {
    /// A server on `device` whose handlers are functions of `program`.
    pub fn builder(device: &Device, program: &Program) -> PersistentKernelBuilder {
        PersistentKernelBuilder {
            device: device.clone(),
            program: program.clone(),
            handlers: Vec::new(),
            constants: Constants::new(),
            options: KernelOptions::default(),
            services: None,
            ports: 64,
            policy: LeasePolicy::of(device.capabilities()),
        }
    }
}

fn fault(fault: HandlerFault) -> ServerError {
    ServerError::Handler {
        handler: fault.handler,
        why: fault.why,
    }
}

impl PersistentKernelBuilder {
    /// Lets a function of the program be called.
    pub fn handler(mut self, name: &str) -> Self {
        if !self.handlers.iter().any(|known| known == name) {
            self.handlers.push(name.to_owned());
        }
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

    /// Sets the number of ports (default 64): the calls that can be on their way at once. More callers wait for each
    /// other.
    pub fn ports(mut self, ports: usize) -> Self {
        self.ports = ports;
        self
    }

    /// Sets how the server takes turns with everything else on the device.
    pub fn leases(mut self, policy: LeasePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Compiles the polling kernel and starts the server. It is launched by the first call.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(self) -> Result<PersistentKernel, ServerError> {
        let device = &self.device;
        let capabilities = device.capabilities();
        if !capabilities.live_calls() {
            return Err(ServerError::NeedsLiveMemory {
                device: device.name().to_owned(),
                why: capabilities.why_live_calls(),
            });
        }
        if self.ports == 0 || self.ports > MAX_PORTS {
            return Err(ServerError::Ports {
                ports: self.ports,
                limit: MAX_PORTS,
            });
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
        let budget =
            (capabilities.needs_loop_guard()).then(|| capabilities.loop_budget().unwrap_or(65_535));
        // Groups of lanes share what they may do, and take turns, where processors run kernels.
        let lanes = if capabilities.software { 1 } else { 32 };
        let shape = ServerShape {
            lanes,
            split: capabilities.splits_ports(),
            rations: capabilities.is_lavapipe(),
            fails: self.program.may_fail(),
            calls: self.program.calls_host(),
            group: self.program.free_group(),
        };
        let text = server::write(&handlers, &places(layout, lanes), &shape).map_err(fault)?;
        let program = self.program.extended(&text)?;
        let kernel = device.kernel_with(&program, ENTRY, &self.constants, self.options)?;
        let frame = Frame::new(&device.shared, layout, lanes)?;
        let mut launch = kernel.launch().workgroups(1);
        let mut buffers = Vec::new();
        let (down, up) = frame.buffers();
        for (name, live) in [("tombolo_server", Some(down)), ("tombolo_answers", up)] {
            if let Some(live) = live {
                let raw = live.buffer().clone();
                let buffer = DeviceBuffer::<u32>::wrap(&device.shared, raw, live.len() / 4);
                launch = launch.buffer(name, &buffer);
                buffers.push(buffer);
            }
        }
        if let Some(services) = self.services {
            launch = launch.shared_services(services);
        }
        launch.check()?;
        let most = budget.map_or(UNLIMITED, |budget| budget / 2);
        let turns = budget.map_or(UNLIMITED, |budget| budget - budget / 2);
        let core = Arc::new(Core::new(
            unique_id(),
            device.clone(),
            frame,
            handlers,
            self.policy,
            turns,
        ));
        let resident: Arc<dyn Resident> = Arc::clone(&core) as _;
        (device.shared.residents).add(Arc::downgrade(&resident));
        let relay = Relay {
            core: Arc::clone(&core),
            launch,
            buffers,
            most,
        };
        let thread = spawn(relay)?;
        Ok(PersistentKernel {
            core,
            relay: Mutex::new(State::Running(thread)),
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
