//! The heat equation on two devices at once. Each has one half of the plate to work on: a part of a buffer that both
//! share. In each round of steps a device reads a few rows of the other's half; the runtime sees that these bytes are new
//! elsewhere, and brings them, and no others.

mod cells;
mod plate;
mod simulation;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tombolo::{Context, Device};

use cells::Plate;
use simulation::Simulation;
use support::devices;
use support::text::{grouped, hanging};

/// Lets heat spread over a plate, half of which is one device's work and half another's.
///
/// Two different adapters are used where the machine has two, and two devices of one elsewhere. Everything is computed
/// in fixed point (whole numbers), so that all adapters agree bit by bit. Checked are: that the result is that of one
/// device alone, and that of the host; that not a unit of heat was lost or made; and that less was moved than by moving
/// whole buffers. The exit status is 0 only if all of that holds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Cells of a row of the plate.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(8..=16384))]
    width: u32,
    /// Rows of the plate.
    #[arg(long, value_name = "N", default_value_t = 192,
          value_parser = clap::value_parser!(u32).range(8..=16384))]
    height: u32,
    /// Steps to make.
    #[arg(short, long, value_name = "N", default_value_t = 1200,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Steps between two exchanges, and rows that a device is given of the other's half for them; no more than these.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=1024))]
    halo: u32,
    /// PNGs to write on the way, the first before the first step; none with 0, as large plates need.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = pictures)]
    frames: u32,
    /// How their names begin.
    #[arg(short, long, value_name = "PREFIX", default_value = "heat2d-")]
    output: String,
    #[command(flatten)]
    devices: devices::Choice,
}

/// Cells along a side of a plate, each of which has several pixels.
const MOST_IN_PICTURES: u32 = 4096;

