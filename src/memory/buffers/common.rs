//! Memory common to several devices, for buffers handed to and fro between devices ([`Placement::Auto`]).
//!
//! Common memory is host memory imported by every member, as shared transfer slots are ([`Exchange`]). The planner sees
//! one memory for all members, so nothing is copied between members. Commands of one device come behind commands of the
//! others on the same bytes, as in the heap. Unlike the heap, common memory belongs to one buffer: the host reads and
//! writes by copies, as with any memory of a device, and failures are failures of the buffer.
//!
//! [`Placement::Auto`]: super::Placement::Auto
//! [`Exchange`]: super::exchange::Exchange
//!
//! Why not the heap: a program that holds the heap, or whose launch on the heap has failed, must not meet either in a
//! buffer never placed in the heap. Taints are one for all members. Launches are held back as for the heap; the few
//! commands other than launches (uploads, copies out, fills) wait for other devices, since nothing else orders them.
//!
//! The rule is counted, not guessed ([`Turns`]): 8 launches in a row that *write* the root, with half of the bytes or
//! more from another device. Such launches run one behind the other in any case; where one device reads the results of
//! another, or edges are exchanged, own memory lets both devices go on, and so such launches begin the count anew. On
//! devices that run on the host's processors, edges count as turns as well: both take their time from the same
//! processors, and a step of two devices is shorter by what is not copied (`halo_time` of `benches/migrate`). Only
//! devices that work in the host's memory and import host memory take part. A member keeps its own copy while the bytes
//! are on their way elsewhere, unless the member is the source. Evicting ends the common memory; a lost member leaves
//! the memory to the other members.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::device_allocation::DeviceAllocation;
use super::error::BufferError;
use super::exchange::{Crate, Exchange};
use super::hop::End;
use super::root::{Root, State};
use crate::device::outcome::Outcome;
use crate::device::queue::Batch;
use crate::device::{DeviceShared, unique_id};
use crate::memory::buffer::BufferShared;
use crate::memory::migrate::{Access, Content, Place, Places, Plan, Want};

/// Turns (the buffer goes to another device, and is written there) before the buffer moves to common memory.
const TURNS: u32 = 8;
/// Uses after a turn, without another turn, before the count begins anew.
const PAUSE: u32 = 8;
/// Larger buffers keep memory of their own: slots have sizes of powers of two, in 4 GiB of address space for all.
const MOST_BYTES: u64 = 256 << 20;

/// Why a buffer with automatic placement is in common memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommonMemory {
    /// Turns in a row: launches that wrote the buffer with half of the bytes or more from another device; on devices that
    /// run on the host's processors, also launches for which less than half came from another device.
    pub turns: u32,
    /// Bytes moved in these turns.
    pub moved: u64,
    /// True for the launch with which the buffer moves there.
    pub begins: bool,
}

impl fmt::Display for CommonMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self.begins {
            true => "goes to",
            false => "is in",
        };
        let Self { turns, moved, .. } = self;
        write!(
            f,
            "{does} memory that its devices have in common: {turns} times in a row bytes went from one to another, {moved} \
             together"
        )
    }
}

/// The turns of a buffer between devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    turns: u32,
    moved: u64,
    /// Uses since the last turn.
    uses: u32,
}

impl Turns {
    /// Counts a launch on a buffer of `bytes` bytes: `came` bytes come from other devices, `writes` says whether the
    /// launch writes, and `is_near` whether the device runs on the host's processors. Returns the turns once there are
    /// enough.
    pub(super) fn used(
        &mut self,
        bytes: u64,
        came: u64,
        (writes, is_near): (bool, bool),
    ) -> Option<CommonMemory> {
        let is_turn = match came >= bytes.div_ceil(2) {
            true => writes,
            false => is_near,
        };
        if came == 0 {
            self.uses += 1;
            if self.uses > PAUSE {
                *self = Self::default();
            }
        } else if is_turn {
            self.turns += 1;
            self.moved = self.moved.saturating_add(came);
            self.uses = 0;
        } else {
            // Devices side by side with an exchange of edges, or a reader of one result while the next is made: common
            // memory would make the devices wait for each other.
            *self = Self::default();
        }
        (came > 0 && self.turns >= TURNS).then_some(CommonMemory {
            turns: self.turns,
            moved: self.moved,
            begins: true,
        })
    }
}

