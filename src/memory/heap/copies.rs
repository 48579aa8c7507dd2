//! Transfers made by a device, in the order of its queue: within the heap and the device's own memory, and between
//! these and device buffers.
//!
//! A device sees the heap as a few large buffers, and wgpu copies between different buffers only. Bytes staying within
//! a buffer therefore go through another one. wgpu also copies whole words only: other bytes go through a further
//! buffer, too, and a kernel shifts them into place ([`crate::memory::shift`]).

pub(crate) mod direct;

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::device_memory::{DeviceMemory, DevicePlace};
use super::transfer::check_apart;
use super::{DeviceView, HeapError, HeapShared, SharedHeap, Task, Turn, Work, Writes, heap_of};
use crate::device::heap_shape::segment_bytes;
use crate::device::outcome::Outcome;
use crate::device::queue::Recorder;
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared, Event};
use crate::memory::buffer::DeviceBuffer;
use crate::memory::fill::fill_bytes;
use crate::memory::places::{Buffers, Place, copy, needed_of_target};
use crate::memory::pointer::{PointerKind, Ptr};

impl Device {
    /// Copies `len` values from `from` to `to`, on this device and in the order of its queue: the copy reads the writes
    /// of launches recorded before, and launches recorded later read the copy. The pointers are to the context's heap
    /// or to this device's own memory ([`Device::malloc`]); the values may be of any size, at any byte. No values are
    /// never an error.
    ///
    /// Bytes beside the target are unchanged. Where the range starts or ends inside a word of 4 bytes, the other bytes
    /// of that word must not be written at the same time, by another device or its kernels, except with atomics: the
    /// copy itself changes such a word with an atomic. Whole words are faster: other bytes are copied twice on their
    /// way.
    ///
    /// # Errors
    /// [`HeapError::Overlap`]; [`HeapError::HostAccess`]; [`HeapError::Unsupported`];
    /// [`HeapError::Null`], [`HeapError::NotAllocated`],
    /// [`HeapError::Misaligned`]; [`HeapError::Buffer`] when wgpu refuses.
    pub fn heap_copy<T: Pod>(
        &self,
        from: Ptr<T>,
        to: Ptr<T>,
        len: usize,
    ) -> Result<Event, HeapError> {
        const WHAT: &str = "a copy on a device";
        let device = &self.shared;
        let Some(bytes) = bytes_of::<T>(len as u64) else {
            return Ok(Event::complete(device));
        };
        let heap = heap_of(device)?;
        let mut from = Pointee::find(device, WHAT, from, bytes)?.unchanged();
        let mut to = Pointee::find(device, WHAT, to, bytes)?;
        let none = Vec::new;
        let (_turn, mut queue) = begin(&heap, device, WHAT, [&mut from, &mut to], none)?;
        let source = from.padded_place(WHAT, bytes)?;
        let target = to.padded_place(WHAT, bytes)?;
        check_apart(from.ptr.address(), to.ptr.address(), bytes)?;
        copy(&mut queue, device, &source, &target, bytes)?;
        Ok(event(queue, device))
    }

    /// Sets `len` values at `ptr` to `value`, on this device and in the order of its queue. The pointer is to the
    /// context's heap or to this device's own memory; the value may be of any size, at any alignment. No values are
    /// never an error.
    ///
    /// # Errors
    /// [`HeapError::HostAccess`], [`HeapError::Unsupported`], [`HeapError::Null`],
    /// [`HeapError::NotAllocated`], [`HeapError::Misaligned`]; [`HeapError::Buffer`] when wgpu refuses.
    pub fn heap_fill<T: Pod>(&self, ptr: Ptr<T>, value: T, len: usize) -> Result<Event, HeapError> {
        const WHAT: &str = "a fill on a device";
        let device = &self.shared;
        let Some(bytes) = bytes_of::<T>(len as u64) else {
            return Ok(Event::complete(device));
        };
        let heap = heap_of(device)?;
        let mut target = Pointee::find(device, WHAT, ptr, bytes)?;
        let (_turn, mut queue) = begin(&heap, device, WHAT, [&mut target], Vec::new)?;
        let place = target.place(WHAT, bytes)?;
        let mut pattern = bytemuck::bytes_of(&value).to_vec();
        let mut done = 0;
        while done < bytes {
            let (buffer, at, left) = place.after(done)?;
            let count = left.min(bytes - done);
            fill_bytes(&mut queue, device, buffer, &pattern, &(at..at + count))?;
            done += count;
            // The next segment may begin inside a repetition.
            let turn = (count % pattern.len() as u64) as usize;
            pattern.rotate_left(turn);
        }
        Ok(event(queue, device))
    }

