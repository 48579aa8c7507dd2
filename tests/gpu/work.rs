//! Queues of work that invocations share.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Constants, Kernel, Program,
    work::{WorkError, WorkQueue},
};

cases![
    every_item_is_taken_once,
    work_groups_take_work_together,
    full_queues_say_so,
    work_that_is_never_done_is_told,
    queues_have_bounds,
    queues_pass_on_what_goes_wrong_below,
];

const MINUTE: Duration = Duration::from_secs(60);
/// Marks nodes that nobody has seen.
const POISON: u32 = 0x5000_0000;

fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::builder()
        .source("work.wgsl", source)
        .work_queue()
        .build();
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

/// A tree that nobody can divide beforehand: node `n` has as many children as a hash of it says.
fn children(n: u32) -> u32 {
    (n.wrapping_mul(2_654_435_761) >> 28) % 4
}

const TREE: &str = "
    @group(0) @binding(0) var<storage, read_write> seen: array<atomic<u32>>;
    @group(0) @binding(1) var<storage, read_write> next: atomic<u32>;
    @compute @workgroup_size(64) fn main() {
        for (var turn = 0u; turn < 40u; turn++) {
            let work = work_take();
            if !work.found { break; }
            let node = work.item.x;
            // The whole item has to arrive.
            if work.item.w != (node ^ 0xffffffffu) || work.item.y != node * 3u { continue; }
            atomicAdd(&seen[node], 1u);
            let many = (node * 2654435761u >> 28u) % 4u;
            for (var i = 0u; i < many; i++) {
                let child = atomicAdd(&next, 1u);
                if child < arrayLength(&seen) {
                    let ok = work_put(vec4(child, child * 3u, node, child ^ 0xffffffffu));
                    if !ok { atomicAdd(&seen[child], 1000u); }
                }
            }
            work_done();
        }
    }";

fn item(node: u32) -> [u32; 4] {
    [node, node.wrapping_mul(3), 0, !node]
}

fn every_item_is_taken_once(f: &Fixture) {
    const NODES: u32 = 20_000;
    const FIRST: u32 = 100;
    // In whatever order they are seen, numbers are left to be given until all are used up.
    let mut given = (0..FIRST).map(children).sum::<u32>() + FIRST;
    for node in FIRST..NODES {
        assert!(given > node);
        given += children(node);
    }
    let seen = f.device.buffer(&vec![POISON; NODES as usize]).unwrap();
    let next = f.device.buffer(&[FIRST]).unwrap();
    let queue = WorkQueue::new(&f.device, 20_000).unwrap();
    assert_eq!(queue.slots(), 32_768);
    let mut launch = kernel(f, TREE)
        .launch()
        .buffer("seen", &seen)
        .buffer("next", &next)
        .work_queue(&queue)
        .workgroups(8);
    // Twice, so that tickets of the second round find slots of the first.
    for round in 1..=2u32 {
        next.write(0, &[FIRST]).unwrap();
        let items: Vec<[u32; 4]> = (0..FIRST).map(item).collect();
        queue.fill(&items).unwrap();
        assert_eq!(queue.left().unwrap(), FIRST);
        let launches = queue.run(&mut launch, MINUTE).unwrap();
        assert!(launches > 0);
        assert_eq!(queue.left().unwrap(), 0);
        assert!(next.read().unwrap()[0] >= NODES);
        assert_eq!(seen.read().unwrap(), vec![POISON + round; NODES as usize]);
    }
    // Nothing is left, and nothing is launched.
    assert_eq!(queue.run(&mut launch, MINUTE).unwrap(), 0);
}

fn work_groups_take_work_together(f: &Fixture) {
    // Invocation 0 takes an item for all of its group, each of which marks a part of it; halves are put.
    let source = "
        @group(0) @binding(0) var<storage, read_write> seen: array<atomic<u32>>;
        var<workgroup> work: WorkItem;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lane: u32) {
            for (var turn = 0u; turn < 100u; turn++) {
                if lane == 0u { work = work_take(); }
                let taken = workgroupUniformLoad(&work);
                if !taken.found { break; }
                let start = taken.item.x;
                let end = taken.item.y;
                let size = end - start;
                if size <= 64u {
                    if lane < size { atomicAdd(&seen[start + lane], 1u); }
                } else if lane < 2u {
                    let middle = start + size / 2u;
                    let part = select(vec2(middle, end), vec2(start, middle), lane == 0u);
                    if !work_put(vec4(part, 0u, 0u)) { atomicAdd(&seen[start], 1000u); }
                }
                workgroupBarrier();
                if lane == 0u { work_done(); }
            }
        }";
    const COUNT: u32 = 50_000;
    let seen = f.device.buffer(&vec![POISON; COUNT as usize]).unwrap();
    let queue = WorkQueue::new(&f.device, 2048).unwrap();
    queue.fill(&[[0, COUNT, 0, 0]]).unwrap();
    let mut launch = kernel(f, source)
        .launch()
        .buffer("seen", &seen)
        .work_queue(&queue)
        .workgroups(4);
    queue.run(&mut launch, MINUTE).unwrap();
    assert_eq!(seen.read().unwrap(), vec![POISON + 1; COUNT as usize]);
}