/// The placement state of a buffer.
#[derive(Default)]
pub(super) enum Living {
    /// Fixed: by the placement asked for, or because common memory was refused.
    #[default]
    Settled,
    /// Each device has memory of its own, and turns are counted.
    Apart(Turns),
    /// All devices able to import host memory share one memory.
    Together { memory: Crate, why: CommonMemory },
}

/// Bytes of a plan from other devices to `memory`, the memory of one place or of several.
fn came(plan: &Plan, memory: Places) -> u64 {
    let steps = plan.steps.iter().filter(|step| memory.contains(step.to));
    let foreign = steps.filter(|step| step.after.is_some() || !step.from.is_host());
    foreign.map(|step| step.bytes()).sum()
}

/// Whether a launch writes.
fn writes(wants: &[Want]) -> bool {
    wants.iter().any(|want| want.access.writes())
}

/// Whether a device may share memory: the device has no faster memory of its own, and imports the host's.
fn joins(device: &DeviceShared) -> bool {
    device.capabilities.unified_memory && Exchange::joins(device, device)
}

/// Whether a device runs on the processors that every other such device runs on.
fn is_near(device: &DeviceShared) -> bool {
    device.capabilities.software
}

impl Root {
    /// Counts a launch at `place` with `plan`, and moves the buffer to common memory after enough turns. Returns the
    /// reason if the launch works in common memory.
    pub(super) fn take_turn(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        (plan, wants): (&Plan, &[Want]),
    ) -> Option<CommonMemory> {
        let came = came(plan, state.residency.memory_of(place));
        let why = match &mut state.living {
            Living::Settled => return None,
            Living::Together { why, .. } => {
                let why = *why;
                let is_there =
                    |state: &State| state.copy(place).is_some_and(DeviceAllocation::is_common);
                if !is_there(state) && self.moves_in(state, came, wants) {
                    self.move_in(state, device, place);
                }
                return is_there(state).then_some(why);
            }
            Living::Apart(turns) => {
                turns.used(self.bytes, came, (writes(wants), is_near(device)))?
            }
        };
        // A refused move is not tried again.
        state.living = Living::Settled;
        match self.move_together(state, device, place, plan, why) {
            Ok(true) => Some(why),
            Ok(false) => None,
            Err(error) => {
                log::info!("a buffer stays in memory of each device: {error}");
                None
            }
        }
    }

    /// Whether a launch has its device leave its own memory for the common memory.
    fn moves_in(&self, state: &State, came: u64, wants: &[Want]) -> bool {
        writes(wants) && came >= self.bytes.div_ceil(2) && state.has_in_common(wants)
    }

    /// Replaces a device's own memory by the common memory, if the device can import it.
    fn move_in(&self, state: &mut State, device: &Arc<DeviceShared>, place: Place) {
        if joins(device) && state.residency.evicted(place, 0..self.bytes).is_ok() {
            let old = state.take_copy(place);
            if !self.settle_in_common(state, device, place)
                && let Some(mut old) = old
            {
                // The old memory stays, but the bytes have to be brought again.
                old.used_at = self.context().tick();
                state.put_copy(place, old);
            }
        }
    }

    /// The result of [`Self::take_turn`], foreseen without a change.
    pub(super) fn foresee_turn(
        &self,
        state: &State,
        device: &DeviceShared,
        place: Place,
        (plan, wants): (&Plan, &[Want]),
    ) -> Option<CommonMemory> {
        let came = came(plan, state.residency.memory_of(place));
        match &state.living {
            Living::Settled => None,
            Living::Together { why, .. } => {
                let is_apart = state.copy(place).is_some_and(|copy| !copy.is_common());
                let is_there = !is_apart || self.moves_in(state, came, wants);
                (joins(device) && is_there).then_some(*why)
            }
            Living::Apart(turns) => {
                let why =
                    (turns.clone()).used(self.bytes, came, (writes(wants), is_near(device)))?;
                let others = state.companions(place);
                (self.bytes <= MOST_BYTES && joins(device) && !others.is_empty()).then_some(why)
            }
        }
    }

    /// The place at which `device`, without memory for the buffer so far, would find common memory.
    pub(super) fn foresee_common(&self, state: &State, device: &DeviceShared) -> Option<Place> {
        let members = state.common_places();
        members.first().copied().filter(|_| joins(device))
    }

