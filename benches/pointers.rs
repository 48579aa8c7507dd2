//! What pointers cost in kernels, on every adapter of the machine.
//!
//! Both sides chase the same chains of nodes on one wgpu device, in turn: ours through pointers in the
//! shared heap, theirs in hand-written wgpu through indices into a typed buffer. Each row is the median of
//! the ratios of the pairs. The last lines are the rows:
//! `ratio <row>/<adapter> = <median> (<min>..<max>) goal <= <limit>`.

mod support;

use bytemuck::{Pod, Zeroable};
use tombolo::{
    AdapterDescription, Constants, Context, Device, DeviceBuffer, DeviceOptions, Launch, Program,
    Ptr, SharedHeap,
    heap::HeapSize,
    kernel::{KernelOptions, TranslationMode},
};

use support::{Error, Raw, ours, pairs, seconds, word};

/// Pairs measured for each row.
const PAIRS: usize = 21;

/// Invocations that each follow a chain of their own.
const LANES: usize = 4096;

/// Nodes of the ring that all chains lie in: few enough to stay in the caches, so that what is measured is
/// the work and not the memory.
const NODES: usize = 1024;

/// Nodes that each invocation visits. A constant in the kernels, and below every adapter's loop budget, so
/// that no loop is guarded.
const STEPS: u32 = 3000;

/// Segments of the heap in the rows of two, where the adapter binds as much: larger ones would only cost memory.
const LARGEST_SEGMENT: u64 = 1 << 29;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let mut rows = Vec::new();
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let mut row = |label: &str, limit: f64, ratios: Vec<f64>| {
            rows.push(support::row(label, name, limit, ratios));
        };
        // Software adapters differ in what a second component of an element costs them; all others have
        // the stricter goals.
        let goal = |strict: f64, swiftshader: f64| match name {
            "SwiftShader" => swiftshader,
            _ => strict,
        };
        let unchecked = open(&context, &adapter, false)?;
        row("argument", 1.02, argument(&unchecked)?);
        for (label, mode) in [
            ("unified", TranslationMode::DeviceFavored),
            ("unified_shared", TranslationMode::SharedFavored),
        ] {
            row(label, goal(1.05, 1.20), unified(&unchecked, mode)?);
        }
        let checked = open(&context, &adapter, true)?;
        let ratios = unified(&checked, TranslationMode::DeviceFavored)?;
        row("checked", goal(1.20, 1.65), ratios);
        drop(checked);
        let [runs, by_hand, random] = two_segments(&context, &adapter)?;
        row("two_segments", goal(1.40, 2.2), runs);
        row("two_segments_by_hand", 1.05, by_hand);
        row("two_segments_random", 4.0, random);
        row("launch_10000", 1.05, many_allocations(&unchecked)?);
    }
    for row in rows {
        println!("{row}");
    }
    Ok(())
}

fn open(context: &Context, adapter: &AdapterDescription, checked: bool) -> Result<Device, Error> {
    let options = DeviceOptions::default().checked_pointers(checked);
    Ok(context.device_at_with(adapter.index, options)?)
}

/// A node of the chain through the shared heap.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: f32,
    tag: u32,
    next: Ptr<Node>,
}

/// A node of the chain through a typed buffer.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct IndexNode {
    value: f32,
    next: u32,
}

/// Follows indices into a typed buffer: the hand-written kernel, and ours where the nodes are a pointer
/// argument.
fn index_chase() -> String {
    format!(
        "struct Node {{ value: f32, next: u32 }}
@group(0) @binding(0) var<storage, read> nodes: array<Node>;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var at = starts[id.x];
    var sum = 0.0;
    for (var i = 0u; i < {STEPS}u; i++) {{
        sum += nodes[at].value;
        at = nodes[at].next;
    }}
    sums[id.x] = sum;
}}"
    )
}

/// Follows pointers.
fn pointer_chase() -> String {
    format!(
        "struct Node {{ value: f32, tag: u32, next: usm_ptr }}
@group(0) @binding(0) var<storage, read> starts: array<usm_ptr>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var p = starts[id.x];
    var sum = 0.0;
    for (var i = 0u; i < {STEPS}u; i++) {{
        let n = usm_Node(p);
        sum += n.value;
        p = n.next;
    }}
    sums[id.x] = sum;
}}"
    )
}

