//! Structures that live while the heap grows under them, and one that all devices of the machine extend in
//! turn. The reference is a tree and a list on the CPU that know the address of every node.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cases;
use crate::harness::Fixture;
use bytemuck::{Pod, Zeroable};
use tombolo::{
    Constants, Context, Device, DeviceBuffer, DeviceOptions, Kernel, Program, Ptr, SharedHeap,
    device::Aspect,
    heap::{HeapError, HeapSize},
    launch::LaunchError,
};

cases![
    a_tree_lives_through_growth_between_launches,
    a_tree_lives_through_growth_with_launches_in_flight,
    a_tree_lives_through_growth_by_another_thread,
    devices_follow_and_extend_one_list_in_turn,
];

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Node {
    key: u32,
    visits: u32,
    left: Ptr<Node>,
    right: Ptr<Node>,
}

/// Inserts keys into a search tree, each in a node of its own, and counts at every node how often the way
/// led through it.
const INSERT: &str = "
struct Node { key: u32, visits: u32, left: usm_ptr, right: usm_ptr }
alias Cell = usm_ptr;
alias Keys = array<u32>;
@group(0) @binding(0) var<uniform> root: usm_ptr;
@group(0) @binding(1) var<uniform> arena: usm_ptr;
@group(0) @binding(2) var<uniform> keys: usm_ptr;
@group(0) @binding(3) var<uniform> count: u32;
@compute @workgroup_size(1) fn main() {
    for (var i = 0u; i < count; i++) {
        let place = usm_element(arena, i, 24u);
        let n = usm_Node(place);
        let key = usm_Keys(keys)[i];
        *n = Node(key, 0u, usm_null(), usm_null());
        var at = *usm_Cell(root);
        if usm_is_null(at) {
            let first = usm_Cell(root);
            *first = place;
        }
        while !usm_is_null(at) {
            let here = usm_Node(at);
            here.visits += 1u;
            if key < here.key {
                at = here.left;
                if usm_is_null(at) { here.left = place; }
            } else {
                at = here.right;
                if usm_is_null(at) { here.right = place; }
            }
        }
    }
}";

/// Looks keys up, one for each invocation; the answer is the address of the key's node.
const FIND: &str = "
struct Node { key: u32, visits: u32, left: usm_ptr, right: usm_ptr }
alias Cell = usm_ptr;
@group(0) @binding(0) var<uniform> root: usm_ptr;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<usm_ptr>;
@compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&keys) { return; }
    var at = *usm_Cell(root);
    while !usm_is_null(at) && usm_Node(at).key != keys[id.x] {
        let n = usm_Node(at);
        at = n.right;
        if keys[id.x] < n.key { at = n.left; }
    }
    found[id.x] = at;
}";

/// The same tree on the CPU.
#[derive(Default)]
struct Model {
    nodes: Vec<ModelNode>,
}

struct ModelNode {
    place: Ptr<Node>,
    key: u32,
    visits: u32,
    children: [Option<usize>; 2],
}

impl Model {
    fn insert(&mut self, key: u32, place: Ptr<Node>) {
        let new = self.nodes.len();
        let mut at = (new > 0).then_some(0);
        while let Some(here) = at {
            let node = &mut self.nodes[here];
            node.visits += 1;
            let child = &mut node.children[usize::from(key >= node.key)];
            at = *child;
            *child = Some(child.unwrap_or(new));
        }
        self.nodes.push(ModelNode {
            place,
            key,
            visits: 0,
            children: [None; 2],
        });
    }

    /// Compares every node, each where it was put.
    fn check(&self, heap: &SharedHeap, root: Ptr<Ptr<Node>>) {
        let host = heap.host().unwrap();
        let place = |child: Option<usize>| child.map_or(Ptr::null(), |i| self.nodes[i].place);
        assert_eq!(*host.get(root).unwrap(), place(Some(0)));
        for node in &self.nodes {
            let expected = Node {
                key: node.key,
                visits: node.visits,
                left: place(node.children[0]),
                right: place(node.children[1]),
            };
            assert_eq!(*host.get(node.place).unwrap(), expected, "{:?}", node.place);
        }
    }
}

struct Garden {
    _context: Context,
    device: Device,
    heap: SharedHeap,
    base: Ptr<u8>,
    insert: Kernel,
    find: Kernel,
    root: Ptr<Ptr<Node>>,
    model: Model,
    /// Every allocation so far, with its size.
    places: Vec<(Ptr<u8>, u64)>,
}

const KEYS: usize = 48;

