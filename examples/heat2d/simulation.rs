//! The plate on some devices: each has a strip of it to work on, which is a part of one buffer.

use std::error::Error;

use tombolo::{
    Buffer, Constants, Context, Device, Event, Launch, Program, buffers::LaunchExplanation,
};

use crate::cells::{Plate, Strip};

pub struct Simulation {
    context: Context,
    /// How warm the plate is, in steps of even and of odd number.
    heat: [Buffer<i32>; 2],
    /// For each device: what it does in steps of even and of odd number.
    launches: Vec<[Launch; 2]>,
    /// The last step of each device that has begun one.
    last: Vec<Event>,
    steps: usize,
    /// Rows in which strips begin, without the first.
    pub seams: Vec<u32>,
    /// Bytes that all steps but the first have moved, and what they would have with whole buffers.
    pub moved: [u64; 2],
    /// What the first step has moved.
    pub moved_at_first: u64,
}

impl Simulation {
    pub fn new(
        context: &Context,
        devices: &[Device],
        plate: &Plate,
    ) -> Result<Self, Box<dyn Error>> {
        let &Plate { width, height, .. } = plate;
        let program = Program::new("heat.wgsl", include_str!("heat.wgsl"))?;
        let heat = [
            context.buffer_from(&plate.heat)?,
            context.buffer(plate.heat.len())?,
        ];
        let matter = context.buffer_from(&plate.matter)?;
        let begin = |index: usize| height * index as u32 / devices.len() as u32;
        let mut launches = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let kernel = device.kernel(&program, "advance", &Constants::new())?;
            let own = begin(index)..begin(index + 1);
            // With a row of each neighbour: its bytes are brought when they are needed, and nobody has to say so.
            let held = own.start.saturating_sub(1)..(own.end + 1).min(height);
            let cells = |rows: &std::ops::Range<u32>| {
                u64::from(rows.start * width)..u64::from(rows.end * width)
            };
            let strip = Strip {
                width,
                height,
                first: own.start,
                rows: own.end - own.start,
                held: held.start,
            };
            let step = |now: &Buffer<i32>, next: &Buffer<i32>| -> Result<Launch, Box<dyn Error>> {
                let launch = kernel.launch().invocations([width, strip.rows]);
                Ok(launch
                    .buffer("now", now.slice(cells(&held))?)
                    .buffer("matter", matter.slice(cells(&held))?)
                    .overwrite("next", next.slice(cells(&own))?)
                    .value("strip", &strip))
            };
            launches.push([step(&heat[0], &heat[1])?, step(&heat[1], &heat[0])?]);
        }
        Ok(Self {
            context: context.clone(),
            heat,
            launches,
            last: Vec::new(),
            steps: 0,
            seams: (1..devices.len()).map(begin).collect(),
            moved: [0; 2],
            moved_at_first: 0,
        })
    }

    /// Has all devices make `steps` steps. They may still be at it when this returns.
    pub fn advance(&mut self, steps: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..steps {
            let before = self.context.buffer_statistics().moves;
            self.last.clear();
            for launches in &mut self.launches {
                self.last.push(launches[self.steps % 2].submit()?);
            }
            let after = self.context.buffer_statistics().moves;
            match self.steps {
                0 => self.moved_at_first = after.moved - before.moved,
                _ => {
                    self.moved[0] += after.moved - before.moved;
                    self.moved[1] += after.whole_buffer - before.whole_buffer;
                }
            }
            self.steps += 1;
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

    /// What the last device would move for the next step.
    pub fn explain(&mut self) -> Result<LaunchExplanation, Box<dyn Error>> {
        let last = self.launches.last_mut().ok_or("there is no device")?;
        Ok(last[self.steps % 2].explain()?)
    }

    /// How warm the plate is after the last step, from wherever it lies.
    pub fn heat(&self) -> Result<Vec<i32>, Box<dyn Error>> {
        Ok(self.heat[self.steps % 2].read()?)
    }
}
