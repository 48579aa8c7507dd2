//! Calls from threads of the host to functions that live on a device, on every adapter of the machine: how long one takes
//! against a launch that is waited for, in raw wgpu; how many from 1 to 64 threads there are in the time of such a launch;
//! how many 16 threads make that have several on their way each; how many there are in batches of one thread, in launches of
//! their own and by ports; the longest of 100,000 while leases end all the time, of which at least [`HAND_OVERS`] have to; what a launch takes that a
//! busy server makes room for, against one on a device without a server; what a server costs that nobody calls; and how many
//! calls several work-groups serve of 16 threads, of a function that takes no time, of one that takes whole work-groups some
//! microseconds, and of that in batches.
//!
//! Everything is measured [`ROUNDS`] times in turn, so that a busy machine disturbs all rows alike, and each row is the
//! median of its measurements. The last lines are the rows: `<kind> <row>/<adapter> = <median> (<min>..<max>)`, with
//! `goal <= <limit>` or `goal >= <limit>` where there is one. Arguments choose the rows that contain one of them.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{Error, Raw, Rows, seconds, word};
use tombolo::{
    Constants, Context, Device, PersistentKernel, Program,
    device::ExecutionError,
    server::{BatchRoute, CallError, DeviceFunction, PendingCall},
};

/// How often everything is measured.
const ROUNDS: usize = 9;

/// Threads that call at once.
const THREADS: [u32; 4] = [1, 4, 16, 64];

/// Calls that each of 16 threads has on its way, and the ports of their server.
const BEGUN: [(usize, usize); 2] = [(4, 64), (8, 128)];

/// Calls of a batch.
const BATCHES: [u32; 3] = [512, 4_096, 65_536];

/// Work-groups of a server.
const GROUPS: [usize; 3] = [1, 2, 8];

/// Calls of the row `longest` at least, and how many of them there are between two requests for the queue.
const LONGEST: (u32, u32) = (100_000, 400);

/// Leases that have to follow each other meanwhile.
const HAND_OVERS: u32 = 100;

const EMPTY: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main() { data[0] += 1u; }";

const BESIDE: &str = "
    fn short(x: u32) -> u32 { return x + 1u; }
    fn long(lane: u32, x: u32) -> u32 {
        var sum = x;
        for (var i = 0u; i < 256u; i++) { sum = sum * 1664525u + 1013904223u; }
        return sum;
    }
    fn batched(lane: u32, calls: u32, x: u32) -> u32 { return long(lane, x); }";

const SERVER: &str = "fn bump(x: u32) -> u32 { return x + 1u; }";

