//! Memory in which Rust and kernels follow the same pointers.

use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Program, Ptr,
    device::{Capability, ExecutionError, WaitError},
    kernel::KernelOptions,
};

use crate::{Shown, Stage, Stop, expect, held};

pub const STOPS: &[Stop] = &[
    Stop {
        name: "pointers",
        shows: "a tree of Rust values, followed by a kernel",
        capability: Capability::Pointers,
        run: tree,
    },
    Stop {
        name: "extension",
        shows: "a kernel links nodes that Rust then walks",
        capability: Capability::Pointers,
        run: extension,
    },
    Stop {
        name: "device memory",
        shows: "the device's own memory behind pointers",
        capability: Capability::Pointers,
        run: device_memory,
    },
    Stop {
        name: "bad pointers",
        shows: "one that leads nowhere fails the launch",
        capability: Capability::Pointers,
        run: bad_pointer,
    },
];

/// `Node` of `kernels/tree.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Node {
    key: u32,
    visits: u32,
    left: Ptr<Node>,
    right: Ptr<Node>,
}

fn kernel(
    stage: &Stage,
    entry: &str,
    options: KernelOptions,
) -> Result<tombolo::Kernel, Box<dyn std::error::Error>> {
    let program = Program::new("tree.wgsl", include_str!("kernels/tree.wgsl"))?;
    Ok(stage
        .device
        .kernel_with(&program, entry, &Constants::new(), options)?)
}

/// A search tree over the keys `from..to`, linked by addresses.
fn grow(stage: &Stage, from: u32, to: u32) -> Result<Ptr<Node>, Box<dyn std::error::Error>> {
    if from >= to {
        return Ok(Ptr::null());
    }
    let key = from + (to - from) / 2;
    let node = Node {
        key,
        visits: 0,
        left: grow(stage, from, key)?,
        right: grow(stage, key + 1, to)?,
    };
    Ok(stage.device.heap()?.alloc(node)?)
}

fn tree(stage: &Stage) -> Shown {
    const KEYS: u32 = 1000;
    let root = grow(stage, 0, KEYS)?;
    let kernel = kernel(stage, "search", KernelOptions::default())?;
    let depths = stage.device.zeroed::<u32>(KEYS as usize)?;
    kernel
        .launch()
        .value("root", &root)
        .buffer("depths", &depths)
        .invocations(KEYS)
        .submit()?
        .wait()?;
    let depths = depths.read()?;
    // What every search visited, the tree has counted.
    let heap = stage.device.heap()?;
    let host = heap.host()?;
    let (mut stack, mut visits, mut nodes) = (vec![root], 0u32, 0u32);
    while let Some(at) = stack.pop() {
        if !at.is_null() {
            let node = host.get(at)?;
            (visits, nodes) = (visits + node.visits, nodes + 1);
            stack.extend([node.left, node.right]);
        }
    }
    expect("visits", &visits, &depths.iter().sum())?;
    expect("nodes", &nodes, &KEYS)?;
    held(format!("{nodes} nodes, {visits} steps, no copy"))
}

fn extension(stage: &Stage) -> Shown {
    const NODES: u32 = 100;
    let heap = stage.device.heap()?;
    let arena = heap.alloc_zeroed::<Node>(NODES as usize)?;
    kernel(stage, "link", KernelOptions::default())?
        .launch()
        .value("root", &arena)
        .invocations(NODES)
        .submit()?
        .wait()?;
    let host = heap.host()?;
    let (mut at, mut keys) = (arena, Vec::new());
    while !at.is_null() {
        let node = host.get(at)?;
        keys.push(node.key);
        at = node.right;
    }
    let squares: Vec<u32> = (0..NODES).map(|i| i * i).collect();
    expect("the list", &keys, &squares)?;
    held(format!("{NODES} nodes, in order"))
}

fn device_memory(stage: &Stage) -> Shown {
    const NODES: u32 = 64;
    let own = stage.device.malloc::<Node>(NODES as usize)?;
    let total = stage.device.zeroed::<u32>(1)?;
    kernel(stage, "link", KernelOptions::default())?
        .launch()
        .value("root", &own)
        .invocations(NODES)
        .submit()?;
    kernel(stage, "total", KernelOptions::default())?
        .launch()
        .value("root", &own)
        .buffer("result", &total)
        .workgroups(1)
        .submit()?;
    expect(
        "the sum",
        &total.read()?,
        &vec![(0..NODES).map(|i| i * i).sum()],
    )?;
    stage.device.free(own)?;
    held(format!(
        "tag {}, {NODES} nodes followed",
        own.address() >> 48
    ))
}

fn bad_pointer(stage: &Stage) -> Shown {
    let options = KernelOptions::default().checked_pointers(true);
    let total = stage.device.zeroed::<u32>(1)?;
    let event = kernel(stage, "total", options)?
        .launch()
        .value("root", &Ptr::<Node>::from_address(0xdead_0000))
        .buffer("result", &total)
        .workgroups(1)
        .submit()?;
    let result = event.wait();
    // The failure is told to the host's next look as well; take it.
    let _ = stage.device.heap()?.host();
    match result {
        Err(WaitError::Failed(error)) => match &*error {
            ExecutionError::Pointer { line, address, .. } => {
                held(format!("{address:#x}, line {line}"))
            }
            _ => Err(error.into()),
        },
        Err(other) => Err(other.into()),
        Ok(()) => Err("a pointer to nowhere was followed".into()),
    }
}
