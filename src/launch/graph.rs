//! Launch graphs: launches put together once, and submitted as a whole again and again.

use std::sync::Arc;
use std::time::Duration;

use super::{Launch, LaunchError};
use crate::device::{Device, DeviceShared, Event, WaitError, unique_id};
use crate::error_text::debug_by_text;

/// Launches in an order, submitted together with one call, as often as wanted; between two submissions values, buffers
/// and grids of single launches may change ([`LaunchGraph::launch_mut`]). All launches are checked before the first is
/// submitted, as far as launches in front do not decide, and arguments unchanged since the last time are neither
/// checked nor bound anew.
///
/// Launches on a device run in the order of their addition, and each sees the writes of the launches in front. Several
/// devices work at the same time. A [`Buffer`](crate::Buffer) of the context takes its bytes from device to device by
/// itself; [`LaunchGraph::add_after`] names other launches to have ended before. The submitting thread waits for such
/// launches, so launches added behind a waiting launch are submitted later as well.
///
/// ```no_run
/// # fn main() -> Result<(), tombolo::Error> {
/// use tombolo::launch::LaunchGraph;
/// use tombolo::{Constants, Context, Program};
///
/// let device = Context::new()?.device()?;
/// let source = "
///     @group(0) @binding(0) var<storage, read_write> data: array<f32>;
///     @group(0) @binding(1) var<uniform> factor: f32;
///     @compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&data) { data[id.x] *= factor; }
///     }
///     @compute @workgroup_size(64) fn shift(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&data) { data[id.x] += factor; }
///     }";
/// let program = Program::new("step.wgsl", source)?;
/// let [scale, shift] = ["scale", "shift"].map(|name| device.kernel(&program, name, &Constants::new()));
/// let data = device.buffer(&[1.0f32; 1000])?;
///
/// let mut step = LaunchGraph::new();
/// let by = step.add(scale?.launch().buffer("data", &data).value("factor", &2.0f32).invocations(1000));
/// step.add(shift?.launch().buffer("data", &data).value("factor", &1.0f32).invocations(1000));
/// for factor in [2.0f32, 3.0, 4.0] {
///     step.launch_mut(by)?.set_value("factor", &factor)?;
///     step.submit()?;
/// }
/// assert_eq!(data.read()?, [41.0; 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LaunchGraph {
    id: u64,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    launch: Launch,
    /// Nodes to have ended, by their places.
    after: Vec<usize>,
}

/// A launch in a [`LaunchGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphNode {
    graph: u64,
    place: usize,
}

impl Default for LaunchGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl LaunchGraph {
    /// A graph without launches: a submission does nothing.
    pub fn new() -> Self {
        Self {
            id: unique_id(),
            nodes: Vec::new(),
        }
    }

    /// Adds a launch behind all others. A mistake in the arguments is the error of [`LaunchGraph::submit`].
    pub fn add(&mut self, launch: Launch) -> GraphNode {
        let place = self.nodes.len();
        self.nodes.push(Node {
            launch,
            after: Vec::new(),
        });
        GraphNode {
            graph: self.id,
            place,
        }
    }

    /// As [`LaunchGraph::add`], of a launch submitted only when the launches at `nodes` have ended. On the launch's own
    /// device earlier launches have ended by themselves, and cost nothing here; for another device the submitting
    /// thread waits, as [`Device::after`] does.
    ///
    /// # Errors
    /// [`GraphError::Foreign`].
    pub fn add_after(
        &mut self,
        launch: Launch,
        nodes: &[GraphNode],
    ) -> Result<GraphNode, GraphError> {
        let after = nodes.iter().map(|&node| self.place(node));
        let after = after.collect::<Result<_, _>>()?;
        let node = self.add(launch);
        self.nodes[node.place].after = after;
        Ok(node)
    }

    /// How many launches there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no launches.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A launch, to be changed between two submissions: [`Launch::set_value`], [`Launch::set_buffer`],
    /// [`Launch::set_texture`], [`Launch::set_sampler`], [`Launch::set_workgroups`], [`Launch::set_invocations`]; or to
    /// be replaced by another, on any device.
    ///
    /// # Errors
    /// [`GraphError::Foreign`].
    pub fn launch_mut(&mut self, node: GraphNode) -> Result<&mut Launch, GraphError> {
        let place = self.place(node)?;
        Ok(&mut self.nodes[place].launch)
    }

    /// Checks all launches, and submits none.
    ///
    /// # Errors
    /// [`GraphError::Launch`] for the first launch refused by [`Launch::check`], but for faults dependent on where
    /// buffers of the context have their bytes: launches in front may change the place. [`GraphError::Wait`] where this
    /// thread may not wait for a launch followed by another.
    pub fn check(&mut self) -> Result<(), GraphError> {
        for place in 0..self.nodes.len() {
            let checked = self.nodes[place].launch.check_alone();
            checked.map_err(|source| self.refused(place, Vec::new(), source))?;
            let device = |place: usize| &self.nodes[place].launch.kernel.device;
            let foreign = |at: &&usize| !Arc::ptr_eq(device(**at), device(place));
            for &before in self.nodes[place].after.iter().filter(foreign) {
                let what = "the end of a launch that another one of the graph follows";
                let waits = device(before).submissions.may_wait(what, INSTEAD);
                waits.map_err(|error| {
                    let source = WaitError::Failed(Arc::new(error));
                    self.not_awaited(place, Vec::new(), source)
                })?;
            }
        }
        Ok(())
    }