fn main() -> Result<(), Error> {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |row: &str| only.is_empty() || only.iter().any(|part| row.contains(part));
    let context = Context::new()?;
    let (mut rows, mut most) = (Rows::default(), Rows::default());
    for adapter in context.adapters() {
        eprintln!("{}", adapter.name);
        let name = word(&adapter.name);
        let bench = Bench::new(&context, adapter.index)?;
        // What is asked of software adapters, which are what there is to measure everywhere.
        let goal = match name {
            "SwiftShader" => Some(0.04),
            "llvmpipe" => Some(0.01),
            _ => None,
        };
        for round in 0..=ROUNDS {
            let mut note = |row: String, goal: Option<f64>, value: f64| {
                rows.note(round, format!("{row}/{name}"), goal, value);
            };
            if wanted("round_trip") {
                let launch = bench.launch()?;
                let call = bench.round_trip()?;
                note("time launch_us".into(), None, launch * 1e6);
                let most_us = (!bench.plain.capabilities().software).then_some(3.0);
                note("time round_trip_us".into(), most_us, call * 1e6);
                note("ratio round_trip".into(), goal, call / launch);
            }
            if wanted("calls") {
                let launch = bench.launch()?;
                for threads in THREADS {
                    let rate = bench.calls(threads, 40_000 / threads)?;
                    note(format!("rate calls_{threads}_k"), None, rate / 1e3);
                    // More threads than processors take those from the kernel, where it runs on them.
                    let goal = goal.filter(|_| threads == 1).map(f64::recip);
                    let row = format!("ratio calls_{threads}_in_a_launch/{name}");
                    most.note(round, row, goal, rate * launch);
                }
            }
            if wanted("begun") {
                for (depth, ports) in BEGUN {
                    let rate = bench.calls_begun(depth, ports, 20_000)?;
                    let row = format!("rate calls_16_threads_begun_{depth}_M/{name}");
                    // Where the kernel has processors of its own.
                    let goal = (depth == 8 && !bench.plain.capabilities().software).then_some(8.0);
                    most.note(round, row, goal, rate / 1e6);
                }
            }
            if wanted("call_all") {
                for batch in BATCHES {
                    for (route, suffix) in
                        [(BatchRoute::Launches, ""), (BatchRoute::Ports, "_by_ports")]
                    {
                        let rate = bench.batches(batch, route)?;
                        let row = format!("rate call_all_{batch}{suffix}_M/{name}");
                        let is_asked = route == BatchRoute::Launches && batch >= 4_096;
                        let is_card = !bench.plain.capabilities().software;
                        most.note(
                            round,
                            row,
                            (is_asked && is_card).then_some(20.0),
                            rate / 1e6,
                        );
                    }
                }
            }
            if wanted("groups") && round <= 3 {
                for groups in GROUPS {
                    for (work, calls) in [("short", 2_000), ("long", 200), ("batched", 200)] {
                        let rate = bench.calls_of_groups(groups, work, calls)?;
                        let row = format!("rate calls_16_threads_groups_{groups}_{work}_k");
                        note(row, None, rate / 1e3);
                    }
                }
            }
            if wanted("beside") {
                let [alone, beside] = bench.beside(bench.server.device(), &bench.bump)?;
                note("time launch_beside_us".into(), None, beside * 1e6);
                // On software adapters the server's kernel and the thread that calls take a processor each.
                let goal = match bench.plain.capabilities().software {
                    true => 3.0,
                    false => 1.5,
                };
                note("ratio launch_beside".into(), Some(goal), beside / alone);
            }
            if wanted("beside") && bench.plain.has_second_queue() {
                let server = server_on(&bench.plain.second_queue()?)?;
                let bump = server.function("bump")?;
                let [alone, beside] = bench.beside(&bench.plain, &bump)?;
                let row = "ratio launch_beside_second_queue".into();
                note(row, Some(1.1), beside / alone);
            }
            if wanted("longest") && round <= 3 {
                let goal = (name == "SwiftShader").then_some(5.0);
                let (longest, leases) = bench.longest()?;
                note("time longest_ms".into(), goal, longest.as_secs_f64() * 1e3);
                let row = format!("count hand_overs/{name}");
                most.note(round, row, Some(f64::from(HAND_OVERS)), f64::from(leases));
            }
            if wanted("idle")
                && round <= 3
                && let Some(cost) = bench.idle()?
            {
                note("time idle_ms_per_s".into(), None, cost * 1e3);
            }
        }
    }
    rows.print("<=", 4);
    most.print(">=", 1);
    Ok(())
}

/// What is measured on one adapter.
struct Bench {
    /// A device of its own for raw launches, where no server is in the way.
    plain: Device,
    raw: Raw,
    server: PersistentKernel,
    bump: DeviceFunction<(u32,), u32>,
}

/// A server of `bump`.
fn server_on(device: &Device) -> Result<PersistentKernel, Error> {
    let program = Program::new("server.wgsl", SERVER)?;
    Ok(PersistentKernel::builder(device, &program)
        .handler("bump")
        .start()?)
}

impl Bench {
    fn new(context: &Context, adapter: usize) -> Result<Self, Error> {
        let plain = context.device_at(adapter)?;
        let data = plain.zeroed::<u32>(64)?;
        plain.finish()?;
        let raw = Raw::new(&plain, EMPTY, &[data.raw()]);
        let device = context.device_at(adapter)?;
        let server = server_on(&device)?;
        let bump = server.function("bump")?;
        Ok(Self {
            plain,
            raw,
            server,
            bump,
        })
    }

