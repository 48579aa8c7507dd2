//! Rings: streams of items between a thread of the host and a kernel, in memory used by both in place.
//!
//! - `protocol`: the words of a ring, and the order of their writes; `tests_loom` explores the order.
//! - `memory`: where the words are, live or travelling between launches.
//! - `item`: the types going through rings, and the kernels' functions for each.
//! - `ends`: the host's ends, a pushing and a popping end.
//! - `error`: the errors.
//!
//! A call of a server carries its arguments in a port, is answered, and has a price for each. A ring has no answers: a
//! producer with many items, such as the samples of a sound, writes the items to the place of the kernel's reads, and
//! shows a count once for all. Ports and rings go together: a call announces something in the ring, or says how to use
//! the items.
//!
//! This module uses launches, servers and programs; nothing below knows of rings, but the fences of their functions,
//! filled together with the fences of servers (`kernel::server`).

mod ends;
mod error;
mod item;
mod memory;
mod protocol;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_loom;

use std::sync::Arc;

use crate::device::{Device, Tier};
use crate::kernel::{ProgramBuilder, ProgramMistake};
use crate::launch::Launch;
use crate::memory::buffers::BufferArgument;
use crate::persistent::PersistentKernelBuilder;
use item::{Direction, Kind, is_name};
use memory::RingMemory;
use protocol::Shape;

pub use ends::{RingItems, RingReceiver, RingSender, RingSlots};
pub use error::RingError;
pub use item::RingItem;

/// The most slots of a ring.
const MOST: usize = 1 << 24;

/// The kernel's end of a ring: an argument of launches ([`Launch::ring`]) and of servers
/// ([`PersistentKernelBuilder::ring`]). Cheap to clone. Taken items stay taken in the next launch, and put items stay
/// put; one invocation at a time uses a ring.
#[derive(Debug, Clone)]
pub struct KernelRing {
    kind: Kind,
    argument: BufferArgument,
    slots: usize,
    is_live: bool,
}

impl KernelRing {
    /// The ring's capacity in items.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Whether items go through while a kernel runs ([`Tier::Live`]), or between launches ([`Tier::Sliced`]).
    pub fn tier(&self) -> Tier {
        match self.is_live {
            true => Tier::Live,
            false => Tier::Sliced,
        }
    }
}

impl Device {
    /// Makes a ring from the host to kernels, of so many slots, rounded up to a power of two: the host's end, and the
    /// kernel's.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tombolo::{Constants, Context, Program};
    /// # fn main() -> Result<(), tombolo::Error> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::builder().source("sum.wgsl", "
    ///     @group(0) @binding(0) var<storage, read_write> sum: f32;
    ///     @compute @workgroup_size(1) fn main() {
    ///         for (var turn = 0u; turn < 1000u; turn++) {
    ///             let taken = ring_input_take();
    ///             if !taken.found { break; }
    ///             sum += taken.item.x * taken.item.y;
    ///         }
    ///     }").ring_from_host::<[f32; 2]>("input").build()?;
    /// let kernel = device.kernel(&program, "main", &Constants::new())?;
    /// let (mut sender, input) = device.ring_from_host::<[f32; 2]>(256)?;
    /// let sum = device.buffer(&[0.0f32])?;
    /// let mut launch = kernel.launch().buffer("sum", &sum).ring("input", &input).workgroups(1);
    /// sender.push(&[[1.0, 2.0], [3.0, 4.0]], Duration::from_secs(1))?;
    /// launch.submit()?.wait()?;
    /// assert_eq!(sum.read()?, [14.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RingError::Slots`]; [`RingError::Live`], [`RingError::Memory`].
    pub fn ring_from_host<T: RingItem>(
        &self,
        slots: usize,
    ) -> Result<(RingSender<T>, KernelRing), RingError> {
        let kind = Kind::of::<T>(Direction::FromHost);
        let (memory, shape, kernel) = self.ring::<T>(kind, slots)?;
        Ok((RingSender::new(memory, shape), kernel))
    }

