//! The memory of a buffer on one device: a wgpu buffer of its own, or a part of a block.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ahead::{Landing, SentAhead};
use super::blocks::{self, Room};
use super::hop::End;
use super::places::let_go;
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::wait::lock;
use crate::device::{DeviceShared, capture, unique_id};
use crate::memory::buffer::{BufferShared, DeviceBuffer, USAGE};
use crate::memory::{MemoryError, MemoryExtension};

/// The largest alignment of binding offsets that WebGPU lets an adapter require.
pub(super) const BINDABLE: u64 = 256;

/// The kind of a buffer's memory.
enum Memory {
    /// A whole wgpu buffer.
    Alone,
    /// An extent of a block.
    Block(Room),
    /// Memory common to several devices.
    Common,
}

/// Memory of one device for a whole buffer. Ranges are ranges of the buffer.
pub(super) struct DeviceAllocation {
    pub(super) shared: Arc<BufferShared>,
    /// Offset of the buffer in the wgpu buffer.
    pub(super) base: u64,
    /// Size, up to whole words.
    bytes: u64,
    memory: Memory,
    /// Ranges written by batches that may not be submitted yet.
    unsent: Vec<(Range<u64>, Arc<Batch>)>,
    /// The last batch with a use of the memory.
    pub(super) last: Option<Arc<Batch>>,
    pub(super) used_at: u64,
    /// What other devices fetch from here, and what was sent to them.
    pub(super) ahead: SentAhead,
}

/// A hold of a buffer on a device, for a command that is not known to have ended.
pub(super) struct DeviceHold {
    /// Taken by the drop alone, which may leave the last hold to another thread.
    device: Option<Arc<DeviceShared>>,
}

impl DeviceHold {
    pub(super) fn new(device: &Arc<DeviceShared>) -> Self {
        let memory = &device.extensions.memory;
        memory.buffer_holds.fetch_add(1, Ordering::AcqRel);
        Self {
            device: Some(Arc::clone(device)),
        }
    }

    pub(super) fn get(&self) -> Option<&Arc<DeviceShared>> {
        self.device.as_ref()
    }

    /// Whether this is a hold on the device.
    pub(super) fn is_on(&self, device: &Arc<DeviceShared>) -> bool {
        self.get().is_some_and(|held| Arc::ptr_eq(held, device))
    }
}

impl Drop for DeviceHold {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            let memory = &device.extensions.memory;
            memory.buffer_holds.fetch_sub(1, Ordering::AcqRel);
            let_go(device);
        }
    }
}

impl DeviceShared {
    /// Whether nobody but buffers of the context holds the device, which nobody can use any more then. Beside other
    /// threads that take or drop holds the answer may be wrong: no more may hang on it than memory given up early, or late.
    pub(super) fn is_only_in_buffers(self: &Arc<Self>) -> bool {
        let memory = &self.extensions.memory;
        let allocations = lock(&memory.buffers).buffers;
        let holds = memory.buffer_holds.load(Ordering::Acquire);
        Arc::strong_count(self) as u64 <= allocations + holds
    }
}

/// Bytes reserved below a device's cap for memory about to be made.
pub(super) struct Reservation<'r> {
    room: &'r MemoryExtension,
    bytes: u64,
}

impl<'r> Reservation<'r> {
    /// Fails, with the bytes reserved so far, if the cap would be exceeded.
    pub(super) fn new(
        room: &'r MemoryExtension,
        bytes: u64,
        cap: Option<u64>,
    ) -> Result<Self, u64> {
        let mut memory = lock(&room.buffers);
        let sum = memory.reserved.saturating_add(bytes);
        if cap.is_some_and(|cap| sum > cap) {
            return Err(memory.reserved);
        }
        memory.reserved = sum;
        Ok(Self { room, bytes })
    }

    /// Keeps the bytes reserved after the memory was made: dropping the memory returns them.
    fn keep(self) -> u64 {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut memory = lock(&self.room.buffers);
        memory.reserved = memory.reserved.saturating_sub(self.bytes);
    }
}

impl DeviceAllocation {
    fn new(shared: Arc<BufferShared>, bytes: u64, kind: Memory) -> Self {
        let mut memory = lock(&shared.device.extensions.memory.buffers);
        memory.used += bytes;
        memory.buffers += 1;
        memory.peak = memory.peak.max(memory.used);
        drop(memory);
        Self {
            shared,
            base: match &kind {
                Memory::Block(room) => room.start,
                Memory::Alone | Memory::Common => 0,
            },
            bytes,
            memory: kind,
            unsent: Vec::new(),
            last: None,
            used_at: 0,
            ahead: SentAhead::default(),
        }
    }

