//! Grids that kernels and the host write, wherever the counts lie: in buffers of a device, of the context, and in the heap,
//! which the host must not touch meanwhile.

use crate::byte_copies::machines;
use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    Buffer, Constants, Device, DeviceBuffer, Kernel, Program,
    buffers::{BufferError, Placement},
    heap::{HeapError, HostAccessPolicy},
    launch::LaunchError,
};

cases![
    counts_lie_anywhere,
    counts_that_a_kernel_has_written,
    counts_in_the_heap_beside_pointers,
    the_host_keeps_grids_out,
    counts_follow_a_heap_that_grows,
    offsets_are_checked,
];

/// Counts its invocations, and notes which work-groups there were.
const COUNT: &str = "
@group(0) @binding(0) var<storage, read_write> seen: array<atomic<u32>, 4>;
@compute @workgroup_size(2) fn main(
    @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32,
) {
    atomicAdd(&seen[0], 1u);
    atomicMax(&seen[1], group.x + 1u);
    atomicMax(&seen[2], group.y + 1u);
    atomicMax(&seen[3], group.z + 1u);
}";

fn kernel(device: &Device, source: &str) -> Kernel {
    let program = Program::new("grids.wgsl", source).unwrap_or_else(|e| panic!("{e}"));
    device.kernel(&program, "main", &Constants::new()).unwrap()
}

fn expected([x, y, z]: [u32; 3]) -> [u32; 4] {
    match x * y * z {
        0 => [0; 4],
        groups => [2 * groups, x, y, z],
    }
}

const PLACEMENTS: [Placement; 3] = [Placement::Auto, Placement::Device, Placement::Shared];

fn counts_lie_anywhere(f: &Fixture) {
    machines(f, |m| {
        let kernel = kernel(&m.device, COUNT);
        let words: Vec<u32> = vec![9, 3, 10, 7, 0, 5, 2, 1, 1, 4];
        for placement in PLACEMENTS {
            for offset in [4u64, 12, 24, 28] {
                let at = offset as usize / 4;
                let counts = [words[at], words[at + 1], words[at + 2]];
                let buffer = m
                    .context
                    .buffer_from_vec_with(words.clone(), placement)
                    .unwrap();
                let seen = m.device.buffer(&[0u32; 4]).unwrap();
                let mut launch = kernel
                    .launch()
                    .buffer("seen", &seen)
                    .indirect(&buffer, offset);
                launch.submit().unwrap();
                let what = format!("{} {placement:?} {offset}", m.name);
                assert_eq!(seen.read().unwrap(), expected(counts), "{what}");
                // A part of it, submitted again after the host has written it.
                buffer.write(at as u64, &[1, 2, 3]).unwrap();
                let part = buffer.slice(1..).unwrap();
                let seen = m.device.buffer(&[0u32; 4]).unwrap();
                let mut launch = kernel
                    .launch()
                    .buffer("seen", &seen)
                    .indirect(&part, offset - 4);
                launch.submit().unwrap();
                assert_eq!(seen.read().unwrap(), expected([1, 2, 3]), "{what}");
                buffer.write(at as u64, &[2, 2, 1]).unwrap();
                seen.fill(0, ..4).unwrap();
                launch.submit().unwrap();
                assert_eq!(seen.read().unwrap(), expected([2, 2, 1]), "{what}");
            }
        }
        let own = m.device.buffer(&words).unwrap();
        let seen = m.device.buffer(&[0u32; 4]).unwrap();
        let mut launch = kernel.launch().buffer("seen", &seen).indirect(&own, 4);
        launch.submit().unwrap();
        assert_eq!(seen.read().unwrap(), expected([3, 10, 7]));
    });
}

const PLAN: &str = "
@group(0) @binding(0) var<storage, read_write> plan: array<u32>;
@group(0) @binding(1) var<uniform> counts: vec3<u32>;
@compute @workgroup_size(1) fn main() {
    plan[2] = counts.x; plan[3] = counts.y; plan[4] = counts.z;
}";

fn counts_that_a_kernel_has_written(f: &Fixture) {
    machines(f, |m| {
        let (plan, count) = (kernel(&m.device, PLAN), kernel(&m.device, COUNT));
        for placement in PLACEMENTS {
            let grid = m
                .context
                .buffer_from_vec_with(vec![5u32; 8], placement)
                .unwrap();
            let seen = m.device.buffer(&[0u32; 4]).unwrap();
            let mut run = count.launch().buffer("seen", &seen).indirect(&grid, 8);
            let mut wanted = [0u32; 4];
            // All of it in one batch: nobody waits in between.
            for counts in [[3u32, 1, 2], [1, 4, 1], [2, 2, 2]] {
                let mut launch = plan.launch().buffer("plan", &grid);
                launch = launch.value("counts", &[counts[0], counts[1], counts[2], 0]);
                launch.workgroups(1).submit().unwrap();
                run.submit().unwrap();
                let ran = expected(counts);
                wanted[0] += ran[0];
                for i in 1..4 {
                    wanted[i] = wanted[i].max(ran[i]);
                }
            }
            assert_eq!(seen.read().unwrap(), wanted, "{} {placement:?}", m.name);
            // By another device of the context.
            let other = m.context.device_named(f.device.name()).unwrap();
            let mut launch = kernel(&other, PLAN).launch().buffer("plan", &grid);
            launch = launch.value("counts", &[7u32, 1, 1, 0]);
            launch.workgroups(1).submit().unwrap();
            seen.fill(0, ..4).unwrap();
            run.submit().unwrap();
            assert_eq!(
                seen.read().unwrap(),
                expected([7, 1, 1]),
                "{} {placement:?}",
                m.name
            );
        }
    });
}

