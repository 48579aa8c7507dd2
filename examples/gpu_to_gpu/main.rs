//! Two GPUs, of which one calls the other: a server stays on the first, and kernels of the second call its function while
//! they run, through pages of the host that both use in place. No code of the host takes part in a call; where one of them has
//! memory of its own, threads of the host forward calls. Then the roles are exchanged.

#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tombolo::{Constants, Context, Device, PersistentKernel, Program};

/// A count that is not there yet.
const NONE: u32 = u32::MAX;
/// Launches after which what has not been answered never will be.
const LAUNCHES: u32 = 1_000;

/// Counts primes with a kernel on one GPU that calls a function on another, and the other way round.
///
/// Checked are all counts against the host's. The exit status is 0 only if they are right. With one adapter there are two
/// devices on it.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Ranges of numbers, each of which is one call.
    #[arg(short, long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ranges: u32,
    /// Numbers in a range.
    #[arg(short, long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    width: u32,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let context = Context::new()?;
    let [one, other] = support::devices::Choice::ANY.open(&context)?;
    let there = call(&one, &other, arguments)?;
    let back = call(&other, &one, arguments)?;
    Ok(there && back)
}

/// Has a kernel on `caller` call a server on `callee`; whether it was answered rightly.
fn call(caller: &Device, callee: &Device, arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let &Arguments { ranges, width } = arguments;
    let program = Program::new("server.wgsl", include_str!("server.wgsl"))?;
    let server = PersistentKernel::builder(callee, &program)
        .handler("primes")
        .callers(1)
        .start()?;
    // The function by its name, as if it were the program's own.
    let source = include_str!("caller.wgsl");
    let program = Program::builder()
        .source("caller.wgsl", source)
        .server(&server)
        .build()?;
    let kernel = caller.kernel(&program, "main", &Constants::new())?;
    let counts = caller.buffer(&vec![NONE; ranges as usize])?;
    let mut launch = kernel
        .launch()
        .buffer("counts", &counts)
        .value("width", &width)
        .server(&server)
        .invocations(ranges);
    let begun = Instant::now();
    let mut found = Vec::new();
    let mut launches = 0;
    while launches < LAUNCHES {
        launch.submit()?.wait()?;
        launches += 1;
        found = counts.read()?;
        if !found.contains(&NONE) {
            break;
        }
    }
    let time = begun.elapsed();
    let expected: Vec<u32> = (0..ranges)
        .map(|range| primes(range * width, range * width + width - 1))
        .collect();
    let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    println!("a kernel on {} calls {}:", caller.name(), callee.name());
    println!(
        "  {} primes below {}, in {ranges} calls of {launches} launches and {} leases: {:.1} µs a call",
        found.iter().filter(|&&count| count != NONE).sum::<u32>(),
        ranges * width,
        server.leases(),
        time.as_secs_f64() * 1e6 / f64::from(ranges),
    );
    match server.statistics().forwarded {
        0 => println!("  in place, through pages of the host"),
        calls => println!("  {calls} calls were forwarded by threads of the host"),
    }
    match wrong {
        0 => println!("  every answer is the host's"),
        wrong => println!("  {wrong} answers are not the host's"),
    }
    Ok(wrong == 0 && found.len() == expected.len())
}

/// How many numbers of a range are primes, by a sieve.
fn primes(first: u32, last: u32) -> u32 {
    let mut composite = vec![false; last as usize + 1];
    for n in 2..=last as usize {
        if !composite[n] {
            (n * n..=last as usize)
                .step_by(n)
                .for_each(|multiple| composite[multiple] = true);
        }
    }
    let all = first.max(2) as usize..=last as usize;
    all.filter(|&n| !composite[n]).count() as u32
}