    /// Announces the use of `len` values at `ptr` by launches on this device.
    ///
    /// Where the device uses the host's memory in place nothing is moved, and the event is complete: a heap that has
    /// grown since the last launch is imported now, which may wait for the device, and not by the next launch. A device
    /// with a copy is sent the missing parts of the whole heap, ahead of the next launch in the queue, and the event does not tell when
    /// these have arrived: launches wait for them by themselves. A device that chooses
    /// ([`HeapPlacement::Auto`](crate::heap::HeapPlacement::Auto)) moves to its copy now, or with the first launch that finds
    /// neither this thread's host access nor another command using the heap.
    ///
    /// # Errors
    /// [`HeapError::Unsupported`], [`HeapError::Null`], [`HeapError::NotAllocated`],
    /// [`HeapError::Misaligned`].
    pub fn heap_prefetch<T: Pod>(&self, ptr: Ptr<T>, len: usize) -> Result<Event, HeapError> {
        const WHAT: &str = "a prefetch";
        let device = &self.shared;
        if let Some(bytes) = bytes_of::<T>(len as u64) {
            let heap = heap_of(device)?;
            let mut pointee = Pointee::find(device, WHAT, ptr, bytes)?.unchanged();
            let policy = device.options.host_access;
            heap.shared.await_mirror(device);
            let turn = heap.retry_command(policy, || {
                take_turn(&heap, device, Work::Prefetch, [&mut pointee])
            });
            match turn {
                // The next launch moves.
                Err(HeapError::HostAccess { .. }) if heap.shared.may_choose(device) => {}
                turn => {
                    let _turn = turn?;
                    pointee.place(WHAT, bytes)?;
                }
            }
        }
        Ok(Event::complete(device))
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// Copies `count` values at `from` into this buffer, beginning with element `start`, on the device and in the order
    /// of its queue. The pointer is to the context's heap or to the device's own memory. No values are never an error.
    /// The remarks of [`Device::heap_copy`] about parts of words hold here, too.
    ///
    /// Reads of the buffer inherit the failure of any launch that used the heap, has failed, and has not been reported
    /// to a [`HostAccess`](crate::heap::HostAccess): the failed launch may have written the copied bytes.
    ///
    /// # Errors
    /// As [`Device::heap_copy`]; [`HeapError::Buffer`] with [`MemoryError::OutOfRange`](crate::buffers::MemoryError::OutOfRange);
    /// [`MemoryError::Misaligned`](crate::buffers::MemoryError::Misaligned) where an imported buffer ends inside the last word of the range;
    /// [`MemoryError::MissingUsage`](crate::buffers::MemoryError::MissingUsage), which is `STORAGE` as well for parts of words.
    pub fn copy_from_heap(&self, start: u64, from: Ptr<T>, count: u64) -> Result<Event, HeapError> {
        const WHAT: &str = "a copy from the heap";
        let range = self.byte_range(WHAT, start, count)?;
        let device = &self.shared.device;
        let Some(bytes) = bytes_of::<T>(count) else {
            return Ok(Event::complete(device));
        };
        let target = self.place(WHAT, &range)?;
        let heap = heap_of(device)?;
        let mut from = Pointee::find(device, WHAT, from, bytes)?.unchanged();
        let (_turn, mut queue) = begin(&heap, device, WHAT, [&mut from], Vec::new)?;
        let source = from.padded_place(WHAT, bytes)?;
        self.needs(
            WHAT,
            needed_of_target((source.start, source.padded), &target, bytes),
        )?;
        copy(&mut queue, device, &source, &target, bytes)?;
        self.shared.overwritten(&range);
        for outcome in from.uncertain() {
            self.shared.poison(range.clone(), &outcome);
        }
        Ok(event(queue, device))
    }

    /// Copies `count` elements of this buffer, beginning with element `start`, to `to`, on the device and in the order
    /// of its queue. The pointer is to the context's heap or to the device's own memory. No elements are never an
    /// error. The remarks of [`Device::heap_copy`] about parts of words hold here, too.
    ///
    /// The failure of a launch among the writers of the copied bytes is reported to the next
    /// [`HostAccess`](crate::heap::HostAccess).
    ///
    /// # Errors
    /// As [`DeviceBuffer::copy_from_heap`].
    pub fn copy_to_heap(&self, start: u64, to: Ptr<T>, count: u64) -> Result<Event, HeapError> {
        const WHAT: &str = "a copy to the heap";
        let range = self.byte_range(WHAT, start, count)?;
        let device = &self.shared.device;
        let Some(bytes) = bytes_of::<T>(count) else {
            return Ok(Event::complete(device));
        };
        self.needs(WHAT, wgpu::BufferUsages::COPY_SRC)?;
        let source = self.place(WHAT, &range)?;
        let heap = heap_of(device)?;
        let mut to = Pointee::find(device, WHAT, to, bytes)?;
        let depends_on = || self.shared.depends_on(&range);
        let (_turn, mut queue) = begin(&heap, device, WHAT, [&mut to], depends_on)?;
        let target = to.padded_place(WHAT, bytes)?;
        copy(&mut queue, device, &source, &target, bytes)?;
        Ok(event(queue, device))
    }
}

/// Ends a transfer.
fn event(mut queue: Recorder<'_>, device: &Arc<DeviceShared>) -> Event {
    let batch = queue.batch();
    queue.commit();
    drop(queue);
    Event::of_batch(device, batch)
}

/// Bytes of `count` values; `None` for nothing at all. A product that does not fit lies in no allocation
/// either.
fn bytes_of<T>(count: u64) -> Option<u64> {
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    (bytes > 0).then_some(bytes)
}

/// Takes the device's turn with the heap and its queue, and notes the open batch's use of the heap; `outcomes` decide
/// about the transfer's results. Waits for another thread's access of the host, with nothing held, as the device was
/// told to.
fn begin<'h, T, const N: usize>(
    heap: &'h SharedHeap,
    device: &'h Arc<DeviceShared>,
    what: &'static str,
    mut pointees: [&mut Pointee<'_, T>; N],
    outcomes: impl Fn() -> Vec<Arc<Outcome>>,
) -> Result<(Option<Turn<'h>>, Recorder<'h>), HeapError> {
    heap.retry_command(device.options.host_access, || {
        let turn = take_turn(
            heap,
            device,
            Work::Transfer,
            pointees.each_mut().map(|pointee| &mut **pointee),
        )?;
        let queue = device.queue.lock(device);
        let outcomes = outcomes();
        if let Some(turn) = &turn {
            for pointee in &pointees {
                pointee.enter(turn, &queue, what, &outcomes)?;
            }
        }
        Ok((turn, queue))
    })
}

/// Waits for the device's turn with the heap, if either pointer leads there; the turn lasts until the transfer is
/// recorded.
fn take_turn<'h, T, const N: usize>(
    heap: &'h SharedHeap,
    device: &Arc<DeviceShared>,
    work: Work,
    pointees: [&mut Pointee<'_, T>; N],
) -> Result<Option<Turn<'h>>, HeapError> {
    let mut turn = None;
    let written = pointees
        .iter()
        .filter_map(|pointee| pointee.written.clone());
    let task = Task {
        writes: Writes::Ranges(written.collect()),
        work,
    };
    for pointee in pointees {
        if let Memory::Shared(_, view) = &mut pointee.memory {
            let taken = match turn.take() {
                Some(taken) => taken,
                None => heap.shared.turn(device, &task)?,
            };
            *view = heap.shared.view_in(&taken, device)?;
            turn = Some(taken);
        }
    }
    Ok(turn)
}

