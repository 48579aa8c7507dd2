//! Servers that live on a device and are called by threads of the host.

use std::time::Duration;

use crate::cases;
use crate::harness::Fixture;
use tombolo::{
    CallError, Constants, DeviceFunction, Kernel, PersistentKernel, PersistentKernelBuilder,
    Program,
};

cases![
    one_thread_calls,
    threads_call_while_kernels_are_launched,
    a_stopped_server_says_so_and_starts_again,
];

const MINUTE: Duration = Duration::from_secs(60);

fn mix(x: u32, y: u32) -> u32 {
    (x ^ 0x9E37_79B9).wrapping_mul(0x85EB_CA6B).rotate_left(13) ^ y
}

const MIX: &str = "
    fn rotate(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
    fn mix(x: u32, y: u32) -> u32 { return rotate((x ^ 0x9e3779b9u) * 0x85ebca6bu, 13u) ^ y; }
";

fn builder(f: &Fixture, source: &str) -> PersistentKernelBuilder {
    let program = Program::new("server.wgsl", source).unwrap_or_else(|error| panic!("{error}"));
    PersistentKernel::builder(&f.device, &program)
}

fn mixer(f: &Fixture) -> (PersistentKernel, DeviceFunction<(u32, u32), u32>) {
    let server = builder(f, MIX).handler("mix").start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let function = server.function("mix").unwrap();
    (server, function)
}

fn kernel(f: &Fixture, source: &str) -> Kernel {
    let program = Program::new("ordinary.wgsl", source).unwrap();
    f.device
        .kernel(&program, "main", &Constants::new())
        .unwrap()
}

const ADD: &str = "@group(0) @binding(0) var<storage, read_write> sums: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        sums[id.x] += id.x + 1u;
    }";

fn one_thread_calls(f: &Fixture) {
    let (server, function) = mixer(f);
    for i in 0..10_000u32 {
        let result = function.call_timeout(&(i, !i), MINUTE).unwrap();
        assert_eq!(result, mix(i, !i), "call {i}");
    }
    assert!(server.leases() > 0);
}

fn threads_call_while_kernels_are_launched(f: &Fixture) {
    const THREADS: u32 = 8;
    const CALLS: u32 = 1250;
    const LAUNCHES: u32 = 1000;
    let (server, function) = mixer(f);
    let sums = f.device.buffer(&vec![0u32; 256]).unwrap();
    let mut add = kernel(f, ADD)
        .launch()
        .buffer("sums", &sums)
        .invocations(256);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let function = function.clone();
            scope.spawn(move || {
                for i in 0..CALLS {
                    let x = thread * CALLS + i;
                    let result = function.call_timeout(&(x, i), MINUTE).unwrap();
                    assert_eq!(result, mix(x, i), "call {i} of thread {thread}");
                }
            });
        }
        for launch in 1..=LAUNCHES {
            add.submit().unwrap().wait_timeout(MINUTE).unwrap();
            if launch % 100 == 0 {
                let expected: Vec<u32> = (1..=256).map(|i| i * launch).collect();
                assert_eq!(sums.read().unwrap(), expected, "launch {launch}");
            }
        }
    });
    assert!(server.leases() > 1);
}

fn a_stopped_server_says_so_and_starts_again(f: &Fixture) {
    let (server, function) = mixer(f);
    assert_eq!(function.call_timeout(&(1, 2), MINUTE).unwrap(), mix(1, 2));
    server.stop();
    server.stop();
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
    server.restart().unwrap();
    server.restart().unwrap();
    assert_eq!(function.call_timeout(&(3, 4), MINUTE).unwrap(), mix(3, 4));
    drop(server);
    let error = function.call_timeout(&(1, 2), MINUTE).unwrap_err();
    assert!(matches!(error, CallError::Stopped { .. }), "{error}");
}