fn full_queues_say_so(f: &Fixture) {
    // Each item wants two more, for which there is no room: they are counted, and nothing else is lost.
    let source = "
        @group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>, 3>;
        @compute @workgroup_size(64) fn main() {
            for (var turn = 0u; turn < 100u; turn++) {
                let work = work_take();
                if !work.found { break; }
                atomicAdd(&counts[0], 1u);
                if work.item.x < 12u {
                    for (var i = 0u; i < 2u; i++) {
                        let ok = work_put(vec4(work.item.x + 1u, 0u, 0u, 0u));
                        atomicAdd(&counts[select(2u, 1u, ok)], 1u);
                    }
                }
                work_done();
            }
        }";
    let counts = f.device.buffer(&[0u32; 3]).unwrap();
    let queue = WorkQueue::new(&f.device, 16).unwrap();
    queue.fill(&[[0; 4]; 16]).unwrap();
    let mut launch = kernel(f, source)
        .launch()
        .buffer("counts", &counts)
        .work_queue(&queue)
        .workgroups(2);
    queue.run(&mut launch, MINUTE).unwrap();
    let found = counts.read().unwrap();
    let [taken, put, refused] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(taken, 16 + put);
    assert!(refused > 0, "{found:?}");
    assert_eq!(queue.left().unwrap(), 0);
}

fn work_that_is_never_done_is_told(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read_write> count: atomic<u32>;
        @compute @workgroup_size(8) fn main() {
            if work_take().found { atomicAdd(&count, work_left()); }
        }";
    let count = f.device.buffer(&[0u32]).unwrap();
    let queue = WorkQueue::new(&f.device, 16).unwrap();
    queue.fill(&[[1; 4]; 3]).unwrap();
    let launch = kernel(f, source).launch().buffer("count", &count);
    let mut launch = launch.work_queue(&queue).workgroups(1);
    let error = queue.run(&mut launch, MINUTE).unwrap_err();
    assert!(matches!(error, WorkError::Stalled { left: 3 }), "{error}");
    assert_eq!(count.read().unwrap(), [9]);
    let error = queue.run(&mut launch, Duration::ZERO).unwrap_err();
    assert!(matches!(error, WorkError::Stalled { left: 3 }), "{error}");
    queue.fill(&[[1; 4]; 16]).unwrap();
    let error = queue.run(&mut launch, Duration::ZERO).unwrap_err();
    assert!(
        matches!(error, WorkError::Deadline { left: 16, .. }),
        "{error}"
    );
}

fn queues_have_bounds(f: &Fixture) {
    for slots in [0, 1, (1 << 24) + 1, usize::MAX] {
        let error = WorkQueue::new(&f.device, slots).unwrap_err();
        assert!(matches!(error, WorkError::Size { .. }), "{error}");
    }
    let queue = WorkQueue::new(&f.device, 3).unwrap();
    assert_eq!(queue.slots(), 4);
    let error = queue.fill(&[[0; 4]; 5]).unwrap_err();
    assert!(
        matches!(error, WorkError::TooMany { items: 5, slots: 4 }),
        "{error}"
    );
    // Errors in the program keep their lines.
    let error = Program::builder()
        .source("work.wgsl", "\nfn f() { work_put(1u); }")
        .work_queue()
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("work.wgsl:2"), "{error}");
}

fn queues_pass_on_what_goes_wrong_below(f: &Fixture) {
    let source = "@compute @workgroup_size(1) fn main() { assert(!work_take().found); }";
    let device = f.open(|_| {});
    let program = Program::builder()
        .source("work.wgsl", source)
        .work_queue()
        .build()
        .unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let queue = WorkQueue::new(&device, 4).unwrap();
    queue.fill(&[[1; 4]]).unwrap();
    let mut launch = kernel.launch().work_queue(&queue);
    let error = queue.run(&mut launch, MINUTE).unwrap_err();
    assert!(matches!(error, WorkError::Launch(_)), "{error}");
    let error = queue.run(&mut launch.workgroups(1), MINUTE).unwrap_err();
    assert!(matches!(error, WorkError::Wait(_)), "{error}");
    device.raw().destroy();
    let error = queue.left().unwrap_err();
    assert!(matches!(error, WorkError::Read(_)), "{error}");
    let error = WorkQueue::new(&device, 4).unwrap_err();
    assert!(matches!(error, WorkError::Memory(_)), "{error}");
}
