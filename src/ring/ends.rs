//! The host's ends of rings.

use std::marker::PhantomData;
use std::time::Duration;

use super::error::RingError;
use super::item::RingItem;
use super::memory::RingMemory;
use super::protocol::{Consumer, Producer, Shape};
use crate::clock::Instant;
use crate::device::Device;
use crate::device::LiveError;
use crate::device::pace::Pace;

/// How often a waiting end has recorded launches of others begin.
const FLUSHED_EVERY: Duration = Duration::from_millis(1);

/// The words of one item.
fn words_of<T: RingItem>(item: &T) -> &[u32] {
    bytemuck::cast_slice(std::slice::from_ref(item))
}

/// Moves `len` items, as many at a time as `attempt` does of the rest, until `timeout` is over. A wait for a kernel has
/// the recorded launches of `device` begin.
fn move_all(
    device: Option<&Device>,
    len: usize,
    timeout: Duration,
    mut attempt: impl FnMut(usize) -> Result<usize, RingError>,
) -> Result<(), RingError> {
    let begun = Instant::now();
    let mut flushed: Option<Instant> = None;
    let mut pace = Pace::default();
    let mut moved = 0;
    while moved < len {
        let more = match attempt(moved) {
            Err(RingError::Closed { .. }) => return Err(RingError::Closed { moved }),
            other => other?,
        };
        moved += more;
        if more > 0 {
            pace = Pace::default();
            continue;
        }
        let waited = begun.elapsed();
        if waited >= timeout {
            return Err(RingError::Deadline { moved, waited });
        }
        if let Some(device) = device {
            let submissions = &device.shared.submissions;
            submissions.collect();
            if let Some(reason) = submissions.lost().get() {
                return Err(LiveError::DeviceLost { reason }.into());
            }
            // Not at each look: others may be recording, and servers make room for submitted launches.
            if flushed.is_none_or(|last| last.elapsed() >= FLUSHED_EVERY) {
                // The events of the launches tell of failures.
                let _ = device.flush();
                flushed = Some(Instant::now());
            }
        }
        pace.rest(Some(timeout - waited));
    }
    Ok(())
}

/// The host's end of a ring from the host to kernels ([`Device::ring_from_host`](crate::Device::ring_from_host)).
/// Dropping this end closes the ring: kernels find the remaining items, and then the ring finished.
///
/// Where rings travel between launches ([`KernelRing::tier`](super::KernelRing::tier)), a full-looking ring is looked
/// at behind the launches submitted before, so that every method may wait for them.
#[derive(Debug)]
pub struct RingSender<T: RingItem> {
    memory: RingMemory,
    producer: Producer,
    slots: usize,
    is_closed: bool,
    item: PhantomData<fn(T)>,
}

impl<T: RingItem> RingSender<T> {
    pub(super) fn new(memory: RingMemory, shape: Shape) -> Self {
        Self {
            memory,
            producer: Producer::new(shape),
            slots: shape.slots as usize,
            is_closed: false,
            item: PhantomData,
        }
    }

    /// The ring's capacity in items.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Free room in items, counted anew.
    ///
    /// # Errors
    /// [`RingError::Garbled`]; [`RingError::Read`].
    pub fn room(&mut self) -> Result<usize, RingError> {
        let all = self.slots as u32;
        Ok(self.producer.room(&self.memory, all)? as usize)
    }

