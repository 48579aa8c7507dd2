//! Calls from kernels.
//!
//! A kernel of another device has ports in pages used in place by both devices ([`super::block`]), and waits for the
//! polling kernel as for the host; where there are no such pages threads of the host forward its calls
//! ([`super::bridge`]). On the server's own device kernels run in turn: there a kernel posts into ports in
//! the device's memory, a dispatch behind the launch, in the same command buffer, serves the posts, and the next launch
//! collects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::PersistentKernel;
use super::arguments::{Arguments, Serves};
use super::block::can_share;
use super::bridge;
use super::core::{Core, Stage};
use super::frame::places;
use crate::device::completion_hook::CompletionHook;
use crate::device::outcome::ExecutionError;
use crate::device::wait::lock;
use crate::device::{DeviceShared, unique_id};
use crate::kernel::calls::{CallDeclaration, CallSet};
use crate::kernel::host_layout::ValueLayouts;
use crate::kernel::server::{SLICE_ENTRY, SliceShape, write_ports};
use crate::kernel::{Constants, KernelOptions, Program, ProgramBuilder};
use crate::launch::callee::{Callee, Caller, KernelPorts, Route};
use crate::launch::{Launch, LaunchError};
use crate::rpc::port::layout::PortLayout;
use crate::rpc::{Backoff, HostServices, Services, WaitBudget};

/// Ports of kernels on the server's own device: calls that can be under way between two launches.
const LOCAL_PORTS: usize = 512;

/// The parts for building kernels serving calls between launches.
#[derive(Clone)]
pub(super) struct Recipe {
    pub program: Program,
    pub constants: Constants,
    pub options: KernelOptions,
    pub services: Option<Arc<crate::rpc::Services>>,
    pub arguments: Arguments,
    /// How slices of calls are served.
    pub shape: SliceShape,
    pub payload: usize,
}

/// The kernels serving the ports of the server's own device.
struct Local {
    ports: Arc<KernelPorts>,
    launch: Launch,
}

pub(super) struct Callers {
    core: Arc<Core>,
    calls: CallSet,
    recipe: Recipe,
    /// The devices' areas, in order.
    areas: Mutex<Vec<(u64, Arc<KernelPorts>)>>,
    local: Mutex<Option<Local>>,
    /// The services forwarding the calls of devices without an area.
    bridge: Mutex<Option<HostServices>>,
}

impl Callers {
    pub fn new(core: &Arc<Core>, recipe: Recipe) -> Self {
        let declaration = |handler: &Arc<crate::kernel::server::HandlerDeclaration>| {
            let sizes = handler.parameters.iter().map(|layout| layout.size as usize);
            Arc::new(CallDeclaration {
                signature: handler.as_called(),
                arguments: sizes.collect(),
                result: (handler.result.as_ref()).map_or(0, |layout| layout.size as usize),
                layouts: ValueLayouts::default(),
                stream: false,
            })
        };
        Self {
            core: Arc::clone(core),
            calls: CallSet(core.handlers.iter().map(declaration).collect()),
            recipe,
            areas: Mutex::default(),
            local: Mutex::default(),
            bridge: Mutex::default(),
        }
    }

    fn is_own(&self, device: &Arc<DeviceShared>) -> bool {
        (self.core.device.as_ref()).is_some_and(|own| Arc::ptr_eq(&own.shared, device))
    }

    /// An area for another device, if any can be had; else why not.
    fn area(&self, device: &DeviceShared) -> Result<Arc<KernelPorts>, String> {
        let mut areas = lock(&self.areas);
        if let Some((_, known)) = areas.iter().find(|(id, _)| *id == device.id) {
            return Ok(Arc::clone(known));
        }
        let Some(block) = self.core.frame.block() else {
            let own = self.core.device.as_ref().map(|own| own.capabilities());
            let why = own.and_then(|own| can_share(own).err());
            return Err(why.unwrap_or_else(|| {
                "the server was started without PersistentKernelBuilder::callers".to_owned()
            }));
        };
        can_share(&device.capabilities)?;
        let most = block.places().areas;
        if areas.len() >= most {
            return Err(format!(
                "{most} devices call it already; PersistentKernelBuilder::callers allows more"
            ));
        }
        let backoff = Backoff::of(device).map_err(|error| error.to_string())?;
        let wait_budget = WaitBudget::of(device, None);
        let calls = block.area(device, areas.len(), wait_budget);
        let ports = Arc::new(KernelPorts {
            id: unique_id(),
            calls: calls.map_err(|error| error.to_string())?,
            posts: None,
            backoff,
        });
        areas.push((device.id, Arc::clone(&ports)));
        Ok(ports)
    }

