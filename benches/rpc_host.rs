//! Calls from kernels to the host, on every adapter of the machine: how many in a second, against what one does without
//! them (finish the kernel, read back, answer, launch again) and against threads of the host that call through ports
//! of the same kind; how long one takes; lines printed in a second; and what a server costs that nobody calls.
//!
//! Everything is measured [`ROUNDS`] times in turn, so that a busy machine disturbs all rows alike, and each row is the
//! median of its measurements. The last lines are the rows: `<kind> <row>/<adapter> = <median> (<min>..<max>)`, with
//! `goal >= <limit>` where there is one. Arguments choose the rows that contain one of them.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{Error, Rows, seconds, word};
use tombolo::{
    Constants, Context, Device, HostServices, Kernel, Launch, PrintOptions, Program,
    print::PrintRecord,
};

/// Invocations in a work-group.
const LANES: u32 = 64;

/// Work-groups, and the calls that each invocation makes: enough that the launch itself counts little, and few enough
/// that waiting stays within what adapters with a loop budget allow.
const GRIDS: [(u32, u32); 4] = [(1, 256), (8, 64), (64, 16), (512, 4)];

/// How often everything is measured.
const ROUNDS: usize = 9;

/// Lines that a kernel prints for the rows on printing.
const LINES: u32 = 1 << 20;

fn main() -> Result<(), Error> {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |row: &str| only.is_empty() || only.iter().any(|part| row.contains(part));
    let context = Context::new()?;
    let mut rows = Rows::default();
    if wanted("idle") {
        for (round, cost) in (1..=3).filter_map(|round| Some((round, idle()?))) {
            rows.note(
                round,
                "time idle_server_ms_per_s/host".into(),
                None,
                cost * 1e3,
            );
        }
    }
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let device = context.device_at(adapter.index)?;
        // What is asked of software adapters; a card whose invocations all call has four times as much to show.
        let is_card = !device.capabilities().software;
        let least = if name == "SwiftShader" { 1.0 } else { 5.0 };
        let mut bench = Bench::new(&device)?;
        for round in 0..=ROUNDS {
            let mut note = |row: String, goal: Option<f64>, value: f64| {
                rows.note(round, format!("{row}/{name}"), goal, value);
            };
            if wanted("calls") || wanted("relaunch") || wanted("loopback") {
                let relaunch = bench.relaunch()?;
                let loopback = bench.loopback();
                note("rate loopback_1_M".into(), None, loopback / 1e6);
                note("time relaunch_us".into(), None, relaunch * 1e6);
                for (index, (groups, _)) in GRIDS.into_iter().enumerate() {
                    let rate = bench.calls(index, false)?;
                    let goal = if is_card && groups >= 64 { 20.0 } else { least };
                    note(format!("rate calls_{groups}_M"), Some(goal), rate / 1e6);
                    note(
                        format!("ratio relaunch_{groups}"),
                        Some(50.0),
                        relaunch * rate,
                    );
                    // From one call of an invocation to its next; the round trip where all groups run at once, and more where they take turns.
                    let trip = f64::from(groups * LANES) / rate;
                    note(format!("time round_trip_{groups}_us"), None, trip * 1e6);
                    note(format!("ratio loopback_{groups}"), None, rate / loopback);
                    let together = bench.calls(index, true)?;
                    // One group alone waits for each answer before the next call.
                    let goal = match name {
                        "Tombolo" if groups > 1 => Some(10.0),
                        _ if is_card && groups >= 64 => Some(40.0),
                        _ => None,
                    };
                    note(format!("rate groups_{groups}_M"), goal, together / 1e6);
                    note(format!("ratio group_{groups}"), None, together / rate);
                    if wanted("relaunch_all") {
                        // All invocations ask at once, and are answered at once.
                        let all = bench.relaunch_all(index)?;
                        note(format!("ratio relaunch_all_{groups}"), None, all * rate);
                    }
                }
            }
            if wanted("round_trip") {
                note("time round_trip_us".into(), None, bench.round_trip()? * 1e6);
            }
            if wanted("prints") {
                note("rate prints_M".into(), Some(20.0), bench.prints()? / 1e6);
            }
        }
    }
    rows.print(">=", 3);
    Ok(())
}

