//! The runtime's side.

use bytemuck::{Pod, Zeroable};
use tombolo::{Device, DeviceBuffer, Launch, Ptr};

use crate::side::Side;
use crate::tree::{END, Tree};
use crate::work::{LISTS, NODES, Work, next, scattered, start};
use crate::{Error, support};

/// A launch that is ready, and the buffer of its results.
pub struct Ours {
    launch: Launch,
    result: DeviceBuffer<u32>,
}

impl Ours {
    pub fn new(device: &Device, work: &Work) -> Result<Self, Error> {
        let kernel = support::ours(device, work.wgsl)?;
        let mut launch = kernel.launch().workgroups(work.groups);
        let words = |bytes: &Vec<u8>| device.buffer(bytemuck::cast_slice(bytes));
        let mut buffers = match (work.name, &work.inputs[..]) {
            ("chase", _) => vec![starts(device)?],
            ("barnes_hut", [.., bodies]) => vec![root(device)?, words(bodies)?],
            (_, inputs) => inputs.iter().map(words).collect::<Result<_, _>>()?,
        };
        buffers.push(words(&work.results.before)?);
        for (argument, buffer) in work.arguments.iter().zip(&buffers) {
            launch = launch.buffer(argument, buffer);
        }
        device.finish()?;
        let result = buffers.pop().ok_or("a kernel has no buffers")?;
        Ok(Self { launch, result })
    }
}

impl Side for Ours {
    fn run(&mut self) -> Result<(), Error> {
        Ok(self.launch.submit()?.wait()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        put(&self.result, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        results(&self.result)
    }
}

/// Overwrites a buffer.
pub fn put(buffer: &DeviceBuffer<u32>, bytes: &[u8]) -> Result<(), Error> {
    Ok(buffer.write(0, bytemuck::cast_slice(bytes))?.wait()?)
}

/// What a buffer holds.
pub fn results(buffer: &DeviceBuffer<u32>) -> Result<Vec<u8>, Error> {
    Ok(bytemuck::cast_slice(&buffer.read()?).to_vec())
}

/// A node of a list.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u32,
    tag: u32,
    next: Ptr<Node>,
}

/// Puts the nodes into the heap, and the pointers to the first ones into a buffer. The nodes stay until the process ends.
fn starts(device: &Device) -> Result<DeviceBuffer<u32>, Error> {
    let heap = device.heap()?;
    let nodes = (0..NODES)
        .map(|_| Ok(heap.alloc(Node::zeroed())?))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut host = heap.host()?;
    for (i, &node) in nodes.iter().enumerate() {
        *host.get_mut(node)? = Node {
            value: scattered(i as u32),
            tag: i as u32,
            next: nodes[next(i)],
        };
    }
    drop(host);
    let starts: Vec<Ptr<Node>> = (0..LISTS).map(|list| nodes[start(list)]).collect();
    Ok(device.buffer(bytemuck::cast_slice(&starts))?)
}

/// A cell of the bodies' tree, as in `kernels/walk.wgsl`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Cell {
    centre: [f32; 3],
    mass: f32,
    reach: f32,
    tag: u32,
    first: Ptr<Cell>,
    next: Ptr<Cell>,
    padding: [u32; 2],
}

/// Puts the bodies' tree into the heap, and the pointer to its root into a buffer. The tree stays until the process ends.
fn root(device: &Device) -> Result<DeviceBuffer<u32>, Error> {
    let heap = device.heap()?;
    let tree = Tree::new();
    let root: Ptr<Cell> = heap.alloc_zeroed(tree.cells.len())?;
    let link = |at: u32| match at {
        END => Ptr::null(),
        at => root.add(u64::from(at)),
    };
    let mut host = heap.host()?;
    let cells = host.slice_mut(root, tree.cells.len())?;
    for (cell, from) in cells.iter_mut().zip(&tree.cells) {
        *cell = Cell {
            centre: from.centre,
            mass: from.mass,
            reach: from.reach,
            tag: 0,
            first: link(from.first),
            next: link(from.next),
            padding: [0; 2],
        };
    }
    drop(host);
    Ok(device.buffer(bytemuck::cast_slice(&[root]))?)
}