/// The target of a transfer's pointer.
struct Pointee<'d, T> {
    device: &'d Arc<DeviceShared>,
    /// Without its tag where the device's own memory is memory of the heap.
    ptr: Ptr<T>,
    memory: Memory,
    /// The addresses that the transfer changes.
    written: Option<Range<u64>>,
}

enum Memory {
    Shared(Arc<HeapShared>, DeviceView),
    /// A buffer of the device, the offset inside, and the end of the allocation.
    Own(wgpu::Buffer, u64, u64),
}

impl<'d, T> Pointee<'d, T> {
    /// Must not be called with the queue locked: importing the heap's growth waits for the queue.
    fn find(
        device: &'d Arc<DeviceShared>,
        what: &'static str,
        mut ptr: Ptr<T>,
        bytes: u64,
    ) -> Result<Self, HeapError> {
        let mut own = None;
        if ptr.kind() == PointerKind::Device {
            match DeviceMemory::resolve(device, what, ptr.address(), bytes)? {
                DevicePlace::Shared(address) => ptr = Ptr::from_address(address),
                DevicePlace::Own {
                    buffer,
                    offset,
                    end,
                    ..
                } => own = Some(Memory::Own(buffer, offset, end)),
            }
        }
        let memory = match own {
            Some(own) => own,
            None => {
                let heap = heap_of(device)?.shared;
                let view = heap.view(device)?;
                Memory::Shared(heap, view)
            }
        };
        let written = match memory {
            Memory::Shared(..) => Some(ptr.address()..ptr.address().saturating_add(bytes)),
            Memory::Own(..) => None,
        };
        Ok(Self {
            device,
            ptr,
            memory,
            written,
        })
    }