    /// The services forwarding calls of kernels of other devices.
    fn bridge(&self, caller: &Caller<'_>, why: String) -> Result<Arc<Services>, LaunchError> {
        let server = self.core.place();
        let out_of_reach = |why: String| LaunchError::ServerOutOfReach {
            kernel: caller.kernel.to_owned(),
            device: caller.device.capabilities.name.clone(),
            server: server.clone(),
            why,
        };
        if caller.waits && self.has_turns_of_heap(caller.device) {
            let because = "its handlers follow pointers into the heap, of which one of the devices has a copy, so that \
                           kernels of both take turns there; begin calls with `…_begin`, and collect in a later launch";
            return Err(out_of_reach(format!("{why}, and {because}")));
        }
        let mut bridge = lock(&self.bridge);
        if let Some(bridge) = &*bridge {
            return Ok(Arc::clone(&bridge.shared));
        }
        let device = &caller.device.capabilities.name;
        log::info!(
            "calls of kernels on {device} to the server on {server} go through the host: {why}"
        );
        let made = bridge::start(&self.core, &self.calls)
            .map_err(|error| out_of_reach(format!("{why}, and {error}")))?;
        Ok(Arc::clone(&bridge.insert(made).shared))
    }

    /// Whether no heap-using kernel of `device` runs beside the server's.
    fn has_turns_of_heap(&self, device: &DeviceShared) -> bool {
        let (Some(heap), Some(own)) = (&self.core.heap, &self.core.device) else {
            return false;
        };
        heap.shared.is_mirrored(device) || heap.shared.is_mirrored(&own.shared)
    }

    /// The ports of the server's own device.
    fn local(&self, caller: &Caller<'_>) -> Result<Arc<KernelPorts>, LaunchError> {
        if caller.waits {
            return Err(LaunchError::WaitsForItself {
                kernel: caller.kernel.to_owned(),
                device: self.core.place(),
            });
        }
        let mut local = lock(&self.local);
        if let Some(local) = &*local {
            return Ok(Arc::clone(&local.ports));
        }
        let made = self.make_local(caller.device)?;
        Ok(Arc::clone(&local.insert(made).ports))
    }

    fn make_local(&self, shared: &Arc<DeviceShared>) -> Result<Local, LaunchError> {
        let Recipe {
            program,
            constants,
            options,
            services,
            arguments,
            shape,
            payload,
        } = &self.recipe;
        let refused = |message: String| LaunchError::Refused {
            kernel: SLICE_ENTRY.to_owned(),
            message,
        };
        let Some(device) = &self.core.device else {
            return Err(refused("the server is on no device".to_owned()));
        };
        let layout = PortLayout::new(LOCAL_PORTS, *payload);
        let split = shared.capabilities.splits_ports();
        let handlers = &self.core.handlers;
        let text = write_ports(handlers, &places(layout, 1), split, shape);
        let text = text.map_err(|fault| refused(fault.why))?;
        let kernel = (program.extended(&text))
            .and_then(|program| device.kernel_with(&program, SLICE_ENTRY, constants, *options))
            .map_err(|error| LaunchError::from(Box::new(error)))?;
        let calls = device.zeroed::<u32>(layout.words())?;
        let mut header = [0u32; crate::rpc::port::layout::LINE];
        let wait_budget = WaitBudget::of_slices(shared, layout.ports).words();
        for (word, value) in wait_budget.into_iter().chain([layout.header()]) {
            header[word] = value;
        }
        calls.write(0, &header)?;
        let posts = match split {
            true => Some(device.zeroed::<u32>(layout.words())?),
            false => None,
        };
        let groups = shape.groups(layout.ports);
        let mut launch = kernel.launch().workgroups(groups);
        launch = match &posts {
            Some(posts) => launch
                .buffer("tombolo_server", posts)
                .buffer("tombolo_answers", &calls),
            None => launch.buffer("tombolo_server", &calls),
        };
        if let Some(services) = services {
            launch = launch.shared_services(Arc::clone(services));
        }
        launch = arguments.give(launch, Serves::AllHandlers);
        launch.validate()?;
        let backoff = Backoff::of(shared).map_err(|error| refused(error.to_string()))?;
        let ports = Arc::new(KernelPorts {
            id: unique_id(),
            calls: calls.raw().clone(),
            posts: (posts.as_ref()).map(|posts| (unique_id(), posts.raw().clone())),
            backoff,
        });
        Ok(Local { ports, launch })
    }
}

impl Callee for Callers {
    fn calls(&self) -> &CallSet {
        &self.calls
    }

    fn route(&self, caller: &Caller<'_>) -> Result<Route, LaunchError> {
        if self.is_own(caller.device) {
            return Ok(Route::Ports(self.local(caller)?));
        }
        let area = match caller.packs {
            // The polling kernel takes a call out of a port.
            true => Err("whole work-groups call, in packets".to_owned()),
            false => self.area(caller.device),
        };
        match area {
            Ok(ports) => Ok(Route::Ports(ports)),
            Err(why) => Ok(Route::Host(self.bridge(caller, why)?)),
        }
    }

