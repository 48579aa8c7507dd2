//! How a server is put together.

mod live;
mod plan;
mod sliced;

use std::sync::Arc;

use super::PersistentKernel;
use super::arguments::Arguments;
use super::callers::Recipe;
use super::direct::BatchRoute;
use super::error::ServerError;
use super::policy::LeasePolicy;
use crate::device::Device;
use crate::kernel::host_layout::KnownLayouts;
#[cfg(test)]
use crate::kernel::server::Places;
use crate::kernel::server::{HandlerFault, HandlerForm, SliceShape};
use crate::kernel::{Constants, HostShareable, Kernel, KernelOptions, Program};
use crate::rpc::HostServices;
use plan::Plan;

pub(super) use plan::MAX_PORTS;

/// A server in the making; from [`PersistentKernel::builder`].
#[must_use = "nothing is served until `start` is called"]
pub struct PersistentKernelBuilder {
    device: Device,
    program: Program,
    handlers: Vec<(String, HandlerForm)>,
    group: u32,
    constants: Constants,
    options: KernelOptions,
    services: Option<Arc<crate::rpc::Services>>,
    ports: usize,
    policy: LeasePolicy,
    turns: Option<u32>,
    pub(super) urgent: usize,
    lanes: Option<usize>,
    groups: usize,
    callers: usize,
    route: BatchRoute,
    pub(super) arguments: Arguments,
    known: KnownLayouts,
    /// Has the written kernel misbehave.
    #[cfg(test)]
    pub(super) spoil: Option<fn(String, &Places) -> String>,
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
            urgent: 0,
            lanes: None,
            groups: 1,
            callers: 0,
            route: BatchRoute::default(),
            arguments: Arguments::default(),
            known: KnownLayouts::default(),
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

impl PersistentKernelBuilder {
    /// Lets a function of the program be called. One invocation serves each call.
    pub fn handler(self, name: &str) -> Self {
        self.add(name, HandlerForm::Alone)
    }

    /// Registers a function run by a whole work-group together, with barriers and memory of the work-group if wanted.
    /// The first parameter is a `u32`, the number of the invocation in its group, not given by callers; the result is
    /// that of invocation 0. The writes of all invocations are there when the call returns.
    ///
    /// One call at a time is served by a server with such a handler. Loops with barriers inside are not ended by
    /// [`PersistentKernelBuilder::turns`].
    pub fn group_handler(self, name: &str) -> Self {
        self.add(name, HandlerForm::Together)
    }

    /// Registers a function serving up to `calls` calls at once, as many as wait when a work-group is free: a call for
    /// each of its invocations, and at most [`group_size`](Self::group_size). Data for all of the calls, such as the
    /// weights of a model, is read or computed once, and the callers know nothing of each other.
    ///
    /// The first two parameters are `u32`, not given by callers: the number of the invocation in its group, and the
    /// number of calls. Invocation `lane` has the arguments of a call of its own, and answers it, if `lane` is less
    /// than the number of calls; the others have the arguments of the first call, and their results are dropped. All
    /// invocations come to the function, and the function may have barriers and memory of the work-group. A failing
    /// call fails alone.
    ///
    /// A batch has calls of a single function. Nothing is waited for: a lone call is a batch of one, and so is each
    /// call in slices.
    ///
    /// ```
    /// # use tombolo::{Context, PersistentKernel, Program};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::new("model.wgsl", "
    ///     @group(0) @binding(0) var<storage, read> weights: array<f32>;
    ///     var<workgroup> row: array<f32, 4>;
    ///     fn infer(lane: u32, calls: u32, x: vec4<f32>) -> f32 {
    ///         if lane < 4u { row[lane] = weights[lane]; }             // once for all calls
    ///         workgroupBarrier();
    ///         let result = x.x * row[0] + x.y * row[1] + x.z * row[2] + x.w * row[3];
    ///         workgroupBarrier();
    ///         return result;
    ///     }")?;
    /// let weights = device.buffer(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// let server = PersistentKernel::builder(&device, &program)
    ///     .batch_handler("infer", 32)
    ///     .buffer("weights", &weights)
    ///     .start()?;
    /// let infer = server.function::<([f32; 4],), f32>("infer")?;
    /// assert_eq!(infer.call_all(&[([1.0, 0.0, 0.0, 1.0],), ([0.0, 2.0, 0.0, 0.0],)])?, [5.0, 4.0]);
    /// # Ok(()) }
    /// ```
    pub fn batch_handler(self, name: &str, calls: u32) -> Self {
        self.add(name, HandlerForm::Batch(calls))
    }

