//! Memory that several devices have in common: where buffers go that devices hand to and fro ([`Placement::Auto`]).
//!
//! It is memory of the host that each of them has imported, as the crates of transfers are ([`Exchange`]); to the planner
//! all of them are one memory, so that nothing is copied between them. Commands of one device come behind those of the
//! others that use the same bytes, as in the heap. Unlike the heap it is nobody else's: the host has it only by copies,
//! like any memory of a device, and failures are those of the buffer.
//!
//! [`Placement::Auto`]: super::Placement::Auto
//! [`Exchange`]: super::exchange::Exchange
//!
//! Why not the heap: a program that holds the heap, or whose launch on the heap has failed, must not meet either in a
//! buffer that the program never placed in the heap. Taints are one for all members. Launches are held back as for the
//! heap; the few commands other than launches (uploads, copies out, fills) wait for other devices, since nothing else
//! orders them.
//!
//! The rule is counted, not guessed ([`Turns`]): 8 launches in a row that *write* the root, with half of the bytes or
//! more from another device. Such launches come one behind the other in any case; where one device reads the results
//! of another, or edges are exchanged, own memory lets both devices go on, and so these begin the count anew. Only
//! devices that work in the host's memory and import host memory take part. A member keeps its own copy while the
//! bytes are on their way elsewhere, unless the member is the source. Evicting ends the common memory; a lost member
//! leaves the memory to the other members.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::device_allocation::DeviceAllocation;
use super::error::BufferError;
use super::exchange::{Crate, Exchange};
use super::hop::End;
use super::root::{Root, State};
use crate::device::outcome::Outcome;
use crate::device::{DeviceShared, unique_id};
use crate::memory::buffer::BufferShared;
use crate::memory::migrate::{Access, Content, Place, Places, Plan, Want};

/// Turns in which a buffer went to another device that also writes it, after which it goes to common memory.
const TURNS: u32 = 8;
/// Uses between two turns, after which the first of them is forgotten.
const PAUSE: u32 = 8;
/// Larger buffers keep memory of their own: it is had in powers of two, out of an address space of 4 GiB for all.
const MOST_BYTES: u64 = 256 << 20;

/// Where the bytes of a buffer live that is free to choose, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommonMemory {
    /// Turns in a row in which half of the buffer or more went from one device to another, which wrote it, too.
    pub turns: u32,
    /// Bytes that did so.
    pub moved: u64,
    /// The launch is the first one: the buffer goes there with it.
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
            "{does} memory that its devices have in common: {turns} times in a row half of it or more went from one to \
             another, {moved} bytes together"
        )
    }
}

/// The turns of a buffer between devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    turns: u32,
    moved: u64,
    /// Since the last one.
    uses: u32,
}

impl Turns {
    /// A launch uses the buffer, of `bytes` bytes, and `writes` some of it; `came` bytes come from other devices for it.
    /// Tells of the turns if they are enough.
    pub(super) fn used(&mut self, bytes: u64, came: u64, writes: bool) -> Option<CommonMemory> {
        if came == 0 {
            self.uses += 1;
            if self.uses > PAUSE {
                *self = Self::default();
            }
        } else if writes && came >= bytes.div_ceil(2) {
            self.turns += 1;
            self.moved = self.moved.saturating_add(came);
            self.uses = 0;
        } else {
            // Devices that work side by side and exchange edges, or where one reads what the other has made while that
            // makes the next: in common memory they would wait for each other.
            *self = Self::default();
        }
        (came > 0 && self.turns >= TURNS).then_some(CommonMemory {
            turns: self.turns,
            moved: self.moved,
            begins: true,
        })
    }
}

/// How a buffer lives.
#[derive(Default)]
pub(super) enum Living {
    /// As it was told to, or because nothing else is to be had.
    #[default]
    Settled,
    /// Each device has memory of its own, until they have taken turns for long.
    Apart(Turns),
    /// All devices that can have common memory.
    Together { memory: Crate, why: CommonMemory },
}

