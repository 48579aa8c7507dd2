//! Functions of a device on one rank, called by all.

use std::time::Duration;

use tombolo::calls::HostServices;
use tombolo::{Constants, PersistentKernel, Program};
use tombolo_mpi::{MpiError, RemoteServer};

use crate::{Test, World};

pub const TESTS: &[Test] = &[
    (
        "functions_of_another_rank_are_called",
        functions_of_another_rank_are_called,
    ),
    (
        "calls_of_other_ranks_are_checked",
        calls_of_other_ranks_are_checked,
    ),
    (
        "kernels_are_served_by_another_rank",
        kernels_are_served_by_another_rank,
    ),
    ("calls_end_with_their_server", calls_end_with_their_server),
];

const PROGRAM: &str = "
    fn mixed(a: u32, b: vec2<f32>, c: i32) -> vec4<f32> { return vec4(f32(a), b.x, b.y, f32(c)); }
    fn next(x: u32) -> u32 { return x * 1664525u + 1013904223u; }";

fn next(x: u32) -> u32 {
    x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
}

fn device_server(world: &World) -> PersistentKernel {
    let program = Program::new("served.wgsl", PROGRAM).unwrap();
    let server = PersistentKernel::builder(&world.device, &program);
    server.handler("mixed").handler("next").start().unwrap()
}

/// On the last rank, until all have called.
fn with_server(world: &World, work: impl FnOnce(i32)) {
    let ranks = &world.ranks;
    let server = ranks.size() - 1;
    let served = (ranks.rank() == server).then(|| {
        let device = device_server(world);
        let builder = RemoteServer::builder(ranks);
        let mixed = device
            .function::<(u32, [f32; 2], i32), [f32; 4]>("mixed")
            .unwrap();
        let next = device.function::<(u32,), u32>("next").unwrap();
        let builder = builder.function("mixed", &mixed).function("next", &next);
        let builder = builder.handler("fails", |(x,): (u32,)| match x {
            0 => panic!("a handler that panics"),
            x => Err::<u32, _>(format!("no {x} here")),
        });
        (builder.start().unwrap(), device)
    });
    work(server);
    ranks.barrier().unwrap();
    drop(served);
}

fn functions_of_another_rank_are_called(world: &World) {
    with_server(world, |server| {
        let (ranks, rank) = (&world.ranks, world.ranks.rank());
        let mixed = ranks
            .function::<(u32, [f32; 2], i32), [f32; 4]>(server, "mixed")
            .unwrap();
        let own = rank as f32;
        let mixed = mixed
            .call(&(rank as u32, [own + 0.25, own + 0.5], -rank))
            .unwrap();
        assert_eq!(mixed, [own, own + 0.25, own + 0.5, -own]);
        let function = ranks.function::<(u32,), u32>(server, "next").unwrap();
        let begun: Vec<_> = (0..20u32).map(|x| function.begin(&(x,)).unwrap()).collect();
        for (x, call) in begun.into_iter().enumerate() {
            let found = match x % 2 {
                0 => call.wait(),
                _ => pollster::block_on(async { call.await }),
            };
            assert_eq!(found.unwrap(), next(x as u32));
        }
        let found = function.call_timeout(&(rank as u32,), crate::MOST).unwrap();
        assert_eq!(found, next(rank as u32));
    });
}

fn calls_of_other_ranks_are_checked(world: &World) {
    with_server(world, |server| {
        let ranks = &world.ranks;
        let error = ranks
            .function::<(u32,), u32>(server, "missing")
            .unwrap_err();
        let expected = format!(
            "rank {server} serves no function `missing` of the types (u32,) -> u32: it has `fails`: (u32,) -> u32, `mixed`: "
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
        let error = ranks
            .function::<(u32, u32), u32>(server, "next")
            .unwrap_err();
        assert!(matches!(error, MpiError::NoFunction { .. }), "{error}");
        // As many bytes, and other types.
        let error = ranks.function::<(f32,), u32>(server, "next").unwrap_err();
        assert!(
            matches!(&error, MpiError::NoFunction { types, .. } if types == "(f32,) -> u32"),
            "{error}"
        );
        let fails = ranks.function::<(u32,), u32>(server, "fails").unwrap();
        let error = fails.call(&(5,)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`fails` failed on rank {server}: no 5 here")
        );
        let error = ranks
            .function::<(u32,), u32>(ranks.size(), "next")
            .unwrap_err();
        assert!(matches!(error, MpiError::NoRank { .. }), "{error}");
    });
}

/// A kernel calls the host, and the host calls a kernel of another rank.
fn kernels_are_served_by_another_rank(world: &World) {
    with_server(world, |server| {
        let (ranks, rank) = (&world.ranks, world.ranks.rank());
        // A waiting kernel has the device to itself, and would wait for a server on the same device without end.
        if rank == server {
            return;
        }
        let remote = ranks.function::<(u32,), u32>(server, "next").unwrap();
        let ask = move |x: u32| remote.call(&(x,)).unwrap_or(0);
        let services = HostServices::builder().call("fn ask(x: u32) -> u32", ask);
        let services = services.start().unwrap();
        let text = "
            @group(0) @binding(0) var<storage, read_write> values: array<u32>;
            @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                values[id.x] = ask(values[id.x]);
            }";
        let program = Program::builder().source("caller.wgsl", text);
        let program = program.services(&services).build().unwrap();
        let kernel = world
            .device
            .kernel(&program, "main", &Constants::new())
            .unwrap();
        let given: Vec<u32> = (0..4).map(|at| 10 * rank as u32 + at).collect();
        let values = world.device.buffer(&given).unwrap();
        let launch = kernel
            .launch()
            .buffer("values", &values)
            .services(&services);
        launch.invocations(4).submit().unwrap().wait().unwrap();
        let expected: Vec<u32> = given.into_iter().map(next).collect();
        assert_eq!(values.read().unwrap(), expected);
    });
}

/// Rank 0 calls a server about to stop: each call is answered, or the stop is reported.
fn calls_end_with_their_server(world: &World) {
    let ranks = &world.ranks;
    let server = (ranks.rank() == 0).then(|| {
        let builder = RemoteServer::builder(ranks).threads(1);
        let builder = builder.handler("wait", |(): ()| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(7u32)
        });
        builder.start().unwrap()
    });
    if let Some(server) = server {
        let function = ranks.function::<(), u32>(0, "wait").unwrap();
        let calls: Vec<_> = (0..200).map(|_| function.begin(&()).unwrap()).collect();
        drop(server);
        for call in calls {
            match call.wait_timeout(crate::MOST) {
                Ok(found) => assert_eq!(found, 7),
                Err(MpiError::Call { name, reason, .. }) => {
                    assert_eq!(
                        (name.as_str(), reason.as_str()),
                        ("wait", "its server has been stopped")
                    );
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
