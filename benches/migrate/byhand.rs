//! The hand-written side: bytes are copied into a mappable buffer, from which the host copies them into one that the
//! other device copies them out of. All buffers are made once, and mapped again as soon as that can be.

use std::sync::mpsc::{Receiver, channel};

use tombolo::{Device, DeviceBuffer};

use crate::support::{Error, Raw};
use crate::{EDGE, ROW_BYTES, ROWS, TOUCH};

type Mapped = Receiver<Result<(), wgpu::BufferAsyncError>>;

/// One device's side of it.
struct Side {
    device: Device,
    down: wgpu::Buffer,
    up: wgpu::Buffer,
    /// Bytes lie in `up` that are to be copied to their place.
    is_filled: bool,
    /// When `up` may be written.
    is_free: Option<Mapped>,
}

fn map(buffer: &wgpu::Buffer, mode: wgpu::MapMode) -> Mapped {
    let (sender, receiver) = channel();
    buffer.slice(..).map_async(mode, move |result| {
        // Whoever waits for it is there.
        let _ = sender.send(result);
    });
    receiver
}

impl Side {
    fn new(device: &Device, bytes: u64) -> Self {
        let buffer = |usage, mapped_at_creation| {
            device.raw().create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: bytes,
                usage,
                mapped_at_creation,
            })
        };
        use wgpu::BufferUsages as Usage;
        Self {
            device: device.clone(),
            down: buffer(Usage::MAP_READ | Usage::COPY_DST, false),
            up: buffer(Usage::MAP_WRITE | Usage::COPY_SRC, true),
            is_filled: false,
            is_free: None,
        }
    }

    fn poll(&self, index: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        self.device.raw().poll(wgpu::PollType::Wait {
            submission_index: index,
            timeout: None,
        })?;
        Ok(())
    }

    /// Copies what has come up to its place in a buffer, runs a kernel, and starts to read a range of a buffer back.
    fn start(
        &mut self,
        arrives: (&wgpu::Buffer, u64),
        kernel: &Raw,
        groups: u32,
        leaves: (&wgpu::Buffer, u64),
    ) -> wgpu::SubmissionIndex {
        let mut encoder =
            (self.device.raw()).create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let bytes = self.down.size();
        if self.is_filled {
            encoder.copy_buffer_to_buffer(&self.up, 0, arrives.0, arrives.1, bytes);
        }
        kernel.encode(&mut encoder, 1, groups);
        encoder.copy_buffer_to_buffer(leaves.0, leaves.1, &self.down, 0, bytes);
        let index = self.device.raw_queue().submit([encoder.finish()]);
        if std::mem::take(&mut self.is_filled) {
            self.is_free = Some(map(&self.up, wgpu::MapMode::Write));
        }
        index
    }

    /// Waits for the bytes and gives them to the other device.
    fn pass_on(&self, index: wgpu::SubmissionIndex, other: &mut Side) -> Result<(), Error> {
        let arrived = map(&self.down, wgpu::MapMode::Read);
        self.poll(Some(index))?;
        arrived.recv()??;
        if let Some(free) = other.is_free.take() {
            other.poll(None)?;
            free.recv()??;
        }
        let from = self.down.slice(..).get_mapped_range()?;
        let mut to = other.up.slice(..).get_mapped_range_mut()?;
        to.slice(..).copy_from_slice(&from);
        drop((from, to));
        self.down.unmap();
        other.up.unmap();
        other.is_filled = true;
        Ok(())
    }
}

/// A buffer that is moved whole.
pub struct Whole {
    sides: [Side; 2],
    buffers: [DeviceBuffer<u32>; 2],
    kernels: [Raw; 2],
}