    /// Seconds of a launch that is waited for.
    fn launch(&self) -> Result<f64, Error> {
        const LAUNCHES: u32 = 1_000;
        let time = seconds(|| {
            for _ in 0..LAUNCHES {
                self.raw.run(&self.plain, 1, 1)?;
            }
            Ok(())
        })?;
        Ok(time / f64::from(LAUNCHES))
    }

    /// Calls in a second of 16 threads, with so many calls each, to a server of so many work-groups.
    fn calls_of_groups(&self, groups: usize, work: &str, calls: u32) -> Result<f64, Error> {
        let program = Program::new("groups.wgsl", BESIDE)?;
        let builder = PersistentKernel::builder(self.server.device(), &program);
        let builder = match work {
            "short" => builder.handler("short"),
            "batched" => builder.batch_handler("batched", 32).group_size(32),
            _ => builder.group_handler("long").group_size(32),
        };
        let server = builder.work_groups(groups).start()?;
        let function: DeviceFunction<(u32,), u32> = server.function(work)?;
        // Drivers compile a kernel at its first launch.
        function.call(&(0,))?;
        rate(&function, 16, calls, |_| None)
    }

    /// Calls in a second of 16 threads, each with so many on their way, to a server of its own with so many ports.
    fn calls_begun(&self, depth: usize, ports: usize, calls: u32) -> Result<f64, Error> {
        let program = Program::new("server.wgsl", SERVER)?;
        let builder = PersistentKernel::builder(self.server.device(), &program);
        let server = builder.handler("bump").ports(ports).start()?;
        let bump: DeviceFunction<(u32,), u32> = server.function("bump")?;
        bump.call(&(0,))?;
        let calls_of = |thread: u32| {
            let mut begun = VecDeque::with_capacity(depth);
            let first = thread * calls;
            for x in first..first + calls {
                if begun.len() == depth
                    && let Some((x, call)) = begun.pop_front()
                {
                    assert_eq!(PendingCall::wait(call)?, x + 1);
                }
                begun.push_back((x, bump.begin(&(x,))));
            }
            for (x, call) in begun {
                assert_eq!(call.wait()?, x + 1);
            }
            Ok(())
        };
        rate_of(16, calls, calls_of)
    }

    /// Calls in a second, in batches of so many, to a server of its own.
    fn batches(&self, batch: u32, route: BatchRoute) -> Result<f64, Error> {
        const CALLS: u32 = 1 << 17;
        let program = Program::new("server.wgsl", SERVER)?;
        let builder = PersistentKernel::builder(self.server.device(), &program);
        let server = builder.handler("bump").batch_route(route).start()?;
        let bump: DeviceFunction<(u32,), u32> = server.function("bump")?;
        let calls: Vec<(u32,)> = (0..batch).map(|x| (x,)).collect();
        let expected: Vec<u32> = (1..=batch).collect();
        // Drivers compile a kernel at its first launch.
        assert!(bump.call_all(&calls)? == expected);
        let times = (CALLS / batch).max(4);
        let time = seconds(|| {
            for _ in 0..times {
                assert!(bump.call_all(&calls)? == expected);
            }
            Ok(())
        })?;
        Ok(f64::from(times * batch) / time)
    }

    /// Seconds of a call.
    fn round_trip(&self) -> Result<f64, Error> {
        Ok(1.0 / self.calls(1, 40_000)?)
    }

    /// Calls in a second, of so many threads with so many calls each.
    fn calls(&self, threads: u32, calls: u32) -> Result<f64, Error> {
        rate(&self.bump, threads, calls, |x| Some(x + 1))
    }