impl Garden {
    fn new(f: &Fixture, mirrored: bool) -> Self {
        let size = HeapSize::Bytes(512 << 20);
        let context = Context::with_heap(wgpu::Backends::all(), size).unwrap();
        let mut options = DeviceOptions::default();
        if mirrored {
            options.import_host_memory = false;
            options.live_memory = false;
        }
        let device = context.device_named_with(f.device.name(), options).unwrap();
        let imported = f.device.has(Aspect::HostImport) && !mirrored;
        assert_eq!(device.has(Aspect::HostImport), imported);
        let heap = context.heap().unwrap();
        Self {
            base: heap.base(),
            insert: kernel(&device, INSERT),
            find: kernel(&device, FIND),
            root: heap.alloc(Ptr::null()).unwrap(),
            model: Model::default(),
            places: Vec::new(),
            _context: context,
            device,
            heap,
        }
    }

    /// Outgrows what the heap has, unless it has grown already.
    fn grow(&mut self) {
        let before = self.committed();
        while self.committed() == before {
            let bytes = (before / 2).max(32 << 20);
            let at = self.heap.alloc_bytes(bytes, 256).unwrap();
            self.places.push((at, bytes));
        }
    }

    /// Launches the insertion of keys that the heap does not have yet.
    fn plant(&mut self) -> Result<(), LaunchError> {
        let next = self.model.nodes.len() as u32;
        // A walk through all numbers of 20 bits in no particular order, none of them twice.
        let keys: Vec<u32> = (next..next + KEYS as u32)
            .map(|i| i.wrapping_mul(0x9e37_79b1) & 0xf_ffff)
            .collect();
        let place = self.heap.alloc_slice(&keys).unwrap();
        let arena = self.heap.alloc_zeroed::<Node>(KEYS).unwrap();
        self.places.push((place.cast(), 4 * KEYS as u64));
        self.places.push((arena.cast(), 24 * KEYS as u64));
        let launch = self.insert.launch().value("root", &self.root);
        let launch = launch.value("arena", &arena).value("keys", &place);
        let mut launch = launch.value("count", &(KEYS as u32)).workgroups(1);
        launch.submit()?;
        for (i, key) in keys.into_iter().enumerate() {
            self.model.insert(key, arena.add(i as u64));
        }
        Ok(())
    }

    /// Everything is where it was, on the host and for the device.
    fn check(&self) {
        self.model.check(&self.heap, self.root);
        assert_eq!(self.heap.base(), self.base);
        for &(base, size) in &self.places {
            let found = self.heap.find(base.byte_add(size - 1)).unwrap();
            assert_eq!((found.base, found.size), (base, size));
        }
        let mut keys: Vec<u32> = self.model.nodes.iter().map(|n| n.key).collect();
        keys.push(1 << 20);
        let wanted = self.device.buffer(&keys).unwrap();
        let found = self.device.buffer(&vec![!0u64; keys.len()]).unwrap();
        let launch = self.find.launch().value("root", &self.root);
        let launch = launch.buffer("keys", &wanted).buffer("found", &found);
        launch.invocations(keys.len() as u32).submit().unwrap();
        let nodes = self.model.nodes.iter();
        let mut expected: Vec<u64> = nodes.map(|n| n.place.address()).collect();
        expected.push(0);
        assert_eq!(found.read().unwrap(), expected);
    }

