//! Calls from kernels to the host: how many in a second, and how long one takes, against what one does without them
//! (finish the kernel, read back, answer, launch again) and against threads of the host that call through the same
//! ports. One line for each adapter and number of work-groups; no line is a goal that fails.

mod support;

use std::time::{Duration, Instant};

use support::Error;
use tombolo::{Constants, Context, Device, HostServices, Program};

/// Invocations in a work-group.
const LANES: u32 = 8;
/// Calls that an invocation makes.
const CALLS: u32 = 4;
/// Times that each thing is done; the fastest counts.
const ROUNDS: usize = 5;

fn main() -> Result<(), Error> {
    let context = Context::new()?;
    let services = HostServices::builder()
        .call("fn bump(x: u32) -> u32", |x: u32| x.wrapping_add(1))
        .start()?;
    for threads in [1, 4] {
        let rate = loopback(&services, threads);
        println!(
            "host loopback, {threads} threads: {:.2} M calls/s",
            rate / 1e6
        );
    }
    for adapter in context.adapters() {
        let device = context.device_at(adapter.index)?;
        let without = relaunch(&device)?;
        println!(
            "{}: finish, read back, launch again: {:.1} µs a call",
            adapter.name,
            without * 1e6
        );
        for groups in [1, 8, 64, 512] {
            let seconds = calls(&device, &services, groups)?;
            let each = seconds / f64::from(groups * LANES * CALLS);
            println!(
                "{}: {groups} work-groups: {:.2} M calls/s, {:.1} µs a round trip, {:.0} times (a)",
                adapter.name,
                1e-6 / each,
                seconds / f64::from(CALLS) * 1e6,
                without / each
            );
        }
    }
    println!(
        "{:#?}",
        services.statistics().functions[0].latency_quantile(0.99)
    );
    Ok(())
}

/// Seconds for a launch in which `groups` work-groups call.
fn calls(device: &Device, services: &HostServices, groups: u32) -> Result<f64, Error> {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size({LANES}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var x = id.x;
            for (var i = 0u; i < {CALLS}u; i++) {{ x = bump(x); }}
            out[id.x] = x;
        }}"
    );
    let program = Program::with_services("bench.wgsl", source, services)?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let out = device.zeroed::<u32>((groups * LANES) as usize)?;
    let mut launch = kernel
        .launch()
        .services(services)
        .buffer("out", &out)
        .workgroups(groups);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        launch.submit()?.wait()?;
        best = best.min(begun.elapsed().as_secs_f64());
        for (id, value) in (0..).zip(out.read()?) {
            assert_eq!(value, id + CALLS);
        }
    }
    Ok(best)
}

/// Seconds for one call without calls: the request comes out, and the answer goes in with the next launch.
fn relaunch(device: &Device) -> Result<f64, Error> {
    const TURNS: u32 = 50;
    let program = Program::new(
        "bench.wgsl",
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() { out[0] += 0u; }",
    )?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let out = device.buffer(&[0u32])?;
    let mut launch = kernel.launch().buffer("out", &out).workgroups(1);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for _ in 0..TURNS {
            launch.submit()?.wait()?;
            let request = out.read()?[0];
            out.write(0, &[request.wrapping_add(1)])?;
        }
        best = best.min(begun.elapsed().as_secs_f64() / f64::from(TURNS));
    }
    Ok(best)
}

/// Calls a second from threads of the host.
fn loopback(services: &HostServices, threads: usize) -> f64 {
    let loopback = services.loopback();
    let begun = Instant::now();
    let made: u32 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mut client = loopback.spread(thread * 16);
                scope.spawn(move || {
                    let mut made = 0;
                    while begun.elapsed() < Duration::from_secs(1) {
                        let got = client.call("bump", &[made], Duration::from_secs(60));
                        made += 1;
                        assert_eq!(got.as_deref(), Ok([made].as_slice()));
                    }
                    made
                })
            })
            .collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .sum()
    });
    f64::from(made) / begun.elapsed().as_secs_f64()
}