    /// Room for up to `wanted` items, to be written in place.
    ///
    /// # Errors
    /// [`RingError::Closed`] if there is no room and the kernel has closed its end and will make none;
    /// [`RingError::Garbled`]; [`RingError::Read`].
    pub fn slots_mut(&mut self, wanted: usize) -> Result<RingSlots<'_, T>, RingError> {
        if self.is_closed {
            return Err(RingError::Closed { moved: 0 });
        }
        let wanted = wanted.min(self.slots) as u32;
        let room = self.producer.room(&self.memory, wanted)?;
        if room == 0 && wanted > 0 && self.producer.is_closed(&self.memory)? {
            return Err(RingError::Closed { moved: 0 });
        }
        Ok(RingSlots {
            len: room.min(wanted),
            sender: self,
        })
    }

    /// Pushes as many of the items as there is room for, and returns how many.
    ///
    /// # Errors
    /// The errors of [`RingSender::slots_mut`]; [`RingError::Memory`].
    pub fn try_push(&mut self, items: &[T]) -> Result<usize, RingError> {
        let mut slots = self.slots_mut(items.len())?;
        let len = slots.len();
        for (index, item) in items.iter().take(len).enumerate() {
            slots.set(index, item);
        }
        if len > 0 {
            slots.commit(len)?;
        }
        Ok(len)
    }

    /// Pushes all items, waiting up to `timeout` for room, and where the ring travels between launches for the launches
    /// submitted before, however long.
    ///
    /// # Errors
    /// [`RingError::Live`] where the device is lost; [`RingError::Deadline`] and [`RingError::Closed`], with the number
    /// of pushed items; the errors of [`RingSender::try_push`].
    pub fn push(&mut self, items: &[T], timeout: Duration) -> Result<(), RingError> {
        let device = self.memory.device();
        move_all(device.as_ref(), items.len(), timeout, |moved| {
            self.try_push(&items[moved..])
        })
    }

    /// Whether the kernel has closed its end, taking nothing more.
    ///
    /// # Errors
    /// [`RingError::Read`].
    pub fn is_closed_by_kernel(&self) -> Result<bool, RingError> {
        self.producer.is_closed(&self.memory)
    }

    /// Closes the ring, as dropping this end does. Pushing is [`RingError::Closed`] from then on.
    ///
    /// # Errors
    /// [`RingError::Memory`].
    pub fn close(&mut self) -> Result<(), RingError> {
        if !self.is_closed {
            self.producer.close(&self.memory)?;
            self.is_closed = true;
        }
        Ok(())
    }
}

impl<T: RingItem> Drop for RingSender<T> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("a ring was dropped, and kernels cannot be told: {error}");
        }
    }
}

/// Free slots of a ring, from [`RingSender::slots_mut`]: writes there are in the kernel's place for reading. Dropping
/// the value without [`RingSlots::commit`] puts nothing.
#[derive(Debug)]
#[must_use = "nothing is put until `commit` is called"]
pub struct RingSlots<'a, T: RingItem> {
    sender: &'a mut RingSender<T>,
    len: u32,
}

impl<T: RingItem> RingSlots<'_, T> {
    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no room.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the item of a slot; `None` beyond the last one.
    pub fn set(&mut self, index: usize, item: &T) -> Option<()> {
        let index = u32::try_from(index).ok().filter(|&at| at < self.len)?;
        let sender = &*self.sender;
        sender.producer.write(&sender.memory, index, words_of(item));
        Some(())
    }

    /// Shows the kernel the first `count` items, at most as many as there are slots. Each must have been set: an unset
    /// slot holds an item of earlier.
    ///
    /// # Errors
    /// [`RingError::Memory`].
    pub fn commit(self, count: usize) -> Result<(), RingError> {
        let count = count.min(self.len()) as u32;
        let sender = self.sender;
        sender.producer.commit(&sender.memory, count)
    }
}

/// The host's end of a ring from kernels to the host ([`Device::ring_to_host`](crate::Device::ring_to_host)). Dropping
/// this end closes the ring; kernels can ask whether the ring is closed.
///
/// Where rings travel between launches ([`KernelRing::tier`](super::KernelRing::tier)), an empty-looking ring is looked
/// at behind the launches submitted before, so that every method may wait for them.
#[derive(Debug)]
pub struct RingReceiver<T: RingItem> {
    memory: RingMemory,
    consumer: Consumer,
    slots: usize,
    is_closed: bool,
    item: PhantomData<fn() -> T>,
}

impl<T: RingItem> RingReceiver<T> {
    pub(super) fn new(memory: RingMemory, shape: Shape) -> Self {
        Self {
            memory,
            consumer: Consumer::new(shape),
            slots: shape.slots as usize,
            is_closed: false,
            item: PhantomData,
        }
    }

