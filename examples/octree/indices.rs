//! The same walk over indices into buffers of the device: what the pointers are measured against.

use std::error::Error;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Device, DeviceBuffer, Kernel, Program, Ptr};

use crate::simulation::Simulation;
use crate::tree;

/// In place of a null pointer.
const NONE: u32 = u32::MAX;

/// How often each side is measured.
const ROUNDS: usize = 9;
/// Walks of all bodies in a measurement.
const WALKS: usize = 3;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Body {
    position: [f32; 3],
    mass: f32,
    velocity: [f32; 3],
    potential: f32,
    acceleration: [f32; 3],
    seen: u32,
    leaf: u32,
    padding: [u32; 3],
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    centre: [f32; 3],
    mass: f32,
    reach: f32,
    bodies: u32,
    first: u32,
    next: u32,
    body: u32,
    padding: [u32; 3],
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    root: u32,
    count: u32,
    kick: f32,
    softening: f32,
}

/// What the two walks have in common, and how they differ.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Times of walks through pointers, each divided by that of the same walk over indices; sorted.
    pub ratios: Vec<f64>,
    /// Bodies whose pull differs by more than roundings explain.
    pub differ: usize,
}

/// The tree and its bodies, copied into buffers of the device.
struct Indices {
    kernel: Kernel,
    params: Params,
    order: DeviceBuffer<u32>,
    nodes: DeviceBuffer<Node>,
    bodies: DeviceBuffer<Body>,
}

impl Indices {
    /// Copies the tree that was built last, and what belongs to it.
    fn new(
        device: &Device,
        simulation: &Simulation,
        softening: f64,
    ) -> Result<Self, Box<dyn Error>> {
        let shared = simulation.shared();
        let host = shared.heap.host()?;
        let bodies = host.slice(shared.bodies, shared.count)?;
        // Subtrees have parts of their own of the memory, with room between them.
        let tree = host.slice(shared.nodes, tree::capacity(shared.count))?;
        let order = host.slice(shared.order, shared.count)?;
        let node = |at| index(at, shared.nodes);
        let body = |at| index(at, shared.bodies);
        let tree: Vec<Node> = (tree.iter())
            .map(|from| Node {
                centre: from.centre,
                mass: from.mass,
                reach: from.reach,
                bodies: from.bodies,
                first: node(from.first),
                next: node(from.next),
                body: body(from.body),
                padding: [0; 3],
            })
            .collect();
        let order: Vec<u32> = order.iter().map(|&at| body(at)).collect();
        let bodies: Vec<Body> = bodies.iter().map(start).collect();
        let program = Program::new("indices.wgsl", include_str!("indices.wgsl"))?;
        Ok(Self {
            kernel: device.kernel(&program, "pull", &Constants::new())?,
            params: Params {
                root: 0,
                count: u32::try_from(shared.count)?,
                kick: 0.0,
                softening: (softening * softening) as f32,
            },
            order: device.buffer(&order)?,
            nodes: device.buffer(&tree)?,
            bodies: device.buffer(&bodies)?,
        })
    }

    fn walk(&self) -> Result<tombolo::Event, Box<dyn Error>> {
        Ok((self.kernel.launch())
            .value("params", &self.params)
            .buffer("order", &self.order)
            .buffer("nodes", &self.nodes)
            .buffer("bodies", &self.bodies)
            .invocations(u64::from(self.params.count))
            .submit()?)
    }
}

/// The body before anything of the walk is known of it.
fn start(from: &tree::Body) -> Body {
    Body {
        position: from.position,
        mass: from.mass,
        velocity: from.velocity,
        potential: f32::NAN,
        acceleration: [f32::NAN; 3],
        seen: 0,
        leaf: NONE,
        padding: [0; 3],
    }
}

/// Which element of those from `first` on is meant.
fn index<T: Pod>(at: Ptr<T>, first: Ptr<T>) -> u32 {
    if at.is_null() {
        return NONE;
    }
    let elements = (at.address() - first.address()) / size_of::<T>() as u64;
    u32::try_from(elements).unwrap_or(NONE)
}

/// Walks the tree that was built last, in both ways in turn, moving nothing.
pub fn compare(
    device: &Device,
    simulation: &Simulation,
    softening: f64,
) -> Result<Comparison, Box<dyn Error>> {
    let indices = Indices::new(device, simulation, softening)?;
    let time = |walk: &dyn Fn() -> Result<tombolo::Event, Box<dyn Error>>| {
        let start = Instant::now();
        for _ in 1..WALKS {
            walk()?;
        }
        walk()?.wait()?;
        Ok::<Duration, Box<dyn Error>>(start.elapsed())
    };
    let through_pointers = || simulation.walk();
    let over_indices = || indices.walk();
    // The first walks compile kernels, and bring to the device what the host has touched.
    time(&through_pointers)?;
    time(&over_indices)?;
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let pointers = time(&through_pointers)?;
        let indices = time(&over_indices)?;
        ratios.push(pointers.as_secs_f64() / indices.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let theirs = indices.bodies.read()?;
    let ours = simulation.bodies()?;
    let differ = (ours.iter().zip(&theirs))
        .filter(|(ours, theirs)| !alike(ours, theirs))
        .count();
    Ok(Comparison { ratios, differ })
}

/// Whether the pulls are the same but for roundings: the two kernels are compiled apart, and may be contracted
/// differently.
fn alike(ours: &tree::Body, theirs: &Body) -> bool {
    let length = |v: [f32; 3]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
    let [x, y, z] = [0, 1, 2].map(|axis| ours.acceleration[axis] - theirs.acceleration[axis]);
    ours.seen == theirs.seen && length([x, y, z]) <= 0.01 * length(ours.acceleration)
}
