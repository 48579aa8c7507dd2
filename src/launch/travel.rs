//! Arguments that are buffers of the context: their bytes are brought to the launch's device when it is submitted, and
//! bound where they lie there. Parts that cannot be bound where they lie, because of where they begin or end, or because
//! another argument is a part of the same buffer and written, *stay* in memory of the launch's own while it runs: their
//! bytes are copied there before, and those that the kernel may have written are copied back behind it.

use std::sync::Arc;

use super::arguments::Given;
use super::bounce::{bounce, bounce_beside};
use super::error::LaunchError;
use super::{Grid, Launch};
use crate::device::outcome::{ExecutionError, Outcome};
use crate::device::queue::{Batch, Recorder};
use crate::device::{DeviceShared, capture, unique_id};
use crate::kernel::reflect::ArgumentKind;
use crate::memory::BufferView;
use crate::memory::buffer::BufferShared;
use crate::memory::buffers::board::{Boarding, PartView, Use, roots};
use crate::memory::buffers::{BufferError, LaunchExplanation, Root};
use crate::memory::heap::copies::places::{Buffers, Place, copy};

/// The slot of the buffer that an indirect grid is read from, which is no argument.
pub(super) const INDIRECT: usize = usize::MAX;

/// An argument that is a part of a buffer of the context.
#[derive(Debug, Clone)]
pub(super) struct Traveller {
    pub(super) slot: usize,
    pub(super) part: PartView,
    overwrites: bool,
    stay: Option<Stay>,
}

/// Memory in which a part stays while the launch runs. Launches of one device run one behind the other, so that it is
/// kept for the next.
#[derive(Debug, Clone)]
struct Stay {
    memory: Arc<BufferShared>,
    /// Where the part lies.
    home: BufferView,
    writable: bool,
}

impl Traveller {
    pub(super) fn new(slot: usize, part: PartView, overwrites: bool) -> Self {
        Self {
            slot,
            part,
            overwrites,
            stay: None,
        }
    }

    /// Two parts have bytes in common.
    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (self.part.range(), other.part.range());
        Arc::ptr_eq(&self.part.root, &other.part.root) && a.start < b.end && b.start < a.end
    }
}

impl Stay {
    /// Copies between the part and the memory, whatever words its bytes lie in.
    fn copy(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
        is_last: bool,
        back: bool,
    ) -> Result<(), LaunchError> {
        let home = Place {
            buffers: Buffers::One(self.home.shared.raw.clone()),
            start: self.home.offset,
            padded: is_last,
        };
        let memory = Place {
            buffers: Buffers::One(self.memory.raw.clone()),
            start: 0,
            padded: true,
        };
        let (from, to) = match back {
            true => (&memory, &home),
            false => (&home, &memory),
        };
        Ok(copy(queue, device, from, to, self.home.bytes)?)
    }
}

impl Launch {
    fn writes(&self, slot: usize) -> bool {
        let info = self.kernel.interface().arguments.get(slot);
        let is_written = |kind: &_| matches!(kind, ArgumentKind::Storage { writable: true, .. });
        info.is_some_and(|info| is_written(&info.kind))
    }

    /// What messages call an argument.
    fn argument(&self, slot: usize) -> String {
        let info = self.kernel.interface().arguments.get(slot);
        info.map_or_else(
            || "the indirect buffer".to_owned(),
            |info| info.name.clone(),
        )
    }

    /// The uses of buffers of the context, in the order of the travellers.
    pub(super) fn uses(&self) -> Vec<Use> {
        use crate::memory::migrate::Access;
        let used = |traveller: &Traveller| Use {
            part: traveller.part.clone(),
            access: match (self.writes(traveller.slot), traveller.overwrites) {
                (false, _) => Access::Read,
                (true, false) => Access::ReadWrite,
                (true, true) => Access::Overwrite,
            },
            argument: self.argument(traveller.slot),
        };
        self.travellers.iter().map(used).collect()
    }

    /// The buffers that have to be locked.
    pub(super) fn roots(&self) -> Vec<Arc<Root>> {
        roots(self.travellers.iter().map(|traveller| &traveller.part))
    }

    fn buffer_error(&self, argument: &str, source: BufferError) -> LaunchError {
        LaunchError::Buffer {
            kernel: self.kernel.interface().entry.clone(),
            argument: argument.to_owned(),
            source: Box::new(source),
        }
    }

