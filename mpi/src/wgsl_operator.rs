//! Operators in WGSL, written by programs, to combine the values of all ranks on the ranks' devices.
//!
//! # How it works
//! 1. The operator's text becomes a kernel to combine two arrays, element by element.
//! 2. Ranks combine in a binomial tree: in round `k`, a rank with bit `k` as the lowest set bit sends its values to the rank
//!    without the bit. The receiving rank combines its own values, in front, with the received values, behind. So the result
//!    is `op(…op(op(v0, v1), op(v2, v3))…)` with the values in the order of ranks: an associative operator need not commute,
//!    and every run has the same bits. The number of rounds is the logarithm of the number of ranks.
//! 3. Values of messages lie in pinned memory: the device copies there and from there, and MPI sends and receives there.

use std::marker::PhantomData;

use bytemuck::Pod;
use mpi::traits::AsRaw;
use tombolo::buffers::{BufferArgument, PinnedVec};
use tombolo::kernel::{ArgumentKind, Shape};
use tombolo::{Buffer, Constants, Device, DeviceBuffer, Kernel, Program};

use crate::error::{MpiError, Operation};
use crate::point_to_point::{ireceive_on, isend_on};
use crate::ranks::Ranks;
use crate::span::span;

/// A function `op(a, b)` in WGSL to combine values of type `T` on one device.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tombolo_mpi::{Mpi, WgslOperator};
///
/// let mpi = Mpi::start()?;
/// let device = tombolo::Context::new()?.device()?;
/// let rotate = WgslOperator::<[f32; 2]>::new(&device, "vec2<f32>", "
///     fn op(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }")?;
/// let turns = device.buffer(&[[0.6f32, 0.8]; 100])?;
/// let all = device.zeroed::<[f32; 2]>(100)?;
/// mpi.ranks().allreduce_by(&rotate, &turns, &all)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct WgslOperator<T> {
    kernel: Kernel,
    device: Device,
    element: PhantomData<fn(T, T) -> T>,
}

impl<T: Pod + Send> WgslOperator<T> {
    /// The operator `text`, declaring `fn op(a: E, b: E) -> E` for the WGSL type `element`, laid out as `T` is.
    ///
    /// # Errors
    /// [`MpiError::Kernel`] for a text without such an operator; [`MpiError::OperatorType`] for types of different sizes.
    pub fn new(device: &Device, element: &str, text: &str) -> Result<Self, MpiError> {
        let text = format!(
            "{text}
@group(0) @binding(0) var<storage, read> operator_left: array<{element}>;
@group(0) @binding(1) var<storage, read> operator_right: array<{element}>;
@group(0) @binding(2) var<storage, read_write> operator_result: array<{element}>;
@compute @workgroup_size(64)
fn operator_all(@builtin(global_invocation_id) id: vec3<u32>) {{
    if id.x < arrayLength(&operator_result) {{ operator_result[id.x] = op(operator_left[id.x], operator_right[id.x]); }}
}}
"
        );
        let program = Program::new("operator.wgsl", text)?;
        let kernel = device.kernel(&program, "operator_all", &Constants::new())?;
        let (stride, bytes) = (stride_of_result(&kernel), size_of::<T>());
        if stride != bytes {
            return Err(MpiError::OperatorType {
                wgsl: element.to_owned(),
                stride,
                element: std::any::type_name::<T>(),
                bytes,
            });
        }
        Ok(Self {
            kernel,
            device: device.clone(),
            element: PhantomData,
        })
    }

    /// `op(left, right)` for all elements, on the device.
    fn combine(
        &self,
        left: BufferArgument,
        right: &DeviceBuffer<T>,
        result: BufferArgument,
        len: usize,
    ) -> Result<(), MpiError> {
        let invocations = u32::try_from(len).map_err(|_| MpiError::Length {
            operation: Operation::new("an operator", None, None),
            what: "a buffer",
            len,
            needed: u32::MAX as usize,
        })?;
        let launch = self.kernel.launch();
        let launch = launch.buffer("operator_left", left);
        let launch = launch.buffer("operator_right", right);
        let launch = launch.overwrite("operator_result", result);
        // The read of the results returns a failure of the launch.
        launch.invocations(invocations).submit()?;
        Ok(())
    }
}