    /// Records every launch into the open batch of its device, in order, as [`Launch::submit`] does.
    ///
    /// # Errors
    /// As [`LaunchGraph::check`], with nothing submitted. A fault unknown beforehand, such as a lack of memory or a
    /// device lost meanwhile, is [`GraphError::Launch`], and [`GraphError::Wait`] a failure of a launch on another
    /// device named by [`LaunchGraph::add_after`]; both with the submitted launches in front.
    pub fn submit(&mut self) -> Result<GraphRun, GraphError> {
        self.check()?;
        let mut events: Vec<Event> = Vec::with_capacity(self.nodes.len());
        for place in 0..self.nodes.len() {
            if let Err(source) = self.await_before(place, &events) {
                return Err(self.not_awaited(place, events, source));
            }
            match self.nodes[place].launch.submit() {
                Ok(event) => events.push(event),
                Err(source) => return Err(self.refused(place, events, source)),
            }
        }
        Ok(self.run(events))
    }

    /// Waits for launches named by [`LaunchGraph::add_after`] on other devices, while all devices go on with their
    /// work.
    fn await_before(&self, place: usize, events: &[Event]) -> Result<(), WaitError> {
        let node = &self.nodes[place];
        let device = Device {
            shared: Arc::clone(&node.launch.kernel.device),
        };
        let before: Vec<&Event> = node.after.iter().map(|&at| &events[at]).collect();
        let is_foreign = |event: &&Event| {
            let owner = event.device.as_ref();
            owner.is_some_and(|owner| !Arc::ptr_eq(owner, &device.shared))
        };
        if before.iter().any(is_foreign) {
            let mut flushed: Vec<&Arc<DeviceShared>> = Vec::new();
            for owner in events.iter().filter_map(|event| event.device.as_ref()) {
                if !flushed.iter().any(|known| Arc::ptr_eq(known, owner)) {
                    // Failures are told by the events.
                    let _ = owner.flush();
                    flushed.push(owner);
                }
            }
        }
        device.after(&before).map(|_| ())
    }

    fn run(&self, events: Vec<Event>) -> GraphRun {
        GraphRun {
            graph: self.id,
            events,
        }
    }

    fn refused(&self, node: usize, events: Vec<Event>, source: LaunchError) -> GraphError {
        GraphError::Launch {
            node,
            kernel: self.nodes[node].launch.name(),
            program: self.program(node),
            run: Box::new(self.run(events)),
            source: Box::new(source),
        }
    }

    fn not_awaited(&self, node: usize, events: Vec<Event>, source: WaitError) -> GraphError {
        GraphError::Wait {
            node,
            kernel: self.nodes[node].launch.name(),
            program: self.program(node),
            run: Box::new(self.run(events)),
            source,
        }
    }

    fn program(&self, node: usize) -> String {
        let compiled = &self.nodes[node].launch.kernel.shared.compiled;
        compiled.program.to_string()
    }

    fn place(&self, node: GraphNode) -> Result<usize, GraphError> {
        match node.graph == self.id {
            true => Ok(node.place),
            false => Err(GraphError::Foreign { node: node.place }),
        }
    }
}

/// Advice for threads that may not wait.
const INSTEAD: &str = "submit a graph for each device, and `.await` their events";

/// One submission of a [`LaunchGraph`].
#[derive(Debug, Clone)]
pub struct GraphRun {
    graph: u64,
    events: Vec<Event>,
}

impl GraphRun {
    /// The events of all launches, in their order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The event of a launch.
    ///
    /// # Errors
    /// [`GraphError::Foreign`], also for a launch added behind the submission.
    pub fn event(&self, node: GraphNode) -> Result<&Event, GraphError> {
        let is_ours = node.graph == self.graph;
        let event = self.events.get(node.place).filter(|_| is_ours);
        event.ok_or(GraphError::Foreign { node: node.place })
    }

    /// Waits for all launches.
    ///
    /// # Errors
    /// As [`Event::wait_all`].
    pub fn wait(&self) -> Result<(), WaitError> {
        Event::wait_all(&self.events.iter().collect::<Vec<_>>())
    }

    /// As [`GraphRun::wait`], giving up after `timeout`.
    ///
    /// # Errors
    /// As [`Event::wait_all_timeout`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        Event::wait_all_timeout(&self.events.iter().collect::<Vec<_>>(), timeout)
    }
}

/// Why a [`LaunchGraph`] cannot be changed or submitted.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A launch was refused.
    #[error(
        "launch {node} of the graph, of kernel `{kernel}` of {program}, with {} in front submitted: {source}",
        run.events.len()
    )]
    Launch {
        /// The launch, counted from 0.
        node: usize,
        /// The entry point.
        kernel: String,
        /// The program's name, as given to [`Program::new`](crate::Program::new): entry points of many have one name.
        program: String,
        /// The launches in front that were submitted.
        run: Box<GraphRun>,
        /// Why.
        source: Box<LaunchError>,
    },
    /// A launch was to follow another, on another device, but the other has failed, or this thread may not wait there.
    #[error(
        "launch {node} of the graph, of kernel `{kernel}` of {program}, with {} in front submitted, waits for another \
         device in vain: {source}", run.events.len()
    )]
    Wait {
        /// The launch, counted from 0.
        node: usize,
        /// The entry point.
        kernel: String,
        /// The program's name, as given to [`Program::new`](crate::Program::new): entry points of many have one name.
        program: String,
        /// The launches in front that were submitted.
        run: Box<GraphRun>,
        /// The failure, or why there is no wait.
        source: WaitError,
    },
    /// The launch does not belong to this graph.
    #[error(
        "launch {node} is one of another graph, or was added later: ask the graph that gave it"
    )]
    Foreign {
        /// The launch, counted from 0.
        node: usize,
    },
}

debug_by_text!(GraphError {
    Launch,
    Wait,
    Foreign
});
