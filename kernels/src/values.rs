//! Inputs and outputs.

use std::ops::{Bound, RangeBounds};

use tombolo::{Buffer, DeviceBuffer, Launch, Ptr};

use crate::MOST_VALUES;
use crate::element::Element;
use crate::error::Error;

/// Values for a primitive to read or write: a [`DeviceBuffer`], a [`Buffer`] of the context, values in the shared heap, or a
/// part of such values.
///
/// ```no_run
/// # use tombolo::{Context, Ptr};
/// # use tombolo_kernels::{Error, Reduce, Sum, Values};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Context::new()?;
/// # let device = context.device()?;
/// let mut reduce = Reduce::<f32, Sum>::new(&device)?;
/// let sums = device.zeroed(2)?;
/// let buffer = device.buffer(&[1.0; 100])?;
/// reduce.run(Values::from(&buffer).slice(10..20)?, Values::from(&sums).slice(..1)?)?;
///
/// let pointer: Ptr<f32> = context.heap()?.alloc_slice(&[1.0; 100])?;
/// reduce.run((pointer, 100), Values::from(&sums).slice(1..)?)?;
/// assert_eq!(sums.read()?, [10.0, 100.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Values<T> {
    memory: Memory<T>,
    start: u64,
    len: u64,
}

#[derive(Debug)]
enum Memory<T> {
    Device(DeviceBuffer<T>),
    Context(Buffer<T>),
    Heap(Ptr<T>),
}

impl<T> Clone for Values<T> {
    fn clone(&self) -> Self {
        let memory = match &self.memory {
            Memory::Device(buffer) => Memory::Device(buffer.clone()),
            Memory::Context(buffer) => Memory::Context(buffer.clone()),
            Memory::Heap(pointer) => Memory::Heap(*pointer),
        };
        Self { memory, ..*self }
    }
}

impl<T: Element> From<&DeviceBuffer<T>> for Values<T> {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self {
            memory: Memory::Device(buffer.clone()),
            start: 0,
            len: buffer.len() as u64,
        }
    }
}

impl<T: Element> From<&Buffer<T>> for Values<T> {
    fn from(buffer: &Buffer<T>) -> Self {
        Self {
            memory: Memory::Context(buffer.clone()),
            start: 0,
            len: buffer.len() as u64,
        }
    }
}

impl<T: Element> From<(Ptr<T>, usize)> for Values<T> {
    /// So many values at a pointer into the heap of the device.
    fn from((pointer, len): (Ptr<T>, usize)) -> Self {
        Self {
            memory: Memory::Heap(pointer),
            start: 0,
            len: len as u64,
        }
    }
}

impl<T: Element> From<&Values<T>> for Values<T> {
    fn from(values: &Values<T>) -> Self {
        values.clone()
    }
}

impl<T: Element> Values<T> {
    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the values. A part may begin anywhere; where the adapter cannot bind at its offset, launches work on a copy of
    /// the part, at the cost of the copy.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, Error> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            let len = self.len;
            return Err(Error::OutOfRange { start, end, len });
        }
        Ok(Self {
            start: self.start + start,
            len: end - start,
            ..self.clone()
        })
    }

    /// The first `needed` values.
    ///
    /// # Errors
    /// [`Error::TooShort`], naming the argument.
    pub(crate) fn first(&self, argument: &'static str, needed: u64) -> Result<Self, Error> {
        let len = self.len;
        self.slice(..needed).map_err(|_| Error::TooShort {
            argument,
            len,
            needed,
        })
    }

    /// The values of a matrix of so many rows and columns.
    ///
    /// # Errors
    /// [`Error::TooShort`] and [`Error::TooLong`], naming the argument.
    pub(crate) fn matrix(
        &self,
        argument: &'static str,
        rows: u32,
        columns: u32,
    ) -> Result<Self, Error> {
        let matrix = self.first(argument, u64::from(rows) * u64::from(columns))?;
        matrix.count(argument)?;
        Ok(matrix)
    }

    /// The number of values, where kernels can count the values.
    pub(crate) fn count(&self, argument: &'static str) -> Result<u64, Error> {
        match self.len {
            len if len > MOST_VALUES => Err(Error::TooLong { argument, len }),
            len => Ok(len),
        }
    }

    /// Gives the values, at least one, for an argument read by a launch.
    pub(crate) fn read(&self, launch: Launch, argument: &str) -> Result<Launch, Error> {
        let end = self.start + self.len;
        Ok(match &self.memory {
            Memory::Device(buffer) => launch.buffer(argument, buffer.slice(self.start..end)),
            Memory::Context(buffer) => launch.buffer(argument, buffer.slice(self.start..end)?),
            Memory::Heap(pointer) => self.point(launch, argument, *pointer),
        })
    }

    /// Gives the values, at least one, for an argument of which a launch writes every value and reads none: the old contents of
    /// a buffer of the context do not travel to the device.
    pub(crate) fn write(&self, launch: Launch, argument: &str) -> Result<Launch, Error> {
        let end = self.start + self.len;
        Ok(match &self.memory {
            Memory::Device(buffer) => launch.overwrite(argument, buffer.slice(self.start..end)),
            Memory::Context(buffer) => launch.overwrite(argument, buffer.slice(self.start..end)?),
            Memory::Heap(pointer) => self.point(launch, argument, *pointer),
        })
    }

    fn point(&self, launch: Launch, argument: &str, pointer: Ptr<T>) -> Launch {
        launch.pointer(argument, pointer.add(self.start), self.len as usize)
    }
}