    /// What submitting the launch now would move between host and devices, and why. Nothing is moved, and nothing
    /// allocated. What a submission has moved is [`Event::explanation`](crate::Event::explanation).
    ///
    /// # Errors
    /// What [`Launch::submit`] would refuse before it asks for memory.
    pub fn explain(&mut self) -> Result<LaunchExplanation, LaunchError> {
        self.check()?;
        self.check_parts()?;
        let (roots, uses) = (self.roots(), self.uses());
        let device = Arc::clone(&self.kernel.device);
        let boarding = Boarding::begin(&device, &device.buffers_room, &roots);
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let mut boarding = boarding.map_err(|error| self.buffer_error(first(), error))?;
        let told = boarding.explain(&uses);
        told.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))
    }

    /// Brings the buffers of the context to the device and binds them where they are.
    pub(super) fn board<'r>(
        &mut self,
        device: &Arc<DeviceShared>,
        room: &'r crate::device::room::Room,
        roots: &'r [Arc<Root>],
        uses: &[Use],
    ) -> Result<(Boarding<'r>, LaunchExplanation), LaunchError> {
        self.check_parts()?;
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let begun = Boarding::begin(device, room, roots);
        let mut boarding = begun.map_err(|error| self.buffer_error(first(), error))?;
        let brought = boarding.bring(uses);
        let told = brought.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))?;
        for (at, one) in uses.iter().enumerate() {
            let home = boarding.view(&one.part);
            let home = home.map_err(|error| self.buffer_error(&one.argument, error))?;
            if self.travellers[at].slot == INDIRECT {
                self.read_grid(home);
                continue;
            }
            let view = match home.shared.is_heap {
                true => self.detour(device, at, home)?,
                false => self.stay(device, at, home)?,
            };
            let slot = self.travellers[at].slot;
            let overwrites = self.travellers[at].overwrites;
            let id = |view: &BufferView| (view.shared.id, view.offset, view.bytes);
            let known = match &self.given[slot] {
                Some(Given::Buffer { view: known, .. }) => id(known) == id(&view),
                _ => false,
            };
            if !known {
                self.given[slot] = Some(Given::Buffer { view, overwrites });
                self.checked = false;
                self.bound = None;
            }
        }
        self.check()?;
        Ok((boarding, told))
    }

    /// The grid is in a buffer that has come to the device.
    fn read_grid(&mut self, buffer: BufferView) {
        let id = |view: &BufferView| (view.shared.id, view.offset, view.bytes);
        match &self.grid {
            Some(Grid::Indirect { buffer: known, .. }) if id(known) == id(&buffer) => {}
            Some(Grid::Indirect { offset, .. } | Grid::IndirectElsewhere { offset }) => {
                let offset = *offset;
                self.grid = Some(Grid::Indirect { buffer, offset });
                self.checked = false;
            }
            _ => {}
        }
    }

    /// Parts that have bytes in common must not be written through one of them.
    fn check_parts(&self) -> Result<(), LaunchError> {
        for (at, one) in self.travellers.iter().enumerate() {
            for other in &self.travellers[at + 1..] {
                if one.meets(other) && (self.writes(one.slot) || self.writes(other.slot)) {
                    return Err(LaunchError::Aliased {
                        kernel: self.kernel.interface().entry.clone(),
                        first: self.argument(one.slot),
                        second: self.argument(other.slot),
                    });
                }
            }
        }
        Ok(())
    }

    /// For parts in the heap: what pointer arguments do.
    fn detour(
        &mut self,
        device: &Arc<DeviceShared>,
        at: usize,
        home: BufferView,
    ) -> Result<BufferView, LaunchError> {
        let slot = self.travellers[at].slot;
        self.travellers[at].stay = None;
        if let Some(known) = self.bounces.iter().find(|bounce| bounce.is_of(slot, &home)) {
            return Ok(known.stand_in());
        }
        self.bounces.retain(|bounce| bounce.argument != slot);
        let info = &self.kernel.interface().arguments[slot];
        let (view, made) = match self.kernel.shared.compiled.heap {
            Some(_) => bounce_beside(device, info, slot, home)?,
            None => bounce(device, info, slot, home)?,
        };
        self.bounces.extend(made);
        Ok(view)
    }

    /// What to bind for a part in memory of the device: itself, or the memory in which it stays.
    fn stay(
        &mut self,
        device: &Arc<DeviceShared>,
        at: usize,
        home: BufferView,
    ) -> Result<BufferView, LaunchError> {
        let slot = self.travellers[at].slot;
        let info = &self.kernel.interface().arguments[slot];
        let table = &self.kernel.shared.compiled.table;
        let alignment = match info.kind {
            ArgumentKind::Uniform { .. } => device.limits.min_uniform_buffer_offset_alignment,
            _ if table.contains(&slot) => 4,
            _ => device.limits.min_storage_buffer_offset_alignment,
        };
        let is_last = self.travellers[at].part.is_last();
        let ends = is_last || (home.offset + home.bytes).is_multiple_of(4);
        let starts = home.offset.is_multiple_of(u64::from(alignment));
        if (starts && ends && !self.is_beside_written(at)) || home.bytes == 0 {
            self.travellers[at].stay = None;
            return Ok(home);
        }
        let size = home.bytes.next_multiple_of(4);
        let known = self.travellers[at].stay.take();
        let memory = match known {
            Some(stay) if stay.memory.raw.size() == size => stay.memory,
            _ => {
                let (raw, error) = capture(&device.raw, || {
                    device.raw.create_buffer(&wgpu::BufferDescriptor {
                        label: Some("tombolo part of a buffer"),
                        size,
                        usage: home.shared.raw.usage(),
                        mapped_at_creation: false,
                    })
                });
                if let Some(error) = error {
                    return Err(LaunchError::Refused {
                        kernel: self.kernel.interface().entry.clone(),
                        message: error.to_string(),
                    });
                }
                BufferShared::new(device, raw, unique_id(), false)
            }
        };
        let view = BufferView {
            shared: Arc::clone(&memory),
            offset: 0,
            ..home.clone()
        };
        self.travellers[at].stay = Some(Stay {
            memory,
            home,
            writable: self.writes(slot),
        });
        Ok(view)
    }

    /// Whether another argument is a part of the same buffer, one of the two is written, and this is not the one that
    /// is bound where it lies: wgpu allows a buffer one use in a dispatch.
    fn is_beside_written(&self, at: usize) -> bool {
        let root = &self.travellers[at].part.root;
        let mut same = (self.travellers.iter().enumerate())
            .filter(|(_, other)| Arc::ptr_eq(&other.part.root, root));
        let written = same.find(|(_, other)| self.writes(other.slot));
        written.is_some_and(|(first, _)| first != at)
    }

    /// Copies parts to where they stay.
    pub(super) fn arrive(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
    ) -> Result<(), LaunchError> {
        for traveller in &self.travellers {
            if let Some(stay) = &traveller.stay
                && !(traveller.overwrites && stay.writable)
            {
                stay.copy(queue, device, traveller.part.is_last(), false)?;
            }
        }
        Ok(())
    }

    /// Copies what may have been written back.
    pub(super) fn depart(
        &self,
        queue: &mut Recorder<'_>,
        device: &DeviceShared,
    ) -> Result<(), LaunchError> {
        for traveller in &self.travellers {
            if let Some(stay) = traveller.stay.as_ref().filter(|stay| stay.writable) {
                stay.copy(queue, device, traveller.part.is_last(), true)?;
            }
        }
        Ok(())
    }

    /// The outcomes that the launch inherits from buffers of the context.
    pub(super) fn boarded_inputs(
        &self,
        boarding: &mut Boarding<'_>,
        inherits: &mut Vec<Arc<Outcome>>,
    ) {
        for traveller in &self.travellers {
            if traveller.overwrites && self.writes(traveller.slot) {
                continue;
            }
            for outcome in boarding.depends_on(&traveller.part) {
                if !inherits.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                    inherits.push(outcome);
                }
            }
        }
    }

    /// The launch is recorded. What it wrote did not come back from where it stayed if `departed` says so.
    pub(super) fn boarded(
        &self,
        boarding: &mut Boarding<'_>,
        uses: &[Use],
        batch: &Arc<Batch>,
        outcome: Option<&Arc<Outcome>>,
        departed: Result<(), LaunchError>,
    ) {
        boarding.recorded(uses, batch, outcome);
        if let Err(error) = departed {
            let name = Arc::clone(&self.kernel.shared.name);
            let lost = Outcome::new(name, Vec::new());
            let message = error.to_string();
            lost.settle(Err(ExecutionError::Refused { message }));
            boarding.recorded(uses, batch, Some(&lost));
        }
    }
}
