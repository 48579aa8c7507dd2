//! Kernels calling a server on another device that takes their calls without answering, or never looks: such kernels
//! are told, and no others.

use std::time::{Duration, Instant};

use super::block::can_share;
use super::frame::places;
use super::tests_evil::{Evil, evil_at, spoil};
use crate::context::Context;
use crate::device::{CallStatus, ExecutionError, WaitError, hooks};
use crate::kernel::{Constants, Program};
use crate::launch::Launch;
use crate::persistent::{LeasePolicy, PersistentKernel};
use crate::rpc::port::words::Words as _;

const MINUTE: Duration = Duration::from_secs(60);
const COUNT: u32 = 16;
const POISON: u32 = 0xdead_beef;

#[test]
fn kernels_are_told_of_calls_that_a_server_has_lost() {
    let _alone = hooks::alone();
    let context = Context::new().unwrap();
    // Kernels of devices with memory of their own call through the host, whose calls `tests_hostile.rs` spoils.
    let in_place =
        |&index: &usize| can_share(context.device_at(index).unwrap().capabilities()).is_ok();
    let adapters = context.adapters();
    let adapters: Vec<usize> = adapters
        .iter()
        .map(|one| one.index)
        .filter(in_place)
        .collect();
    assert!(
        !adapters.is_empty(),
        "the adapter compiled in shares its memory"
    );
    for (&own, &other) in adapters.iter().zip(adapters.iter().cycle().skip(1)) {
        for together in [false, true] {
            lost(&context, own, other, together);
        }
    }
}

/// A caller with a loop budget may have run out of turns; its output then is unchanged.
fn run(launch: &mut Launch) -> bool {
    match launch.submit().unwrap().wait_timeout(MINUTE) {
        Ok(()) => true,
        Err(WaitError::Failed(error)) if matches!(*error, ExecutionError::LoopCut { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn lost(context: &Context, own: usize, other: usize, together: bool) {
    let device = context.device_at(own).unwrap();
    let caller = context.device_at(other).unwrap();
    let source = match together {
        true => "fn next(lane: u32, x: u32) -> u32 { return x + 1u; }",
        false => "fn next(x: u32) -> u32 { return x + 1u; }",
    };
    let program = Program::new("server.wgsl", source).unwrap();
    let builder = PersistentKernel::builder(&device, &program);
    let builder = match together {
        true => builder.group_handler("next").group_size(8),
        false => builder.handler("next"),
    };
    let policy = LeasePolicy::of(device.capabilities()).time(Duration::from_millis(1));
    let mut builder = builder.ports(8).callers(1).leases(policy);
    builder.spoil = Some(spoil);
    let server = builder.start().unwrap();
    let next = server.function::<(u32,), u32>("next").unwrap();
    let call = "
        @group(0) @binding(0) var<storage, read_write> results: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let reply = next_try(id.x);
            results[id.x] = select(reply.status + 1000u, reply.value, reply.status == CALL_DONE);
        }";
    let program = Program::builder()
        .source("caller.wgsl", call)
        .server(&server)
        .build()
        .unwrap();
    let kernel = caller.kernel(&program, "main", &Constants::new()).unwrap();
    let results = caller.buffer(&[POISON; COUNT as usize]).unwrap();
    let launch = kernel.launch().buffer("results", &results);
    let mut launch = launch.server(&server).invocations(COUNT);
    let frame = &server.core.frame;
    let at = evil_at(&places(frame.layout(), 1));
    let status = |status: CallStatus| status.code() + 1000;
    // Where whole work-groups serve calls the first look of a lease is not spoiled.
    let evils = match together {
        true => [Evil::Silent, Evil::Silent],
        false => [Evil::Silent, Evil::Blind],
    };
    for evil in evils {
        frame.words().store(at, evil as u32);
        let begun = Instant::now();
        // A caller whose waiting is rationed may have given up before it is told.
        let mut told = false;
        while !told {
            assert!(begun.elapsed() < MINUTE, "{evil:?}: nobody is told");
            results.write(0, &[POISON; COUNT as usize]).unwrap();
            if !run(&mut launch) {
                continue;
            }
            for result in results.read().unwrap() {
                let known = [CallStatus::Failed, CallStatus::TimedOut].map(status);
                assert!(known.contains(&result), "{evil:?}: {result}");
                told |= result == known[0];
            }
        }
        assert!(server.failure().is_none());
        frame.words().store(at, Evil::Nothing as u32);
        let begun = Instant::now();
        let expected: Vec<u32> = (1..=COUNT).collect();
        loop {
            assert!(begun.elapsed() < MINUTE, "{evil:?}: not answered again");
            results.write(0, &[POISON; COUNT as usize]).unwrap();
            if run(&mut launch) && results.read().unwrap() == expected {
                break;
            }
        }
        assert_eq!(next.call_timeout(&(6,), MINUTE).unwrap(), 7);
    }
}