/// Follows pointers through two bindings, the second of which begins at byte `segment` of the heap, as one would
/// write it without this crate: one test for each node, and no word loaded that is not needed.
fn two_bindings(segment: u64) -> String {
    let (mask, shift) = (segment - 1, 3);
    format!(
        "@group(0) @binding(0) var<storage, read_write> first: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> second: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> starts: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var p = starts[id.x].x;
    var sum = 0.0;
    for (var i = 0u; i < {STEPS}u; i++) {{
        let at = (p & {mask}u) >> {shift}u;
        var value: u32;
        if p < {segment}u {{
            value = first[at].x;
            p = first[at + 1u].x;
        }} else {{
            value = second[at].x;
            p = second[at + 1u].x;
        }}
        sum += bitcast<f32>(value);
    }}
    sums[id.x] = sum;
}}"
    )
}

/// A kernel that follows one pointer, and otherwise only starts and ends.
const TOUCH: &str = "
struct Node { value: f32, tag: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
    if i == 0u { let n = usm_Node(first); n.tag += 1u; }
}";

/// The chain in numbers: one ring through all nodes, in an order that no memory system foresees.
struct Ring {
    values: Vec<f32>,
    next: Vec<u32>,
}

impl Ring {
    fn new() -> Self {
        // Sattolo's shuffle gives a permutation that is a single cycle.
        let mut next: Vec<u32> = (0..NODES as u32).collect();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for i in (1..NODES).rev() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            next.swap(i, (random >> 33) as usize % i);
        }
        // Sums of small multiples of a power of two are exact, in any order.
        let values = (0..NODES).map(|i| (i % 64) as f32 * 0.25).collect();
        Self { values, next }
    }

    fn index_nodes(&self) -> Vec<IndexNode> {
        (self.values.iter().zip(&self.next))
            .map(|(&value, &next)| IndexNode { value, next })
            .collect()
    }

    /// Puts the ring into nodes of the heap.
    fn link(&self, heap: &SharedHeap, nodes: &[Ptr<Node>]) -> Result<(), Error> {
        let mut host = heap.host()?;
        for (i, &node) in nodes.iter().enumerate() {
            *host.get_mut(node)? = Node {
                value: self.values[i],
                tag: i as u32,
                next: nodes[self.next[i] as usize],
            };
        }
        Ok(())
    }

    /// Where each lane begins.
    fn starts() -> impl Iterator<Item = usize> {
        (0..LANES).map(|lane| lane * 7 % NODES)
    }

    /// What each lane adds up, from following the ring on the host.
    fn sums(&self) -> Vec<f32> {
        let from = |start: usize| {
            let mut at = start;
            (0..STEPS).fold(0.0, |sum, _| {
                let value = self.values[at];
                at = self.next[at] as usize;
                sum + value
            })
        };
        let of_node: Vec<f32> = (0..NODES).map(from).collect();
        Self::starts().map(|start| of_node[start]).collect()
    }
}

/// Measures a launch that chases the ring against the hand-written one, and checks both results.
fn chase(
    device: &Device,
    ring: &Ring,
    mut launch: Launch,
    sums: &DeviceBuffer<f32>,
) -> Result<Vec<f64>, Error> {
    let nodes = device.buffer(&ring.index_nodes())?;
    let starts: Vec<u32> = Ring::starts().map(|start| start as u32).collect();
    let starts = device.buffer(&starts)?;
    let theirs: DeviceBuffer<f32> = device.zeroed(LANES)?;
    device.finish()?;
    let buffers = [nodes.raw(), starts.raw(), theirs.raw()];
    let raw = Raw::new(device, &index_chase(), &buffers);
    let ratios = pairs(
        PAIRS,
        || Ok(launch.submit()?.wait()?),
        || raw.run(device, 1, (LANES / 64) as u32),
    )?;
    let expected = ring.sums();
    if sums.read()? != expected || theirs.read()? != expected {
        return Err("the two sides do not agree with the host".into());
    }
    Ok(ratios)
}