    /// The ring's capacity in items.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Items ready, counted anew.
    ///
    /// # Errors
    /// [`RingError::Garbled`]; [`RingError::Read`].
    pub fn ready(&mut self) -> Result<usize, RingError> {
        let all = self.slots as u32;
        Ok(self.consumer.ready(&self.memory, all)? as usize)
    }

    /// Up to `wanted` ready items, to be read in place.
    ///
    /// # Errors
    /// [`RingError::Closed`] if there are none and the kernel has closed its end and will put none;
    /// [`RingError::Garbled`]; [`RingError::Read`].
    pub fn items(&mut self, wanted: usize) -> Result<RingItems<'_, T>, RingError> {
        let wanted = wanted.min(self.slots) as u32;
        let mut ready = self.consumer.ready(&self.memory, wanted)?;
        if ready == 0 && wanted > 0 {
            if self.is_closed || self.consumer.is_finished(&self.memory)? {
                return Err(RingError::Closed { moved: 0 });
            }
            ready = self.consumer.ready(&self.memory, 0)?;
        }
        Ok(RingItems {
            len: ready.min(wanted),
            receiver: self,
        })
    }

    /// Pops as many items as there are and fit into `items`, and returns how many.
    ///
    /// # Errors
    /// The errors of [`RingReceiver::items`]; [`RingError::Memory`].
    pub fn try_pop(&mut self, items: &mut [T]) -> Result<usize, RingError> {
        let found = self.items(items.len())?;
        let len = found.len();
        for (index, item) in items.iter_mut().take(len).enumerate() {
            if let Some(value) = found.get(index) {
                *item = value;
            }
        }
        if len > 0 {
            found.release(len)?;
        }
        Ok(len)
    }

    /// Pops items until `items` is full, waiting up to `timeout` for more, and where the ring travels between launches
    /// for the launches submitted before, however long.
    ///
    /// # Errors
    /// [`RingError::Live`] where the device is lost; [`RingError::Deadline`] and [`RingError::Closed`], with the number
    /// of popped items, the first in `items`; the errors of [`RingReceiver::try_pop`].
    pub fn pop(&mut self, items: &mut [T], timeout: Duration) -> Result<(), RingError> {
        let len = items.len();
        let device = self.memory.device();
        move_all(device.as_ref(), len, timeout, |moved| {
            self.try_pop(&mut items[moved..])
        })
    }

    /// Takes nothing more, as dropping does. Items already in the ring can still be popped.
    ///
    /// # Errors
    /// [`RingError::Memory`].
    pub fn close(&mut self) -> Result<(), RingError> {
        if !self.is_closed {
            self.consumer.close(&self.memory)?;
            self.is_closed = true;
        }
        Ok(())
    }
}

impl<T: RingItem> Drop for RingReceiver<T> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("a ring was dropped, and kernels cannot be told: {error}");
        }
    }
}

/// Put items of a ring, from [`RingReceiver::items`], read where the kernel wrote them. Dropping the value without
/// [`RingItems::release`] leaves the items in the ring.
#[derive(Debug)]
#[must_use = "the items stay until `release` is called"]
pub struct RingItems<'a, T: RingItem> {
    receiver: &'a mut RingReceiver<T>,
    len: u32,
}

impl<T: RingItem> RingItems<'_, T> {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads an item; `None` beyond the last one.
    pub fn get(&self, index: usize) -> Option<T> {
        let index = u32::try_from(index).ok().filter(|&at| at < self.len)?;
        let mut item = [T::zeroed()];
        let (receiver, words) = (&*self.receiver, bytemuck::cast_slice_mut(&mut item));
        receiver.consumer.read(&receiver.memory, index, words);
        Some(item[0])
    }

    /// Gives the slots of the first `count` items back to the kernel, at most as many as there are.
    ///
    /// # Errors
    /// [`RingError::Memory`].
    pub fn release(self, count: usize) -> Result<(), RingError> {
        let count = count.min(self.len()) as u32;
        let receiver = self.receiver;
        receiver.consumer.release(&receiver.memory, count)
    }
}