    /// Moves the buffer from `place` and other devices to memory common to all of them; false without such memory.
    fn move_together(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        plan: &Plan,
        why: CommonMemory,
    ) -> Result<bool, BufferError> {
        let mut others = state.companions(place);
        // Other holders of the bytes keep memory of their own, except the source: a transfer may fail.
        others.retain(|(there, _)| {
            let is_source = plan.steps.iter().any(|step| step.from == *there);
            let mut contents = state.residency.contents();
            is_source
                || !contents.any(|(_, at)| matches!(at, Content::At(at) if at.contains(*there)))
        });
        let (Some((_, other)), true) = (others.first(), joins(device)) else {
            return Ok(false);
        };
        if self.bytes > MOST_BYTES {
            return Ok(false);
        }
        // All bytes have to be at `place` first.
        let want = Want {
            place,
            range: 0..self.bytes,
            access: Access::Read,
        };
        self.bring(state, &[want], device, place)?;
        let exchange = &self.context().exchange;
        let Ok(memory) = exchange.take(self.bytes.max(4), device, other) else {
            return Ok(false);
        };
        let (Some(seen), Some(old)) = (memory.seen_by(device), state.take_copy(place)) else {
            exchange.give(memory, Vec::new());
            return Ok(false);
        };
        let now = self.context().tick();
        let shared = BufferShared::new(device, seen, unique_id(), false);
        let mut copy = DeviceAllocation::common(shared, old.bytes());
        copy.take_over(&old, now);
        let batch = copy.last.clone();
        state.put_copy(place, copy);
        drop(old);
        if let Some(batch) = batch {
            state.begin(
                device,
                place,
                &(0..self.bytes),
                Access::Overwrite,
                &batch,
                true,
            );
        }
        for (there, other) in others {
            if !exchange.import(&memory, &other) {
                continue;
            }
            // All bytes of `there` are at `place`, too.
            let dropped = state.residency.evicted(there, 0..self.bytes);
            dropped.map_err(|error| state.refusal(error))?;
            state.take_copy(there);
            state.join_common(&memory, &other, place, there);
        }
        let why_now = CommonMemory {
            begins: false,
            ..why
        };
        state.living = Living::Together {
            memory,
            why: why_now,
        };
        Ok(true)
    }

    /// Has `device` see the buffer's common memory; false if there is none, or the device cannot import it.
    pub(super) fn settle_in_common(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> bool {
        let Some(member) = state.common_places().first().copied() else {
            // All members are lost.
            self.leave_common(state);
            return false;
        };
        if !joins(device) {
            return false;
        }
        let Living::Together { memory, why } = std::mem::take(&mut state.living) else {
            return false;
        };
        let joined = self.context().exchange.import(&memory, device);
        if joined {
            state.join_common(&memory, device, member, place);
        }
        state.living = Living::Together { memory, why };
        joined
    }

    /// Gives the common memory up, and begins the count of turns anew.
    pub(super) fn leave_common(&self, state: &mut State) {
        let left = std::mem::take(&mut state.living);
        state.living = match left {
            Living::Together { memory, .. } => {
                // The memory is reused only after the last command on it has ended.
                let ends = state.unfinished_ends();
                self.context().exchange.give(memory, ends);
                Living::Apart(Turns::default())
            }
            other => other,
        };
    }
}

impl State {
    /// The other places with memory whose devices could import common memory.
    fn companions(&self, place: Place) -> Vec<(Place, Arc<DeviceShared>)> {
        let others = self.places().into_iter().filter(|other| *other != place);
        let with = others.filter_map(|other| {
            let device = &self.copy(other)?.shared.device;
            joins(device).then(|| (other, Arc::clone(device)))
        });
        with.collect()
    }

    /// Whether common memory has the bytes that these wants need. Others may have been brought to a device's own memory from
    /// elsewhere, and would be missing where the device moves in.
    fn has_in_common(&self, wants: &[Want]) -> bool {
        let members: Places = self.common_places().into_iter().collect();
        let is_needed = |range: &Range<u64>| {
            let mut needed = wants.iter().filter(|want| want.access.needs_content());
            needed.any(|want| want.range.start < range.end && range.start < want.range.end)
        };
        let mut contents = self.residency.contents();
        contents.all(|(range, content)| match content {
            Content::At(at) => !at.common(members).is_empty() || !is_needed(&range),
            Content::Undefined => true,
            Content::Lost(_) => !is_needed(&range),
        })
    }

    /// The places with common memory.
    pub(super) fn common_places(&self) -> Vec<Place> {
        let mut places = self.places();
        places.retain(|place| self.copy(*place).is_some_and(DeviceAllocation::is_common));
        places
    }