/// Bytes of a plan that reach a memory, which may be that of several places, and come from another device.
fn came(plan: &Plan, memory: Places) -> u64 {
    let steps = plan.steps.iter().filter(|step| memory.contains(step.to));
    let foreign = steps.filter(|step| step.after.is_some() || !step.from.is_host());
    foreign.map(|step| step.bytes()).sum()
}

/// Whether a device may share memory: it has no faster memory of its own, and imports the host's.
fn joins(device: &DeviceShared) -> bool {
    device.capabilities.unified_memory && Exchange::joins(device, device)
}

impl Root {
    /// A launch at `place` uses the buffer, for which `plan` was made. If it is time for that, the buffer goes to common
    /// memory. What is to be said of where it lives.
    pub(super) fn take_turn(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        (plan, writes): (&Plan, bool),
    ) -> Option<CommonMemory> {
        let came = came(plan, state.residency.memory_of(place));
        let why = match &mut state.living {
            Living::Settled => return None,
            Living::Together { why, .. } => {
                let why = *why;
                let is_there =
                    |state: &State| state.copy(place).is_some_and(DeviceAllocation::is_common);
                if !is_there(state) && writes && came >= self.bytes.div_ceil(2) {
                    self.move_in(state, device, place);
                }
                return is_there(state).then_some(why);
            }
            Living::Apart(turns) => turns.used(self.bytes, came, writes)?,
        };
        // Nobody asks again where it was refused once.
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

    /// A device with memory of its own gives it up for what others have in common, if it can.
    fn move_in(&self, state: &mut State, device: &Arc<DeviceShared>, place: Place) {
        if joins(device) && state.residency.evicted(place, 0..self.bytes).is_ok() {
            let old = state.take_copy(place);
            if !self.settle_in_common(state, device, place)
                && let Some(mut old) = old
            {
                // As it was, but for what it has to be brought again.
                old.used_at = self.context().tick();
                state.put_copy(place, old);
            }
        }
    }

    /// What [`Self::take_turn`] would say.
    pub(super) fn foresee_turn(
        &self,
        state: &State,
        device: &DeviceShared,
        place: Place,
        (plan, writes): (&Plan, bool),
    ) -> Option<CommonMemory> {
        let came = came(plan, state.residency.memory_of(place));
        match &state.living {
            Living::Settled => None,
            Living::Together { why, .. } => joins(device).then_some(*why),
            Living::Apart(turns) => {
                let why = turns.clone().used(self.bytes, came, writes)?;
                let others = state.companions(place);
                (self.bytes <= MOST_BYTES && joins(device) && !others.is_empty()).then_some(why)
            }
        }
    }

    /// Where `device`, which has no memory for the buffer, would find it in common memory.
    pub(super) fn foresee_common(&self, state: &State, device: &DeviceShared) -> Option<Place> {
        let members = state.common_places();
        members.first().copied().filter(|_| joins(device))
    }

    /// Has the buffer, which is at `place` and elsewhere, move to memory that all those devices see; false where that is
    /// not to be had.
    fn move_together(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
        plan: &Plan,
        why: CommonMemory,
    ) -> Result<bool, BufferError> {
        let mut others = state.companions(place);
        // Whoever else has bytes that are on their way keeps them: they may not arrive.
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
        // All of it has to be in one place first.
        let want = Want {
            place,
            range: 0..self.bytes,
            access: Access::Read,
        };
        self.bring(state, &[want], device, place)?;
        let exchange = &self.context().exchange;
        let Some(mut memory) = exchange.take(self.bytes.max(4), device, other) else {
            return Ok(false);
        };
        let (Some(seen), Some(old)) = (memory.seen_by(device).cloned(), state.take_copy(place))
        else {
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
            if !exchange.import(&mut memory, &other) {
                continue;
            }
            // What it has is here, too.
            let dropped = state.residency.evicted(there, 0..self.bytes);
            dropped.map_err(|error| self.refusal(error))?;
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

    /// Has `device` see the memory that others have in common, if the buffer lives there and the device can; false if not.
    pub(super) fn settle_in_common(
        &self,
        state: &mut State,
        device: &Arc<DeviceShared>,
        place: Place,
    ) -> bool {
        let Some(member) = state.common_places().first().copied() else {
            // All who had it are gone.
            self.leave_common(state);
            return false;
        };
        if !joins(device) {
            return false;
        }
        let Living::Together { mut memory, why } = std::mem::take(&mut state.living) else {
            return false;
        };
        let joined = self.context().exchange.import(&mut memory, device);
        if joined {
            state.join_common(&memory, device, member, place);
        }
        state.living = Living::Together { memory, why };
        joined
    }

    /// The common memory is given up. The buffer begins anew.
    pub(super) fn leave_common(&self, state: &mut State) {
        let left = std::mem::take(&mut state.living);
        state.living = match left {
            Living::Together { memory, .. } => {
                // Nobody has it before the last command that uses it has ended.
                let ends = state.unfinished_ends();
                self.context().exchange.give(memory, ends);
                Living::Apart(Turns::default())
            }
            other => other,
        };
    }
}

impl State {
    /// The other places that have memory, and could have some in common.
    fn companions(&self, place: Place) -> Vec<(Place, Arc<DeviceShared>)> {
        let others = self.places().into_iter().filter(|other| *other != place);
        let with = others.filter_map(|other| {
            let device = &self.copy(other)?.shared.device;
            joins(device).then(|| (other, Arc::clone(device)))
        });
        with.collect()
    }

    /// The places that have memory in common.
    pub(super) fn common_places(&self) -> Vec<Place> {
        let mut places = self.places();
        places.retain(|place| self.copy(*place).is_some_and(DeviceAllocation::is_common));
        places
    }

    /// `device`, which has imported the memory, has it in common with `member` from now on.
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
        let shared = BufferShared::beside(device, seen.clone(), unique_id(), &known.shared);
        let mut copy = DeviceAllocation::common(shared, known.bytes());
        copy.used_at = known.used_at;
        self.put_copy(place, copy);
        self.residency.share(member, place);
    }

    /// Waits for the commands of other devices that one at `place` has to come behind, where they have memory in common.
    /// Launches do not wait, but are held back.
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
        for (other, batch) in self.before(&device, place, range, access) {
            let may = (other.submissions).may_wait_for(&batch, None, "memory in common");
            may.map_err(Arc::new)?;
            if batch.submission().is_none() {
                // What went wrong is what its events tell.
                other.complete_dependencies(None);
                other.submit(&batch);
            }
            End::of(&other, batch).await_it();
        }
        Ok(())
    }

    /// The outcomes that decide about what a place has of a range.
    pub(super) fn depends_on(&self, place: Place, range: &Range<u64>) -> Vec<Arc<Outcome>> {
        let Some(copy) = self.copy(place) else {
            return Vec::new();
        };
        let mut found = copy.depends_on(range);
        if !copy.is_common() {
            return found;
        }
        // Launches of other devices are settled by those.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_handed_to_and_fro_are_told_from_others() {
        let enough = |uses: &[u64]| {
            let mut turns = Turns::default();
            let told = uses.iter().map(|came| turns.used(1000, *came, true));
            told.enumerate()
                .find_map(|(at, why)| Some((at, why?.turns, why?.moved)))
        };
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
        let mut odd = Turns::default();
        assert!((0..7).all(|_| odd.used(7, 4, true).is_none()) && odd.used(7, 4, true).is_some());
        assert!((0..100).all(|_| odd.used(7, 7, false).is_none()));
        assert!((0..100).all(|_| Turns::default().used(0, 0, true).is_none()));
    }
}