fn counts_in_the_heap_beside_pointers(f: &Fixture) {
    // The kernel has the whole heap bound for writing, the counts in it included, and changes them.
    const FOLLOW: &str = "
        alias Counts = array<atomic<u32>, 3>;
        struct Word { value: atomic<u32> }
        @group(0) @binding(0) var<uniform> counts: usm_ptr;
        @group(0) @binding(1) var<uniform> at: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let word = usm_Word(at);
            atomicAdd(&word.value, 1u);
            let grid = usm_Counts(counts);
            atomicStore(&grid[0], 1000u);
        }";
    machines(f, |m| {
        let kernel = kernel(&m.device, FOLLOW);
        let counts = m.heap.alloc_slice(&[4u32, 3, 2]).unwrap();
        let word = m.heap.alloc(0u32).unwrap();
        let buffer: Buffer<u32> = m.context.buffer_in(counts, 3).unwrap();
        let launch = kernel.launch().value("counts", &counts).value("at", &word);
        launch.indirect(&buffer, 0).submit().unwrap();
        assert_eq!(m.heap.read(word, 1).unwrap(), [24], "{}", m.name);
        assert_eq!(m.heap.read(counts, 3).unwrap(), [1000, 3, 2], "{}", m.name);
        m.heap.free(word).unwrap();
    });
}

fn the_host_keeps_grids_out(f: &Fixture) {
    let kernel = kernel(&f.device, COUNT);
    let heap = f.context.heap().unwrap();
    let grid = (f.context)
        .buffer_from_vec_with(vec![3u32, 1, 1], Placement::Shared)
        .unwrap();
    let seen = f.device.buffer(&[0u32; 4]).unwrap();
    let mut launch = kernel.launch().buffer("seen", &seen).indirect(&grid, 0);
    launch.submit().unwrap();
    let host = heap.host().unwrap();
    let refused = launch.submit().unwrap_err();
    assert!(
        matches!(refused, LaunchError::Heap(HeapError::HostAccess { .. })),
        "{refused}"
    );
    let refused = launch.check().unwrap_err();
    assert!(
        matches!(refused, LaunchError::Heap(HeapError::HostAccess { .. })),
        "{refused}"
    );
    std::thread::scope(|scope| {
        let mut launch = launch.clone().host_access(HostAccessPolicy::Refuse);
        let refused = scope
            .spawn(move || launch.submit().map(|_| ()))
            .join()
            .unwrap();
        assert!(matches!(
            refused,
            Err(LaunchError::Heap(HeapError::HostAccess { .. }))
        ));
    });
    drop(host);
    launch.submit().unwrap();
    assert_eq!(seen.read().unwrap(), [12, 3, 1, 1]);
}

fn counts_follow_a_heap_that_grows(f: &Fixture) {
    machines(f, |m| {
        let kernel = kernel(&m.device, COUNT);
        let grid = (m.context)
            .buffer_from_vec_with(vec![2u32, 2, 2], Placement::Shared)
            .unwrap();
        let seen = m.device.buffer(&[0u32; 4]).unwrap();
        let mut launch = kernel.launch().buffer("seen", &seen).indirect(&grid, 0);
        launch.submit().unwrap();
        // The device imports the heap anew, or its copy grows.
        let more = m.heap.alloc_zeroed::<u8>(40 << 20).unwrap();
        grid.write(0, &[3]).unwrap();
        launch.submit().unwrap();
        assert_eq!(seen.read().unwrap(), [40, 3, 2, 2], "{}", m.name);
        m.heap.free(more).unwrap();
    });
}

fn offsets_are_checked(f: &Fixture) {
    let kernel = kernel(&f.device, COUNT);
    let seen: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let is_refused = |error: LaunchError, bytes: u64| match error {
        LaunchError::Indirect { bytes: found, .. } => assert_eq!(found, bytes),
        other => panic!("{other}"),
    };
    let own: DeviceBuffer<u32> = f.device.zeroed(5).unwrap();
    for offset in [12, 9, 2, u64::MAX, u64::MAX - 11] {
        for placement in PLACEMENTS {
            let buffer: Buffer<u32> = f.context.buffer_with(5, placement).unwrap();
            let launch = || {
                kernel
                    .launch()
                    .buffer("seen", &seen)
                    .indirect(&buffer, offset)
            };
            is_refused(launch().check().unwrap_err(), 20);
            is_refused(launch().submit().unwrap_err(), 20);
        }
        let launch = || kernel.launch().buffer("seen", &seen).indirect(&own, offset);
        is_refused(launch().check().unwrap_err(), 20);
        is_refused(launch().submit().unwrap_err(), 20);
    }
    // A slice that is not there, and a buffer that is mapped.
    let outside = kernel
        .launch()
        .buffer("seen", &seen)
        .indirect(own.slice(3..9), 0);
    assert!(matches!(
        outside.clone().submit(),
        Err(LaunchError::OutOfRange { .. })
    ));
    let buffer: Buffer<u32> = f.context.buffer(3).unwrap();
    let mapped = buffer.map_mut(..).unwrap();
    let mut launch = kernel.launch().buffer("seen", &seen).indirect(&buffer, 0);
    for refused in [launch.check(), launch.submit().map(|_| ())] {
        match refused.unwrap_err() {
            LaunchError::Buffer {
                argument, source, ..
            } => {
                assert_eq!(argument, "the indirect buffer");
                assert!(matches!(*source, BufferError::Mapped { .. }), "{source}");
            }
            other => panic!("{other}"),
        }
    }
    drop(mapped);
    launch.submit().unwrap();
    assert_eq!(seen.read().unwrap(), [0; 4]);
}
