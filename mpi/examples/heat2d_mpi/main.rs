//! The heat equation over ranks of MPI: each rank has some rows of the plate, on separate devices, and exchanges the rows at
//! the seams with its neighbours in every step, while the devices compute the rows between.

#[path = "../../../examples/heat2d/cells.rs"]
mod cells;
mod checkpoint;
mod plate;
mod simulation;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tombolo::{Context, Device};
use tombolo_mpi::{Mpi, MpiError, Options, Ranks};

use cells::Plate;
use simulation::{Exchange, Simulation};

/// Lets heat spread over a plate whose rows are divided among ranks: `mpirun -n 4 heat2d_mpi`.
///
/// Everything is computed in whole numbers, so that ranks on all adapters agree bit by bit, whatever their number.
#[derive(Parser, Clone)]
struct Arguments {
    /// Cells of a row of the plate.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..=65536))]
    width: u32,
    /// Rows of the plate.
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = clap::value_parser!(u32).range(16..=65536))]
    height: u32,
    /// Steps to make.
    #[arg(short, long, value_name = "N", default_value_t = 200)]
    steps: u32,
    /// Devices of each rank.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    devices: u32,
    /// Wait for messages before the rows between are begun, to see what computing them meanwhile is worth.
    #[arg(long)]
    no_overlap: bool,
    /// Compare the result with that of one process: on rank 0, by one device and by the host.
    #[arg(long)]
    check: bool,
    /// Write the plate to a file half-way, throw everything away, and go on from the file.
    #[arg(long, value_name = "FILE")]
    restart: Option<PathBuf>,
    /// Go on from a file that a run with any number of ranks has written.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write the plate to a file at the end.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Record a trace of each rank, in files whose names begin so; with the feature `trace`.
    #[arg(long, value_name = "PREFIX")]
    trace: Option<String>,
    /// Measure messages, calls and steps instead, and print a table.
    #[arg(long)]
    table: bool,
    /// Seconds that a rank waits for another at most.
    #[arg(long, value_name = "S", default_value_t = 120)]
    timeout: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut options = Options::default();
    options.timeout = Some(Duration::from_secs(arguments.timeout));
    match Mpi::run(options, |ranks| run(ranks, &arguments).map_err(Failure)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The error at the end of a rank, to be reported to the others.
struct Failure(Box<dyn Error>);

impl From<MpiError> for Failure {
    fn from(error: MpiError) -> Self {
        Self(error.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Devices of the adapter chosen by the environment.
fn open(context: &Context, count: u32) -> Result<Vec<Device>, Box<dyn Error>> {
    (0..count).map(|_| Ok(context.device()?)).collect()
}

#[cfg(feature = "trace")]
fn record(ranks: &Ranks, prefix: &str) -> Result<impl Sized + use<>, Box<dyn Error>> {
    let path = format!("{prefix}{}.json", ranks.rank());
    Ok(tombolo::trace::Trace::to_file(path)?)
}

#[cfg(not(feature = "trace"))]
fn record(_: &Ranks, _: &str) -> Result<(), Box<dyn Error>> {
    Err("built without the feature `trace`".into())
}

fn run(ranks: &Ranks, arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let _trace = (arguments.trace.as_ref())
        .map(|prefix| record(ranks, prefix))
        .transpose()?;
    let context = Context::new()?;
    if arguments.table {
        return table::print(ranks, &context);
    }
    let devices = open(&context, arguments.devices)?;
    let (first, made) = match &arguments.resume {
        Some(path) => checkpoint::load(path)?,
        None => (Plate::new(arguments.width, arguments.height), 0),
    };
    let exchange = match arguments.no_overlap {
        true => Exchange::Before,
        false => Exchange::Beside,
    };
    let begun = Instant::now();
    let start = |plate: &Plate| Simulation::new(ranks, &context, &devices, plate, exchange);
    let mut simulation = start(&first)?;
    let mut left = arguments.steps;
    if let Some(path) = &arguments.restart {
        simulation.advance(left / 2)?;
        if let Some(plate) = simulation.gather(&first)? {
            checkpoint::save(path, &plate, made + left / 2)?;
        }
        // Nobody reads before the file is there.
        ranks.barrier()?;
        let (plate, steps) = checkpoint::load(path)?;
        left -= steps - made;
        simulation = start(&plate)?;
    }
    simulation.advance(left)?;
    simulation.finish()?;
    let took = begun.elapsed();
    let explained = simulation.explain()?;
    let Some(plate) = simulation.gather(&first)? else {
        return Ok(true);
    };
    let (size, steps) = (ranks.size(), arguments.steps);
    println!(
        "{steps} steps by {size} ranks on {} in {took:.2?}",
        devices[0].name()
    );
    if let Some(explained) = explained {
        println!("the next step moves to rank 0's device:\n{explained}");
    }
    if let Some(path) = &arguments.save {
        checkpoint::save(path, &plate, made + steps)?;
    }
    match arguments.check {
        true => check(&context, &devices[0], &first, &plate, steps),
        false => Ok(true),
    }
}

/// Compares with one process: a device alone, and the host.
fn check(
    context: &Context,
    device: &Device,
    first: &Plate,
    found: &Plate,
    steps: u32,
) -> Result<bool, Box<dyn Error>> {
    let alone = Simulation::alone(context, device, first, steps)?;
    let mut host = first.clone();
    (0..steps).for_each(|_| host.advance());
    let checks = [
        ("differs from one process", found.heat == alone),
        ("differs from the host", *found == host),
        (
            "heat was lost or made",
            Plate::total(&found.heat) == Plate::total(&first.heat),
        ),
        ("nothing happened", steps == 0 || found.heat != first.heat),
    ];
    let wrong: Vec<_> = (checks.iter().filter(|(_, holds)| !holds))
        .map(|(what, _)| *what)
        .collect();
    match wrong.is_empty() {
        true => println!("self-check: equal to one process and to the host, bit by bit"),
        false => println!("self-check: {}", wrong.join("; ")),
    }
    Ok(wrong.is_empty())
}