    /// Makes a ring from kernels to the host, of so many slots, rounded up to a power of two: the kernel's end, and the
    /// host's.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tombolo::{Constants, Context, Program};
    /// # fn main() -> Result<(), tombolo::Error> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::builder().source("squares.wgsl", "
    ///     @compute @workgroup_size(1) fn main() {
    ///         for (var i = 0u; i < 4u; i++) {
    ///             let fits = ring_output_put(i * i);
    ///         }
    ///     }").ring_to_host::<u32>("output").build()?;
    /// let kernel = device.kernel(&program, "main", &Constants::new())?;
    /// let (output, mut receiver) = device.ring_to_host::<u32>(4)?;
    /// kernel.launch().ring("output", &output).workgroups(1).submit()?;
    /// let mut squares = [0; 4];
    /// receiver.pop(&mut squares, Duration::from_secs(10))?;
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RingError::Slots`]; [`RingError::Live`], [`RingError::Memory`].
    pub fn ring_to_host<T: RingItem>(
        &self,
        slots: usize,
    ) -> Result<(KernelRing, RingReceiver<T>), RingError> {
        let kind = Kind::of::<T>(Direction::ToHost);
        let (memory, shape, kernel) = self.ring::<T>(kind, slots)?;
        Ok((kernel, RingReceiver::new(memory, shape)))
    }

    fn ring<T: RingItem>(
        &self,
        kind: Kind,
        slots: usize,
    ) -> Result<(RingMemory, Shape, KernelRing), RingError> {
        let limit = MOST;
        if slots == 0 || slots > limit {
            return Err(RingError::Slots { slots, limit });
        }
        let slots = slots.next_power_of_two();
        let shape = Shape {
            slots: slots as u32,
            words: T::WORDS,
        };
        let memory = RingMemory::new(self, shape)?;
        let kernel = KernelRing {
            kind,
            argument: memory.argument(),
            slots,
            is_live: memory.is_live(),
        };
        Ok((memory, shape, kernel))
    }
}

impl ProgramBuilder {
    /// Gives the program's kernels a ring for taking the host's items; `name` is part of the names of its functions,
    /// `T` the type of an item ([`RingItem`]). Launches are given the ring by [`Launch::ring`], servers by
    /// [`PersistentKernelBuilder::ring`]. With `input` as the name:
    ///
    /// - `ring_input_take()`: takes an item (`item`) if any is ready (`found`).
    /// - `ring_input_ready() -> u32`: ready items.
    /// - `ring_input_at(index) -> T`: the item so many behind the first ready item, read in place.
    /// - `ring_input_release(count)`: gives the slots of so many ready items back.
    /// - `ring_input_finished() -> bool`: whether the host has closed its end, and everything is taken.
    /// - `ring_input_close()`: takes nothing more, and tells the host.
    ///
    /// None of them waits. One invocation at a time uses a ring: in a work-group all invocations may read by
    /// `ring_input_at` the items found ready by a single invocation, with `storageBarrier(); workgroupBarrier();`
    /// before, in front of and behind the release by a single invocation. A kernel looking again and again until
    /// something comes has to end by itself: loops are limited on some adapters, and a device runs nothing else
    /// meanwhile.
    pub fn ring_from_host<T: RingItem>(self, name: &str) -> Self {
        self.ring(name, Kind::of::<T>(Direction::FromHost))
    }

    /// Gives the program's kernels a ring for putting items for the host; `name` is part of the names of its functions,
    /// `T` the type of an item ([`RingItem`]). With `output` as the name:
    ///
    /// - `ring_output_put(item) -> bool`: puts an item; `false` if there is no room now.
    /// - `ring_output_room() -> u32`: free room in items.
    /// - `ring_output_set(index, item)`: writes an item in place, so many behind the next item. The host does not see
    ///   the item yet.
    /// - `ring_output_commit(count)`: shows the host so many written items.
    /// - `ring_output_closed() -> bool`: whether the host's end is gone.
    /// - `ring_output_close()`: puts nothing more; the host learns of the end after taking everything.
    ///
    /// None of them waits. One invocation at a time uses a ring: in a work-group all invocations may write by
    /// `ring_output_set` into room found by a single invocation, and the finder commits, with
    /// `storageBarrier(); workgroupBarrier();` before and behind.
    pub fn ring_to_host<T: RingItem>(self, name: &str) -> Self {
        self.ring(name, Kind::of::<T>(Direction::ToHost))
    }

    fn ring(self, name: &str, kind: Kind) -> Self {
        if !is_name(name) {
            let name = name.to_owned();
            return self.mistaken(ProgramMistake::RingName { name });
        }
        let own = name.to_owned();
        self.behind(
            format!("ring {name}"),
            kind.variable(name),
            Arc::new(move |binding| kind.functions(&own, binding)),
        )
    }
}

impl Launch {
    /// Gives a ring to the kernel, whose program has a ring of the same name and type
    /// ([`ProgramBuilder::ring_from_host`], [`ProgramBuilder::ring_to_host`]); otherwise
    /// [`LaunchError::UnknownArgument`](crate::launch::LaunchError::UnknownArgument), naming the ring with its type.
    ///
    /// A submitted launch is with the device once somebody waits for it or calls
    /// [`Device::flush`](crate::Device::flush), or once a push or a pop waits.
    pub fn ring(self, name: &str, ring: &KernelRing) -> Self {
        let variable = ring.kind.variable(name);
        self.buffer(&variable, ring.argument.clone())
    }
}

impl PersistentKernelBuilder {
    /// Gives a ring to the handlers, as [`Launch::ring`] does to a kernel. One invocation at a time uses a ring, so
    /// that calls of handlers with a ring must not run beside each other, and nothing checks the rule: with one
    /// work-group, and [`lanes(1)`](Self::lanes), the default where processors run kernels, or a handler for whole
    /// work-groups; or with one call at a time; and with one server for a ring. Where calls travel in slices
    /// ([`PersistentKernel::tier`](crate::PersistentKernel::tier)) the calls on their way together run beside each
    /// other, so that there a caller waits for each.
    ///
    /// Items pushed before a call are ready in its handler, and items committed by the handler can be popped when the
    /// call has returned.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tombolo::{Context, PersistentKernel, Program};
    /// # fn main() -> Result<(), tombolo::Error> {
    /// # let device = Context::new()?.device()?;
    /// let program = Program::builder().source("echo.wgsl", "
    ///     var<private> last: f32;
    ///     fn soften(count: u32) -> u32 {
    ///         let done = min(count, min(ring_input_ready(), ring_output_room()));
    ///         for (var i = 0u; i < done; i++) {
    ///             last = mix(last, ring_input_at(i), 0.5);
    ///             ring_output_set(i, last);
    ///         }
    ///         ring_input_release(done);
    ///         ring_output_commit(done);
    ///         return done;
    ///     }").ring_from_host::<f32>("input").ring_to_host::<f32>("output").build()?;
    /// let (mut sender, input) = device.ring_from_host::<f32>(64)?;
    /// let (output, mut receiver) = device.ring_to_host::<f32>(64)?;
    /// let server = PersistentKernel::builder(&device, &program)
    ///     .handler("soften").lanes(1)
    ///     .ring("input", &input).ring("output", &output)
    ///     .start()?;
    /// let soften = server.function::<(u32,), u32>("soften")?;
    /// let mut slots = sender.slots_mut(3)?;                      // written in place
    /// for (index, value) in [8.0, 8.0, 0.0].iter().enumerate() {
    ///     slots.set(index, value);
    /// }
    /// slots.commit(3)?;
    /// assert_eq!(soften.call(&(3,))?, 3);
    /// let mut smoothed = [0.0; 3];
    /// receiver.pop(&mut smoothed, Duration::from_secs(1))?;
    /// assert_eq!(smoothed, [4.0, 6.0, 3.0]);
    /// # Ok(()) }
    /// ```
    pub fn ring(self, name: &str, ring: &KernelRing) -> Self {
        let variable = ring.kind.variable(name);
        self.buffer(&variable, ring.argument.clone())
    }
}