    /// Adds `place` of `device`, which has imported the memory, as a member beside `member`.
    fn join_common(
        &mut self,
        memory: &Crate,
        device: &Arc<DeviceShared>,
        member: Place,
        place: Place,
    ) {
        let (Some(seen), Some(known)) = (memory.seen_by(device), self.copy(member)) else {
            return;
        };
        let shared = BufferShared::beside(device, seen, unique_id(), &known.shared);
        let mut copy = DeviceAllocation::common(shared, known.bytes());
        copy.used_at = known.used_at;
        self.put_copy(place, copy);
        self.residency.share(member, place);
    }

    /// Before a command at `place`: waits for conflicting commands of other devices in common memory. Launches are held
    /// back instead.
    ///
    /// # Errors
    /// [`BufferError::Execution`] with [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler).
    pub(super) fn after_others(
        &mut self,
        place: Place,
        range: &Range<u64>,
        access: Access,
    ) -> Result<(), BufferError> {
        let Some(copy) = self.copy(place).filter(|copy| copy.is_common()) else {
            return Ok(());
        };
        let device = Arc::clone(&copy.shared.device);
        await_all(self.before(&device, place, range, access))
    }

    /// The outcomes on which the bytes of `range` at `place` depend.
    pub(super) fn depends_on(&self, place: Place, range: &Range<u64>) -> Vec<Arc<Outcome>> {
        let Some(copy) = self.copy(place) else {
            return Vec::new();
        };
        let mut found = copy.depends_on(range);
        if !copy.is_common() {
            return found;
        }
        // Other devices resolve the outcomes of their own launches.
        for other in self.common_places() {
            if let Some(other) = self
                .copy(other)
                .filter(|_| other != place && !found.is_empty())
            {
                let told = Outcome::of_transfer(&other.shared.device, found);
                told.settle(Ok(()));
                found = vec![told];
            }
        }
        found
    }
}

/// Waits for commands of other devices in memory that several devices see.
///
/// # Errors
/// [`BufferError::Execution`] with [`ExecutionError::InHandler`](crate::device::ExecutionError::InHandler).
pub(super) fn await_all(commands: Vec<(Arc<DeviceShared>, Arc<Batch>)>) -> Result<(), BufferError> {
    for (device, batch) in commands {
        let may = (device.submissions).may_wait_for(
            &batch,
            None,
            "memory in common",
            "`.await` the event of the other device's launch first",
        );
        may.map_err(Arc::new)?;
        if batch.submission().is_none() {
            // Failures are reported by the batch's events.
            device.complete_dependencies(None);
            device.submit(&batch);
        }
        End::of(&device, batch).await_it();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_handed_to_and_fro_are_told_from_others() {
        let found = |uses: &[u64], is_near: bool| {
            let mut turns = Turns::default();
            let told = (uses.iter()).map(|came| turns.used(1000, *came, (true, is_near)));
            told.enumerate()
                .find_map(|(at, why)| Some((at, why?.turns, why?.moved)))
        };
        let enough = |uses: &[u64]| found(uses, false);
        assert_eq!(enough(&[1000; 7]), None);
        assert_eq!(enough(&[1000; 20]), Some((7, 8, 8000)));
        assert_eq!(enough(&[500; 20]), Some((7, 8, 4000)));
        // Edges, and whole buffers with edges in between.
        assert_eq!(enough(&[499; 1000]), None);
        assert_eq!(enough(&[1000, 1000, 1000, 10].repeat(100)), None);
        // Few uses between the turns, and many.
        assert_eq!(
            enough(&[&[1000][..], &[0; 8]].concat().repeat(20)),
            Some((63, 8, 8000))
        );
        assert_eq!(enough(&[&[1000][..], &[0; 9]].concat().repeat(1000)), None);
        // Edges of devices on the same processors.
        assert_eq!(found(&[499; 20], true), Some((7, 8, 8 * 499)));
        let with_others = [1000, 1000, 1000, 10].repeat(2);
        assert_eq!(found(&with_others, true), Some((7, 8, 6020)));
        let between = |uses| [&[10][..], &vec![0; uses]].concat().repeat(1000);
        assert_eq!(found(&between(8), true), Some((63, 8, 80)));
        assert_eq!(found(&between(9), true), None);
        let mut odd = Turns::default();
        assert!(
            (0..7).all(|_| odd.used(7, 4, (true, false)).is_none())
                && odd.used(7, 4, (true, false)).is_some()
        );
        for is_near in [false, true] {
            // What one makes and the other reads.
            assert!((0..100).all(|_| odd.used(7, 7, (false, is_near)).is_none()));
        }
        assert!((0..100).all(|_| Turns::default().used(0, 0, (true, true)).is_none()));
    }
}
