//! Runs generated programs on adapters and on the interpreter, and compares.
//!
//! Interpreters run on threads of their own and hand batches to the adapters. Everything that fails is printed with its
//! seed: `--seed N --programs 1` with the same options runs that program alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Parser;
use tombolo_cpu_reference::adapters::{
    Job, OpenError, Opened, RunError, embedded_adapter_with, open, run, system_adapters,
};
use tombolo_cpu_reference::differential::{Case, Unusable};
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
    /// Begin no further program after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Only adapters whose name contains one of these, in any case.
    #[arg(long)]
    adapter: Vec<String>,
    /// Statements of each program, about.
    #[arg(long, default_value_t = Options::default().statements)]
    statements: u32,
    /// Programs of a batch.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// A line of progress each time so many programs are done, and for each batch that is slower than this.
    #[arg(long, default_value_t = 100)]
    every: usize,
    /// Threads that interpret.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The most invocations that this project's own adapter runs side by side.
    #[arg(long, default_value_t = tombolo_cpu::Options::default().lanes)]
    lanes: u32,
    /// Let floating-point arithmetic round, and shift beyond the width: for adapters that follow IEEE 754
    /// and WGSL to the letter.
    #[arg(long)]
    strict: bool,
    /// Operations of subgroups: for adapters with subgroups of eight that come together again wherever control flow lets
    /// them.
    #[arg(long)]
    subgroups: bool,
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

/// The longest time without a line of progress while batches end.
const SILENCE: Duration = Duration::from_secs(10);

/// Attempts to shrink between two lines of progress.
const ATTEMPTS_A_LINE: usize = 250;

impl Arguments {
    fn options(&self) -> Options {
        Options {
            statements: self.statements,
            rounding: self.strict,
            wide_shifts: self.strict,
            subgroups: self.subgroups,
            ..Options::default()
        }
    }

    fn wants(&self, adapter: &wgpu::Adapter) -> bool {
        let name = adapter.get_info().name.to_lowercase();
        self.adapter.is_empty()
            || self
                .adapter
                .iter()
                .any(|wanted| name.contains(&wanted.to_lowercase()))
    }
}

/// A program with the results that it has to have.
struct Ready {
    seed: u64,
    case: Case,
    expected: Contents,
}

/// What the buffers of a program hold after it.
type Contents = Vec<Vec<u8>>;

/// A program that was interpreted: ready for adapters, or why it has no results.
type Interpreted = Result<Ready, (u64, String)>;

/// A program that an adapter fails.
struct Failure {
    seed: u64,
    what: String,
    /// Whether the device can be asked about smaller programs
    shrinks: bool,
}

/// An adapter, and a device of it.
struct Subject {
    adapter: wgpu::Adapter,
    opened: Opened,
}

impl Subject {
    fn new(adapter: wgpu::Adapter) -> Result<Subject, OpenError> {
        let opened = open(&adapter)?;
        Ok(Subject { adapter, opened })
    }

