//! The plate on some devices: each has a strip of it to work on, which is a part of one buffer.
//!
//! # Rounds
//! Devices exchange edges once in a round of several steps, not in each: a device is given as many rows of each neighbour as the
//! round has steps, and computes those of them that later steps of the round need by itself, one less on each side in every
//! step. Only the first step of a round reads, and only its last one writes, what all devices share; the steps between are in
//! memory of the device's own. An exchange has the host wait for one device and submit for another, so that one for each step
//! would be most of a small plate's time. Such "ghost zones" are what clusters use against slow networks (Ding and He, *A ghost
//! cell expansion method for reducing communications in solving PDE problems*, SC 2001).

use std::error::Error;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tombolo::{
    Buffer, Constants, Context, Device, DeviceBuffer, Event, Kernel, Launch, Program,
    buffers::{BufferArgument, LaunchExplanation},
};

use crate::cells::{Plate, Strip};

pub struct Simulation {
    context: Context,
    /// How warm the plate is, after rounds of even and of odd number.
    heat: [Buffer<i32>; 2],
    workers: Vec<Worker>,
    /// The last step of each device.
    last: Vec<Event>,
    /// Rounds that were begun.
    rounds: usize,
    /// Steps of a round, and rows of a neighbour that a device is given.
    pub halo: u32,
    /// Rows in which strips begin, without the first.
    pub seams: Vec<u32>,
    /// Bytes that all rounds but the first have moved, and what they would have with whole buffers.
    pub moved: [u64; 2],
    /// What the first round has moved.
    pub moved_at_first: u64,
}

/// A device and its strip.
struct Worker {
    kernel: Kernel,
    /// Its rows of the plate, which has `height`.
    own: Range<u32>,
    width: u32,
    height: u32,
    /// What the cells conduct, of its rows and all that it is given of neighbours' rows.
    matter: DeviceBuffer<i32>,
    /// The row in which that begins.
    matter_begin: u32,
    /// Rows between the first and the last step of a round, which take turns.
    between: [DeviceBuffer<i32>; 2],
    /// The launches of rounds made so far: one for each number of steps, in even and in odd rounds.
    rounds: Vec<Round>,
}

/// The launches of a round.
struct Round {
    is_even: bool,
    steps: Vec<Launch>,
}

impl Simulation {
    /// A plate at its beginning, for rounds of at most `halo` steps.
    pub fn new(
        context: &Context,
        devices: &[Device],
        plate: &Plate,
        halo: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let &Plate { width, height, .. } = plate;
        let program = Program::new("heat.wgsl", include_str!("heat.wgsl"))?;
        let begin = |index: usize| height * index as u32 / devices.len() as u32;
        // All of a neighbour's rows: with more, devices would compute each other's whole work.
        let halo = halo.clamp(1, (height / devices.len() as u32).max(1));
        let mut workers = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let own = begin(index)..begin(index + 1);
            let held = around(&own, halo, height);
            let cells = (held.start * width) as usize..(held.end * width) as usize;
            workers.push(Worker {
                kernel: device.kernel(&program, "advance", &Constants::new())?,
                own,
                width,
                height,
                matter: device.buffer(&plate.matter[cells.clone()])?,
                matter_begin: held.start,
                between: [device.zeroed(cells.len())?, device.zeroed(cells.len())?],
                rounds: Vec::new(),
            });
        }
        Ok(Self {
            context: context.clone(),
            heat: [
                context.buffer_from(&plate.heat)?,
                context.buffer(plate.heat.len())?,
            ],
            workers,
            last: Vec::new(),
            rounds: 0,
            halo,
            seams: (1..devices.len()).map(begin).collect(),
            moved: [0; 2],
            moved_at_first: 0,
        })
    }

    /// Has all devices make `steps` steps, in rounds. They may still be at it when this returns.
    pub fn advance(&mut self, steps: usize) -> Result<(), Box<dyn Error>> {
        let mut rounds = vec![self.halo; steps / self.halo as usize];
        rounds.extend(Some(steps as u32 % self.halo).filter(|&rest| rest > 0));
        let first = match self.rounds {
            0 => rounds.len().min(1),
            _ => 0,
        };
        for (rounds, is_first) in [(&rounds[..first], true), (&rounds[first..], false)] {
            if rounds.is_empty() {
                continue;
            }
            let before = self.context.buffer_statistics().moves;
            self.last = advance(&mut self.workers, &self.heat, self.rounds, rounds)?;
            self.rounds += rounds.len();
            let after = self.context.buffer_statistics().moves;
            let moved = after.moved - before.moved;
            if is_first {
                self.moved_at_first = moved;
            } else {
                self.moved[0] += moved;
                self.moved[1] += after.whole_buffer - before.whole_buffer;
            }
        }
        Ok(())
    }

    /// Waits for all steps that were begun.
    pub fn finish(&mut self) -> Result<(), Box<dyn Error>> {
        for event in self.last.drain(..) {
            event.wait()?;
        }
        Ok(())
    }

    /// What the last device would move for the next round.
    pub fn explain(&mut self) -> Result<LaunchExplanation, Box<dyn Error>> {
        let last = self.workers.last_mut().ok_or("there is no device")?;
        let round = last.round(self.halo, self.rounds, &self.heat)?;
        Ok(round[0].explain()?)
    }

    /// How warm the plate is after the last round, from wherever it lies.
    pub fn heat(&self) -> Result<Vec<i32>, Box<dyn Error>> {
        Ok(self.heat[self.rounds % 2].read()?)
    }
}