    fn committed(&self) -> u64 {
        self.heap.committed()
    }
}

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("growing.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device
        .kernel(&program, "main", &Constants::new())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn a_tree_lives_through_growth_between_launches(f: &Fixture) {
    for mirrored in [false, true] {
        let mut garden = Garden::new(f, mirrored);
        // The last growth begins a segment that lavapipe binds apart.
        let mut sizes = Vec::new();
        for _ in 0..4 {
            garden.plant().unwrap();
            garden.device.finish().unwrap();
            garden.grow();
            garden.check();
            sizes.push(garden.committed());
            garden.plant().unwrap();
        }
        garden.check();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        assert!(garden.committed() > 128 << 20, "{sizes:?}");
        assert_eq!(garden.model.nodes.len(), 8 * KEYS);
    }
}

fn a_tree_lives_through_growth_with_launches_in_flight(f: &Fixture) {
    for mirrored in [false, true] {
        let mut garden = Garden::new(f, mirrored);
        for round in 0..4 {
            // Nobody waits for anything; half of what is recorded has been submitted.
            for turn in 0..3 {
                garden.plant().unwrap();
                if turn == 0 {
                    garden.device.flush().unwrap();
                }
            }
            garden.grow();
            garden.plant().unwrap();
            if round == 1 {
                garden.check();
            }
        }
        garden.check();
        assert!(garden.committed() > 128 << 20);
    }
}

fn a_tree_lives_through_growth_by_another_thread(f: &Fixture) {
    for mirrored in [false, true] {
        let mut garden = Garden::new(f, mirrored);
        let (heap, done) = (garden.heap.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let grower = scope.spawn(|| {
                let mut blocks = Vec::new();
                // A few steps while the tree grows, as many as the heap has room for, and one at least.
                loop {
                    match heap.alloc_bytes(6 << 20, 16) {
                        Ok(block) => blocks.push(block),
                        Err(HeapError::OutOfMemory { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if blocks.len() > 8 || done.load(Ordering::Acquire) {
                        break;
                    }
                    std::thread::yield_now();
                }
                blocks
            });
            for round in 0..12 {
                garden.plant().unwrap();
                if round % 6 == 5 {
                    garden.check();
                }
            }
            done.store(true, Ordering::Release);
            for block in grower.join().unwrap() {
                garden.places.push((block, 6 << 20));
            }
        });
        garden.check();
        garden.grow();
        garden.plant().unwrap();
        garden.check();
        let blocks = garden.places.iter().filter(|(_, bytes)| *bytes == 6 << 20);
        assert!(blocks.count() > 0, "the other thread has grown nothing");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Link {
    value: u32,
    seen: u32,
    next: Ptr<Link>,
}

/// Walks a list to its end, marks every node on the way, appends one, and says what it has seen.
const EXTEND: &str = "
struct Link { value: u32, seen: u32, next: usm_ptr }
@group(0) @binding(0) var<uniform> first: usm_ptr;
@group(0) @binding(1) var<uniform> last: usm_ptr;
@group(0) @binding(2) var<storage, read_write> sums: array<u32, 2>;
@compute @workgroup_size(1) fn main() {
    var at = first;
    var sum = 0u; var count = 0u;
    loop {
        let n = usm_Link(at);
        n.seen += 1u;
        sum = sum * 31u + n.value; count += 1u;
        if usm_is_null(n.next) { break; }
        at = n.next;
    }
    let fresh = usm_Link(last);
    *fresh = Link(sum, 0u, usm_null());
    let end = usm_Link(at);
    end.next = last;
    sums[0] = sum; sums[1] = count;
}";

fn devices_follow_and_extend_one_list_in_turn(f: &Fixture) {
    // Every adapter of the machine, through the same pointers, without a copy. Whoever walks sees what all
    // the others have left, and adds a value that depends on all of it.
    let heap = f.context.heap().unwrap();
    let devices: Vec<Device> = (f.context.adapters().iter())
        .map(|adapter| f.context.device_at(adapter.index).unwrap())
        .collect();
    let no_copy = devices.iter().all(|d| d.has(Aspect::HostImport));
    assert!(no_copy || !f.device.capabilities().software);
    let kernels: Vec<Kernel> = devices.iter().map(|d| kernel(d, EXTEND)).collect();
    let before = heap.mirror_statistics();
    let first = Link {
        value: 5,
        seen: 0,
        next: Ptr::null(),
    };
    let mut list = vec![(heap.alloc(first).unwrap(), 5u32)];
    let mut turns = 0;
    for _ in 0..20 {
        for (device, kernel) in devices.iter().zip(&kernels) {
            let last = heap.alloc(Link::zeroed()).unwrap();
            let sums: DeviceBuffer<u32> = device.buffer(&[!0; 2]).unwrap();
            let launch = kernel.launch().value("first", &list[0].0);
            let launch = launch.value("last", &last).buffer("sums", &sums);
            launch.workgroups(1).submit().unwrap();
            let add = |sum: u32, value: u32| sum.wrapping_mul(31).wrapping_add(value);
            let sum = list.iter().fold(0, |sum, (_, value)| add(sum, *value));
            assert_eq!(sums.read().unwrap(), [sum, list.len() as u32]);
            list.push((last, sum));
            turns += 1;
        }
        // The host takes its turn with the same pointers.
        let mut host = heap.host().unwrap();
        let (mut at, mut nodes) = (list[0].0, list.iter().enumerate());
        while !at.is_null() {
            let (place, &(ptr, value)) = nodes.next().unwrap();
            let node = host.get_mut(at).unwrap();
            assert_eq!((at, node.value), (ptr, value));
            assert_eq!(node.seen, turns - place as u32);
            at = node.next;
        }
        assert_eq!(nodes.next(), None);
    }
    // Each device has worked on the very bytes.
    if no_copy {
        assert_eq!(heap.mirror_statistics(), before);
    }
    for (ptr, _) in list {
        heap.free(ptr).unwrap();
    }
}