    fn ready(&self, kernel: &str) -> Result<(), LaunchError> {
        let why = match (self.core.stage(), self.core.failure()) {
            (Stage::Running, _) => return Ok(()),
            (_, Some(failure)) => failure.to_string(),
            (_, None) => "it has been stopped".to_owned(),
        };
        Err(LaunchError::ServerStopped {
            kernel: kernel.to_owned(),
            why,
        })
    }

    fn completion_hook(&self, device: &Arc<DeviceShared>) -> Option<Arc<dyn CompletionHook>> {
        (!self.is_own(device)).then(|| {
            Arc::new(RemoteLaunch {
                core: Arc::clone(&self.core),
                stage: AtomicU32::new(0),
            }) as _
        })
    }

    fn serve(&self, device: &Arc<DeviceShared>) -> Result<(), LaunchError> {
        if !self.is_own(device) {
            return Ok(());
        }
        if let Some(local) = &mut *lock(&self.local) {
            local.launch.submit()?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Callers").field(&self.core.place()).finish()
    }
}

/// A possibly calling launch of another device: the relay looks for calls until the launch is over.
struct RemoteLaunch {
    core: Arc<Core>,
    /// 0: not submitted; 1: on its way; 2: over.
    stage: AtomicU32,
}

impl RemoteLaunch {
    fn end(&self) {
        if self.stage.swap(2, Ordering::AcqRel) == 1 {
            self.core.remote_launches.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl CompletionHook for RemoteLaunch {
    fn submitted(&self, _device: &wgpu::Device) {
        let changed = self
            .stage
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_ok() {
            self.core.begin_remote_launch();
        }
    }

    fn ended(&self, _done: bool) -> Result<(), ExecutionError> {
        self.end();
        Ok(())
    }
}

impl Drop for RemoteLaunch {
    fn drop(&mut self) {
        self.end();
    }
}

impl ProgramBuilder {
    /// Lets the program's kernels call the functions of `server` by name, in the same way as functions of the host:
    /// `f(x)`, `f_try(x)`, `f_post(x)`, `f_begin(x)` and `f_collect(ticket)`; see [`HostServices`](crate::HostServices)
    /// for their meaning, and [`Launch::server`] for where each works. Structures in the signatures are structures of
    /// this program, and must have the server's layout in memory.
    pub fn server(self, server: &PersistentKernel) -> Self {
        self.callee("server", &server.callers.calls)
    }
}

impl Launch {
    /// Gives the server on a device called by the kernel ([`ProgramBuilder::server`]).
    ///
    /// - *On another device* the kernel's calls are served during the launch: by the server itself, if both devices use
    ///   pages of the host in place and the server was started for this
    ///   ([`PersistentKernelBuilder::callers`](crate::server::PersistentKernelBuilder::callers)), with 16 ports for
    ///   each device, so that more callers wait for each other; elsewhere, and where whole work-groups call
    ///   (`f_group`), through threads of the host taking and making the calls
    ///   ([`ServerStatistics::forwarded`](crate::server::ServerStatistics::forwarded) counts them). On adapters with a
    ///   loop budget a call not begun in time is taken back with the status `CALL_BUSY`, and a call begun and not
    ///   answered has the status `CALL_TIMED_OUT`, like calls of the host.
    /// - *On the server's own device*, where kernels run in turn, the calls posted by a kernel (`f_begin`, `f_post`)
    ///   are served behind the kernel in the same command buffer, without a way to the host and back, and the next
    ///   launch collects the answers (`f_collect`). A launch can post as many calls as there are free ports of 512; a
    ///   call without a port has a status of its own.
    ///
    /// A handler giving up, or taking too many turns, answers with `CALL_FAILED` or `CALL_TOO_MANY_TURNS`; once the
    /// server has been stopped calls have the status `CALL_STOPPED`. The launch does not keep the server running.
    ///
    /// Submitting fails with [`LaunchError::WaitsForItself`]; with [`LaunchError::NeedsLiveMemory`] where a kernel
    /// waits on a device showing running kernels nothing; with [`LaunchError::ServerOutOfReach`] where a kernel waits
    /// for handlers that follow pointers and one of the devices has a copy of the heap; or with
    /// [`LaunchError::ServerStopped`]. A launch that is given services of the host, too ([`Launch::services`]), is
    /// refused with [`LaunchError::TwoCallees`].
    pub fn server(self, server: &PersistentKernel) -> Self {
        self.callee(Arc::clone(&server.callers) as _)
    }
}
