//! Two galaxies collide: Barnes and Hut's simulation of bodies that attract each other. In each step
//! Rust builds an octree in shared memory, of ordinary values linked by their own addresses, and the
//! device follows the same addresses to find the pull on each body.

mod galaxy;
mod indices;
mod picture;
mod reference;
mod simulation;
#[path = "../support/mod.rs"]
mod support;
mod tree;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tombolo::{Context, device::Aspect};

use indices::Comparison;
use reference::{Energy, Errors};
use simulation::{Setup, Simulation};
use support::text::{grouped, hanging};
use tree::{Body, Tree};

/// Bodies whose pull is summed directly.
const SAMPLE: usize = 200;

/// Simulates the collision of two galaxies, with an octree that Rust builds and the GPU walks.
///
/// Checked are: that the walk of every body accounts for every body once, and finds its own leaf;
/// the accelerations of 200 bodies, before and after, against direct sums over all bodies; and that
/// energy is kept. The exit status is 0 only if all of that holds.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// How many bodies there are; half a million, with their tree, are what every device binds at once.
    #[arg(short, long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(10_000..=1_000_000))]
    bodies: u32,
    /// Steps to simulate: by 20 the galaxies have met, and 80 show what becomes of them.
    #[arg(short, long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// The largest angle under which a cell is taken as a whole, in radians: 0.2 to 1.
    #[arg(short, long, value_name = "ANGLE", default_value_t = 0.6, value_parser = parse_theta)]
    theta: f64,
    /// Walk the last tree over indices into buffers of the device as well, and say how the times compare.
    #[arg(long)]
    compare: bool,
    /// The PNG to write.
    #[arg(short, long, value_name = "FILE", default_value = "octree.png")]
    output: PathBuf,
}

