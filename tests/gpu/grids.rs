//! Grids: of several dimensions, empty, beyond one dispatch, indirect, by invocations alone.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::{INCREMENT, kernel};
use tombolo::{Constants, DeviceBuffer, Program, device::EventStatus, launch::LaunchError};

cases![
    grids_in_two_and_three_dimensions,
    empty_grids_run_nothing,
    grids_beyond_one_dispatch,
    tiled_grids_with_struct_arguments,
    grids_too_large_are_refused,
    indirect_grids,
    automatic_work_group_size,
];

fn grids_in_two_and_three_dimensions(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> hits: array<atomic<u32>>;
         @compute @workgroup_size(4, 2, 2)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if all(id < vec3(7u, 5u, 3u)) { atomicAdd(&hits[(id.z * 5u + id.y) * 7u + id.x], 1u); }
         }",
    );
    let hits: DeviceBuffer<u32> = f.device.zeroed(105).unwrap();
    let mut launch = kernel.launch().buffer("hits", &hits).invocations([7, 5, 3]);
    launch.submit().unwrap();
    assert_eq!(hits.read().unwrap(), vec![1; 105]);
    launch = launch.workgroups([2, 3, 2]);
    launch.submit().unwrap();
    assert_eq!(hits.read().unwrap(), vec![2; 105]);
}

fn empty_grids_run_nothing(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    for event in [
        kernel.launch().buffer("data", &data).invocations(0),
        kernel.launch().buffer("data", &data).workgroups([0, 5, 5]),
        kernel.launch().buffer("data", &data).invocations([7, 0]),
    ]
    .iter_mut()
    .map(|launch| launch.submit().unwrap())
    {
        assert_eq!(event.status(), EventStatus::Complete);
        event.wait().unwrap();
    }
    assert_eq!(data.read().unwrap(), [0; 4]);
    // Wrong arguments are wrong whatever the grid.
    assert!(kernel.launch().invocations(0).submit().is_err());
}

fn grids_beyond_one_dispatch(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read_write> hits: array<u32>;
        @group(0) @binding(1) var<storage, read_write> groups: array<u32>;
        @compute @workgroup_size(2)
        fn main(@builtin(global_invocation_id) id: vec3<u32>,
                @builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) local: u32,
                @builtin(num_workgroups) count: vec3<u32>) {
            hits[id.x] += group.x * 2u + local + 1u;
            if id.x == 0u { groups[0] = count.x; groups[1] = count.y; }
        }";
    let kernel = kernel(f, source);
    let n = 65_535u32 * 2 + 17;
    let hits: DeviceBuffer<u32> = f.device.zeroed(2 * n as usize).unwrap();
    let groups: DeviceBuffer<u32> = f.device.zeroed(2).unwrap();
    let event = kernel
        .launch()
        .buffer("hits", &hits)
        .buffer("groups", &groups)
        .workgroups(n)
        .submit()
        .unwrap();
    event.wait().unwrap();
    let expected: Vec<u32> = (1..=2 * n).collect();
    assert!(hits.read().unwrap() == expected);
    assert_eq!(groups.read().unwrap(), [n, 1]);
}

fn tiled_grids_with_struct_arguments(f: &Fixture) {
    let source = "
        struct In { @builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32> }
        @group(0) @binding(0) var<storage, read_write> hits: array<u32>;
        @compute @workgroup_size(1, 1)
        fn main(input: In) { hits[input.id.y] = input.id.y * 3u + input.id.x + input.local.y; }";
    let kernel = kernel(f, source);
    let n = 70_000u32;
    let hits: DeviceBuffer<u32> = f.device.zeroed(n as usize).unwrap();
    kernel
        .launch()
        .buffer("hits", &hits)
        .workgroups([1, n])
        .submit()
        .unwrap();
    let expected: Vec<u32> = (0..n).map(|i| i * 3).collect();
    assert!(hits.read().unwrap() == expected);
}

fn grids_too_large_are_refused(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("data", &data)
        .invocations(1u64 << 40)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::GridTooLarge { axis: "x", .. }));
}

fn indirect_grids(f: &Fixture) {
    let kernel = kernel(f, INCREMENT);
    let data: DeviceBuffer<u32> = f.device.zeroed(300).unwrap();
    let counts = f.device.buffer(&[9u32, 2, 1, 1, 0, 0]).unwrap();
    kernel
        .launch()
        .buffer("data", &data)
        .indirect(&counts, 4)
        .submit()
        .unwrap();
    let expected: Vec<u32> = (0..300).map(|i| u32::from(i < 128)).collect();
    assert_eq!(data.read().unwrap(), expected);
    for offset in [2, 16, u64::MAX - 11, u64::MAX] {
        let error = kernel
            .launch()
            .buffer("data", &data)
            .indirect(&counts, offset)
            .submit();
        match error.unwrap_err() {
            LaunchError::Indirect { bytes: 24, .. } => {}
            other => panic!("{other}"),
        }
    }
    let error = kernel
        .launch()
        .buffer("data", &counts)
        .indirect(&counts, 0)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::Aliased { .. }));
}

fn automatic_work_group_size(f: &Fixture) {
    let program = Program::new(
        "auto.wgsl",
        "override size: u32;
         @group(0) @binding(0) var<storage, read_write> data: array<u32>;
         @compute @workgroup_size(size) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = size; }
         }",
    )
    .unwrap();
    let auto = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let [x, y, z] = auto.workgroup_size();
    assert!(x >= 8 && x.is_power_of_two() && (y, z) == (1, 1), "{x}");
    let data: DeviceBuffer<u32> = f.device.zeroed(100).unwrap();
    let _ = auto
        .launch()
        .buffer("data", &data)
        .invocations(100)
        .submit()
        .unwrap();
    assert_eq!(data.read().unwrap(), vec![x; 100]);
    let fixed = f
        .device
        .kernel(&program, "main", &Constants::new().set("size", 17u32))
        .unwrap();
    assert_eq!(fixed.workgroup_size(), [17, 1, 1]);
}
