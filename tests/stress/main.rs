//! Eight threads, every operation of the runtime in random order, for as long as one likes.
//!
//! Each thread keeps a model of what its objects hold and compares. A watchdog ends the run, and tells what everybody
//! was doing, when a thread does not go on. The order of operations of each thread depends on the seed alone; how the
//! threads meet depends on the machine. `cargo xtask stress` runs this on the software adapters, also with sanitizers.

mod journal;
mod operations;
mod problem;
mod programs;
mod random;
mod watchdog;
mod worker;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;

use crate::journal::Journal;
use crate::operations::{OPERATIONS, Operation, check_sums};
use crate::problem::{Outcome, expect, wrong};
use crate::random::Random;
use crate::watchdog::Watchdog;
use crate::worker::Worker;
use crate::world::{Memory, Settings, World};

/// Every operation of the runtime from many threads at once.
#[derive(Parser)]
struct Args {
    /// How long to go on
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// What the order of operations depends on (by default the time)
    #[arg(long)]
    seed: Option<u64>,
    /// How many threads
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Only adapters with this in their names
    #[arg(long, default_value = "")]
    adapter: String,
    /// How devices get at the memory of the host
    #[arg(long, value_enum, default_value_t = Memory::Both)]
    memory: Memory,
    /// Only operations with one of these in their names, separated by commas
    #[arg(long, default_value = "", value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds that one operation may take
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Steps of each thread at most
    #[arg(long, default_value_t = u64::MAX)]
    steps: u64,
}

/// Panics that anybody has seen, caught or not.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Keeps drivers loaded to the end, so that what they keep by themselves has the names of their files in a leak's report
/// (`suppressions/address.txt`).
static DRIVERS: OnceLock<tombolo::wgpu::Instance> = OnceLock::new();

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    let args = Args::parse();
    count_panics();
    DRIVERS.get_or_init(|| {
        let all = tombolo::wgpu::InstanceDescriptor::new_without_display_handle();
        tombolo::wgpu::Instance::new(all)
    });
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seed = args.seed.unwrap_or(now.as_nanos() as u64 % 1_000_000_000);
    let headline = format!(
        "to repeat: --seed {seed} --threads {} --memory {:?} --adapter {:?} --only {:?}",
        args.threads,
        args.memory,
        args.adapter,
        args.only.join(",")
    )
    .to_lowercase();
    eprintln!("stress: {headline}");
    match run(&args, seed, &headline) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\nstress: FAILED: {}\n{headline}", problem.0);
            ExitCode::FAILURE
        }
    }
}

/// No panic is ordinary: not in the runtime, and not in wgpu behind it.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
}