    fn name(&self) -> &str {
        &self.opened.info.name
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.print {
        print!("{}", program(arguments.seed, arguments.options()).text());
        return ExitCode::SUCCESS;
    }
    let mut own = tombolo_cpu::Options::default();
    own.lanes = arguments.lanes;
    let wanted = system_adapters()
        .into_iter()
        .chain(embedded_adapter_with(own))
        .filter(|adapter| arguments.wants(adapter));
    let mut subjects = Vec::new();
    for adapter in wanted {
        match Subject::new(adapter) {
            Ok(subject) => subjects.push(subject),
            Err(error) => eprintln!("{error}"),
        }
    }
    if subjects.is_empty() {
        eprintln!("no adapter");
        return ExitCode::FAILURE;
    }
    for subject in &subjects {
        eprintln!("on {}", subject.name());
    }
    let mut campaign = Campaign::new(&arguments);
    campaign.run(&mut subjects);
    println!("{}", campaign.summary());
    if campaign.failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Programs from the first seed on, and what came of them.
struct Campaign<'a> {
    arguments: &'a Arguments,
    begin: Instant,
    done: usize,
    failures: u64,
    /// Time on adapters
    running: Duration,
    /// Time that threads took to make and interpret programs
    interpreting: Duration,
    /// When the last line of progress was printed, and how many programs were done then
    reported: (Instant, usize),
}

impl<'a> Campaign<'a> {
    fn new(arguments: &'a Arguments) -> Campaign<'a> {
        let begin = Instant::now();
        Campaign {
            arguments,
            begin,
            done: 0,
            failures: 0,
            running: Duration::ZERO,
            interpreting: Duration::ZERO,
            reported: (begin, 0),
        }
    }

    fn summary(&self) -> String {
        let elapsed = self.begin.elapsed().as_secs_f64();
        format!(
            "{} programs from seed {}, {} failed, {:.0} a minute ({:.0} s; {:.0} s of threads interpreting, {:.0} s on adapters)",
            self.done,
            self.arguments.seed,
            self.failures,
            self.done as f64 * 60.0 / elapsed,
            elapsed,
            self.interpreting.as_secs_f64(),
            self.running.as_secs_f64(),
        )
    }

    /// Interprets on threads of their own while the adapters run.
    fn run(&mut self, subjects: &mut [Subject]) {
        let arguments = self.arguments;
        let (next, time) = (AtomicU64::new(arguments.seed), AtomicU64::new(0));
        let end = arguments.seed.saturating_add(arguments.programs);
        let limit = arguments.minutes.map(|minutes| minutes * 60.0);
        let begin = self.begin;
        let in_time = || limit.is_none_or(|limit| begin.elapsed().as_secs_f64() < limit);
        let (sender, receiver) = mpsc::sync_channel::<Interpreted>(arguments.batch * 2);
        std::thread::scope(|scope| {
            for _ in 0..arguments.threads.max(1) {
                let (sender, next, time) = (sender.clone(), &next, &time);
                scope.spawn(move || {
                    while in_time() {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return;
                        }
                        let begin = Instant::now();
                        let interpreted = interpret(seed, arguments.options());
                        time.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                        if sender.send(interpreted).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            loop {
                let batch: Vec<_> = receiver.iter().take(arguments.batch.max(1)).collect();
                if batch.is_empty() {
                    return;
                }
                self.done += batch.len();
                self.judge(batch, subjects);
                self.interpreting = Duration::from_nanos(time.load(Ordering::Relaxed));
                self.report_progress();
            }
        });
    }

    fn report_progress(&mut self) {
        let (when, done) = self.reported;
        if self.done - done >= self.arguments.every || when.elapsed() >= SILENCE {
            self.reported = (Instant::now(), self.done);
            eprintln!("{}", self.summary());
        }
    }

    fn judge(&mut self, batch: Vec<Interpreted>, subjects: &mut [Subject]) {
        let mut ready = Vec::new();
        for interpreted in batch {
            match interpreted {
                Ok(program) => ready.push(program),
                Err((seed, error)) => {
                    self.failures += 1;
                    println!("seed {seed}: {error}");
                }
            }
        }
        for subject in subjects {
            let begin = Instant::now();
            let failing = failing(subject, &ready);
            self.running += begin.elapsed();
            self.failures += failing.len() as u64;
            for failure in failing {
                println!(
                    "{}: seed {}: {}",
                    subject.name(),
                    failure.seed,
                    failure.what
                );
                report(self.arguments, subject, &failure);
            }
        }
    }
}

/// Makes a program and interprets it. A panic on the way is a failure of this seed, not the end.
fn interpret(seed: u64, options: Options) -> Interpreted {
    let interpreted = catch_unwind(AssertUnwindSafe(|| {
        let case = Case::new(&program(seed, options));
        let expected = case.expected()?;
        Ok(Ready {
            seed,
            case,
            expected,
        })
    }));
    match interpreted {
        Ok(interpreted) => interpreted.map_err(|error: Unusable| (seed, error.to_string())),
        Err(_) => Err((seed, "the interpreter panicked".to_owned())),
    }
}

/// The programs whose results on an adapter are not the expected ones.
fn failing(subject: &mut Subject, batch: &[Ready]) -> Vec<Failure> {
    let failure = |seed, what, shrinks| Failure {
        seed,
        what,
        shrinks,
    };
    let error = match results(&subject.opened, batch) {
        Ok(results) => {
            let judged = batch.iter().zip(results).map(|(ready, result)| {
                let what = difference(ready, &result)?;
                Some(failure(ready.seed, what, true))
            });
            return judged.flatten().collect();
        }
        Err(error) => error,
    };
    // The device may be lost.
    match open(&subject.adapter) {
        Ok(opened) => subject.opened = opened,
        Err(error) => {
            let whole = batch.iter();
            return whole
                .map(|ready| failure(ready.seed, error.to_string(), false))
                .collect();
        }
    }
    match batch {
        [alone] => vec![failure(alone.seed, error, false)],
        // One by one, to know which of them it was.
        _ => batch
            .chunks(1)
            .flat_map(|ready| failing(subject, ready))
            .collect(),
    }
}

/// What an adapter makes of a batch, or why the batch as a whole failed.
fn results(opened: &Opened, batch: &[Ready]) -> Result<Vec<Result<Contents, RunError>>, String> {
    let jobs: Vec<Job<'_>> = batch.iter().map(|ready| job(&ready.case)).collect();
    match catch_unwind(AssertUnwindSafe(|| run(opened, &jobs))) {
        Ok(results) => results.map_err(|error| error.to_string()),
        Err(_) => Err("the adapter panicked".to_owned()),
    }
}

fn difference(ready: &Ready, result: &Result<Contents, RunError>) -> Option<String> {
    match result {
        Ok(got) => ready
            .case
            .compare(&ready.expected, got)
            .map(|difference| difference.to_string()),
        Err(error) => Some(error.to_string()),
    }
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
fn disagrees(opened: &Opened, program: &Program) -> bool {
    let case = Case::new(program);
    // Whether a program is usable is asked last: that takes longest, and most that are tried do not disagree.
    let Ok((results, _)) = case.interpret(Default::default()) else {
        return false;
    };
    let differs = match run(opened, &[job(&case)]).map(|mut results| results.pop()) {
        Ok(Some(Ok(got))) => case.compare(&results, &got).is_some(),
        Ok(Some(Err(RunError::Refused(_)))) => true,
        _ => false,
    };
    differs && case.expected().is_ok()
}

/// Shrinks a failing program, and keeps it.
fn report(arguments: &Arguments, subject: &Subject, failure: &Failure) {
    let seed = failure.seed;
    let mut failing = program(seed, arguments.options());
    if failure.shrinks && arguments.shrink > 0 {
        let mut attempts = 0;
        failing = shrink(&failing, arguments.shrink, |candidate| {
            attempts += 1;
            if attempts % ATTEMPTS_A_LINE == 0 {
                eprintln!("seed {seed}: {attempts} attempts to shrink");
            }
            disagrees(&subject.opened, candidate)
        });
    }
    let text = failing.text();
    match &arguments.keep {
        None => println!("{text}"),
        Some(folder) => {
            let name = subject.name().split([' ', '(']).next().unwrap_or("adapter");
            let path = folder.join(format!("{name}-{seed}.wgsl"));
            if let Err(error) = std::fs::write(&path, &text) {
                println!("cannot write {}: {error}\n{text}", path.display());
            }
        }
    }
}
