//! The bodies and their tree in shared memory: Rust builds the tree, the device walks it.

use std::error::Error;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};
use tombolo::{Constants, Device, Event, Kernel, Program, Ptr, SharedHeap};

use crate::tree::{Body, Node, Sorted, Tree, capacity};

/// How to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The largest angle, in radians, under which a cell is taken as a whole.
    pub theta: f64,
    /// Length over which bodies are smeared out.
    pub softening: f64,
    /// Time of one step.
    pub step: f64,
}

/// The kernel's `Params`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    root: Ptr<Node>,
    order: Ptr<Ptr<Body>>,
    count: u32,
    kick: f32,
    drift: f32,
    softening: f32,
}

/// Bodies that attract each other.
pub struct Simulation {
    heap: SharedHeap,
    bodies: Ptr<Body>,
    count: usize,
    /// Pointers to the bodies, sorted anew with each tree.
    order: Ptr<Ptr<Body>>,
    /// Room for the largest tree that the bodies can make; each tree takes the place of the last.
    nodes: Ptr<Node>,
    move_bodies: Kernel,
    pull: Kernel,
    setup: Setup,
    /// Time spent on building trees, and on waiting for the device.
    pub times: [Duration; 2],
    pub copies: Copies,
}

/// Where the simulation keeps its values in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    pub heap: &'a SharedHeap,
    pub bodies: Ptr<Body>,
    pub count: usize,
    pub order: Ptr<Ptr<Body>>,
    pub nodes: Ptr<Node>,
}

/// Bytes that would have had to be copied, had host and device no memory and no addresses in common.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copies {
    /// Trees, linked by indices of 4 bytes each.
    pub trees_up: u64,
    /// The order of the bodies, as indices of 4 bytes each.
    pub order_up: u64,
    /// Positions, of which the next tree is built.
    pub positions_down: u64,
}

impl Copies {
    pub fn all(self) -> u64 {
        self.trees_up + self.order_up + self.positions_down
    }

    fn count(&mut self, bodies: usize, nodes: usize) {
        const LINKS: usize = 3;
        let node = size_of::<Node>() - LINKS * (size_of::<Ptr<Node>>() - size_of::<u32>());
        self.trees_up += (nodes * node) as u64;
        self.order_up += (bodies * size_of::<u32>()) as u64;
        self.positions_down += (bodies * size_of::<[f32; 3]>()) as u64;
    }
}

impl Simulation {
    /// Puts the bodies into the shared memory of `device`, and compiles the kernels.
    pub fn new(device: &Device, bodies: &[Body], setup: Setup) -> Result<Self, Box<dyn Error>> {
        let heap = device.heap()?;
        let program = Program::new("octree.wgsl", include_str!("octree.wgsl"))?;
        let kernel = |entry| device.kernel(&program, entry, &Constants::new());
        Ok(Self {
            bodies: heap.alloc_slice(bodies)?,
            count: bodies.len(),
            order: heap.alloc_zeroed(bodies.len())?,
            nodes: heap.alloc_zeroed(capacity(bodies.len()))?,
            heap,
            move_bodies: kernel("move_bodies")?,
            pull: kernel("pull")?,
            setup,
            times: [Duration::ZERO; 2],
            copies: Copies::default(),
        })
    }

    /// A copy of the bodies as they are now.
    pub fn bodies(&self) -> Result<Vec<Body>, Box<dyn Error>> {
        Ok(self.heap.host()?.slice(self.bodies, self.count)?.to_vec())
    }

    /// Where everything lies.
    pub fn shared(&self) -> Shared<'_> {
        Shared {
            heap: &self.heap,
            bodies: self.bodies,
            count: self.count,
            order: self.order,
            nodes: self.nodes,
        }
    }

    /// Has the device find the pull on each body with the tree that was built last, without moving any.
    pub fn walk(&self) -> Result<Event, Box<dyn Error>> {
        self.submit(&self.pull, self.nodes, [0.0, 0.0])
    }

    /// Finds the pull on each body where it is, without moving any.
    pub fn start(&mut self) -> Result<Tree, Box<dyn Error>> {
        let tree = self.build()?;
        self.launch(&self.pull, tree.root, [0.0, 0.0])?;
        Ok(tree)
    }

    /// Moves all bodies on by one step: half of the pull, all of the way, the other half of the pull
    /// where they have arrived ("leapfrog", which keeps the energy over many steps).
    pub fn step(&mut self) -> Result<Tree, Box<dyn Error>> {
        let half = 0.5 * self.setup.step;
        let start = Instant::now();
        self.launch(&self.move_bodies, Ptr::null(), [half, self.setup.step])?;
        self.times[1] += start.elapsed();
        let tree = self.build()?;
        let start = Instant::now();
        self.launch(&self.pull, tree.root, [half, 0.0])?;
        self.times[1] += start.elapsed();
        Ok(tree)
    }

    fn build(&mut self) -> Result<Tree, Box<dyn Error>> {
        let start = Instant::now();
        let mut host = self.heap.host()?;
        let sorted = Sorted::new(host.slice(self.bodies, self.count)?, self.bodies)
            .ok_or("a body's position is not a number any more")?;
        let order = host.slice_mut(self.order, self.count)?;
        for (slot, body) in order.iter_mut().zip(sorted.pointers()) {
            *slot = body;
        }
        let nodes = host.slice_mut(self.nodes, capacity(self.count))?;
        let tree = sorted.build(nodes, self.nodes, self.setup.theta);
        self.times[0] += start.elapsed();
        self.copies.count(self.count, tree.nodes);
        Ok(tree)
    }

    fn launch(
        &self,
        kernel: &Kernel,
        root: Ptr<Node>,
        moved: [f64; 2],
    ) -> Result<(), Box<dyn Error>> {
        self.submit(kernel, root, moved)?.wait()?;
        Ok(())
    }

    fn submit(
        &self,
        kernel: &Kernel,
        root: Ptr<Node>,
        [kick, drift]: [f64; 2],
    ) -> Result<Event, Box<dyn Error>> {
        let params = Params {
            root,
            order: self.order,
            count: u32::try_from(self.count)?,
            kick: kick as f32,
            drift: drift as f32,
            softening: (self.setup.softening * self.setup.softening) as f32,
        };
        Ok((kernel.launch())
            .value("params", &params)
            .invocations(self.count as u64)
            .submit()?)
    }

    /// Bodies for which the device has not walked the tree that Rust built: it has not accounted for
    /// every body once, or the pointer that it stored does not lead to the leaf of that body.
    pub fn astray(&self) -> Result<usize, Box<dyn Error>> {
        let host = self.heap.host()?;
        let bodies = host.slice(self.bodies, self.count)?;
        let well = |body: &Body, index| {
            body.seen as usize == self.count
                && host
                    .get(body.leaf)
                    .is_ok_and(|leaf| leaf.body == self.bodies.add(index))
        };
        Ok((bodies.iter().zip(0..))
            .filter(|&(body, index)| !well(body, index))
            .count())
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Each of them was allocated here, and nobody else has freed it.
        let _ = self.heap.free(self.bodies);
        let _ = self.heap.free(self.order);
        let _ = self.heap.free(self.nodes);
    }
}
