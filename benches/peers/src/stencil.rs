//! A stencil on two devices, each with a half of the plate, of which the other reads one row in every step.
//!
//! Here the plate is a buffer of the context over two devices of one adapter, and rows that are read elsewhere are brought there
//! by the runtime. In OpenCL the processor is divided into two devices, each with a buffer for its half and the row beyond it,
//! and the host enqueues copies of rows with the events that order them.

use std::ops::Range;
use std::ptr;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context as ClContext;
use opencl3::device::{CL_DEVICE_PARTITION_EQUALLY, SubDevice};
use opencl3::event::Event as ClEvent;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer as ClBuffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;
use tombolo::{Buffer, Context, Device, Launch};

use crate::meter::Meter;
use crate::opencl::Pocl;
use crate::{Error, support};

/// Cells of a row, and rows.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 1024;
/// Steps of a run; even, so that every run begins with the same buffer.
const STEPS: u32 = 20;
const GROUP: u32 = 64;

fn plate() -> Vec<u32> {
    let cell = |i: u32| i.wrapping_mul(2_654_435_761) >> 12;
    (0..WIDTH * HEIGHT).map(cell).collect()
}

/// What the host makes of the plate in a step.
fn step(now: &[u32]) -> Vec<u32> {
    let (width, height) = (WIDTH as usize, HEIGHT as usize);
    let mut next = Vec::with_capacity(now.len());
    for (y, row) in now.chunks_exact(width).enumerate() {
        let row_at = |y: usize| &now[y * width..(y + 1) * width];
        let above = row_at(y.saturating_sub(1));
        let below = row_at((y + 1).min(height - 1));
        for x in 0..width {
            let sides = row[x.saturating_sub(1)] + row[(x + 1).min(width - 1)];
            next.push((4 * row[x] + sides + above[x] + below[x]) / 8);
        }
    }
    next
}

/// The rows that a device works on, and those that it reads.
fn rows(device: usize) -> (Range<u32>, Range<u32>) {
    match device {
        0 => (0..HEIGHT / 2, 0..HEIGHT / 2 + 1),
        _ => (HEIGHT / 2..HEIGHT, HEIGHT / 2 - 1..HEIGHT),
    }
}

/// The plate here: the buffers that take turns, and the launches of both devices in steps of even and of odd number.
struct Ours {
    plates: [Buffer<u32>; 2],
    launches: [[Launch; 2]; 2],
}

impl Ours {
    fn new(context: &Context, devices: [&Device; 2]) -> Result<Self, Error> {
        let plates = [
            context.buffer_from(&plate())?,
            context.buffer((WIDTH * HEIGHT) as usize)?,
        ];
        let launches = |device: usize| -> Result<[Launch; 2], Error> {
            let kernel = support::ours(devices[device], include_str!("kernels/stencil.wgsl"))?;
            let (own, held) = rows(device);
            let cells =
                |rows: &Range<u32>| u64::from(rows.start * WIDTH)..u64::from(rows.end * WIDTH);
            let launch = |now: &Buffer<u32>, next: &Buffer<u32>| -> Result<Launch, Error> {
                Ok((kernel.launch())
                    .workgroups([WIDTH / GROUP, own.end - own.start])
                    .buffer("now", now.slice(cells(&held))?)
                    .overwrite("next", next.slice(cells(&own))?)
                    .value("strip", &[WIDTH, HEIGHT, own.start, held.start]))
            };
            Ok([
                launch(&plates[0], &plates[1])?,
                launch(&plates[1], &plates[0])?,
            ])
        };
        let launches = [launches(0)?, launches(1)?];
        Ok(Self { plates, launches })
    }

    fn run(&mut self) -> Result<(), Error> {
        let mut last = Vec::new();
        for step in 0..STEPS as usize {
            last.clear();
            for launches in &mut self.launches {
                last.push(launches[step % 2].submit()?);
            }
        }
        for event in last {
            event.wait()?;
        }
        Ok(())
    }
}

/// A half of the plate in OpenCL.
struct Half {
    queue: CommandQueue,
    kernel: Kernel,
    own: Range<u32>,
    held: Range<u32>,
    /// Rows that are held, before and after a step.
    plates: [ClBuffer<u8>; 2],
}

/// The plate in OpenCL.
struct Theirs {
    halves: [Half; 2],
    /// The copies of the last step: of the first half's row, and of the second's.
    copies: [Option<ClEvent>; 2],
    /// Alive as long as their queues.
    _context: ClContext,
    _devices: Vec<SubDevice>,
}

