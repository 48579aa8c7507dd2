//! Primitives of several devices side by side.
//!
//! Each device works on a part of the input, parts of equal length in the order of the devices; what is left to combine has a value
//! or a few for each device, and goes to the first. Every command is recorded at once: the runtime moves the bytes and holds back
//! what has to wait, so that the devices' parts run at the same time.

use std::ops::Range;

use tombolo::{Buffer, Constants, Context, Device, Event, Kernel, Program};

use crate::element::Element;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::operator::Operator;
use crate::reduce::Reduce;
use crate::scan::Scan;
use crate::values::Values;

/// Parts begin at multiples of so many values, of 256 bytes: every adapter can bind there.
const STEP: u64 = 64;

/// Combines all values into a single value, as [`Reduce`] does, on several devices side by side.
///
/// Inputs and outputs that are a [`Buffer`] of the context or in the shared heap are in reach of all devices; a buffer of one device
/// is refused by the others. Each part is read where it was last used: with as many devices as before, nothing moves from the second
/// call on. The result for `f32` depends on the number of devices, as it does on the shape.
///
/// ```no_run
/// use tombolo::Context;
/// use tombolo_kernels::{MultiReduce, Sum};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// let devices: Result<Vec<_>, _> = context.adapters().iter().map(|a| context.device_at(a.index)).collect();
/// let values = context.buffer_from(&[2u32; 10_000])?;
/// let sum = context.buffer_from(&[0u32])?;
/// MultiReduce::<u32, Sum>::new(&context, &devices?)?.run(&values, &sum)?;
/// assert_eq!(sum.read()?, [20_000]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MultiReduce<T, O> {
    context: Context,
    devices: Vec<Reduce<T, O>>,
    partials: Option<Buffer<T>>,
}

impl<T: Element, O: Operator<T>> MultiReduce<T, O> {
    /// Compiles the kernels for all devices, which are of `context`.
    ///
    /// # Errors
    /// [`Error::NoDevices`] for an empty list; else as [`Reduce::new`].
    pub fn new(context: &Context, devices: &[Device]) -> Result<Self, Error> {
        Ok(Self {
            context: context.clone(),
            devices: each(devices, Reduce::new)?,
            partials: None,
        })
    }

    /// Writes the combination of all values of `source` to the first value of `sink`. The event is that of the last launch, which
    /// is on the first device.
    ///
    /// # Errors
    /// As [`Reduce::run`], and [`Error::Buffer`] where there is no memory for the devices' results.
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Event, Error> {
        let (source, sink) = (source.into(), sink.into().first("sink", 1)?);
        let parts = parts(source.count("source")?, self.devices.len());
        if parts.len() < 2 {
            return self.devices[0].run(&source, &sink);
        }
        let partials = kept(&mut self.partials, &self.context, self.devices.len())?;
        let partials = Values::from(partials).slice(..parts.len() as u64)?;
        for (i, part) in (0..).zip(&parts) {
            let to = partials.slice(i..=i)?;
            self.devices[i as usize].run(source.slice(part.clone())?, to)?;
        }
        self.devices[0].run(&partials, &sink)
    }
}

/// Combines all values up to each value, as [`Scan`] does, on several devices side by side: every device reduces a part, and scans
/// the part from the combination of the parts before on. Values are read three times and written once.
///
/// What is in reach of all devices: [`MultiReduce`].
#[derive(Debug)]
pub struct MultiScan<T, O> {
    context: Context,
    reduces: Vec<Reduce<T, O>>,
    scans: Vec<Scan<T, O>>,
    starts: Scan<T, O>,
    partials: Option<Buffer<T>>,
    carries: Option<Buffer<T>>,
}

impl<T: Element, O: Operator<T>> MultiScan<T, O> {
    /// Compiles the kernels of an inclusive scan for all devices, which are of `context`.
    ///
    /// # Errors
    /// [`Error::NoDevices`] for an empty list; else as [`Scan::inclusive`].
    pub fn inclusive(context: &Context, devices: &[Device]) -> Result<Self, Error> {
        Self::new(context, devices, Scan::inclusive)
    }

    /// Compiles the kernels of an exclusive scan for all devices, which are of `context`.
    ///
    /// # Errors
    /// As [`MultiScan::inclusive`].
    pub fn exclusive(context: &Context, devices: &[Device]) -> Result<Self, Error> {
        Self::new(context, devices, Scan::exclusive)
    }

    fn new(
        context: &Context,
        devices: &[Device],
        scan: impl Fn(&Device) -> Result<Scan<T, O>, Error>,
    ) -> Result<Self, Error> {
        let first = devices.first().ok_or(Error::NoDevices)?;
        Ok(Self {
            context: context.clone(),
            reduces: each(devices, Reduce::new)?,
            scans: each(devices, scan)?,
            starts: Scan::exclusive(first)?,
            partials: None,
            carries: None,
        })
    }

    /// Scans all values of `source` into as many values of `sink`. The events are those of the last launch of each device with a
    /// part, in the order of the devices.
    ///
    /// # Errors
    /// As [`Scan::run`], and [`Error::Buffer`] where there is no memory for the devices' results.
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        sink: impl Into<Values<T>>,
    ) -> Result<Vec<Event>, Error> {
        let source = source.into();
        let len = source.count("source")?;
        let sink = sink.into().first("sink", len)?;
        let parts = parts(len, self.scans.len());
        if parts.len() < 2 {
            return Ok(vec![self.scans[0].run(&source, &sink)?]);
        }
        let (count, devices) = (parts.len() as u64, self.scans.len());
        let partials = kept(&mut self.partials, &self.context, devices)?;
        let carries = kept(&mut self.carries, &self.context, devices)?;
        let partials = Values::from(partials).slice(..count)?;
        let carries = Values::from(carries).slice(..count)?;
        for (i, part) in (0..).zip(&parts) {
            let to = partials.slice(i..=i)?;
            self.reduces[i as usize].run(source.slice(part.clone())?, to)?;
        }
        self.starts.run(&partials, &carries)?;
        let mut events = Vec::new();
        for (i, part) in (0..).zip(&parts) {
            let (from, to) = (source.slice(part.clone())?, sink.slice(part.clone())?);
            let carry = carries.slice(i..=i)?;
            events.push(self.scans[i as usize].run_after(from, to, carry)?);
        }
        Ok(events)
    }
}

