//! The ways from kernels to a server on another device: in place, through the host, and the few that do not exist.

use std::time::Duration;

use tombolo::{
    Constants, Context, Device, DeviceOptions, PersistentKernel, Program,
    calls::CallStatus,
    device::Tier,
    heap::{HeapPlacement, HeapSize},
    launch::LaunchError,
};

use crate::cases;
use crate::harness::Fixture;
use crate::kernel_callers::{CALL, KINDS, MINUTE, POISON, builder, caller, mix, run, start};
use crate::kernel_callers_own::{BEGIN, COLLECT};

cases![
    software_adapters_call_each_other_in_place,
    devices_that_share_nothing_call_through_the_host,
    servers_that_expect_nobody_are_called_through_the_host,
    more_devices_than_expected_call_through_the_host,
    servers_in_slices_are_called_through_the_host,
    devices_without_live_memory_call_between_launches,
    packets_of_several_calls_are_forwarded_call_by_call,
    kernels_do_not_wait_for_pointers_into_copies,
];

const COUNT: u32 = 64;

/// A device on another adapter; where there is none, on the same.
pub fn other(f: &Fixture) -> Device {
    let adapters = f.context.adapters();
    let mut indices = adapters.iter().map(|adapter| adapter.index);
    let index = indices.find(|&index| index != f.index);
    let index = index.unwrap_or(f.index);
    f.context.device_at(index).unwrap()
}

/// Whether running kernels of a device see what others write into pages of the host.
fn shares(device: &Device) -> bool {
    let capabilities = device.capabilities();
    capabilities.unified_memory && capabilities.host_import() && capabilities.live_memory()
}

/// Servers of `mix` of both kinds, one after the other, on another device.
pub fn reached(f: &Fixture) -> impl Iterator<Item = PersistentKernel> {
    let other = other(f);
    (KINDS.into_iter()).map(move |kind| start(kind(&other).callers(1)))
}