impl Whole {
    pub fn new(devices: [&Device; 2], values: &[u32]) -> Result<Self, Error> {
        let buffers = [devices[0].buffer(values)?, devices[1].buffer(values)?];
        devices[0].finish()?;
        devices[1].finish()?;
        let bytes = size_of_val(values) as u64;
        Ok(Self {
            sides: devices.map(|device| Side::new(device, bytes)),
            kernels: [0, 1].map(|at| Raw::new(devices[at], TOUCH, &[buffers[at].raw()])),
            buffers,
        })
    }

    /// Both devices work on it, `turns` times.
    pub fn run(&mut self, turns: u32) -> Result<(), Error> {
        let [one, other] = &mut self.sides;
        for _ in 0..turns {
            for at in 0..2 {
                let (side, other) = match at {
                    0 => (&mut *one, &mut *other),
                    _ => (&mut *other, &mut *one),
                };
                let buffer = (self.buffers[at].raw(), 0);
                let index = side.start(buffer, &self.kernels[at], 1, buffer);
                side.pass_on(index, other)?;
            }
        }
        Ok(())
    }

    /// What is in it, where it was last used.
    pub fn read(&self) -> Result<Vec<u32>, Error> {
        Ok(self.buffers[1].read()?)
    }
}

/// Two halves that read a row of each other in every step.
pub struct Halos {
    sides: [Side; 2],
    /// For each device, the seam's two rows, at even and at odd steps.
    seams: [[DeviceBuffer<u32>; 2]; 2],
    kernels: [[Raw; 2]; 2],
    steps: usize,
}

impl Halos {
    pub fn new(devices: [&Device; 2], plate: &[u32]) -> Result<Self, Error> {
        let words = (ROW_BYTES / 4) as usize;
        let mid = (ROWS / 2) as usize * words;
        let seam = &plate[mid - words..mid + words];
        let mut seams = Vec::new();
        let mut kernels = Vec::new();
        for (at, device) in devices.into_iter().enumerate() {
            let buffers = [device.buffer(seam)?, device.buffer(seam)?];
            device.finish()?;
            let kernel = |step: usize| {
                let row = |of: &DeviceBuffer<u32>, row: usize| {
                    (of.raw().clone(), row as u64 * ROW_BYTES, ROW_BYTES)
                };
                let bound = [row(&buffers[step], 1 - at), row(&buffers[1 - step], at)];
                Raw::with_ranges(device, EDGE, &bound)
            };
            kernels.push([kernel(0), kernel(1)]);
            seams.push(buffers);
        }
        let two = "two devices";
        Ok(Self {
            sides: devices.map(|device| Side::new(device, ROW_BYTES)),
            seams: seams.try_into().map_err(|_| two)?,
            kernels: kernels.try_into().map_err(|_| two)?,
            steps: 0,
        })
    }

    pub fn run(&mut self, steps: u32) -> Result<(), Error> {
        let groups = (ROW_BYTES / 4 / 64) as u32;
        for _ in 0..steps {
            let (now, next) = (self.steps % 2, (self.steps + 1) % 2);
            self.steps += 1;
            let mut started = Vec::with_capacity(2);
            for (at, side) in self.sides.iter_mut().enumerate() {
                let row = |of: usize| of as u64 * ROW_BYTES;
                let arrives = (self.seams[at][now].raw(), row(1 - at));
                let leaves = (self.seams[at][next].raw(), row(at));
                started.push(side.start(arrives, &self.kernels[at][now], groups, leaves));
            }
            let [one, other] = &mut self.sides;
            let mut started = started.into_iter();
            if let (Some(first), Some(second)) = (started.next(), started.next()) {
                one.pass_on(first, other)?;
                other.pass_on(second, one)?;
            }
        }
        Ok(())
    }

    /// The seam's two rows, each from where it was made.
    pub fn read(&self) -> Result<Vec<u32>, Error> {
        let words = (ROW_BYTES / 4) as usize;
        let last = self.steps % 2;
        let [upper, lower] = [self.seams[0][last].read()?, self.seams[1][last].read()?];
        Ok([&upper[..words], &lower[words..]].concat())
    }
}