    /// For a transfer that only reads there.
    fn unchanged(mut self) -> Self {
        self.written = None;
        self
    }

    /// Notes that the open batch uses the heap, with `outcomes` deciding about the contents it leaves. From here on
    /// nothing touched by the transfer is reused before its end.
    fn enter(
        &self,
        turn: &Turn<'_>,
        queue: &Recorder<'_>,
        what: &'static str,
        outcomes: &[Arc<Outcome>],
    ) -> Result<(), HeapError> {
        match &self.memory {
            Memory::Shared(heap, _) => {
                heap.enter_for(what, turn, self.device, &queue.batch(), outcomes)
            }
            Memory::Own(..) => Ok(()),
        }
    }

    /// Where `bytes` bytes lie, which have to be in one live allocation.
    fn place(&self, what: &'static str, bytes: u64) -> Result<Place, HeapError> {
        Ok(match &self.memory {
            Memory::Shared(heap, view) => {
                let offset = heap.check_live(what, self.ptr, bytes)?;
                if offset + bytes > view.covered {
                    // Freed, and allocated again where the device had imported nothing yet.
                    return Err(HeapError::NotAllocated {
                        what,
                        address: self.ptr.address(),
                        bytes,
                    });
                }
                Place {
                    start: view.front + offset,
                    buffers: Buffers::Segments(view.clone(), segment_bytes(&self.device.limits)),
                    padded: false,
                }
            }
            Memory::Own(buffer, offset, _) => Place {
                start: *offset,
                buffers: Buffers::One(buffer.clone()),
                padded: false,
            },
        })
    }

    /// As [`Self::place`], and notes whether the last word is padding behind these bytes.
    fn padded_place(&self, what: &'static str, bytes: u64) -> Result<Place, HeapError> {
        let mut place = self.place(what, bytes)?;
        place.padded = match &self.memory {
            // Allocations are granted whole words.
            Memory::Shared(heap, _) => {
                let (offset, found) = heap.locate(&lock(&heap.state), what, self.ptr, bytes)?;
                offset + bytes == found.address + found.requested
            }
            Memory::Own(_, offset, end) => offset + bytes == *end,
        };
        Ok(place)
    }

    /// The launches that used the heap and may have failed.
    fn uncertain(&self) -> Vec<Arc<Outcome>> {
        let Memory::Shared(heap, _) = &self.memory else {
            return Vec::new();
        };
        let state = lock(&heap.state);
        let outcomes = state.outcomes.iter();
        outcomes
            .filter(|known| !known.succeeded())
            .cloned()
            .collect()
    }
}
