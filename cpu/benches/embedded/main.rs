//! The adapter against the software drivers of the machine and against scalar Rust on the threads of rayon.
//!
//! Every kernel runs on each adapter in turn, in one process; a row is the median of the ratios of the pairs: this
//! adapter's time divided by the other's. Beside these there are times of the adapter alone: of compiling each kernel, and
//! of an answer of a kernel that stays there. The last lines are the rows:
//! `<kind> <row>/<peer> = <median> (<least>..<most>)[ goal <= <limit>]`. Arguments choose the rows that contain one of
//! them; `lanes=4` sets the most invocations that run side by side here, `compile` compiles only, more often, `perf` lists
//! kernels for `perf`, and `cpu` takes the time that processors spend on this process in place of the time that goes by: for
//! a machine that does something else as well. Kernels and peers use all processors, so that both are alike where nothing waits.

mod clock;
mod ready;
mod resident;
mod rows;
mod rust;

use std::time::Duration;

use clock::Clock;
use ready::Ready;
use rows::Row;

type Error = Box<dyn std::error::Error>;

/// Pairs measured for each row.
const PAIRS: usize = 9;

/// Kernels compiled for each row, where nothing but compiling is measured.
const COMPILED: usize = 199;

/// Milliseconds in which a kernel of ordinary size compiles.
const COMPILE_MS: f64 = 3.0;

/// Microseconds in which a kernel that stays on the adapter answers.
const ROUND_TRIP_US: f64 = 0.3;

fn print(kind: &str, row: &str, peer: &str, mut values: Vec<f64>, goal: Option<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let goal = goal.map_or(String::new(), |goal| format!(" goal <= {goal:.2}"));
    format!(
        "{kind} {row}/{peer} = {:.3} ({least:.3}..{most:.3}){goal}",
        values[values.len() / 2]
    )
}

/// Ratios of ours to theirs. Who goes second finds warmer caches: both take turns. Also the best of our times.
fn pairs(
    mut ours: impl FnMut() -> Result<Duration, Error>,
    mut theirs: impl FnMut() -> Result<Duration, Error>,
) -> Result<(Vec<f64>, Duration), Error> {
    let mut ratios = Vec::new();
    let mut best = Duration::MAX;
    for pair in 0..PAIRS {
        let (mine, other) = if pair % 2 == 0 {
            let mine = ours()?;
            (mine, theirs()?)
        } else {
            let other = theirs()?;
            (ours()?, other)
        };
        best = best.min(mine);
        ratios.push(mine.as_secs_f64() / other.as_secs_f64());
    }
    Ok((ratios, best))
}

/// The lines of a row against all peers.
fn measure(
    mut row: Row,
    own: &wgpu::Adapter,
    drivers: &[wgpu::Adapter],
    clock: Clock,
) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    let here = Ready::new(own, &row)?;
    here.run(&row, clock)?;
    let mut best = here.run(&row, clock)?;
    for adapter in drivers {
        let name = adapter.get_info().name;
        let known = ["llvmpipe", "SwiftShader"];
        let Some(peer) = known.into_iter().find(|known| name.contains(known)) else {
            continue;
        };
        let there = Ready::new(adapter, &row)?;
        there.run(&row, clock)?;
        let (ratios, mine) = pairs(|| here.run(&row, clock), || there.run(&row, clock))?;
        best = best.min(mine);
        lines.push(print(
            "ratio",
            row.name,
            peer,
            ratios,
            row.goals.against(peer),
        ));
    }
    for (peer, run) in row.peers {
        let mut buffers = std::mem::take(&mut row.buffers);
        run(&mut buffers);
        let (ratios, mine) = pairs(
            || here.run(&row, clock),
            || {
                let begin = clock.now();
                run(&mut buffers);
                Ok(begin.elapsed())
            },
        )?;
        row.buffers = buffers;
        best = best.min(mine);
        lines.push(print(
            "ratio",
            row.name,
            peer,
            ratios,
            row.goals.against(peer),
        ));
    }
    lines.push(compile(&row, &here, clock, PAIRS));
    eprintln!("{}: {:?} at best", row.name, best / row.repeats);
    Ok(lines)
}

/// The line of the time in which a row's kernel compiles.
fn compile(row: &Row, ready: &Ready, clock: Clock, times: usize) -> String {
    let values = (0..times).map(|_| ready.compile(row, clock).as_secs_f64() * 1e3);
    let name = format!("compile_{}_ms", row.name);
    print("time", &name, "Tombolo", values.collect(), Some(COMPILE_MS))
}

fn main() -> Result<(), Error> {
    let mut wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut options = tombolo_cpu::Options::default();
    let mut clock = Ok(Clock::Wall);
    let mut compiles_only = false;
    wanted.retain(|argument| {
        if let Some(lanes) = argument.strip_prefix("lanes=") {
            options.lanes = lanes.parse().unwrap_or(options.lanes);
            return false;
        }
        match argument.as_str() {
            "compile" => compiles_only = true,
            "perf" => options.perf_map = true,
            "cpu" => clock = Clock::of_processors(),
            _ => return true,
        }
        false
    });
    let clock = clock?;
    let wants =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let instance = tombolo_cpu::Instance::new(options);
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    let own = unsafe { wgpu::Instance::from_hal::<tombolo_cpu::Api>(instance) };
    let own = pollster::block_on(own.request_adapter(&Default::default()))?;
    let drivers = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let drivers = pollster::block_on(drivers.enumerate_adapters(wgpu::Backends::all()));
    let mut lines = Vec::new();
    for row in rows::rows() {
        if wants(row.name) {
            if compiles_only {
                let ready = Ready::new(&own, &row)?;
                lines.push(compile(&row, &ready, clock, COMPILED));
            } else {
                lines.extend(measure(row, &own, &drivers, clock)?);
            }
        }
    }
    if !compiles_only && wants("round_trip") {
        let times = resident::round_trips(&own)?;
        let row = ("round_trip_us", "Tombolo", Some(ROUND_TRIP_US));
        lines.push(print("time", row.0, row.1, times, row.2));
    }
    for line in lines {
        println!("{line}");
    }
    Ok(())
}
