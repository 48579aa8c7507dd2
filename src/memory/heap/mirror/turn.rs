//! Turns: the right to record commands using the heap, on the device's mirror or in the host's memory.

use std::ops::Range;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use smallvec::SmallVec;

use super::measure::Measure;
use super::policy::Place;
use super::{DeviceView, HeapError, HeapShared, InFlight, MOST_BYTES, TURN, Table};
use crate::device::DeviceShared;
use crate::device::submissions::Held;
use crate::device::wait::{Waits, lock};
use crate::memory::buffer::BufferView;

/// A command's possible writes to the heap.
#[derive(Debug, Clone)]
pub(crate) enum Writes {
    /// Anywhere: a kernel that writes through pointers.
    Anywhere,
    /// Bytes at the given addresses, and nothing else.
    Ranges(SmallVec<[Range<u64>; 4]>),
}

/// The kind of a command, for a device with a choice of places.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Transfer,
    /// The device will use the heap soon, says the program.
    Prefetch,
    /// A launch, by the number of its kernel, and the number of invocations as far as known.
    Launch {
        kernel: u64,
        invocations: u64,
    },
    /// A launch in place where possible: functions of the host may be waited for, and may use the heap meanwhile.
    InPlace,
}

/// A command about to use the heap.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) writes: Writes,
    pub(crate) work: Work,
}

/// The right to record a command using the heap; kept until the command is recorded.
pub(crate) struct Turn<'h> {
    table: Taken<'h>,
    place: Place,
    writes: Writes,
    measure: Option<Measure>,
    _held: Held,
}

/// The table of the mirrors, in the hands of a turn.
pub(super) enum Taken<'h> {
    /// Of a device sharing the host's memory, beside others of its kind: keeps devices with mirrors out.
    Together(#[allow(dead_code)] RwLockReadGuard<'h, Table>),
    /// Of one device.
    Alone(RwLockWriteGuard<'h, Table>),
}

impl<'h> Turn<'h> {
    pub(super) fn on_mirror(
        table: RwLockWriteGuard<'h, Table>,
        writes: Writes,
        held: Held,
    ) -> Self {
        Self {
            table: Taken::Alone(table),
            place: Place::Copy,
            writes,
            measure: None,
            _held: held,
        }
    }

    /// A turn without writes.
    pub(super) fn in_place(table: Taken<'h>, held: Held) -> Self {
        Self {
            table,
            place: Place::Host,
            writes: Writes::Ranges(SmallVec::new()),
            measure: None,
            _held: held,
        }
    }

    /// The launch's measurement, if any.
    pub(crate) fn measure(&self) -> Option<Measure> {
        self.measure
    }

    /// The command's own possible writes to the host's memory.
    pub(in crate::memory::heap) fn writes_in_place(&self) -> Option<&Writes> {
        (self.place == Place::Host).then_some(&self.writes)
    }
}

impl Writes {
    /// The ranges as offsets in a heap at `base`; `None` for anywhere.
    pub(in crate::memory::heap) fn offsets(
        &self,
        base: u64,
    ) -> Option<impl Iterator<Item = Range<u64>>> {
        let end = base.saturating_add(MOST_BYTES);
        match self {
            Self::Anywhere => None,
            // Arguments in the device's own memory, whose addresses are tagged, are no part of the heap.
            Self::Ranges(ranges) => Some(
                (ranges.iter())
                    .filter(move |range| base <= range.start && range.end <= end)
                    .map(move |range| range.start - base..range.end - base),
            ),
        }
    }
}

impl HeapShared {
    /// Waits for the device's turn, and shows the device all other writes. The command is recorded while the turn is
    /// held, and changes nothing beyond its `writes`.
    pub(crate) fn turn(
        &self,
        device: &Arc<DeviceShared>,
        task: &Task,
    ) -> Result<Turn<'_>, HeapError> {
        let mut held = Held::new(TURN).map_err(Arc::new)?;
        self.contract();
        if self.is_mirrored(device) {
            let mut table = self.table_alone(TURN)?;
            self.show(&mut table, device, &task.writes)?;
            return Ok(Turn::on_mirror(table, task.writes.clone(), held));
        }
        let mut measure = None;
        if self.may_choose(device) {
            let measured = |place| match task.work {
                Work::Launch {
                    kernel,
                    invocations,
                } => Measure::of(device, kernel, invocations, place),
                _ => None,
            };
            held = match self.turn_by_choice(device, task, held)? {
                Ok(mut turn) => {
                    turn.measure = measured(Place::Copy);
                    return Ok(turn);
                }
                Err(held) => held,
            };
            measure = measured(Place::Host);
        }
        let table = self.table_together(TURN)?;
        let table = match table.ahead {
            None => Taken::Together(table),
            Some(_) => {
                drop(table);
                let mut table = self.table_alone(TURN)?;
                self.others_in_flight(device)?;
                pollster::block_on(self.bring_down(&mut table, Waits::Blocks))?;
                Taken::Alone(table)
            }
        };
        Ok(Turn {
            table,
            place: Place::Host,
            writes: task.writes.clone(),
            measure,
            _held: held,
        })
    }

    /// Shows the mirror of a device everything, and notes the possible writes of a command there. The answer is the
    /// number of sent bytes.
    pub(super) fn show(
        &self,
        table: &mut Table,
        device: &Arc<DeviceShared>,
        writes: &Writes,
    ) -> Result<u64, HeapError> {
        self.cover(table, device)?;
        let others = self.others_in_flight(device)?;
        if table.ahead.is_some_and(|id| id != device.id) {
            pollster::block_on(self.bring_down(table, Waits::Blocks))?;
        }
        for batches in others {
            match batches.wait(None) {
                // A lost device with nothing running any more keeps its results: the host is told when it asks.
                Ok(()) => {}
                Err(error) if error.is_loss() => {}
                Err(error) => return Err(error),
            }
        }
        let sent = self.bring_up(table, device)?;
        match writes.offsets(self.base()) {
            None => table.written.insert_everything(),
            Some(ranges) => ranges.for_each(|range| table.written.insert(&range)),
        }
        Ok(sent)
    }

    /// The device's view of the heap, during its turn.
    pub(crate) fn view_in(
        &self,
        turn: &Turn<'_>,
        device: &Arc<DeviceShared>,
    ) -> Result<DeviceView, HeapError> {
        if let (Taken::Alone(table), Place::Copy) = (&turn.table, turn.place)
            && let Some(mirror) = table.by_device.get(&device.id)
        {
            return Ok(mirror.view(self.base(), device));
        }
        self.view(device)
    }

    /// The argument in the current heap, if its buffer is another one now.
    pub(crate) fn renew(&self, turn: &Turn<'_>, argument: &BufferView) -> Option<BufferView> {
        let device = &argument.shared.device;
        let mirror = match (&turn.table, turn.place) {
            (Taken::Alone(table), Place::Copy) => table.by_device.get(&device.id),
            _ => None,
        };
        let Some(mirror) = mirror else {
            return self.imported_anew(argument);
        };
        self.moved(argument, &mirror.buffers.segments())
    }

    /// The last batches of the other devices that used the heap. None may look while the host does.
    pub(super) fn others_in_flight(
        &self,
        device: &DeviceShared,
    ) -> Result<Vec<InFlight>, HeapError> {
        let state = lock(&self.state);
        if state.host.is_some() {
            return Err(HeapError::HostAccess { what: "a launch" });
        }
        let others = state.in_flight.values();
        Ok(others
            .filter(|last| last.id != device.id)
            .cloned()
            .collect())
    }
}