fn run(args: &Args, seed: u64, headline: &str) -> Outcome {
    let operations: Vec<&Operation> = OPERATIONS
        .iter()
        .filter(|operation| {
            args.only
                .iter()
                .any(|part| operation.name.contains(part.as_str()))
        })
        .collect();
    if operations.is_empty() || args.threads == 0 {
        return wrong("there is nothing to do: --only names no operation, or --threads is 0");
    }
    let journal = Arc::new(Journal::new(args.threads));
    let settings = Settings {
        seed,
        threads: args.threads,
        adapter: args.adapter.clone(),
        memory: args.memory,
    };
    let world = World::new(settings, Arc::clone(&journal))?;
    for slot in 0..world.slots.len() {
        let gear = world.gear(slot);
        eprintln!(
            "stress: {} {}",
            gear.device.name(),
            if gear.is_copy {
                "with copies"
            } else {
                "in place"
            }
        );
    }
    let watchdog = Watchdog::start(
        Arc::clone(&journal),
        Duration::from_secs(args.timeout),
        headline.to_owned(),
    );
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(args.minutes * 60.0);
    let stop = AtomicBool::new(false);
    let steps = AtomicU64::new(0);
    let results: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|id| {
                let (world, operations, stop, steps) = (&world, &operations, &stop, &steps);
                let work = move || one_thread(world, id, operations, stop, steps, end, args.steps);
                let named = std::thread::Builder::new().name(format!("stress-{id}"));
                named
                    .spawn_scoped(scope, work)
                    .expect("the system starts eight threads")
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome>| {
            thread
                .join()
                .unwrap_or_else(|_| wrong("a thread of the test itself panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    drop(watchdog);
    results.into_iter().collect::<Outcome>()?;
    eprintln!(
        "stress: {} steps in {:.0} s",
        steps.into_inner(),
        begun.elapsed().as_secs_f64()
    );
    for line in world.counts.lines() {
        eprintln!("stress: {line}");
    }
    finish(world)?;
    match PANICS.load(Ordering::SeqCst) {
        0 => Ok(()),
        panics => wrong(format!("{panics} panics were caught, see above")),
    }
}

fn one_thread(
    world: &World,
    id: usize,
    operations: &[&Operation],
    stop: &AtomicBool,
    steps: &AtomicU64,
    end: Instant,
    most: u64,
) -> Outcome {
    let mut order = Random::new(world.settings.seed, 1_000 + id as u64);
    let mut worker = Worker::new(world, id);
    let all: usize = operations.iter().map(|operation| operation.weight).sum();
    let mut result = Ok(());
    while !stop.load(Ordering::Relaxed)
        && Instant::now() < end
        && worker.step < most
        && result.is_ok()
    {
        worker.step += 1;
        steps.fetch_add(1, Ordering::Relaxed);
        let mut at = order.below(all);
        let mut chosen = operations[0];
        for operation in operations {
            if at < operation.weight {
                chosen = operation;
                break;
            }
            at -= operation.weight;
        }
        world.journal.begin(id, worker.step, chosen.name);
        let outcome = catch_unwind(AssertUnwindSafe(|| (chosen.run)(&mut worker)));
        result = outcome.unwrap_or_else(|_| wrong("a panic reached the caller"));
        if let Err(problem) = &mut result {
            problem.0 = format!(
                "thread {id}, step {}, {}: {}",
                worker.step, chosen.name, problem.0
            );
            eprintln!("\nstress: {}\n{}", problem.0, world.journal.dump());
        }
    }
    if result.is_err() {
        stop.store(true, Ordering::Relaxed);
    } else {
        world
            .journal
            .begin(id, worker.step, "a last look at everything");
        result = last_look(&mut worker);
    }
    world.journal.end(id);
    result
}

/// What a thread has at the end is what it expects, and goes.
fn last_look(w: &mut Worker<'_>) -> Outcome {
    for held in std::mem::take(&mut w.buffers) {
        expect("a buffer at the end", &held.buffer.read()?, &held.model)?;
    }
    for held in std::mem::take(&mut w.on_devices) {
        expect(
            "a device's buffer at the end",
            &held.buffer.read()?,
            &held.model,
        )?;
    }
    for block in std::mem::take(&mut w.blocks) {
        let found = w.again("last read", || {
            w.world.heap.read(block.ptr, block.model.len())
        })?;
        expect("the heap at the end", &found, &block.model)?;
        w.world.heap.free(block.ptr)?;
    }
    expect(
        "the shared buffer at the end",
        &w.own_part()?.read()?,
        &w.part,
    )
}

/// What all threads have done together; and nothing is left of it once everything is gone.
fn finish(world: World) -> Outcome {
    for slot in 0..world.slots.len() {
        let gear = world.gear(slot);
        drop(gear.take_server());
        gear.device.finish()?;
        check_sums(&gear)?;
    }
    let (served, made) = (
        world.served.load(Ordering::SeqCst),
        world.calls.load(Ordering::SeqCst),
    );
    if served < made {
        return wrong(format!(
            "{served} calls were served and {made} were answered"
        ));
    }
    // Variables of devices lie in the heap too, and so may the shared buffer.
    let heap = world.heap.clone();
    drop(world);
    // What is freed while kernels may use it goes when they have ended, and an access waits for all of them.
    drop(heap.host()?);
    // A device that a buffer kept open ends on a thread of its own, and takes its variables along.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut left = heap.allocations();
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::yield_now();
        left = heap.allocations();
    }
    match left.is_empty() {
        true => Ok(()),
        false => wrong(format!(
            "{} allocations are left in the heap: {left:?}",
            left.len()
        )),
    }
}