fn pictures(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ (0 | 2..=1000)) => Ok(number),
        _ => Err("0, or 2 to 1000: the first and the last are before and after all steps".into()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

/// Runs of which the quickest is told.
const RUNS: usize = 5;

/// Rounds that bring the plate to the devices: one for each of the two buffers that take turns.
const BRINGING: usize = 2;

/// What came out, and how long it took.
struct Run {
    heat: Vec<i32>,
    /// All steps but those that bring the plate to the devices, without the pictures; none where there are no others.
    took: Option<Duration>,
    simulation: Simulation,
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.frames > 0 && arguments.width.max(arguments.height) > MOST_IN_PICTURES {
        let most = MOST_IN_PICTURES;
        return Err(format!(
            "pictures are of plates of up to {most} x {most} cells: add `--frames 0`"
        )
        .into());
    }
    let context = Context::new()?;
    let devices = arguments.devices.open(&context)?;
    let plate = Plate::new(arguments.width, arguments.height);
    let steps = arguments.steps as usize;
    show("devices", &devices::names(&devices));
    let cells = grouped(plate.heat.len() as u64);
    show(
        "plate",
        &format!("{} x {}, {cells} cells", plate.width, plate.height),
    );

    let work = Work {
        plate: &plate,
        steps,
        halo: arguments.halo,
    };
    let mut both = simulate(&context, &devices, &work, arguments.frames, |n, one| {
        let path = format!("{}{n}.png", arguments.output);
        let picture = plate.picture(&one.heat()?, &one.seams);
        picture
            .save(&path)
            .map_err(|error| format!("{path}: {error}"))?;
        Ok(())
    })?;
    let begun = Instant::now();
    let mut host = plate.clone();
    (0..steps).for_each(|_| host.advance());
    let took = begun.elapsed();
    // The least of several, in turn: devices that had nothing to do are slow at first. Each has the host's result.
    let mut is_same = true;
    let mut again = |devices: &[Device]| -> Result<Option<Duration>, Box<dyn Error>> {
        let run = simulate(&context, devices, &work, 0, |_, _| Ok(()))?;
        is_same &= run.heat == host.heat;
        Ok(run.took)
    };
    let mut least = [both.took, again(&devices[..1])?];
    for _ in 1..RUNS {
        for (least, devices) in least.iter_mut().zip([&devices[..], &devices[..1]]) {
            *least = (*least).min(again(devices)?);
        }
    }

    let mut times = format!("{steps} on the host in {took:.2?}");
    if let [Some(both), Some(alone)] = least {
        let ratio = both.as_secs_f64() / alone.as_secs_f64().max(1e-9);
        times += &format!(
            "; without the first {BRINGING} rounds, the least of {RUNS} runs: on both devices in {both:.2?}, on one alone in \
             {alone:.2?} ({ratio:.2} times as long)"
        );
    }
    show("steps", &times);
    let [moved, whole] = both.simulation.moved;
    let at_first = grouped(both.simulation.moved_at_first);
    let edges = match both.simulation.halo {
        1 => "a row, exchanged after each step".into(),
        rows => format!("{rows} rows, exchanged after as many steps"),
    };
    show("edges", &edges);
    show("moved", &format!("{at_first} bytes in the first round"));
    let times = whole as f64 / moved.max(1) as f64;
    let is_little = whole == 0 || times > 2.0;
    let (moved, whole) = (grouped(moved), grouped(whole));
    show("", &format!("{moved} bytes in the others"));
    show(
        "",
        &format!("{whole} with buffers that move whole, which is {times:.0} times as many"),
    );
    show("next round", &both.simulation.explain()?.to_string());
    let written = match arguments.frames {
        0 => "no PNGs".into(),
        frames => format!("{frames} PNGs, {}0.png first", arguments.output),
    };
    show("written", &written);

    let checks = [
        ("differs from the host", both.heat == host.heat),
        ("another run differs, or one device alone", is_same),
        (
            "heat was lost or made",
            Plate::total(&both.heat) == Plate::total(&plate.heat),
        ),
        ("nothing happened", both.heat != plate.heat),
        ("too much was moved", is_little),
    ];
    let wrong: Vec<&str> = checks
        .iter()
        .filter(|(_, held)| !held)
        .map(|(what, _)| *what)
        .collect();
    match wrong.as_slice() {
        [] => show(
            "self-check",
            "equal to one device alone and to the host, bit by bit",
        ),
        wrong => show("self-check", &wrong.join("; ")),
    }
    Ok(wrong.is_empty())
}

/// What is computed.
struct Work<'a> {
    plate: &'a Plate,
    steps: usize,
    halo: u32,
}

/// Makes all steps, and stops for `frame` on the way.
fn simulate(
    context: &Context,
    devices: &[Device],
    work: &Work,
    frames: u32,
    mut frame: impl FnMut(usize, &Simulation) -> Result<(), Box<dyn Error>>,
) -> Result<Run, Box<dyn Error>> {
    let mut simulation = Simulation::new(context, devices, work.plate, work.halo)?;
    let bringing = BRINGING * simulation.halo as usize;
    let mut took = Duration::ZERO;
    let last = (frames as usize).max(2) - 1;
    let mut made = 0;
    for number in 0..=last {
        let until = work.steps * number / last;
        let first = until.min(bringing).saturating_sub(made);
        simulation.advance(first)?;
        simulation.finish()?;
        let begun = Instant::now();
        simulation.advance(until - made - first)?;
        simulation.finish()?;
        took += begun.elapsed();
        made = until;
        if frames > 0 {
            frame(number, &simulation)?;
        }
    }
    let heat = simulation.heat()?;
    Ok(Run {
        heat,
        took: (work.steps > bringing).then_some(took),
        simulation,
    })
}

fn show(what: &str, value: &str) {
    let head = match what {
        "" => String::new(),
        _ => format!("{what}:"),
    };
    for (index, line) in value.lines().enumerate() {
        let head = if index == 0 { head.as_str() } else { "" };
        print!("{}", hanging(head, 12, line));
    }
}