/// The nodes are an argument: a binding at an offset in the heap, the same kernel on both sides.
fn argument(device: &Device) -> Result<Vec<f64>, Error> {
    let (heap, ring) = (device.heap()?, Ring::new());
    // Something in front, so that the binding has an offset.
    let front = heap.alloc_zeroed::<u32>(1000)?;
    let nodes = heap.alloc_slice(&ring.index_nodes())?;
    let starts: Vec<u32> = Ring::starts().map(|start| start as u32).collect();
    let starts = device.buffer(&starts)?;
    let sums: DeviceBuffer<f32> = device.zeroed(LANES)?;
    let kernel = ours(device, &index_chase())?;
    let launch = kernel
        .launch()
        .pointer("nodes", nodes, NODES)
        .buffer("starts", &starts)
        .buffer("sums", &sums)
        .invocations(LANES as u32);
    let ratios = chase(device, &ring, launch, &sums)?;
    heap.free(nodes)?;
    heap.free(front)?;
    Ok(ratios)
}

/// A launch that chases the ring through pointers to `nodes`, and where it puts its sums.
fn through_pointers(
    device: &Device,
    heap: &SharedHeap,
    nodes: &[Ptr<Node>],
    mode: TranslationMode,
) -> Result<(Launch, DeviceBuffer<f32>), Error> {
    Ring::new().link(heap, nodes)?;
    let starts: Vec<Ptr<Node>> = Ring::starts().map(|start| nodes[start]).collect();
    let starts = device.buffer(&starts)?;
    let sums: DeviceBuffer<f32> = device.zeroed(LANES)?;
    let program = Program::new("bench.wgsl", pointer_chase())?;
    let options = KernelOptions::default().pointers(mode);
    let kernel = device.kernel_with(&program, "main", &Constants::new(), options)?;
    let launch = kernel
        .launch()
        .buffer("starts", &starts)
        .buffer("sums", &sums)
        .invocations(LANES as u32);
    Ok((launch, sums))
}

fn empty_nodes(heap: &SharedHeap, count: usize) -> Result<Vec<Ptr<Node>>, Error> {
    (0..count)
        .map(|_| Ok(heap.alloc(Node::zeroed())?))
        .collect()
}

/// The chase through pointers, in a heap of one segment.
fn unified(device: &Device, mode: TranslationMode) -> Result<Vec<f64>, Error> {
    let heap = device.heap()?;
    let nodes = empty_nodes(&heap, NODES)?;
    let (launch, sums) = through_pointers(device, &heap, &nodes, mode)?;
    let ratios = chase(device, &Ring::new(), launch, &sums)?;
    for node in nodes {
        heap.free(node)?;
    }
    Ok(ratios)
}

/// The chase through a heap that the adapter cannot bind at once. Once the ring crosses from one segment to
/// the other and back, against indices and against what one would write by hand for two bindings; then every step
/// is as likely to stay as to cross, which is the worst there is for processors that predict branches.
fn two_segments(context: &Context, adapter: &AdapterDescription) -> Result<[Vec<f64>; 3], Error> {
    const FILLER: u64 = 32 << 20;
    let limit = open(context, adapter, false)?
        .raw()
        .limits()
        .max_storage_buffer_binding_size;
    let segment = (1u64 << limit.max(1).ilog2()).min(LARGEST_SEGMENT);
    // A context of its own, whose heap nobody else sees grow.
    let bound = HeapSize::Bytes(segment + segment / 2);
    let context = Context::with_heap(context.backends(), bound)?;
    let heap = context.heap()?;
    let mut options = DeviceOptions::default();
    options.checked_pointers = false;
    options.storage_binding_bytes = Some(segment);
    let device = context.device_at_with(adapter.index, options)?;
    let first = empty_nodes(&heap, NODES / 2)?;
    // Small allocations would go to gaps in the first segment: the last filler itself holds the others.
    let mut filler = heap.alloc_bytes(FILLER, 16)?;
    while filler.address() - heap.base().address() < segment {
        filler = heap.alloc_bytes(FILLER, 16)?;
    }
    let second: Vec<Ptr<Node>> = (0..NODES as u64 / 2)
        .map(|i| filler.cast().add(i))
        .collect();
    let in_second = |node: &Ptr<Node>| node.address() - heap.base().address() >= segment;
    if first.iter().any(in_second) || !second.iter().all(in_second) {
        return Err("the nodes do not lie in both segments".into());
    }
    let ring = Ring::new();
    let mut runs = vec![Ptr::null(); NODES];
    let mut at = 0;
    for step in 0..NODES {
        // An odd factor keeps the order of addresses from being that of the ring.
        let place = step * 331 % first.len();
        let half = if step < first.len() { &first } else { &second };
        runs[at] = half[place];
        at = ring.next[at] as usize;
    }
    let random: Vec<Ptr<Node>> = (first.iter().zip(&second))
        .flat_map(|(&a, &b)| [a, b])
        .collect();
    let against_indices = |nodes: &[Ptr<Node>]| {
        let mode = TranslationMode::DeviceFavored;
        let (launch, sums) = through_pointers(&device, &heap, nodes, mode)?;
        chase(&device, &ring, launch, &sums)
    };
    let (runs_ratios, random_ratios) = (against_indices(&runs)?, against_indices(&random)?);
    let (mut launch, sums) =
        through_pointers(&device, &heap, &runs, TranslationMode::DeviceFavored)?;
    let by_hand = ByHand::new(&device, &heap, segment, &runs)?;
    let ratios = pairs(
        PAIRS,
        || Ok(launch.submit()?.wait()?),
        || by_hand.raw.run(&device, 1, (LANES / 64) as u32),
    )?;
    if sums.read()? != ring.sums() || by_hand.sums.read()? != ring.sums() {
        return Err("the two sides do not agree with the host".into());
    }
    Ok([runs_ratios, ratios, random_ratios])
}