/// Bytes from one element of the result to the next.
fn stride_of_result(kernel: &Kernel) -> usize {
    let arguments = &kernel.interface().arguments;
    let result = (arguments.iter()).find(|argument| argument.name == "operator_result");
    match result.map(|argument| &argument.kind) {
        Some(ArgumentKind::Storage { layout, .. }) => match layout.shape {
            Shape::Array { stride, .. } => stride as usize,
            _ => 0,
        },
        _ => 0,
    }
}

/// Buffers for operators to read and write: a [`DeviceBuffer`] of the operator's device, or a [`Buffer`] of the device's
/// context.
pub trait Values<T: Pod>: sealed::Sealed {
    /// Elements.
    #[doc(hidden)]
    fn count(&self) -> usize;
    /// For a launch.
    #[doc(hidden)]
    fn argument(&self) -> BufferArgument;
    /// Into memory of the host.
    #[doc(hidden)]
    fn fetch(&self, into: &mut [T]) -> Result<(), MpiError>;
    /// From memory of the host.
    #[doc(hidden)]
    fn store(&self, from: &[T]) -> Result<(), MpiError>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! values {
    ($($buffer:ident)*) => {$(
        impl<T> sealed::Sealed for $buffer<T> {}

        impl<T: Pod> Values<T> for $buffer<T> {
            fn count(&self) -> usize {
                self.len()
            }

            fn argument(&self) -> BufferArgument {
                self.into()
            }

            fn fetch(&self, into: &mut [T]) -> Result<(), MpiError> {
                Ok(self.read_into(0, into)?)
            }

            fn store(&self, from: &[T]) -> Result<(), MpiError> {
                self.write(0, from)?;
                Ok(())
            }
        }
    )*};
}

values!(DeviceBuffer Buffer);

/// The values combined by a rank so far: the given values, or the device's results.
struct Combining<'a, T> {
    operator: &'a WgslOperator<T>,
    own: BufferArgument,
    /// Results of the last round and of the round before, in turns: a launch does not write its own input.
    results: [Option<DeviceBuffer<T>>; 2],
    rounds: usize,
    len: usize,
}

impl<T: Pod + Send> Combining<'_, T> {
    fn last(&self) -> Option<&DeviceBuffer<T>> {
        let last = self.rounds.checked_sub(1)? % 2;
        self.results[last].as_ref()
    }

    /// Combines the values so far with the combined values of ranks behind this rank.
    fn add(&mut self, behind: &[T]) -> Result<(), MpiError> {
        let device = &self.operator.device;
        let right = device.buffer(behind)?;
        let left = self.last().map_or_else(|| self.own.clone(), Into::into);
        let turn = self.rounds % 2;
        let result = match self.results[turn].take() {
            Some(result) => result,
            None => device.zeroed(self.len)?,
        };
        (self.operator).combine(left, &right, (&result).into(), self.len)?;
        self.results[turn] = Some(result);
        self.rounds += 1;
        Ok(())
    }
}

