//! A rank's part of the plate: the own rows, and a row of each neighbour.
//!
//! # A step
//! 1. The first and the last own row are computed, and read back as soon as the results are there.
//! 2. Both go to the neighbours, whose rows come into the buffer's rows around the own rows; the planner of the runtime
//!    knows the neighbours' rows as new on the host, and brings only the new rows to the device for the next step.
//! 3. Meanwhile the device computes the rows between.

use std::error::Error;
use std::ops::Range;

use tombolo::buffers::{LaunchExplanation, MappedRead, MappedWrite};
use tombolo::{Buffer, Constants, Context, Device, Kernel, Launch, Program};
use tombolo_mpi::{Ranks, Request};

use crate::cells::{Plate, Strip};

/// The rows of a rank, or of a device of the rank.
pub fn rows_of(height: u32, index: u32, count: u32) -> Range<u32> {
    let begin = |index: u32| (u64::from(height) * u64::from(index) / u64::from(count)) as u32;
    begin(index)..begin(index + 1)
}

/// When messages are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// While the rows between are computed.
    Beside,
    /// Before the rows between are begun.
    Before,
}

pub struct Simulation {
    ranks: Ranks,
    devices: Vec<Device>,
    width: u32,
    /// The rows of this rank.
    own: Range<u32>,
    /// The own rows, and one of each neighbour.
    held: Range<u32>,
    /// How warm the held rows are, in steps of even and of odd number.
    heat: [Buffer<i32>; 2],
    /// The launches for the first and the last own row, and for the rows between; in steps of even and of odd number.
    edges: Vec<[Launch; 2]>,
    interior: Vec<[Launch; 2]>,
    exchange: Exchange,
    steps: usize,
}

/// An outgoing row, and an incoming row.
struct Neighbour {
    sent: Request<MappedRead<i32>>,
    received: Request<MappedWrite<i32>>,
}

impl Simulation {
    pub fn new(
        ranks: &Ranks,
        context: &Context,
        devices: &[Device],
        plate: &Plate,
        exchange: Exchange,
    ) -> Result<Self, Box<dyn Error>> {
        let &Plate { width, height, .. } = plate;
        let own = rows_of(height, ranks.rank() as u32, ranks.size() as u32);
        if own.is_empty() {
            return Err(format!("{height} rows are too few for {} ranks", ranks.size()).into());
        }
        let held = own.start.saturating_sub(1)..(own.end + 1).min(height);
        let cells = (held.start * width) as usize..(held.end * width) as usize;
        let program = Program::new(
            "heat.wgsl",
            include_str!("../../../examples/heat2d/heat.wgsl"),
        )?;
        let heat = [
            context.buffer_from(&plate.heat[cells.clone()])?,
            context.buffer_from(&plate.heat[cells.clone()])?,
        ];
        let matter = context.buffer_from(&plate.matter[cells])?;
        let mut simulation = Self {
            ranks: ranks.clone(),
            devices: devices.to_vec(),
            width,
            own: own.clone(),
            held,
            heat,
            edges: Vec::new(),
            interior: Vec::new(),
            exchange,
            steps: 0,
        };
        let own_rows = own.end - own.start;
        for (index, device) in devices.iter().enumerate() {
            let kernel = device.kernel(&program, "advance", &Constants::new())?;
            let of_device = rows_of(own_rows, index as u32, devices.len() as u32);
            let rows = own.start + of_device.start..own.start + of_device.end;
            // Rows awaited by a neighbour come first.
            let (mut between, mut edges) = (rows.clone(), Vec::new());
            if rows.start == own.start && !rows.is_empty() {
                edges.push(rows.start..rows.start + 1);
                between.start += 1;
            }
            if rows.end == own.end && !between.is_empty() {
                edges.push(rows.end - 1..rows.end);
                between.end -= 1;
            }
            for edge in edges {
                let launches = simulation.launches(&kernel, &matter, height, edge)?;
                simulation.edges.push(launches);
            }
            if !between.is_empty() {
                let launches = simulation.launches(&kernel, &matter, height, between)?;
                simulation.interior.push(launches);
            }
        }
        Ok(simulation)
    }

    /// The launches for some rows, in steps of even and of odd number.
    fn launches(
        &self,
        kernel: &Kernel,
        matter: &Buffer<i32>,
        height: u32,
        rows: Range<u32>,
    ) -> Result<[Launch; 2], Box<dyn Error>> {
        let around = rows.start.saturating_sub(1)..(rows.end + 1).min(height);
        let strip = Strip {
            width: self.width,
            height,
            first: rows.start,
            rows: rows.end - rows.start,
            held: around.start,
        };
        let step = |now: &Buffer<i32>, next: &Buffer<i32>| -> Result<Launch, Box<dyn Error>> {
            let launch = kernel.launch().invocations([self.width, strip.rows]);
            Ok(launch
                .buffer("now", now.slice(self.cells(&around))?)
                .buffer("matter", matter.slice(self.cells(&around))?)
                .overwrite("next", next.slice(self.cells(&rows))?)
                .value("strip", &strip))
        };
        let [even, odd] = &self.heat;
        Ok([step(even, odd)?, step(odd, even)?])
    }

    /// The cells of some rows, in the buffers.
    fn cells(&self, rows: &Range<u32>) -> Range<u64> {
        let at = |row: u32| u64::from(row - self.held.start) * u64::from(self.width);
        at(rows.start)..at(rows.end)
    }