    /// Sets the invocations of a work-group (default 64) for [`PersistentKernelBuilder::group_handler`]: 8, 16, 32, … as
    /// many as the device has in a group.
    pub fn group_size(mut self, invocations: u32) -> Self {
        self.group = invocations;
        self
    }

    fn add(mut self, name: &str, form: HandlerForm) -> Self {
        self.handlers.retain(|(known, _)| known != name);
        self.handlers.push((name.to_owned(), form));
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

    /// Has values of the type `T`, and arrays of such values, compared field by field with the structures of handlers when
    /// [`PersistentKernel::function`] looks a handler up. Types declared by [`shared!`](crate::shared) are compared without
    /// a word, except in a browser; see [`HostServicesBuilder::shared`](crate::calls::HostServicesBuilder::shared).
    pub fn shared<T: HostShareable>(mut self) -> Self {
        self.known.add::<T>();
        self
    }

    /// The services with the functions called by the handlers. The services have to live as long as calls are made.
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
    /// processor runs kernels, with invocations in turns anyway, 64 where the device has memory of its own, and 32
    /// elsewhere. Adapters with a loop budget have 1: a group of lanes shares the budget, and no lane knows the share
    /// taken by the others. With 1, and one work-group, no call of a thread runs beside another call. In slices the
    /// number means nothing: all calls of a slice run beside each other.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Sets how many work-groups serve calls beside each other (1 to 64, default 1), each with the ports whose number,
    /// divided by the number of groups, leaves the group's own, so that the number of ports is rounded up to a
    /// multiple. With handlers for whole work-groups so many calls are served at a time; with others, as many times
    /// more as there are [`lanes`](Self::lanes).
    ///
    /// A device runs as many work-groups as there is room for. Work-groups that have not begun are not waited for: the
    /// first work-group to begin serves their ports, too. A running group takes the device's time also without calls,
    /// and on adapters that are processors a processor: several groups are for cards, and for slow handlers. In slices
    /// the number means nothing.
    pub fn work_groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Sets how the server takes turns with everything else on the device.
    pub fn leases(mut self, policy: LeasePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Limits the turns of all loops of a call together; a call with more turns is ended, and fails with
    /// [`CallError::TooManyTurns`](crate::server::CallError::TooManyTurns). So no handler keeps the device for good. Default:
    /// 2^25, or half of the adapter's loop budget, if any; up to seven eighths of the budget are possible there. Fewer
    /// make for longer leases.
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Has kernels of up to so many other devices call in place, through pages of the host looked at by the server
    /// itself (default 0, at most 16; [`Launch::server`](crate::Launch::server)). The price for the server is a look at
    /// the pages. Further devices, and devices without in-place use of the host's memory, call through threads of the
    /// host; where the server's own device has no such use, all devices do. Kernels of the server's own device may call
    /// as far as they do not wait.
    pub fn callers(mut self, devices: usize) -> Self {
        self.callers = devices;
        self
    }

    /// Sets how batches of calls reach the server where its kernel stays on the device; see [`BatchRoute`]. In slices the
    /// choice means nothing.
    pub fn batch_route(mut self, route: BatchRoute) -> Self {
        self.route = route;
        self
    }

    /// The parts for serving kernels of the same device.
    fn recipe(&self, plan: &Plan) -> Recipe {
        Recipe {
            program: self.program.clone(),
            constants: self.constants.clone(),
            options: self.options,
            services: self.services.clone(),
            arguments: self.arguments.clone(),
            shape: SliceShape {
                given: 0,
                taken: 0,
                turns: plan.turns,
                fails: self.program.may_fail(),
                together: plan.together,
                group: self.program.free_group(),
            },
            payload: plan.layout.payload,
        }
    }

    /// Refuses a kernel impossible to launch without lent memory.
    fn takes_no_lent_memory(&self, kernel: &Kernel) -> Result<(), ServerError> {
        match kernel.shared.compiled.system {
            true => Err(ServerError::LentMemory {
                program: self.program.name().to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Compiles the polling kernel and starts the server. The first call launches the kernel.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(self) -> Result<PersistentKernel, ServerError> {
        let plan = Plan::of(&self)?;
        let recipe = self.recipe(&plan);
        let capabilities = self.device.capabilities();
        match capabilities.live_calls() {
            true => self.start_live(plan, recipe),
            false => self.start_sliced(plan, recipe),
        }
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
