//! The stages on two devices: the first and the third on one, the second on the other.

use std::error::Error;

use tombolo::{
    Buffer, Constants, Context, Device, Event, Launch, Program, buffers::LaunchExplanation,
    device::EventStatus,
};

/// Pictures that are on their way at once; each has buffers of its own, which the next but two uses again.
const SLOTS: usize = 3;

/// What a picture goes through. No buffer belongs to a device.
struct Slot {
    source: Buffer<u32>,
    smooth: Buffer<u32>,
    lines: Buffer<u32>,
    drawn: Buffer<u32>,
    stages: [Launch; 3],
    last: Option<Event>,
}

pub struct Pipeline {
    slots: Vec<Slot>,
    /// Most pictures that were on their way at once.
    pub most: usize,
    /// What the stages of the last picture have moved, and whether they had said so before.
    pub told: Vec<LaunchExplanation>,
    pub told_before: Vec<LaunchExplanation>,
}

/// What came out of it: the smooth picture, the lines and the drawing.
pub type Made = [Vec<u32>; 3];

impl Pipeline {
    pub fn new(
        context: &Context,
        devices: &[Device; 2],
        size: [u32; 2],
    ) -> Result<Self, Box<dyn Error>> {
        let program = Program::new("stages.wgsl", include_str!("stages.wgsl"))?;
        let pixels = size[0] as usize * size[1] as usize;
        let make = |_| -> Result<Slot, Box<dyn Error>> {
            let buffer = || context.buffer::<u32>(pixels);
            let (source, smooth, lines, drawn) = (buffer()?, buffer()?, buffer()?, buffer()?);
            let stage = |device: &Device, entry, from: &Buffer<u32>, to: &Buffer<u32>| {
                let kernel = device.kernel(&program, entry, &Constants::new())?;
                let launch = kernel.launch().buffer("source", from);
                // All of it is written, so that nothing has to be brought there first.
                let launch = launch.overwrite("sink", to).value("size", &size);
                Ok::<_, Box<dyn Error>>(launch.invocations(size))
            };
            let [one, other] = devices;
            let stages = [
                stage(one, "smooth_out", &source, &smooth)?,
                stage(other, "trace", &smooth, &lines)?,
                stage(one, "draw", &smooth, &drawn)?.buffer("lines", &lines),
            ];
            Ok(Slot {
                source,
                smooth,
                lines,
                drawn,
                stages,
                last: None,
            })
        };
        Ok(Self {
            slots: (0..SLOTS).map(make).collect::<Result<_, _>>()?,
            most: 0,
            told: Vec::new(),
            told_before: Vec::new(),
        })
    }

    /// Sends all pictures through. If `overlap` holds, every stage works on a picture of its own: nobody waits but for
    /// what leaves the pipeline.
    pub fn run(
        &mut self,
        sources: &[Vec<u32>],
        overlap: bool,
    ) -> Result<Vec<Vec<u32>>, Box<dyn Error>> {
        let mut drawn = Vec::with_capacity(sources.len());
        let between = if overlap { 1 } else { 0 };
        for tick in 0..sources.len() + 2 * between {
            for stage in 0..3 {
                let number = tick.checked_sub(stage * between);
                let Some(number) = number.filter(|&number| number < sources.len()) else {
                    continue;
                };
                if stage == 0 {
                    if let Some(earlier) = number.checked_sub(SLOTS) {
                        drawn.push(self.slots[earlier % SLOTS].drawn.read()?);
                    }
                    self.slots[number % SLOTS]
                        .source
                        .write(0, &sources[number])?;
                }
                let event = self.submit(stage, number, number + 1 == sources.len())?;
                if !overlap {
                    event.wait()?;
                }
            }
        }
        for number in drawn.len()..sources.len() {
            drawn.push(self.slots[number % SLOTS].drawn.read()?);
        }
        Ok(drawn)
    }

    fn submit(
        &mut self,
        stage: usize,
        number: usize,
        is_last: bool,
    ) -> Result<Event, Box<dyn Error>> {
        let slot = &mut self.slots[number % SLOTS];
        let launch = &mut slot.stages[stage];
        if is_last {
            self.told_before.push(launch.explain()?);
        }
        let event = launch.submit()?;
        if is_last {
            self.told.extend(event.explanation().cloned());
        }
        slot.last = Some(event.clone());
        let is_under_way = |slot: &&Slot| {
            let event = slot.last.as_ref();
            event.is_some_and(|event| {
                matches!(
                    event.status(),
                    EventStatus::Recorded | EventStatus::Submitted
                )
            })
        };
        self.most = self
            .most
            .max(self.slots.iter().filter(is_under_way).count());
        Ok(event)
    }

    /// What the stages have made of a picture, one of the last that went through.
    pub fn made(&self, number: usize) -> Result<Made, Box<dyn Error>> {
        let slot = &self.slots[number % SLOTS];
        Ok([slot.smooth.read()?, slot.lines.read()?, slot.drawn.read()?])
    }
}