    /// Makes `steps` steps, together with all other ranks. Devices may still be at the last step on return.
    pub fn advance(&mut self, steps: u32) -> Result<(), Box<dyn Error>> {
        for _ in 0..steps {
            let turn = self.steps % 2;
            for edge in &mut self.edges {
                edge[turn].submit()?;
            }
            let neighbours = self.begin_exchange(1 - turn)?;
            if self.exchange == Exchange::Before {
                end_exchange(neighbours)?;
                self.compute_interior(turn)?;
            } else {
                self.compute_interior(turn)?;
                end_exchange(neighbours)?;
            }
            self.steps += 1;
        }
        Ok(())
    }

    fn compute_interior(&mut self, turn: usize) -> Result<(), Box<dyn Error>> {
        for between in &mut self.interior {
            between[turn].submit()?;
        }
        for device in &self.devices {
            device.flush()?;
        }
        Ok(())
    }

    /// Sends the outermost own rows, and begins to receive the rows around.
    fn begin_exchange(&self, next: usize) -> Result<Vec<Neighbour>, Box<dyn Error>> {
        const DOWN: i32 = 0;
        const UP: i32 = 1;
        let (ranks, heat, own) = (&self.ranks, &self.heat[next], &self.own);
        let mut neighbours = Vec::new();
        let mut with = |rank: i32, edge: Range<u32>, around: Range<u32>, tags: [i32; 2]| {
            let coming = heat.map_overwrite(self.cells(&around))?;
            let received = ranks.ireceive(coming, rank, tags[1])?;
            let sent = ranks.isend(heat.map(self.cells(&edge))?, rank, tags[0])?;
            neighbours.push(Neighbour { sent, received });
            Ok::<(), Box<dyn Error>>(())
        };
        if self.held.start < own.start {
            let (edge, around) = (own.start..own.start + 1, own.start - 1..own.start);
            with(ranks.rank() - 1, edge, around, [UP, DOWN])?;
        }
        if own.end < self.held.end {
            let (edge, around) = (own.end - 1..own.end, own.end..own.end + 1);
            with(ranks.rank() + 1, edge, around, [DOWN, UP])?;
        }
        Ok(neighbours)
    }

    /// The next step's transfers to a device.
    pub fn explain(&mut self) -> Result<Option<LaunchExplanation>, Box<dyn Error>> {
        let turn = self.steps % 2;
        // Of the seam with the next rank, whose row has just come.
        let edge = self.edges.last_mut();
        Ok(edge.map(|edge| edge[turn].explain()).transpose()?)
    }

    /// How warm the own rows are after the last step.
    pub fn heat(&self) -> Result<Vec<i32>, Box<dyn Error>> {
        let heat = &self.heat[self.steps % 2];
        Ok(heat.read_range(self.cells(&self.own))?)
    }

    /// Waits until the devices are done.
    pub fn finish(&self) -> Result<(), Box<dyn Error>> {
        for device in &self.devices {
            device.finish()?;
        }
        Ok(())
    }

    /// The whole plate on rank 0, from all ranks; `None` on the others.
    pub fn gather(&self, like: &Plate) -> Result<Option<Plate>, Box<dyn Error>> {
        const ROWS: i32 = 2;
        let (ranks, width) = (&self.ranks, like.width);
        if ranks.rank() != 0 {
            ranks.send(self.heat()?, 0, ROWS)?;
            return Ok(None);
        }
        let mut heat = self.heat()?;
        for rank in 1..ranks.size() {
            let rows = rows_of(like.height, rank as u32, ranks.size() as u32);
            let cells = ((rows.end - rows.start) * width) as usize;
            heat.extend(ranks.receive(vec![0; cells], rank, ROWS)?);
        }
        Ok(Some(Plate {
            heat,
            ..like.clone()
        }))
    }
}

fn end_exchange(neighbours: Vec<Neighbour>) -> Result<(), Box<dyn Error>> {
    for neighbour in neighbours {
        neighbour.received.wait()?.unmap()?;
        drop(neighbour.sent.wait()?);
    }
    Ok(())
}

impl Simulation {
    /// The whole plate in one process, without messages: one launch for each step.
    pub fn alone(
        context: &Context,
        device: &Device,
        plate: &Plate,
        steps: u32,
    ) -> Result<Vec<i32>, Box<dyn Error>> {
        let program = Program::new(
            "heat.wgsl",
            include_str!("../../../examples/heat2d/heat.wgsl"),
        )?;
        let kernel = device.kernel(&program, "advance", &Constants::new())?;
        let heat = [
            context.buffer_from(&plate.heat)?,
            context.buffer(plate.heat.len())?,
        ];
        let matter = context.buffer_from(&plate.matter)?;
        let strip = Strip {
            width: plate.width,
            height: plate.height,
            first: 0,
            rows: plate.height,
            held: 0,
        };
        for step in 0..steps as usize {
            let launch = kernel.launch().invocations([plate.width, plate.height]);
            let launch = launch.buffer("now", &heat[step % 2]);
            let launch = launch.buffer("matter", &matter);
            let launch = launch.overwrite("next", &heat[(step + 1) % 2]);
            launch.value("strip", &strip).submit()?;
        }
        Ok(heat[steps as usize % 2].read()?)
    }
}
