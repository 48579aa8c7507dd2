//! The shared heap: a list that Rust builds, and kernels follow and change.

use bytemuck::{Pod, Zeroable};
use tombolo::device::ExecutionError;
use tombolo::{Constants, Context, Device, Program, Ptr};

use super::{Found, failure, same};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Node {
    next: Ptr<Node>,
    value: u32,
    visits: u32,
}

const WALK: &str = "
    struct Node { next: usm_ptr, value: u32, visits: u32 }
    @group(0) @binding(0) var<uniform> head: usm_ptr;
    @group(0) @binding(1) var<storage, read_write> sum: u32;
    @compute @workgroup_size(1) fn main() {
        var at = head;
        loop {
            if usm_is_null(at) { break; }
            let node = usm_Node(at);
            sum += (*node).value;
            (*node).visits += 1u;
            at = (*node).next;
        }
    }";

/// Rust builds a list; a kernel sums it up and marks each node; Rust reads the marks, adds a node, and has it walked again.
pub async fn list(context: &Context, device: &Device) -> Found {
    let heap = context.heap()?;
    let program = Program::new("walk.wgsl", WALK)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let (mut head, mut nodes) = (Ptr::null(), Vec::new());
    for value in 0..100 {
        head = heap.alloc(Node {
            next: head,
            value,
            visits: 0,
        })?;
        nodes.push(head);
    }
    let sum = device.buffer(&[0u32])?;
    let walk = |head: Ptr<Node>| {
        kernel
            .launch()
            .value("head", &head)
            .buffer("sum", &sum)
            .workgroups(1)
    };
    walk(head).submit()?.await?;
    same("the sum", sum.read_back(..)?.await?, vec![4950])?;
    {
        let mut host = heap.host_async().await?;
        for (value, node) in (0..).zip(&nodes) {
            let node = host.get_mut(*node)?;
            same("a node", (node.value, node.visits), (value, 1))?;
            node.value = 2 * value;
        }
    }
    head = heap.alloc(Node {
        next: head,
        value: 7,
        visits: 0,
    })?;
    walk(head).submit()?.await?;
    same(
        "the second sum",
        sum.read_back(..)?.await?,
        vec![4950 + 9900 + 7],
    )?;
    let host = heap.host_async().await?;
    same("the new node", host.get(head)?.visits, 1)?;
    for node in &nodes {
        same("an old node", host.get(*node)?.visits, 2)?;
    }
    drop(host);
    for node in nodes {
        heap.free(node)?;
    }
    heap.free(head)?;
    let moved = heap.mirror_statistics();
    Ok(format!(
        "101 nodes from {:#x} on; {} bytes went up and {} came down",
        heap.base().address(),
        moved.uploaded,
        moved.downloaded
    ))
}

/// A pointer that leads nowhere is the launch's error, and the heap tells the host of it, once.
pub async fn fault(context: &Context, device: &Device) -> Found {
    let program = Program::new("walk.wgsl", WALK)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let sum = device.buffer(&[0u32])?;
    let wild: Ptr<Node> = Ptr::from_address(0xdead_0000_0000);
    let launch = kernel.launch().value("head", &wild).buffer("sum", &sum);
    let error = failure(launch.workgroups(1).submit()?.await)?;
    let ExecutionError::Pointer { line, address, .. } = &*error else {
        return Err(format!("not the pointer: {error}").into());
    };
    same("the address", *address, wild.address())?;
    let heap = context.heap()?;
    if heap.host_async().await.is_ok() {
        return Err("the heap has not told of the failure".into());
    }
    heap.host_async().await?;
    Ok(format!("{address:#x} in line {line}"))
}
