//! The heat equation on two devices at once. Each has one half of the plate to work on: a part of a buffer that both
//! share. In every step a device reads one row of the other's half; the runtime sees that these bytes are new
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
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    width: u32,
    /// Rows of the plate.
    #[arg(long, value_name = "N", default_value_t = 192,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    height: u32,
    /// Steps to make.
    #[arg(short, long, value_name = "N", default_value_t = 1200,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// PNGs to write on the way, the first before the first step.
    #[arg(short, long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    frames: u32,
    /// How their names begin.
    #[arg(short, long, value_name = "PREFIX", default_value = "heat2d-")]
    output: String,
    #[command(flatten)]
    devices: devices::Choice,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

/// What came out, and how long it took.
struct Run {
    heat: Vec<i32>,
    took: Duration,
    simulation: Simulation,
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
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

    let mut both = simulate(
        &context,
        &devices,
        &plate,
        steps,
        arguments.frames,
        |n, one| {
            let path = format!("{}{n}.png", arguments.output);
            let picture = plate.picture(&one.heat()?, &one.seams);
            picture
                .save(&path)
                .map_err(|error| format!("{path}: {error}"))?;
            Ok(())
        },
    )?;
    let alone = simulate(&context, &devices[..1], &plate, steps, 2, |_, _| Ok(()))?;
    let begun = Instant::now();
    let mut host = plate.clone();
    (0..steps).for_each(|_| host.advance());
    let took = begun.elapsed();

    let times = format!(
        "{steps} in {:.2?} on both, with the pictures; {:.2?} on one alone; {took:.2?} on the host",
        both.took, alone.took
    );
    show("steps", &times);
    let [moved, whole] = both.simulation.moved;
    let at_first = grouped(both.simulation.moved_at_first);
    show("moved", &format!("{at_first} bytes in the first step"));
    let times = whole as f64 / moved.max(1) as f64;
    let (moved, whole) = (grouped(moved), grouped(whole));
    show("", &format!("{moved} bytes in the others"));
    show(
        "",
        &format!("{whole} with buffers that move whole, which is {times:.0} times as many"),
    );
    show("next step", &both.simulation.explain()?.to_string());
    show(
        "written",
        &format!("{} PNGs, {}0.png first", arguments.frames, arguments.output),
    );

    let checks = [
        ("differs from one device alone", both.heat == alone.heat),
        ("differs from the host", both.heat == host.heat),
        (
            "heat was lost or made",
            Plate::total(&both.heat) == Plate::total(&plate.heat),
        ),
        ("nothing happened", both.heat != plate.heat),
        ("too much was moved", steps == 1 || times > 2.0),
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

/// Makes all steps, and stops for `frame` on the way.
fn simulate(
    context: &Context,
    devices: &[Device],
    plate: &Plate,
    steps: usize,
    frames: u32,
    mut frame: impl FnMut(usize, &Simulation) -> Result<(), Box<dyn Error>>,
) -> Result<Run, Box<dyn Error>> {
    let mut simulation = Simulation::new(context, devices, plate)?;
    let begun = Instant::now();
    let last = frames as usize - 1;
    let mut made = 0;
    for number in 0..=last {
        let until = steps * number / last;
        simulation.advance(until - made)?;
        made = until;
        frame(number, &simulation)?;
    }
    let heat = simulation.heat()?;
    Ok(Run {
        heat,
        took: begun.elapsed(),
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