impl Ranks {
    /// Combines the values of all ranks' `from`, at the root into `into`; the other ranks leave `into` out. Waits for the
    /// result.
    ///
    /// # Errors
    /// [`MpiError::Length`] where `into` is missing, or not as long as `from`; the errors of messages, of launches
    /// and of reads of their results.
    pub fn reduce_by<T: Pod + Send, V: Values<T>, W: Values<T>>(
        &self,
        operator: &WgslOperator<T>,
        from: &V,
        into: Option<&W>,
        root: i32,
    ) -> Result<(), MpiError> {
        let operation = Operation::new("reduce", Some(root), None);
        self.check_rank(operation, root)?;
        let is_root = self.rank() == root;
        if is_root {
            check_length(operation, into.map(Values::count), from.count())?;
        }
        let at_first = self.to_first(operation, operator, from)?;
        let values = match (at_first, self.rank()) {
            (Some(values), 0) if !is_root => {
                self.send_on(operation, values, root)?;
                None
            }
            (None, _) if is_root => {
                Some(self.receive_on(operation, PinnedVec::zeroed(from.count())?, 0)?)
            }
            (at_first, _) => at_first,
        };
        match (values, into) {
            (Some(values), Some(into)) if is_root => into.store(&values),
            _ => Ok(()),
        }
    }

    /// Combines the values of all ranks' `from`, on every rank into `into`, of the same length. Waits for the result.
    ///
    /// # Errors
    /// As [`Ranks::reduce_by`].
    pub fn allreduce_by<T: Pod + Send, V: Values<T>, W: Values<T>>(
        &self,
        operator: &WgslOperator<T>,
        from: &V,
        into: &W,
    ) -> Result<(), MpiError> {
        let operation = Operation::new("allreduce", None, None);
        check_length(operation, Some(into.count()), from.count())?;
        let values = match self.to_first(operation, operator, from)? {
            Some(values) => values,
            None => PinnedVec::zeroed(from.count())?,
        };
        into.store(&self.broadcast(values, 0)?)
    }

    /// Combines all values at rank 0; only rank 0 gets the result.
    fn to_first<T: Pod + Send, V: Values<T>>(
        &self,
        operation: Operation,
        operator: &WgslOperator<T>,
        from: &V,
    ) -> Result<Option<PinnedVec<T>>, MpiError> {
        let len = from.count();
        let _span = span!("mpi operator", elements = len);
        let (rank, size) = (self.rank(), self.size());
        let mut combining = Combining {
            operator,
            own: from.argument(),
            results: [None, None],
            rounds: 0,
            len,
        };
        let mut memory = PinnedVec::zeroed(len)?;
        let mut bit = 1;
        while bit < size && rank & bit == 0 {
            if rank + bit < size {
                memory = self.receive_on(operation, memory, rank + bit)?;
                combining.add(&memory)?;
            }
            bit <<= 1;
        }
        match combining.last() {
            Some(result) => result.read_into(0, &mut memory)?,
            None => from.fetch(&mut memory)?,
        }
        if rank == 0 {
            return Ok(Some(memory));
        }
        self.send_on(operation, memory, rank - bit)?;
        Ok(None)
    }

    fn send_on<T: Pod + Send>(
        &self,
        operation: Operation,
        values: PinnedVec<T>,
        to: i32,
    ) -> Result<(), MpiError> {
        let session = &self.session;
        let there = (session.operators.as_raw(), to, 0);
        isend_on(session, operation, there, values)?.wait()?;
        Ok(())
    }

    fn receive_on<T: Pod + Send>(
        &self,
        operation: Operation,
        values: PinnedVec<T>,
        from: i32,
    ) -> Result<PinnedVec<T>, MpiError> {
        let session = &self.session;
        let there = (session.operators.as_raw(), from, 0);
        let needed = values.len();
        let request = ireceive_on(session, operation, there, values)?;
        let (values, envelope) = request.wait_with_envelope()?;
        let len = envelope.bytes as usize / size_of::<T>().max(1);
        match len == needed {
            true => Ok(values),
            false => Err(MpiError::Length {
                operation,
                what: "another rank's memory",
                len,
                needed,
            }),
        }
    }
}

fn check_length(operation: Operation, into: Option<usize>, needed: usize) -> Result<(), MpiError> {
    match into {
        Some(len) if len == needed => Ok(()),
        len => Err(MpiError::Length {
            operation,
            what: "the memory for the result",
            len: len.unwrap_or_default(),
            needed,
        }),
    }
}
