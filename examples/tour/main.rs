//! Everything that the runtime can do so far, shown and checked on one device.

mod basics;
mod buffers;
mod globals;
mod launches;
mod outcomes;
mod pointers;
mod services;
#[path = "../support/mod.rs"]
mod support;
mod system;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tombolo::{Context, Device, device::Capability};

use support::text::{WIDTH, wrap};

/// Runs each capability of the runtime on a device and checks its result.
///
/// One line each: what it is, what is shown, the tier in which it runs on this device, and the result.
/// The exit status is 0 if all held; a capability that the device does not have is named and not counted.
#[derive(Parser)]
#[command(after_help = support::ADAPTERS)]
struct Arguments {
    /// Only capabilities whose name contains NAME.
    #[arg(value_name = "NAME", default_value = "", hide_default_value = true)]
    only: String,
}

/// The machine, and the device of it that is shown.
pub struct Stage {
    pub context: Context,
    pub device: Device,
}

/// One stop of the tour.
pub struct Stop {
    pub name: &'static str,
    /// What is shown, in a few words.
    pub shows: &'static str,
    /// Whose tier is told.
    pub capability: Capability,
    pub run: fn(&Stage) -> Shown,
}

/// How a stop ended, if not by failing.
pub enum Held {
    /// It held; the text says what was seen.
    Yes(String),
    /// This device does not have it; the text says why.
    NotHere(String),
}

pub type Shown = Result<Held, Box<dyn Error>>;

/// It held, and this was seen.
pub fn held(seen: impl Into<String>) -> Shown {
    Ok(Held::Yes(seen.into()))
}

/// Fails a stop unless what came out is what should have.
pub fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), Box<dyn Error>> {
    if found == expected {
        return Ok(());
    }
    let brief = |value: &T| format!("{value:?}").chars().take(60).collect::<String>();
    let (found, expected) = (brief(found), brief(expected));
    Err(format!("{what}: {found} instead of {expected}").into())
}

const TOUR: &[&[Stop]] = &[
    basics::STOPS,
    launches::STOPS,
    pointers::STOPS,
    globals::STOPS,
    buffers::STOPS,
    services::STOPS,
    outcomes::STOPS,
    system::STOPS,
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    support::run(|| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let context = Context::new()?;
    let device = context.device()?;
    let stage = Stage { context, device };
    let capabilities = stage.device.capabilities();
    println!(
        "tombolo {} on {} ({})\n",
        env!("CARGO_PKG_VERSION"),
        stage.device.name(),
        capabilities.backend
    );
    let titles = ["CAPABILITY", "SHOWS", "TIER", "RESULT"];
    print!("{}", line(titles));

    let (mut held, mut asked, mut absent) = (0, 0, Vec::new());
    let stops = TOUR.iter().copied().flatten();
    for stop in stops.filter(|stop| stop.name.contains(&arguments.only)) {
        let result = match (stop.run)(&stage) {
            Ok(Held::Yes(seen)) => {
                (held, asked) = (held + 1, asked + 1);
                format!("ok: {seen}")
            }
            Ok(Held::NotHere(why)) => {
                absent.push(stop.name);
                format!("not available on this adapter: {why}")
            }
            Err(error) => {
                asked += 1;
                format!("FAILED: {}", support::chain(&*error))
            }
        };
        let tier = capabilities.tier(stop.capability).tier;
        print!("{}", line([stop.name, stop.shows, tier.name(), &result]));
    }

    if asked + absent.len() == 0 {
        return Err(format!("no capability's name contains `{}`", arguments.only).into());
    }
    print!("\n{held} of {asked} held");
    match absent.as_slice() {
        [] => println!(),
        names => println!("; not available on this adapter: {}", names.join(", ")),
    }
    Ok(held == asked)
}

/// A line of the table: every cell is wrapped in its own column.
fn line(cells: [&str; 4]) -> String {
    const GAP: usize = 2;
    const COLUMNS: [usize; 3] = [14, 36, 10];
    let last = WIDTH - COLUMNS.iter().map(|width| width + GAP).sum::<usize>();
    let [a, b, c] = COLUMNS;
    let columns: Vec<_> = cells
        .iter()
        .zip([a, b, c, last])
        .map(|(text, width)| wrap(text, width))
        .collect();
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::new();
    for row in 0..rows {
        let mut text = String::new();
        for (column, width) in columns.iter().zip([a, b, c, last]) {
            let cell = column.get(row).map_or("", String::as_str);
            text.push_str(&format!("{cell:width$}{:GAP$}", ""));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}