/// The hand-written chase through two bindings, over a copy of the nodes.
struct ByHand {
    raw: Raw,
    sums: DeviceBuffer<f32>,
}

impl ByHand {
    fn new(
        device: &Device,
        heap: &SharedHeap,
        segment: u64,
        nodes: &[Ptr<Node>],
    ) -> Result<Self, Error> {
        let ring = Ring::new();
        // The nodes of either segment, from its beginning.
        let half =
            |node: usize| usize::from(nodes[node].address() - heap.base().address() >= segment);
        let mut sizes = [0; 2];
        let addresses: Vec<u64> = (0..NODES)
            .map(|node| {
                let place = sizes[half(node)];
                sizes[half(node)] += 1;
                half(node) as u64 * segment + place * size_of::<Node>() as u64
            })
            .collect();
        let mut halves = [Vec::new(), Vec::new()];
        for node in 0..NODES {
            halves[half(node)].push(Node {
                value: ring.values[node],
                tag: node as u32,
                next: Ptr::from_address(addresses[ring.next[node] as usize]),
            });
        }
        let starts: Vec<u64> = Ring::starts().map(|start| addresses[start]).collect();
        let (first, second) = (device.buffer(&halves[0])?, device.buffer(&halves[1])?);
        let starts = device.buffer(&starts)?;
        let sums: DeviceBuffer<f32> = device.zeroed(LANES)?;
        device.finish()?;
        let buffers = [first.raw(), second.raw(), starts.raw(), sums.raw()];
        let raw = Raw::new(device, &two_bindings(segment), &buffers);
        Ok(Self { raw, sums })
    }
}

/// Launching a kernel that follows pointers and waiting for it, with 10,000 live allocations, against the
/// same with 10.
fn many_allocations(device: &Device) -> Result<Vec<f64>, Error> {
    const FEW: usize = 10;
    const MANY: usize = 10_000;
    const LAUNCHES: usize = 500;
    let heap = device.heap()?;
    let kernel = ours(device, TOUCH)?;
    let mut live = empty_nodes(&heap, FEW)?;
    let first = live[0];
    let launches = || {
        seconds(|| {
            for _ in 0..LAUNCHES {
                let mut launch = kernel.launch().value("first", &first).workgroups(1);
                launch.submit()?.wait()?;
            }
            Ok(())
        })
    };
    let mut ratios = Vec::new();
    let mut last = launches()?;
    for i in 0..=PAIRS {
        // Each time is compared with the one before; changing the heap in between is not measured.
        let grows = i % 2 == 0;
        if grows {
            live.extend(empty_nodes(&heap, MANY - FEW)?);
        } else {
            for node in live.drain(FEW..) {
                heap.free(node)?;
            }
        }
        let now = launches()?;
        ratios.push(if grows { now / last } else { last / now });
        last = now;
    }
    for node in live {
        heap.free(node)?;
    }
    // The first is a warm-up.
    Ok(ratios.split_off(1))
}