/// Counts how many values fall into each bin, as [`Histogram`] does, on several devices side by side.
///
/// What is in reach of all devices: [`MultiReduce`].
#[derive(Debug)]
pub struct MultiHistogram<T> {
    context: Context,
    devices: Vec<Histogram<T>>,
    add: Kernel,
    bins: u64,
    partials: Option<Buffer<u32>>,
}

impl MultiHistogram<u32> {
    /// Compiles the kernels for all devices, which are of `context`; bins as in [`Histogram::new`].
    ///
    /// # Errors
    /// As [`MultiHistogram::by`].
    pub fn new(context: &Context, devices: &[Device], bins: u32) -> Result<Self, Error> {
        Self::with(context, devices, bins, |device| {
            Histogram::new(device, bins)
        })
    }
}

impl MultiHistogram<f32> {
    /// Compiles the kernels for all devices, which are of `context`; bins as in [`Histogram::even`].
    ///
    /// # Errors
    /// [`Error::NoDevices`] for an empty list; else as [`Histogram::even`].
    pub fn even(
        context: &Context,
        devices: &[Device],
        bins: u32,
        range: Range<f32>,
    ) -> Result<Self, Error> {
        let new = |device: &Device| Histogram::even(device, bins, range.clone());
        Self::with(context, devices, bins, new)
    }
}

impl<T: Element> MultiHistogram<T> {
    /// Compiles the kernels for all devices, which are of `context`; bins as in [`Histogram::by`].
    ///
    /// # Errors
    /// [`Error::NoDevices`] for an empty list; else as [`Histogram::by`].
    pub fn by(context: &Context, devices: &[Device], bins: u32, bin: &str) -> Result<Self, Error> {
        Self::with(context, devices, bins, |device| {
            Histogram::by(device, bins, bin)
        })
    }

    fn with(
        context: &Context,
        devices: &[Device],
        bins: u32,
        new: impl Fn(&Device) -> Result<Histogram<T>, Error>,
    ) -> Result<Self, Error> {
        let first = devices.first().ok_or(Error::NoDevices)?;
        let histograms = each(devices, new)?;
        let source = include_str!("../shaders/add_parts.wgsl");
        let program = Program::new("add_parts.wgsl", source)?;
        let pitch = u64::from(bins).next_multiple_of(STEP);
        // With a bin for each of 2^32 values, the counters are beyond every adapter.
        let constants = Constants::new()
            .set("PARTS", devices.len() as u32)
            .set("PITCH", u32::try_from(pitch).unwrap_or(u32::MAX));
        Ok(Self {
            context: context.clone(),
            devices: histograms,
            add: first.kernel(&program, "add_parts", &constants)?,
            bins: bins.into(),
            partials: None,
        })
    }

    /// Writes the number of values of `source` in each bin to `counts`. The event is that of the last launch, which is on the first
    /// device.
    ///
    /// # Errors
    /// As [`Histogram::run`], and [`Error::Buffer`] where there is no memory for the devices' counters.
    pub fn run(
        &mut self,
        source: impl Into<Values<T>>,
        counts: impl Into<Values<u32>>,
    ) -> Result<Event, Error> {
        let (source, counts) = (source.into(), counts.into());
        let parts = parts(source.count("source")?, self.devices.len());
        let counts = counts.first("counts", self.bins)?;
        if parts.len() < 2 {
            return self.devices[0].run(&source, &counts);
        }
        let pitch = self.bins.next_multiple_of(STEP);
        let len = pitch as usize * self.devices.len();
        let partials = Values::from(kept(&mut self.partials, &self.context, len)?);
        partials.count("counts")?;
        for (i, histogram) in (0..).zip(&mut self.devices) {
            // Devices without a part count nothing.
            let part = parts.get(i as usize).cloned().unwrap_or(0..0);
            let to = partials.slice(i * pitch..i * pitch + self.bins)?;
            histogram.run(source.slice(part)?, to)?;
        }
        let launch = partials.read(self.add.launch(), "parts")?;
        let launch = counts.write(launch, "counts")?;
        Ok(launch.invocations(self.bins).submit()?)
    }
}

/// An object of each device.
fn each<P>(devices: &[Device], new: impl Fn(&Device) -> Result<P, Error>) -> Result<Vec<P>, Error> {
    match devices {
        [] => Err(Error::NoDevices),
        _ => devices.iter().map(new).collect(),
    }
}

/// The parts of `len` values for so many devices, none empty: fewer than there are devices for a short input.
fn parts(len: u64, devices: usize) -> Vec<Range<u64>> {
    let share = len
        .div_ceil(devices as u64)
        .next_multiple_of(STEP)
        .max(STEP);
    let starts = (0..len.div_ceil(share)).map(|i| i * share);
    starts.map(|start| start..len.min(start + share)).collect()
}

/// The buffer, made at the first call.
fn kept<'b, T: Element>(
    buffer: &'b mut Option<Buffer<T>>,
    context: &Context,
    len: usize,
) -> Result<&'b Buffer<T>, Error> {
    Ok(match buffer {
        Some(buffer) => buffer,
        none => none.insert(context.buffer(len)?),
    })
}
