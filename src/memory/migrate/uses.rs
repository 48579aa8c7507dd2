//! The bytes used by unfinished commands: dependencies of a new command, and conflicts with it.
//!
//! The residency keeps the unfinished commands with their bytes and places. Commands wait for each other in one memory
//! alone: versions of different places are different bytes, so a device goes on reading an old version while another
//! device writes the next. A writer stands for every command that the writer waited for, so the list stays short. The
//! same list tells of commands at two places on the same bytes without an order, for programs that promise an order.

use std::ops::Range;

use super::residency::Residency;
use super::{Access, MigrateError, Place, Places};

/// A command without a reported end, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Use {
    /// The runtime's token for the command's event.
    pub token: u64,
    /// The owner of the used memory.
    pub place: Place,
    /// Bytes of the root buffer.
    pub range: Range<u64>,
    /// Whether the command writes the bytes.
    pub writes: bool,
}

/// How two commands that use the same bytes meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HazardKind {
    /// The new command reads the earlier command's writes.
    ReadAfterWrite,
    /// The new command writes the earlier command's reads.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

/// Bytes used by both an unfinished command and a new one, with a write among the uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hazard {
    /// The kind of conflict.
    pub kind: HazardKind,
    /// The unfinished command, with its whole range.
    pub earlier: Use,
    /// The bytes that both use.
    pub range: Range<u64>,
}

/// The unfinished commands of a buffer. There are few: finished commands are forgotten, and commands that a later
/// writer waits for are represented by that writer.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses(Vec<Use>);

impl Uses {
    fn begin(&mut self, new: Use, memory: Places) {
        if new.writes {
            // A command waiting for the new one waits for these, too.
            self.0.retain(|old| {
                let within = new.range.start <= old.range.start && old.range.end <= new.range.end;
                !(within && memory.contains(old.place))
            });
        } else {
            // A command often reads neighbours in turn.
            let same = |old: &&mut Use| {
                old.token == new.token
                    && old.place == new.place
                    && !old.writes
                    && old.range.start <= new.range.end
                    && new.range.start <= old.range.end
            };
            if let Some(old) = self.0.iter_mut().find(same) {
                old.range.start = old.range.start.min(new.range.start);
                old.range.end = old.range.end.max(new.range.end);
                return;
            }
        }
        self.0.push(new);
    }

    /// Has the commands at a place count as those of another one with the same memory.
    pub(super) fn rename(&mut self, from: Place, to: Place) {
        for known in self.0.iter_mut().filter(|known| known.place == from) {
            known.place = to;
        }
    }

    fn meeting(
        &self,
        range: Range<u64>,
        access: Access,
        places: Places,
    ) -> impl Iterator<Item = Hazard> + '_ {
        self.0.iter().filter_map(move |old| {
            let both = old.range.start.max(range.start)..old.range.end.min(range.end);
            if both.is_empty() || !places.contains(old.place) {
                return None;
            }
            let kind = match (old.writes, access.writes()) {
                (false, false) => return None,
                (true, false) => HazardKind::ReadAfterWrite,
                (false, true) => HazardKind::WriteAfterRead,
                (true, true) => HazardKind::WriteAfterWrite,
            };
            Some(Hazard {
                kind,
                earlier: old.clone(),
                range: both,
            })
        })
    }
}

impl Residency {
    /// Remembers a command's use of bytes of the memory at a place until the command is finished. The new command must
    /// wait for the commands named by [`hazards`](Self::hazards): a writer stands for those whose ranges it covers from
    /// then on.
    ///
    /// A copy of a plan is two uses: a read at its source, and an overwrite at its target.
    ///
    /// # Errors
    ///
    /// [`MigrateError::OutOfRange`].
    pub fn begin(
        &mut self,
        token: u64,
        place: Place,
        range: Range<u64>,
        access: Access,
    ) -> Result<(), MigrateError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let memory = self.memory_of(place);
        let writes = access.writes();
        let new = Use {
            token,
            place,
            range,
            writes,
        };
        self.uses.begin(new, memory);
        Ok(())
    }

    /// The unfinished commands that a new one at `place` has to wait for, because both use the same bytes of the same
    /// memory, and at least one of the two writes. Other places' memory is no hazard: versions there are their own.
    pub fn hazards(
        &self,
        place: Place,
        range: Range<u64>,
        access: Access,
    ) -> impl Iterator<Item = Hazard> + '_ {
        self.uses.meeting(range, access, self.memory_of(place))
    }

    /// The unfinished commands at *other* places with the same bytes, at least one of the two writing, without an order
    /// between them: `ordered` says of a token whether the new command comes behind.
    ///
    /// The residency takes commands in the order of the reports, so the last writer has the latest version. Without a
    /// requested order, such a pair is a mistake of the program, above all with two writers.
    pub fn conflicts<'a>(
        &'a self,
        place: Place,
        range: Range<u64>,
        access: Access,
        mut ordered: impl FnMut(u64) -> bool + 'a,
    ) -> impl Iterator<Item = Hazard> + 'a {
        let others = Places::EVERY.without(Places::of(place));
        self.uses
            .meeting(range, access, others)
            .filter(move |hazard| !ordered(hazard.earlier.token))
    }

    /// Forgets a finished command.
    pub fn finished(&mut self, token: u64) {
        self.uses.0.retain(|old| old.token != token);
    }

    /// Forgets all commands whose tokens count as finished by `is_finished`.
    pub fn forget_finished(&mut self, mut is_finished: impl FnMut(u64) -> bool) {
        self.uses.0.retain(|old| !is_finished(old.token));
    }

    /// All commands that are not finished, the oldest first.
    pub fn unfinished(&self) -> impl Iterator<Item = &Use> + '_ {
        self.uses.0.iter()
    }
}
