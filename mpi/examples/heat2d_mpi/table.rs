//! The cost of messages, calls and steps on this machine, and what the model of docs/mpi.md makes of the figures.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tombolo::Context;
use tombolo_mpi::{Operator, Ranks, RemoteServer};

use crate::cells::Plate;
use crate::simulation::{Exchange, Simulation};

/// Cells of a row, and rows of each rank, of the table of weak scaling.
const WIDTH: u32 = 2048;
const ROWS: u32 = 512;
/// Rows of a plate computed in no time, which leaves the fixed cost of each step.
const FEW_ROWS: u32 = 16;
const STEPS: u32 = 40;

/// How often each figure is measured at least.
const MEASUREMENTS: u32 = 20;

/// The least of `count` measurements: other work of the machine adds to some measurements, and takes from none.
fn least(
    count: u32,
    mut measure: impl FnMut() -> Result<Duration, Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut least = Duration::MAX;
    for _ in 0..count {
        least = least.min(measure()?);
    }
    Ok(least)
}

/// Prints the table, on rank 0.
pub fn print(ranks: &Ranks, context: &Context) -> Result<bool, Box<dyn Error>> {
    let is_first = ranks.rank() == 0;
    if ranks.size() == 2 {
        messages(ranks, context)?;
        calls(ranks)?;
    }
    for rows in [FEW_ROWS, ROWS] {
        let before = steps(ranks, context, Exchange::Before, rows)?;
        let beside = steps(ranks, context, Exchange::Beside, rows)?;
        let alone = alone(ranks, context, rows)?;
        if is_first {
            let [before, beside, alone] =
                [before, beside, alone].map(|time| time.as_secs_f64() * 1e6);
            println!(
                "{} ranks, {WIDTH} x {rows} cells each, us a step: {alone:.0} without messages, {beside:.0} beside, {before:.0} before",
                ranks.size(),
            );
        }
    }
    Ok(true)
}

/// Half of the time of a message and its answer, for some sizes and kinds of memory.
fn messages(ranks: &Ranks, context: &Context) -> Result<(), Box<dyn Error>> {
    let other = 1 - ranks.rank();
    for len in [2usize, 256, 2048, 16 << 10, 256 << 10, 1 << 20] {
        let mut pinned = context.pinned_vec::<u32>(len)?;
        pinned.fill(1);
        let mut pinned = Some(pinned);
        let in_pinned = ping(ranks, len, |sends| {
            let memory = pinned.take().ok_or("a message before has failed")?;
            pinned = Some(match sends {
                true => ranks.send(memory, other, 0)?,
                false => ranks.receive(memory, other, 0)?,
            });
            Ok(())
        })?;
        let buffer = context.buffer_from(&vec![1u32; len])?;
        let by_buffer = ping(ranks, len, |sends| {
            match sends {
                true => drop(ranks.send(buffer.map(..)?, other, 0)?),
                false => ranks
                    .receive(buffer.map_overwrite(..)?, other, 0)?
                    .unmap()?,
            }
            Ok(())
        })?;
        if ranks.rank() == 0 {
            let [one, other] = [in_pinned, by_buffer].map(|time| time.as_secs_f64());
            let rate = |time: f64| len as f64 * 4.0 / time / 1e9;
            println!(
                "message of {} bytes: {:.2} us in pinned memory ({:.2} GB/s), {:.2} us from buffer to buffer ({:.2} GB/s)",
                len * 4,
                one * 1e6,
                rate(one),
                other * 1e6,
                rate(other),
            );
        }
    }
    let sum = |len: usize| {
        least(50, || {
            ranks.barrier()?;
            let begun = Instant::now();
            black_box(ranks.allreduce(vec![1f32; len], vec![0f32; len], Operator::Sum)?);
            Ok(begun.elapsed())
        })
    };
    let (few, many) = (sum(1)?, sum(1 << 18)?);
    if ranks.rank() == 0 {
        println!("allreduce of 1 number {few:.2?}, of 262,144 {many:.2?}");
    }
    Ok(())
}

/// Half of the time of a message of `len` elements and its answer; `pass` sends or receives the message.
fn ping(
    ranks: &Ranks,
    len: usize,
    mut pass: impl FnMut(bool) -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let rounds = (200_000 / (len as u32 + 100)).clamp(10, 500);
    least(MEASUREMENTS, || {
        ranks.barrier()?;
        let begun = Instant::now();
        for _ in 0..rounds {
            pass(ranks.rank() == 0)?;
            pass(ranks.rank() == 1)?;
        }
        Ok(begun.elapsed() / (2 * rounds))
    })
}

/// A call of another rank, with nothing to do there.
fn calls(ranks: &Ranks) -> Result<(), Box<dyn Error>> {
    let builder = RemoteServer::builder(ranks).handler("next", |(x,): (u32,)| Ok(x + 1));
    let server = (ranks.rank() == 0).then(|| builder.start()).transpose()?;
    ranks.barrier()?;
    if ranks.rank() == 1 {
        let next = ranks.function::<(u32,), u32>(0, "next")?;
        let took = least(300, || {
            let begun = Instant::now();
            black_box(next.call(&(1,))?);
            Ok(begun.elapsed())
        })?;
        println!("call of another rank: {took:.2?}");
    }
    ranks.barrier()?;
    drop(server);
    Ok(())
}

/// The time of a step, with as many rows for each rank.
fn steps(
    ranks: &Ranks,
    context: &Context,
    exchange: Exchange,
    rows: u32,
) -> Result<Duration, Box<dyn Error>> {
    let devices = [context.device()?];
    let plate = Plate::new(WIDTH, rows * ranks.size() as u32);
    let mut simulation = Simulation::new(ranks, context, &devices, &plate, exchange)?;
    simulation.advance(4)?;
    least(MEASUREMENTS, || {
        simulation.finish()?;
        ranks.barrier()?;
        let begun = Instant::now();
        simulation.advance(STEPS)?;
        simulation.finish()?;
        ranks.barrier()?;
        Ok(begun.elapsed() / STEPS)
    })
}

/// The time of a step of all ranks at once, each with a plate of its own and no messages.
fn alone(ranks: &Ranks, context: &Context, rows: u32) -> Result<Duration, Box<dyn Error>> {
    let device = context.device()?;
    let plate = Plate::new(WIDTH, rows);
    let run = |steps: u32| {
        least(MEASUREMENTS, || {
            ranks.barrier()?;
            let begun = Instant::now();
            black_box(Simulation::alone(context, &device, &plate, steps)?);
            Ok(begun.elapsed())
        })
    };
    // The beginning and the end of a run are in both. The least of differences would be the difference of the slowest
    // beginning.
    let (few, many) = (run(4)?, run(4 + STEPS)?);
    Ok(many.saturating_sub(few) / STEPS)
}