    /// Seconds of a launch that is waited for: on a device without a server, and on `device` while a thread calls a server
    /// all the while.
    fn beside(
        &self,
        device: &Device,
        bump: &DeviceFunction<(u32,), u32>,
    ) -> Result<[f64; 2], Error> {
        const LAUNCHES: u32 = 300;
        let launches = |device: &Device| {
            let program = Program::new("empty.wgsl", EMPTY)?;
            let kernel = device.kernel(&program, "main", &Constants::new())?;
            let data = device.zeroed::<u32>(64)?;
            let mut launch = kernel.launch().buffer("data", &data).workgroups(1);
            launch.submit()?.wait()?;
            let time = seconds(|| {
                for _ in 0..LAUNCHES {
                    launch.submit()?.wait()?;
                }
                Ok(())
            })?;
            let counted = data.read_range(..1)?;
            if counted != [LAUNCHES + 1] {
                return Err(format!("{counted:?}: a launch is lost").into());
            }
            Ok::<_, Error>(time / f64::from(LAUNCHES))
        };
        let alone = launches(&self.plain)?;
        let done = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    bump.call(&(1,))?;
                }
                Ok::<_, CallError>(())
            });
            let beside = launches(device);
            done.store(true, Ordering::Relaxed);
            calling.join().map_err(|_| "the caller panicked")??;
            beside
        })?;
        Ok([alone, beside])
    }

    /// The longest of many calls while somebody else wants the queue again and again, and the leases that have ended
    /// meanwhile.
    fn longest(&self) -> Result<(Duration, u32), Error> {
        let (calls, between) = LONGEST;
        let leases = self.server.leases();
        let done = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let wanting = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    std::thread::park();
                    self.server.device().finish()?;
                }
                Ok::<_, Arc<ExecutionError>>(())
            });
            let mut longest = Duration::ZERO;
            let mut called = Ok(());
            for i in 0..100 * calls {
                if i % between == 0 {
                    if i >= calls && self.server.leases() - leases >= HAND_OVERS {
                        break;
                    }
                    wanting.thread().unpark();
                }
                let begun = Instant::now();
                called = self.bump.call(&(i,)).map(drop);
                longest = longest.max(begun.elapsed());
                if called.is_err() {
                    break;
                }
            }
            done.store(true, Ordering::Release);
            wanting.thread().unpark();
            wanting
                .join()
                .map_err(|_| "whoever wanted the queue panicked")??;
            called?;
            Ok::<_, Error>(longest)
        })?;
        let leases = self.server.leases() - leases;
        if leases < HAND_OVERS {
            return Err(format!("{leases} leases: {HAND_OVERS} have to follow each other").into());
        }
        Ok((longest, leases))
    }

    /// Seconds of processor time in a second without calls, of the whole process.
    fn idle(&self) -> Result<Option<f64>, Error> {
        self.bump.call(&(0,))?;
        std::thread::sleep(Duration::from_millis(50));
        let Some(before) = processor_time() else {
            return Ok(None);
        };
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let spent = processor_time().map(|after| after - before);
        Ok(spent.map(|spent| spent / begun.elapsed().as_secs_f64()))
    }
}

/// Calls in a second, of so many threads with so many calls each, whose results are compared where one is expected.
fn rate(
    function: &DeviceFunction<(u32,), u32>,
    threads: u32,
    calls: u32,
    expected: impl Fn(u32) -> Option<u32> + Sync,
) -> Result<f64, Error> {
    rate_of(threads, calls, |thread| {
        (0..calls).try_for_each(|i| {
            let x = thread * calls + i;
            let result = function.call(&(x,))?;
            assert_eq!(result, expected(x).unwrap_or(result));
            Ok(())
        })
    })
}

/// Calls in a second, of so many threads, each of which makes so many calls, by its number.
fn rate_of(
    threads: u32,
    calls: u32,
    calls_of: impl Fn(u32) -> Result<(), CallError> + Sync,
) -> Result<f64, Error> {
    let calls_of = &calls_of;
    let time = seconds(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || calls_of(thread)))
                .collect();
            for worker in workers {
                worker.join().map_err(|_| "a caller panicked")??;
            }
            Ok(())
        })
    })?;
    Ok(f64::from(threads * calls) / time)
}

/// Processor time of all threads of the process so far, where the system tells.
fn processor_time() -> Option<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may end meanwhile.
        let Ok(times) = std::fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        total += times.split(' ').next()?.parse::<f64>().ok()? / 1e9;
    }
    Some(total)
}