/// Has all workers make `rounds`, of so many steps each, with a thread for each. Between two cards that is worth little: rounds of
/// 24 steps took 3.7 times one card's time, and 3.9 with one thread for both. Returns the last step of each.
fn advance(
    workers: &mut [Worker],
    heat: &[Buffer<i32>; 2],
    first: usize,
    rounds: &[u32],
) -> Result<Vec<Event>, tombolo::Error> {
    // Rounds that each worker has submitted.
    let submitted: &Vec<AtomicUsize> = &workers.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let work = |(worker, own): (&'_ mut Worker, &'_ AtomicUsize)| {
            let mut last = None;
            for (at, &steps) in rounds.iter().enumerate() {
                // What a step reads of a neighbour is what was submitted before it.
                while submitted.iter().any(|of| of.load(Ordering::Acquire) < at) {
                    thread::yield_now();
                }
                for step in worker.round(steps, first + at, heat)? {
                    last = Some(step.submit()?);
                }
                own.store(at + 1, Ordering::Release);
            }
            Ok(last)
        };
        let threads: Vec<_> = (workers.iter_mut().zip(submitted))
            .map(|(worker, own)| {
                scope.spawn(move || {
                    let _ended = Ended(own);
                    work((worker, own))
                })
            })
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.filter_map(Result::transpose).collect()
    })
}

/// Has nobody wait for a worker that has ended, however it did.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::Release);
    }
}

impl Worker {
    /// The launches of round `number`, of so many steps, made when one like it comes for the first time.
    fn round(
        &mut self,
        steps: u32,
        number: usize,
        heat: &[Buffer<i32>; 2],
    ) -> Result<&mut [Launch], tombolo::Error> {
        let is_even = number.is_multiple_of(2);
        let is_known =
            |round: &Round| round.is_even == is_even && round.steps.len() == steps as usize;
        let at = match self.rounds.iter().position(is_known) {
            Some(at) => at,
            None => {
                let ends = [&heat[number % 2], &heat[(number + 1) % 2]];
                let launches = (0..steps).map(|step| self.step(step, steps, ends));
                let steps = launches.collect::<Result<_, _>>()?;
                self.rounds.push(Round { is_even, steps });
                self.rounds.len() - 1
            }
        };
        Ok(&mut self.rounds[at].steps)
    }

    /// A step of a round: the rows it computes are its device's own and those of neighbours that the steps after it read.
    fn step(
        &self,
        step: u32,
        steps: u32,
        [now, next]: [&Buffer<i32>; 2],
    ) -> Result<Launch, tombolo::Error> {
        let cells = |rows: &Range<u32>, begin: u32| {
            let at = |row: u32| u64::from(row - begin) * u64::from(self.width);
            at(rows.start)..at(rows.end)
        };
        let rows = around(&self.own, steps - 1 - step, self.height);
        let held = around(&self.own, steps - step, self.height);
        let between = |step: u32, rows: &Range<u32>| {
            let rows = cells(rows, rows.start);
            BufferArgument::from(self.between[step as usize % 2].slice(rows))
        };
        // With neighbours' rows: their bytes are brought when they are needed, and nobody has to say so.
        let now = match step {
            0 => now.slice(cells(&held, 0))?.into(),
            _ => between(step - 1, &held),
        };
        let next = match step + 1 == steps {
            true => next.slice(cells(&rows, 0))?.into(),
            false => between(step, &rows),
        };
        let matter = self.matter.slice(cells(&held, self.matter_begin));
        let strip = Strip {
            width: self.width,
            height: self.height,
            first: rows.start,
            rows: rows.end - rows.start,
            held: held.start,
        };
        let launch = self.kernel.launch().invocations([self.width, strip.rows]);
        Ok(launch
            .buffer("now", now)
            .buffer("matter", matter)
            .overwrite("next", next)
            .value("strip", &strip))
    }
}

/// Some rows, and `more` on each side where the plate has them.
fn around(rows: &Range<u32>, more: u32, height: u32) -> Range<u32> {
    rows.start.saturating_sub(more)..(rows.end + more).min(height)
}