    /// A zeroed wgpu buffer of the reserved size.
    pub(super) fn alone(
        device: &Arc<DeviceShared>,
        reserved: Reservation<'_>,
    ) -> Result<Self, MemoryError> {
        let made = DeviceBuffer::<u8>::allocate(device, reserved.bytes)?;
        let size = reserved.keep();
        Ok(Self::new(made.shared, size, Memory::Alone))
    }

    /// A part of a block outside of `avoid`; [`Self::is_used`] says whether old bytes may be left there. `None` if a new
    /// block is needed, and exceeds the device's cap or memory.
    pub(super) fn carved(device: &Arc<DeviceShared>, bytes: u64, avoid: &[u64]) -> Option<Self> {
        let (cap, limit) = (device.options.buffer_bytes, device.limits.max_buffer_size);
        let most = blocks::largest(cap, limit);
        if !blocks::is_small(bytes, most) {
            return None;
        }
        let room = &device.extensions.memory;
        let mut blocks = lock(&room.blocks);
        let mut found = blocks.take(bytes, BINDABLE, avoid);
        if found.is_none() {
            let size = blocks.next_bytes(bytes, most, avoid);
            let reserved = Reservation::new(room, size, cap).ok()?;
            let (memory, error) = capture(&device.raw, || {
                device.raw.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("tombolo block of buffers"),
                    size,
                    usage: USAGE,
                    mapped_at_creation: false,
                })
            });
            if error.is_some() {
                // The caller then asks for a smaller buffer, and gets the error there.
                return None;
            }
            blocks.add(memory, reserved.keep());
            found = blocks.take(bytes, BINDABLE, avoid);
        }
        let (place, memory) = found?;
        let memory = memory.clone();
        drop(blocks);
        let shared = BufferShared::new(device, memory, unique_id(), false);
        Some(Self::new(shared, bytes, Memory::Block(place)))
    }

    /// Memory common to several devices, seen through `shared`, of at least `bytes` bytes.
    pub(super) fn common(shared: Arc<BufferShared>, bytes: u64) -> Self {
        Self::new(shared, bytes, Memory::Common)
    }

    fn room(&self) -> Option<&Room> {
        match &self.memory {
            Memory::Block(room) => Some(room),
            Memory::Alone | Memory::Common => None,
        }
    }

    /// The number of the block around this part, if any.
    pub(super) fn block(&self) -> Option<u64> {
        self.room().map(|room| room.block)
    }

    /// Whether other devices see the memory, too.
    pub(super) fn is_common(&self) -> bool {
        matches!(self.memory, Memory::Common)
    }

    /// Bytes of the buffer, and the rest of the last word.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether bytes of earlier owners may be left here.
    pub(super) fn is_used(&self) -> bool {
        self.room().is_some_and(|room| room.is_used)
    }

    /// The whole range in the wgpu buffer: whole words.
    pub(super) fn all(&self) -> Range<u64> {
        self.base..self.base + self.bytes
    }

    /// A range of the buffer, in the wgpu buffer.
    pub(super) fn at(&self, range: &Range<u64>) -> Range<u64> {
        self.base + range.start..self.base + range.end
    }

    /// Gives the memory up at once, whatever handles are left.
    pub(super) fn give_up(self) {
        // Bytes of a block are free with this drop: the queue is in order, and commands of the next owner come behind
        // all recorded ones. Common memory belongs to other devices, too.
        if !matches!(self.memory, Memory::Alone) {
            return;
        }
        let unsent = (self.last.as_ref()).is_some_and(|batch| batch.submission().is_none());
        if unsent {
            // wgpu refuses batches with destroyed buffers; failures are reported by events.
            let _ = self.shared.device.flush();
        }
        self.shared.raw.destroy();
    }

    /// Whether a recorded command that writes there is not submitted yet.
    pub(super) fn is_unsent(&mut self, range: &Range<u64>) -> bool {
        self.unsent
            .retain(|(_, batch)| batch.submission().is_none());
        let meets =
            |(known, _): &(Range<u64>, _)| known.start < range.end && range.start < known.end;
        self.unsent.iter().any(meets)
    }

    /// Notes a use by `batch`, which is open, and the range written.
    pub(super) fn used(&mut self, batch: &Arc<Batch>, written: Option<Range<u64>>, now: u64) {
        if let Some(range) = written {
            let stale = self.ahead.written(&range);
            self.take_back(stale);
            let same =
                |(known, of): &(Range<u64>, Arc<Batch>)| *known == range && Arc::ptr_eq(of, batch);
            if !self.unsent.iter().any(same) {
                self.unsent
                    .retain(|(_, batch)| batch.submission().is_none());
                self.unsent.push((range, Arc::clone(batch)));
            }
        }
        self.last = Some(Arc::clone(batch));
        self.used_at = now;
    }

    /// Gives slots back that nobody has fetched. Staging memory goes: its copy may not be submitted yet.
    pub(super) fn take_back(&self, sent: Vec<(Landing, Arc<Batch>)>) {
        let device = &self.shared.device;
        for (landing, batch) in sent {
            if let Landing::Slot(slot) = landing {
                let end = End::of(device, batch);
                device.context.buffers.exchange.give(slot, vec![end]);
            }
        }
    }

    /// Notes new bytes in `range`, and the outcomes on which the bytes depend.
    pub(super) fn filled(&self, range: &Range<u64>, outcomes: &[Arc<Outcome>]) {
        self.overwritten(range);
        for outcome in outcomes {
            self.poison(range, outcome);
        }
    }

    pub(super) fn poison(&self, range: &Range<u64>, outcome: &Arc<Outcome>) {
        self.shared.poison(self.at(range), outcome);
    }

    pub(super) fn overwritten(&self, range: &Range<u64>) {
        self.shared.overwritten(&self.at(range));
    }

    /// The launches of uncertain or bad outcome that wrote into `range`.
    pub(super) fn depends_on(&self, range: &Range<u64>) -> Vec<Arc<Outcome>> {
        self.shared.depends_on(&self.at(range))
    }

    /// Records the copy of all bytes from `old`, another wgpu buffer of the same device.
    pub(super) fn take_over(&mut self, old: &DeviceAllocation, now: u64) {
        let device = Arc::clone(&self.shared.device);
        let mut queue = device.queue.lock(&device);
        queue.encode(|encoder| {
            let (from, to) = (&old.shared.raw, &self.shared.raw);
            encoder.copy_buffer_to_buffer(from, old.base, to, self.base, self.bytes);
        });
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        old.shared.hand_taint(&old.all(), &self.shared, self.base);
        self.used(&batch, Some(0..self.bytes), now);
    }

    /// Records the zeroing of all bytes.
    pub(super) fn clear(&mut self, now: u64) {
        let device = Arc::clone(&self.shared.device);
        let mut queue = device.queue.lock(&device);
        queue.encode(|encoder| {
            encoder.clear_buffer(&self.shared.raw, self.base, Some(self.bytes));
        });
        let batch = queue.batch();
        queue.commit();
        drop(queue);
        self.used(&batch, Some(0..self.bytes), now);
    }
}