impl Theirs {
    fn new(pocl: &Pocl) -> Result<Self, Error> {
        let units = pocl.units()? as isize;
        let properties = [CL_DEVICE_PARTITION_EQUALLY, units / 2, 0];
        let devices = pocl.device().create_sub_devices(&properties)?;
        let ids: Vec<_> = devices.iter().map(SubDevice::id).collect();
        let context = ClContext::from_devices(&ids, &[], None, ptr::null_mut())?;
        let source = include_str!("kernels/all.cl");
        let program = Program::create_and_build_from_source(&context, source, "-cl-std=CL2.0")?;
        let all = plate();
        let half = |at: usize| -> Result<Half, Error> {
            let (own, held) = rows(at);
            // SAFETY: the device is one of the context's.
            let queue = unsafe { CommandQueue::create_with_properties(&context, ids[at], 0, 0)? };
            let cells = (held.start * WIDTH) as usize..(held.end * WIDTH) as usize;
            let bytes: &[u8] = bytemuck::cast_slice(&all[cells]);
            let buffer = || -> Result<ClBuffer<u8>, Error> {
                // SAFETY: no memory of the host is passed, and the bytes are not changed until the call returns.
                unsafe {
                    let none = ptr::null_mut();
                    let mut buffer =
                        ClBuffer::create(&context, CL_MEM_READ_WRITE, bytes.len(), none)?;
                    queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, bytes, &[])?;
                    Ok(buffer)
                }
            };
            let plates = [buffer()?, buffer()?];
            Ok(Half {
                queue,
                kernel: Kernel::create(&program, "stencil")?,
                own,
                held,
                plates,
            })
        };
        Ok(Self {
            halves: [half(0)?, half(1)?],
            copies: [None, None],
            _context: context,
            _devices: devices,
        })
    }

    fn run(&mut self) -> Result<(), Error> {
        for step in 0..STEPS as usize {
            let [first, second] = &mut self.halves;
            let [from_first, from_second] = &self.copies;
            // Behind the other's copy of the last step: the row that is read now is there, and the other does not read any more
            // what is overwritten now.
            first.step(step, from_second.as_ref())?;
            second.step(step, from_first.as_ref())?;
            let next = 1 - step % 2;
            let edge = HEIGHT / 2;
            self.copies = [
                Some(first.copy(edge - 1, next, second)?),
                Some(second.copy(edge, next, first)?),
            ];
            self.halves.iter().try_for_each(|half| half.queue.flush())?;
        }
        for half in &self.halves {
            half.queue.finish()?;
        }
        Ok(())
    }

    fn plate(&self) -> Result<Vec<u32>, Error> {
        let mut cells = Vec::new();
        for half in &self.halves {
            let mut rows = vec![0u32; ((half.own.end - half.own.start) * WIDTH) as usize];
            let offset = half.byte(half.own.start);
            let bytes = bytemuck::cast_slice_mut(&mut rows);
            // SAFETY: the buffer has the bytes of the half's rows, and nobody else uses the memory until the call returns.
            unsafe {
                (half.queue).enqueue_read_buffer(
                    &half.plates[0],
                    CL_BLOCKING,
                    offset,
                    bytes,
                    &[],
                )?
            };
            cells.extend(rows);
        }
        Ok(cells)
    }
}

impl Half {
    /// Where a row begins in the buffers.
    fn byte(&self, row: u32) -> usize {
        ((row - self.held.start) * WIDTH * 4) as usize
    }

    fn step(&self, step: usize, behind: Option<&ClEvent>) -> Result<(), Error> {
        let (now, next) = (&self.plates[step % 2], &self.plates[1 - step % 2]);
        let numbers = [WIDTH, HEIGHT, self.own.start, self.held.start];
        let behind: Vec<_> = behind.iter().map(|event| event.get()).collect();
        let global = [WIDTH as usize, (self.own.end - self.own.start) as usize];
        let local = [GROUP as usize, 1];
        // SAFETY: the kernel has these arguments; buffers have all rows that are read and written, and outlive the launch.
        unsafe {
            self.kernel.set_arg(0, &now.get())?;
            self.kernel.set_arg(1, &next.get())?;
            for (i, number) in (2..).zip(&numbers) {
                self.kernel.set_arg(i, number)?;
            }
            self.queue.enqueue_nd_range_kernel(
                self.kernel.get(),
                2,
                ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                &behind,
            )?;
        }
        Ok(())
    }

    /// Enqueues the copy of a row to the other half.
    fn copy(&self, row: u32, plate: usize, other: &mut Self) -> Result<ClEvent, Error> {
        let (from, to) = (self.byte(row), other.byte(row));
        let (source, target) = (&self.plates[plate], &mut other.plates[plate]);
        let bytes = WIDTH as usize * 4;
        // SAFETY: both buffers have the row, and outlive the copy.
        let copied =
            unsafe { (self.queue).enqueue_copy_buffer(source, target, from, to, bytes, &[])? };
        Ok(copied)
    }
}

/// Steps on two devices of the adapter, or of the processor.
pub fn stencil(
    meter: Meter,
    context: &Context,
    device: &Device,
    pocl: &Pocl,
) -> Result<Vec<f64>, Error> {
    let second = context.device_named(device.name())?;
    let mut ours = Ours::new(context, [device, &second])?;
    let mut theirs = Theirs::new(pocl)?;
    let mut expected = plate();
    let mut check = |runs: usize, ours: &Ours, theirs: &Theirs| -> Result<(), Error> {
        for _ in 0..runs * STEPS as usize {
            expected = step(&expected);
        }
        match (
            ours.plates[0].read()? == expected,
            theirs.plate()? == expected,
        ) {
            (true, true) => Ok(()),
            (false, _) => Err("Tombolo computes another plate than the host".into()),
            (_, false) => Err("PoCL computes another plate than the host".into()),
        }
    };
    ours.run()?;
    theirs.run()?;
    check(1, &ours, &theirs)?;
    let ratios = meter.pairs(|| ours.run(), || theirs.run())?;
    check(crate::PAIRS + 1, &ours, &theirs)?;
    Ok(ratios)
}