fn parse_theta(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if (0.2..=1.0).contains(&theta) => Ok(theta),
        _ => Err("the angle is a number from 0.2 to 1".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

/// What the direct sums say at one moment.
struct Moment {
    bodies: Vec<Body>,
    errors: Errors,
    energy: Energy,
}

impl Moment {
    fn of(simulation: &Simulation, softening: f64) -> Result<Self, Box<dyn Error>> {
        let bodies = simulation.bodies()?;
        let direct = reference::direct(&bodies, SAMPLE, softening);
        Ok(Self {
            errors: reference::errors(&bodies, &direct),
            energy: reference::energy(&bodies, &direct),
            bodies,
        })
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = Context::new()?.device()?;
    show("adapter", device.name());
    let memory = match device.has(Aspect::HostImport) {
        true => "the device uses the host's memory in place",
        false => "the device cannot use the host's memory in place",
    };
    show("memory", memory);
    let setup = Setup {
        theta: arguments.theta,
        softening: 0.03,
        step: 0.05,
    };
    let (bodies, kinds) = galaxy::collision(arguments.bodies as usize);
    let count = bodies.len();
    show(
        "bodies",
        &format!(
            "{} in two galaxies, {} steps of {}, theta {}",
            grouped(count as u64),
            arguments.steps,
            setup.step,
            setup.theta
        ),
    );

    let mut simulation = Simulation::new(&device, &bodies, setup)?;
    let tree = simulation.start()?;
    show("first tree", &describe(&tree));
    let mut astray = simulation.astray()?;
    let before = Moment::of(&simulation, setup.softening)?;

    simulation.times = Default::default();
    simulation.copies = Default::default();
    let bar = progress_bar(arguments.steps);
    let start = Instant::now();
    let mut halfway = Vec::new();
    for step in 1..=arguments.steps {
        let tree = simulation.step()?;
        astray += simulation.astray()?;
        if step == arguments.steps / 2 {
            halfway = simulation.bodies()?;
        }
        bar.inc(1);
        if step % arguments.steps.div_ceil(10) == 0 || step == arguments.steps {
            bar.suspend(|| show(&format!("step {step}"), &describe(&tree)));
        }
    }
    let elapsed = start.elapsed();
    bar.finish_and_clear();
    let after = Moment::of(&simulation, setup.softening)?;

    let [build, wait] = simulation.times;
    show(
        "time",
        &format!(
            "{elapsed:.1?}: Rust built trees for {build:.1?}, the device worked for {wait:.1?}"
        ),
    );
    let steps = f64::from(arguments.steps.max(1));
    let copies = simulation.copies;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    show(
        "copies saved",
        &format!(
            "without shared pointers each step would have copied {:.2} MiB (the tree, with its links \
             turned into indices, {:.2} up; the order of the bodies {:.2} up; their positions {:.2} \
             down), and all steps {:.1} MiB",
            mebibytes(copies.all()) / steps,
            mebibytes(copies.trees_up) / steps,
            mebibytes(copies.order_up) / steps,
            mebibytes(copies.positions_down) / steps,
            mebibytes(copies.all()),
        ),
    );

    let mut moments: Vec<&[Body]> = vec![&before.bodies, &halfway, &after.bodies];
    moments.retain(|bodies| !bodies.is_empty());
    picture::panels(&moments, &kinds)
        .save_with_format(&arguments.output, image::ImageFormat::Png)
        .map_err(|error| format!("{}: {error}", arguments.output.display()))?;
    show("written", &arguments.output.display().to_string());
    let mut good = judge(arguments, count, astray, &before, &after);
    if arguments.compare {
        let compared = indices::compare(&device, &simulation, setup.softening)?;
        good &= tell(&compared, count);
    }
    show("self-check", if good { "passed" } else { "FAILED" });
    Ok(good)
}

/// Prints what was checked, and whether it held.
fn judge(
    arguments: &Arguments,
    count: usize,
    astray: usize,
    before: &Moment,
    after: &Moment,
) -> bool {
    let walks = grouped(count as u64 * (u64::from(arguments.steps) + 1));
    let whole = astray == 0;
    check(
        "walks",
        whole,
        &format!(
            "{} of {walks} went astray; the others met each body once and their own leaf",
            grouped(astray as u64)
        ),
    );

    // The error of a cell taken as a point grows with the square of the angle; single bodies, whose
    // pulls from all sides nearly cancel, are off by more.
    let bounds = [0.03, 0.3, 1.0].map(|part| part * arguments.theta * arguments.theta);
    let mut good = whole;
    for (name, errors) in [("pull before", before.errors), ("pull after", after.errors)] {
        let found = [errors.median, errors.most, errors.worst];
        let near = found
            .iter()
            .zip(bounds)
            .all(|(found, bound)| *found < bound);
        good &= near;
        let [median, most, worst] = found.map(percent);
        check(
            name,
            near,
            &format!(
                "off from direct sums by {median} (median), {most} (99 %), {worst} (worst); bounds {}",
                bounds.map(percent).join(", "),
            ),
        );
    }

    let [first, last] = [before.energy, after.energy].map(Energy::total);
    let drift = ((last - first) / first).abs();
    let kept = drift < 0.01;
    check(
        "energy",
        kept,
        &format!(
            "{first:.5} before, {last:.5} after (kinetic {:.5}, {:.5}): drift {}, bound {}",
            before.energy.kinetic,
            after.energy.kinetic,
            percent(drift),
            percent(0.01),
        ),
    );
    good && kept
}

/// Prints how the walks through pointers and over indices compare, and whether they found the same.
fn tell(compared: &Comparison, count: usize) -> bool {
    // A cell at the very distance at which it is opened may be opened by one of the kernels alone.
    let same = compared.differ <= count / 10_000;
    check(
        "indices",
        same,
        &format!(
            "{} bodies feel another pull than by a walk over indices",
            grouped(compared.differ as u64)
        ),
    );
    if let [least, .., most] = compared.ratios[..] {
        let median = compared.ratios[compared.ratios.len() / 2];
        show(
            "pointers",
            &format!(
                "walks take {median:.3} ({least:.3} to {most:.3}) times as long as over indices into buffers of the \
                 device"
            ),
        );
    }
    same
}

fn describe(tree: &Tree) -> String {
    format!("{} nodes, {} deep", grouped(tree.nodes as u64), tree.depth)
}

fn percent(part: f64) -> String {
    format!("{:.3} %", 100.0 * part)
}

fn check(what: &str, held: bool, value: &str) {
    let verdict = if held { "ok" } else { "WRONG" };
    show(what, &format!("{verdict}: {value}"));
}

fn show(what: &str, value: &str) {
    print!("{}", hanging(&format!("{what}:"), 14, value));
}

/// Drawn on standard error, and only if that is a terminal.
fn progress_bar(steps: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(steps));
    let style = ProgressStyle::with_template(
        "{percent:>3}% [{bar:60}] {human_pos} of {human_len} steps, {eta} left",
    );
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
