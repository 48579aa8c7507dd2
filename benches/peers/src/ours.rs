//! The runtime's side.

use bytemuck::{Pod, Zeroable};
use tombolo::{Device, DeviceBuffer, Launch, Ptr};

use crate::work::{LISTS, NODES, Work, next, scattered, start};
use crate::{Error, support};

/// A launch that is ready, and the buffer of its results.
pub struct Ours {
    pub launch: Launch,
    pub result: DeviceBuffer<u32>,
}

impl Ours {
    pub fn new(device: &Device, work: &Work) -> Result<Self, Error> {
        let kernel = support::ours(device, work.wgsl)?;
        let mut launch = kernel.launch().workgroups(work.groups);
        let mut buffers = Vec::new();
        if work.name == "chase" {
            buffers = vec![starts(device)?, device.zeroed(LISTS)?];
        } else {
            for bytes in &work.buffers {
                buffers.push(device.buffer(bytemuck::cast_slice(bytes))?);
            }
        }
        for (argument, buffer) in work.arguments.iter().zip(&buffers) {
            launch = launch.buffer(argument, buffer);
        }
        device.finish()?;
        let result = buffers.pop().ok_or("a kernel has no buffers")?;
        Ok(Self { launch, result })
    }

    pub fn run(&mut self) -> Result<(), Error> {
        Ok(self.launch.submit()?.wait()?)
    }

    /// Launches once, and checks the result.
    pub fn check(&mut self, work: &Work) -> Result<(), Error> {
        self.run()?;
        let words = self.result.read()?;
        work.expected
            .check("Tombolo", work.name, bytemuck::cast_slice(&words))
    }
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
