//! Launch graphs: launches that are put together once, and submitted as a whole again and again.

use std::sync::Arc;
use std::time::Duration;

use super::{Launch, LaunchError};
use crate::device::{Device, Event, WaitError, unique_id};
use crate::error_text::debug_by_text;

/// Launches in an order, submitted together with one call, as often as wanted; between two submissions values, buffers
/// and grids of single launches may change ([`LaunchGraph::launch_mut`]). All launches are checked before the first one
/// is submitted, and whatever has not changed since the last time is neither checked nor bound anew.
///
/// Launches on one device run in the order in which they were added, and each sees what those in front have written.
/// Launches on several devices run at the same time, as far as they do not follow each other: a [`Buffer`](crate::Buffer)
/// of the context takes its bytes from device to device by itself, and what else has to have ended before is named by
/// [`LaunchGraph::add_after`].
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
    /// Nodes on other devices that have to have ended, by their places.
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
    /// A graph without launches, of which a submission does nothing.
    pub fn new() -> Self {
        Self {
            id: unique_id(),
            nodes: Vec::new(),
        }
    }

    /// Adds a launch behind all others. A mistake in its arguments is the error of [`LaunchGraph::submit`].
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

    /// As [`LaunchGraph::add`], of a launch that is not submitted before those at `nodes` have ended. On the launch's own
    /// device they have by themselves, and cost nothing here; for another device the submitting thread waits, as
    /// [`Device::after`] does.
    ///
    /// # Errors
    /// [`GraphError::Foreign`].
    pub fn add_after(
        &mut self,
        launch: Launch,
        nodes: &[GraphNode],
    ) -> Result<GraphNode, GraphError> {
        let mut after = Vec::with_capacity(nodes.len());
        for &node in nodes {
            let place = self.place(node)?;
            let before = &self.nodes[place].launch.kernel.device;
            if !Arc::ptr_eq(before, &launch.kernel.device) {
                after.push(place);
            }
        }
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
    /// [`Launch::set_workgroups`], [`Launch::set_invocations`]. Its device stays that of the kernel.
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
    /// [`GraphError::Launch`] for the first that [`Launch::check`] refuses.
    pub fn check(&mut self) -> Result<(), GraphError> {
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let checked = node.launch.check();
            checked.map_err(|source| refused(place, node, 0, source))?;
        }
        Ok(())
    }

    /// Records every launch into the open batch of its device, in order, as [`Launch::submit`] does.
    ///
    /// # Errors
    /// As [`LaunchGraph::check`], with nothing submitted. What cannot be known beforehand, such as a lack of memory or a
    /// device that is lost meanwhile, is [`GraphError::Launch`] with how many launches in front were submitted; those run.
    /// [`GraphError::Wait`] where a launch on another device has failed that [`LaunchGraph::add_after`] names.
    pub fn submit(&mut self) -> Result<GraphRun, GraphError> {
        self.check()?;
        let mut events: Vec<Event> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter_mut().enumerate() {
            if !node.after.is_empty() {
                let before: Vec<&Event> = node.after.iter().map(|&at| &events[at]).collect();
                let device = Device {
                    shared: Arc::clone(&node.launch.kernel.device),
                };
                let waited = device.after(&before).map(|_| ());
                waited.map_err(|source| GraphError::Wait {
                    node: place,
                    kernel: node.launch.name(),
                    source,
                })?;
            }
            let event = node.launch.submit();
            events.push(event.map_err(|source| refused(place, node, place, source))?);
        }
        Ok(GraphRun {
            graph: self.id,
            events,
        })
    }

    fn place(&self, node: GraphNode) -> Result<usize, GraphError> {
        match node.graph == self.id {
            true => Ok(node.place),
            false => Err(GraphError::Foreign { node: node.place }),
        }
    }
}

fn refused(place: usize, node: &Node, submitted: usize, source: LaunchError) -> GraphError {
    GraphError::Launch {
        node: place,
        kernel: node.launch.name(),
        submitted,
        source: Box::new(source),
    }
}

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
    /// [`GraphError::Foreign`], also for a launch that was added behind the submission.
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
        "launch {node} of the graph, of kernel `{kernel}`, with {submitted} in front submitted: {source}"
    )]
    Launch {
        /// The launch, counted from 0.
        node: usize,
        /// The entry point.
        kernel: String,
        /// How many launches in front were submitted, and run.
        submitted: usize,
        /// Why.
        source: Box<LaunchError>,
    },
    /// A launch was to follow another one, on another device, that has failed. The launches in front of it were submitted.
    #[error(
        "launch {node} of the graph, of kernel `{kernel}`, follows one on another device that has failed: {source}"
    )]
    Wait {
        /// The launch, counted from 0.
        node: usize,
        /// The entry point.
        kernel: String,
        /// The failure.
        source: WaitError,
    },
    /// The launch is not one of this graph.
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