/// Has a kernel of `device` call the server, and wait; the calls that went through the host.
fn forwarded(server: &PersistentKernel, device: &Device) -> u64 {
    let kernel = caller(device, server, CALL);
    let results = device.buffer(&vec![POISON; 3 * COUNT as usize]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let launch = launch.value("seed", &11u32).server(server);
    let before = server.statistics().forwarded;
    let (_, sums) = run(&mut launch.invocations(COUNT), &results, 2);
    let expected = (0..COUNT).map(|i| mix(i + 11, i).wrapping_add(mix(i, i + 11)));
    assert_eq!(sums, expected.collect::<Vec<_>>());
    server.statistics().forwarded - before
}

/// The tests of kernels that call another device test calls in place, on software adapters: by two of different make.
fn software_adapters_call_each_other_in_place(f: &Fixture) {
    let other = other(f);
    let is_software = |device: &Device| device.capabilities().software;
    let in_place = shares(&f.device) && shares(&other);
    assert!(in_place || !is_software(&f.device) || !is_software(&other));
    // Two cards may have one name.
    let of = |device: &Device| {
        (
            device.name().to_owned(),
            device.capabilities().pci_address.clone(),
        )
    };
    assert_eq!(of(&other) == of(&f.device), f.context.adapters().len() == 1);
    for server in reached(f) {
        let calls = forwarded(&server, &f.device);
        assert_eq!(calls, if in_place { 0 } else { 2 * u64::from(COUNT) });
    }
}

fn devices_that_share_nothing_call_through_the_host(f: &Fixture) {
    let own_memory = |options: &mut DeviceOptions| options.unified_memory = Some(false);
    let copies = |options: &mut DeviceOptions| options.import_host_memory = false;
    let other = other(f);
    for device in [f.open(own_memory), f.open(copies)] {
        assert!(!shares(&device));
        for kind in KINDS {
            for (to, from) in [(&other, &device), (&device, &other)] {
                let server = start(kind(to).callers(1));
                assert_eq!(forwarded(&server, from), 2 * u64::from(COUNT));
                assert!(server.failure().is_none());
            }
        }
    }
}

fn servers_that_expect_nobody_are_called_through_the_host(f: &Fixture) {
    let server = start(builder(&other(f)));
    assert_eq!(forwarded(&server, &f.device), 2 * u64::from(COUNT));
}

fn more_devices_than_expected_call_through_the_host(f: &Fixture) {
    let other = other(f);
    let in_place = shares(&f.device) && shares(&other);
    let server = start(builder(&other).callers(1));
    let second = f.open(|_| {});
    for (device, is_first) in [(&f.device, true), (&second, false), (&f.device, true)] {
        let calls = forwarded(&server, device);
        assert_eq!(calls == 0, in_place && is_first, "{calls}");
    }
}

fn servers_in_slices_are_called_through_the_host(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    for kind in KINDS {
        let server = start(kind(&device).callers(1));
        assert_eq!(server.tier(), Tier::Sliced);
        assert_eq!(forwarded(&server, &other(f)), 2 * u64::from(COUNT));
    }
}

/// Kernels there cannot wait; what they begin is forwarded behind the launch.
fn devices_without_live_memory_call_between_launches(f: &Fixture) {
    let device = f.open(|options| options.live_memory = false);
    let server = start(builder(&other(f)).callers(1));
    let results = device.buffer(&[POISON; 3 * COUNT as usize]).unwrap();
    let launch = caller(&device, &server, CALL).launch();
    let launch = launch.buffer("results", &results).value("seed", &0u32);
    let error = launch
        .server(&server)
        .invocations(COUNT)
        .check()
        .unwrap_err();
    assert!(
        matches!(error, LaunchError::NeedsLiveMemory { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("mix"), "{error}");

    let [tickets, results] = [(); 2].map(|()| device.buffer(&[POISON; COUNT as usize]).unwrap());
    let begin = caller(&device, &server, BEGIN).launch();
    let mut begin = begin
        .buffer("tickets", &tickets)
        .server(&server)
        .invocations(COUNT);
    let collect = caller(&device, &server, COLLECT).launch();
    let collect = collect
        .buffer("tickets", &tickets)
        .buffer("results", &results);
    let mut collect = collect.server(&server).invocations(COUNT);
    begin.submit().unwrap().wait_timeout(MINUTE).unwrap();
    collect.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let expected = (0..COUNT).map(|i| mix(i, 3 * i)).collect::<Vec<_>>();
    assert_eq!(results.read().unwrap(), expected);
    assert_eq!(server.statistics().forwarded, u64::from(COUNT));
}

/// What one call of a packet comes to is not that of its neighbours.
fn packets_of_several_calls_are_forwarded_call_by_call(f: &Fixture) {
    let source = "
        @group(0) @binding(0) var<storage, read_write> results: array<vec2<u32>>;
        @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {
            let reply = mix_group_try(i != 5u, i, select(i, 1000000u, i == 9u));
            results[i] = vec2(reply.status, reply.value);
        }";
    let apart = f.open(|options| options.unified_memory = Some(false));
    for (device, kind) in [&apart, &f.device]
        .into_iter()
        .flat_map(|device| KINDS.map(|kind| (device, kind)))
    {
        let server = start(kind(&other(f)).callers(1));
        let results = device.buffer(&[POISON; 32]).unwrap();
        let launch = caller(device, &server, source).launch();
        let mut launch = launch
            .buffer("results", &results)
            .server(&server)
            .workgroups(1);
        launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
        let expected = (0..16).flat_map(|i| match i {
            5 => [CallStatus::Done.code(), 0],
            9 => [CallStatus::Failed.code(), 0],
            i => [CallStatus::Done.code(), mix(i, i)],
        });
        assert_eq!(results.read().unwrap(), expected.collect::<Vec<_>>());
    }
}

/// The heap is used by the kernels of one device at a time where there are copies: the server's would wait for the caller's,
/// which waits for the server. What is begun, and asked for by a later launch, goes on.
fn kernels_do_not_wait_for_pointers_into_copies(f: &Fixture) {
    let context = Context::with_heap(wgpu::Backends::all(), HeapSize::Bytes(16 << 20)).unwrap();
    let mut options = DeviceOptions::default();
    options.heap_placement = HeapPlacement::Device;
    let own = context.device_named_with(f.device.name(), options).unwrap();
    let index = (context.adapters().iter().map(|adapter| adapter.index))
        .find(|&index| index != f.index)
        .unwrap_or(f.index);
    let other = context.device_at(index).unwrap();
    let source = "
        alias Words = array<u32>;
        fn fetch(words: usm_ptr, i: u32) -> u32 { return usm_Words(words)[i]; }";
    let program = Program::new("server.wgsl", source).unwrap();
    let server = PersistentKernel::builder(&own, &program)
        .handler("fetch")
        .start()
        .unwrap();
    let heap = context.heap().unwrap();
    let words: Vec<u32> = (0..COUNT).map(|i| i * i + 1).collect();
    let data = heap.alloc_slice(&words).unwrap();
    let kernel = |body: &str| {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> results: array<u32>;
            @group(0) @binding(1) var<uniform> words: usm_ptr;
            @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
        );
        let program = Program::builder()
            .source("caller.wgsl", source)
            .server(&server)
            .build();
        other
            .kernel(&program.unwrap(), "main", &Constants::new())
            .unwrap()
    };
    let results = other.buffer(&[POISON; COUNT as usize]).unwrap();
    let launch = |body: &str| {
        let launch = kernel(body).launch().buffer("results", &results);
        launch.value("words", &data).server(&server).workgroups(1)
    };
    let error = launch("results[i] = fetch(words, i);").check().unwrap_err();
    assert!(
        matches!(error, LaunchError::ServerOutOfReach { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("_begin"), "{error}");
    let mut begin = launch("results[i] = fetch_begin(words, i);");
    begin.submit().unwrap().wait_timeout(MINUTE).unwrap();
    let collect = "let reply = fetch_collect(results[i]);
        if reply.status == CALL_DONE { results[i] = reply.value; }
        if words.x == 1u { results[i] = 0u; }";
    let mut collect = launch(collect);
    let deadline = std::time::Instant::now() + MINUTE;
    // Calls that are not answered yet keep their tickets, and tickets are no results.
    while results.read().unwrap() != words {
        assert!(
            std::time::Instant::now() < deadline,
            "calls are not answered"
        );
        collect
            .submit()
            .unwrap()
            .wait_timeout(Duration::from_secs(60))
            .unwrap();
    }
    heap.free(data).unwrap();
}
