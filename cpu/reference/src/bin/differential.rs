//! Runs generated programs on adapters and on the interpreter, and compares.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use clap::Parser;
use tombolo_cpu_reference::adapters::{Job, Opened, RunError, all_adapters, open, run};
use tombolo_cpu_reference::differential::Case;
use tombolo_cpu_reference::generate::{Options, ast::Program, program};
use tombolo_cpu_reference::shrink::shrink;

/// Random WGSL programs on adapters, judged by the interpreter.
#[derive(Parser)]
struct Arguments {
    /// How many programs.
    #[arg(long, default_value_t = 1000)]
    programs: u64,
    /// Seed of the first program; the others follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only adapters whose name contains one of these, in any case.
    #[arg(long)]
    adapter: Vec<String>,
    /// Statements of each program, about.
    #[arg(long, default_value_t = Options::default().statements)]
    statements: u32,
    /// Programs of a batch.
    #[arg(long, default_value_t = 32)]
    batch: u64,
    /// Threads that interpret.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Let floating-point arithmetic round, and shift beyond the width: for adapters that follow IEEE 754
    /// and WGSL to the letter.
    #[arg(long)]
    strict: bool,
    /// Attempts to shrink a program that fails; 0 to leave it as it is.
    #[arg(long, default_value_t = 3000)]
    shrink: usize,
    /// Where to write programs that fail.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Print the program of the seed and end.
    #[arg(long)]
    print: bool,
}

impl Arguments {
    fn options(&self) -> Options {
        Options {
            statements: self.statements,
            rounding: self.strict,
            wide_shifts: self.strict,
            ..Options::default()
        }
    }
}

/// A program with the results that it has to have.
struct Ready {
    seed: u64,
    case: Case,
    expected: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.print {
        print!("{}", program(arguments.seed, arguments.options()).text());
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| {
        let name = name.to_lowercase();
        arguments.adapter.is_empty()
            || arguments
                .adapter
                .iter()
                .any(|wanted| name.contains(&wanted.to_lowercase()))
    };
    let mut adapters = Vec::new();
    for adapter in all_adapters()
        .iter()
        .filter(|adapter| wanted(&adapter.get_info().name))
    {
        match open(adapter) {
            Ok(opened) => adapters.push(opened),
            Err(error) => eprintln!("{error}"),
        }
    }
    if adapters.is_empty() {
        eprintln!("no adapter");
        return ExitCode::FAILURE;
    }
    let begin = Instant::now();
    let failures = all(&arguments, &adapters);
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    let rate = arguments.programs as f64 / minutes;
    println!(
        "{} programs, {failures} failed, {rate:.0} a minute",
        arguments.programs
    );
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Interprets on threads of their own while the adapters run. Returns how many programs failed.
fn all(arguments: &Arguments, adapters: &[Opened]) -> u64 {
    let next = AtomicU64::new(arguments.seed);
    let end = arguments.seed.saturating_add(arguments.programs);
    let failures = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::sync_channel::<Ready>(arguments.batch as usize * 2);
    let printing = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            let sender = sender.clone();
            let (next, failures, stop, printing) = (&next, &failures, &stop, &printing);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let case = Case::new(&program(seed, arguments.options()));
                    match case.expected() {
                        Ok(expected) => {
                            if sender
                                .send(Ready {
                                    seed,
                                    case,
                                    expected,
                                })
                                .is_err()
                            {
                                return;
                            }
                        }
                        Err(error) => {
                            let _printing = printing
                                .lock()
                                .unwrap_or_else(|poisoned| poisoned.into_inner());
                            failures.fetch_add(1, Ordering::Relaxed);
                            println!("seed {seed}: {error}");
                        }
                    }
                }
            });
        }
        drop(sender);
        let mut progress = Instant::now();
        let mut done = 0;
        loop {
            let batch: Vec<Ready> = receiver
                .iter()
                .take(arguments.batch.max(1) as usize)
                .collect();
            if batch.is_empty() {
                break;
            }
            for adapter in adapters {
                failures.fetch_add(compare(arguments, adapter, &batch), Ordering::Relaxed);
            }
            done += batch.len();
            if progress.elapsed() > Duration::from_secs(30) {
                progress = Instant::now();
                eprintln!(
                    "{done} programs, {} failed",
                    failures.load(Ordering::Relaxed)
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    failures.into_inner()
}

/// Runs a batch on an adapter, and reports what differs.
fn compare(arguments: &Arguments, adapter: &Opened, batch: &[Ready]) -> u64 {
    let jobs: Vec<Job<'_>> = batch.iter().map(|ready| job(&ready.case)).collect();
    let results = match run(adapter, &jobs) {
        Ok(results) => results,
        Err(error) => {
            println!(
                "{}: a batch from seed {} failed: {error}",
                adapter.info.name, batch[0].seed
            );
            return batch.len() as u64;
        }
    };
    let mut failures = 0;
    for (ready, result) in batch.iter().zip(results) {
        let what = match &result {
            Ok(got) => ready
                .case
                .compare(&ready.expected, got)
                .map(|difference| difference.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(what) = what {
            failures += 1;
            println!("{}: seed {}: {what}", adapter.info.name, ready.seed);
            report(arguments, adapter, ready.seed);
        }
    }
    failures
}

fn job(case: &Case) -> Job<'_> {
    Job {
        text: &case.text,
        entry_point: "main",
        buffers: &case.buffers,
        workgroups: [case.workgroups, 1, 1],
    }
}

/// True if a program is usable and an adapter disagrees.
fn disagrees(adapter: &Opened, program: &Program) -> bool {
    let case = Case::new(program);
    let Ok(expected) = case.expected() else {
        return false;
    };
    match run(adapter, &[job(&case)]).map(|mut results| results.pop()) {
        Ok(Some(Ok(got))) => case.compare(&expected, &got).is_some(),
        Ok(Some(Err(RunError::Refused(_)))) => true,
        _ => false,
    }
}

/// Shrinks a failing program, and keeps it.
fn report(arguments: &Arguments, adapter: &Opened, seed: u64) {
    let mut failing = program(seed, arguments.options());
    if arguments.shrink > 0 {
        failing = shrink(&failing, arguments.shrink, |candidate| {
            disagrees(adapter, candidate)
        });
    }
    let text = failing.text();
    match &arguments.keep {
        None => println!("{text}"),
        Some(folder) => {
            let name = adapter
                .info
                .name
                .split([' ', '('])
                .next()
                .unwrap_or("adapter")
                .to_owned();
            let path = folder.join(format!("{name}-{seed}.wgsl"));
            if let Err(error) = std::fs::write(&path, &text) {
                println!("cannot write {}: {error}\n{text}", path.display());
            }
        }
    }
}