/// What is measured on one device.
struct Bench {
    device: Device,
    services: HostServices,
    _wide: HostServices,
    /// For each of [`GRIDS`]: calls, and the launch without any of one that answers all.
    calls: Vec<Launch>,
    /// The same, with a packet for each work-group.
    groups: Vec<Launch>,
    all: Vec<(Launch, tombolo::DeviceBuffer<u32>)>,
    outs: Vec<tombolo::DeviceBuffer<u32>>,
    one: Launch,
    single: (Launch, tombolo::DeviceBuffer<u32>),
    prints: Launch,
    printed: Arc<AtomicU64>,
}

/// How an invocation calls for itself alone.
const SINGLE: &str = "bump(x)";

/// Calls of the invocation that measures a round trip.
const TRIPS: u32 = 1000;

impl Bench {
    fn new(device: &Device) -> Result<Self, Error> {
        let services = HostServices::builder()
            .call("fn bump(x: u32) -> u32", |x: u32| x.wrapping_add(1))
            .start()?;
        // Ports with room for a whole work-group.
        let wide = HostServices::builder()
            .call("fn bump(x: u32) -> u32", |x: u32| x.wrapping_add(1))
            .payload(LANES as usize * 8)
            .start()?;
        let calling = |lanes: u32, calls: u32, call: &str| -> Result<Kernel, Error> {
            let source = format!(
                "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
                @compute @workgroup_size({lanes})
                fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                    var x = id.x;
                    for (var i = 0u; i < {calls}u; i++) {{ x = {call}; }}
                    out[id.x] = x;
                }}"
            );
            let of = if call == SINGLE { &services } else { &wide };
            let program = Program::builder()
                .source("bench.wgsl", source)
                .services(of)
                .build()?;
            Ok(device.kernel(&program, "main", &Constants::new())?)
        };
        let plain = |lanes: u32| -> Result<Kernel, Error> {
            let source = format!(
                "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
                @compute @workgroup_size({lanes})
                fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ out[id.x] += 0u; }}"
            );
            let program = Program::new("bench.wgsl", source)?;
            Ok(device.kernel(&program, "main", &Constants::new())?)
        };
        let launch = |kernel: Kernel, out: &tombolo::DeviceBuffer<u32>, groups: u32| {
            let launch = kernel.launch().buffer("out", out);
            launch.workgroups(groups)
        };
        let (mut calls, mut all, mut outs) = (Vec::new(), Vec::new(), Vec::new());
        let mut together = Vec::new();
        for (groups, count) in GRIDS {
            let out = device.zeroed::<u32>((groups * LANES) as usize)?;
            calls.push(launch(calling(LANES, count, SINGLE)?, &out, groups).services(&services));
            let group = calling(LANES, count, "bump_group(true, x)")?;
            together.push(launch(group, &out, groups).services(&wide));
            outs.push(out);
            let out = device.zeroed::<u32>((groups * LANES) as usize)?;
            all.push((launch(plain(LANES)?, &out, groups), out));
        }
        let out = device.zeroed::<u32>(1)?;
        let one = launch(calling(1, TRIPS, SINGLE)?, &out, 1).services(&services);
        let single = (launch(plain(1)?, &out, 1), out);
        let printed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&printed);
        let sink = move |record: &PrintRecord<'_>| {
            count.fetch_add(u64::from(record.words()[0] & 1) + 1, Ordering::Relaxed);
        };
        let program = Program::new(
            "bench.wgsl",
            "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                print(\"{}\", id.x);
            }",
        )?;
        let kernel = device.kernel(&program, "main", &Constants::new())?;
        let options = PrintOptions::sink(sink).capacity(u64::from(LINES) * 16);
        let prints = kernel.launch().print_to(options).invocations(LINES);
        Ok(Self {
            device: device.clone(),
            calls,
            groups: together,
            all,
            outs,
            one,
            single,
            prints,
            printed,
            services,
            _wide: wide,
        })
    }

    /// Calls a second of the grid with that index, one by one or by work-groups.
    fn calls(&mut self, index: usize, is_group: bool) -> Result<f64, Error> {
        let (groups, calls) = GRIDS[index];
        let launch = match is_group {
            true => &mut self.groups[index],
            false => &mut self.calls[index],
        };
        let took = seconds(|| Ok(launch.submit()?.wait()?))?;
        for (id, value) in (0..).zip(self.outs[index].read()?) {
            assert_eq!(value, id + calls);
        }
        Ok(f64::from(groups * LANES * calls) / took)
    }

    /// Seconds for one call without calls: the request comes out, and the answer goes in with the next launch.
    fn relaunch(&mut self) -> Result<f64, Error> {
        const TURNS: u32 = 50;
        let (launch, out) = &mut self.single;
        let took = seconds(|| {
            for _ in 0..TURNS {
                launch.submit()?.wait()?;
                let request = out.read()?[0];
                out.write(0, &[request.wrapping_add(1)])?;
            }
            Ok(())
        })?;
        Ok(took / f64::from(TURNS))
    }

    /// The same where all invocations of a grid stop for their answers together, for each of them.
    fn relaunch_all(&mut self, index: usize) -> Result<f64, Error> {
        const TURNS: u32 = 20;
        let (launch, out) = &mut self.all[index];
        let took = seconds(|| {
            for _ in 0..TURNS {
                launch.submit()?.wait()?;
                let mut requests = out.read()?;
                for request in &mut requests {
                    *request = request.wrapping_add(1);
                }
                out.write(0, &requests)?;
            }
            Ok(())
        })?;
        Ok(took / f64::from(TURNS * GRIDS[index].0 * LANES))
    }

    /// Seconds for a call of the only caller.
    fn round_trip(&mut self) -> Result<f64, Error> {
        let launch = &mut self.one;
        let took = seconds(|| Ok(launch.submit()?.wait()?))?;
        Ok(took / f64::from(TRIPS))
    }

    /// Calls a second of one thread of the host.
    fn loopback(&self) -> f64 {
        let mut client = self.services.loopback().unwrap();
        let begun = Instant::now();
        let mut made = 0u32;
        while begun.elapsed() < Duration::from_millis(100) {
            for _ in 0..100 {
                let got = client.call("bump", &[made], Duration::from_secs(60));
                made += 1;
                assert_eq!(got.as_deref(), Ok([made].as_slice()));
            }
        }
        f64::from(made) / begun.elapsed().as_secs_f64()
    }

    /// Lines a second from a kernel to a sink.
    fn prints(&mut self) -> Result<f64, Error> {
        self.printed.store(0, Ordering::Relaxed);
        let launch = &mut self.prints;
        let delivered = seconds(|| {
            launch.submit()?.wait()?;
            self.device.finish()?;
            Ok(())
        })?;
        // Every second line counts twice.
        let lines = u64::from(LINES);
        assert_eq!(self.printed.load(Ordering::Relaxed), lines + lines / 2);
        Ok(f64::from(LINES) / delivered)
    }
}

/// Processor seconds in a second of a server that nobody calls, where the system tells.
fn idle() -> Option<f64> {
    let services = HostServices::builder()
        .call("fn bump(x: u32) -> u32", |x: u32| x.wrapping_add(1))
        .start()
        .ok()?;
    let mut client = services.loopback().unwrap();
    client.call("bump", &[1], Duration::from_secs(60)).ok()?;
    let cost = || -> Option<f64> {
        let mut total = None;
        for task in std::fs::read_dir("/proc/self/task").ok()? {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            if name.starts_with("tombolo calls") {
                let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
                let own: f64 = times.split(' ').next()?.parse().ok()?;
                *total.get_or_insert(0.0) += own / 1e9;
            }
        }
        total
    };
    let before = cost()?;
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    Some((cost()? - before) / begun.elapsed().as_secs_f64())
}