impl Drop for DeviceAllocation {
    fn drop(&mut self) {
        let sent = self.ahead.take_all();
        self.take_back(sent);
        let rooms = &self.shared.device.extensions.memory;
        let reserved = match &self.memory {
            Memory::Block(room) => lock(&rooms.blocks).give(room),
            Memory::Alone => self.bytes,
            Memory::Common => 0,
        };
        let mut memory = lock(&rooms.buffers);
        memory.used = memory.used.saturating_sub(self.bytes);
        memory.buffers = memory.buffers.saturating_sub(1);
        memory.reserved = memory.reserved.saturating_sub(reserved);
    }
}

/// Destroys the device's empty blocks, and returns their bytes.
pub(super) fn trim_blocks(device: &DeviceShared) -> u64 {
    let rooms = &device.extensions.memory;
    let empty = lock(&rooms.blocks).trim(0);
    let bytes = empty.iter().map(|(_, bytes)| bytes).sum();
    if bytes > 0 {
        // wgpu refuses batches with destroyed buffers; failures are reported by events.
        let _ = device.flush();
        empty.iter().for_each(|(memory, _)| memory.destroy());
        let mut memory = lock(&rooms.buffers);
        memory.reserved = memory.reserved.saturating_sub(bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn threads_that_reserve_at_once_stay_below_the_cap() {
        const THREADS: usize = 8;
        let (room, begin) = (MemoryExtension::default(), Barrier::new(THREADS));
        let kept: u64 = std::thread::scope(|scope| {
            let reserve = || {
                begin.wait();
                let mut kept = 0;
                for i in 0..1000 {
                    match Reservation::new(&room, 7, Some(6000)) {
                        Ok(reserved) if i % 3 > 0 => kept += reserved.keep(),
                        Ok(given_up) => drop(given_up),
                        Err(used) => assert!(used + 7 > 6000 && used <= 6000, "{used}"),
                    }
                }
                kept
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(reserve)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(lock(&room.buffers).reserved, kept);
        assert!((5_990..=6_000).contains(&kept), "{kept}");
    }
}
