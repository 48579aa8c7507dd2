//! Buffers of the context as arguments: submission brings their bytes to the launch's device, and binds the bytes in
//! place, or a copy in staging memory where binding in place is impossible ([`staging`](super::staging)). The buffers
//! are locked until the launch is recorded: the order of launches is the order of versions.

use std::cell::Cell;
use std::sync::Arc;

use super::{Ending, Ground, Inherits, Part, Parts, Rank, Stop, Submission};
use crate::launch::arguments::Given;
use crate::launch::{Grid, Launch, LaunchError};
use crate::memory::BufferView;
use crate::memory::buffers::residency_guard::{PartView, ResidencyGuard, Use, roots};
use crate::memory::buffers::{BufferError, LaunchExplanation, Root};

/// The slot of an indirect grid's buffer, no argument.
pub(in crate::launch) const INDIRECT: usize = usize::MAX;
/// The name in messages.
pub(in crate::launch) const INDIRECT_NAME: &str = "the indirect buffer";

/// A part of a buffer of the context as an argument.
#[derive(Debug, Clone)]
pub(in crate::launch) struct MigratableArgument {
    pub(in crate::launch) slot: usize,
    pub(in crate::launch) part: PartView,
    overwrites: bool,
}

impl MigratableArgument {
    pub(in crate::launch) fn new(slot: usize, part: PartView, overwrites: bool) -> Self {
        Self {
            slot,
            part,
            overwrites,
        }
    }

    /// Two parts have bytes in common.
    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (self.part.range(), other.part.range());
        Arc::ptr_eq(&self.part.root, &other.part.root) && a.start < b.end && b.start < a.end
    }
}

/// The buffers of the context among the arguments of a launch.
pub(in crate::launch) type Setting = Vec<MigratableArgument>;

/// The buffers used by a launch.
pub(super) struct Used {
    roots: Vec<Arc<Root>>,
    uses: Vec<Use>,
    /// The largest move by an attempt at the launch.
    moved: Cell<Option<LaunchExplanation>>,
}

impl Used {
    pub(super) fn of(launch: &Launch) -> Self {
        Self {
            roots: launch.roots(),
            uses: launch.uses(),
            moved: Cell::default(),
        }
    }
}

/// The buffers of a submission, locked.
pub(in crate::launch) struct Buffers<'s> {
    guard: ResidencyGuard<'s>,
    used: &'s Used,
}

impl<'s> Part<'s> for Buffers<'s> {
    const RANK: Rank = Rank::Roots;

    fn acquire(
        launch: &mut Launch,
        ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        if ground.buffers.roots.is_empty() {
            return Ok(None);
        }
        Ok(Some(launch.acquire_buffers(ground)?))
    }

    fn inherit(&mut self, to: &Submission<'_>, inherits: &mut Inherits) {
        for argument in &to.launch.settings.buffers {
            if !(argument.overwrites && to.launch.writes(argument.slot)) {
                inherits.add(self.guard.depends_on(&argument.part));
            }
        }
    }

    fn released(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let Ending { batch, lost, .. } = &*ending;
        let uses = &self.used.uses;
        self.guard.recorded(uses, batch, to.launch.mark(ending));
        match lost {
            Some(_) => self.guard.recorded(uses, batch, lost.as_ref()),
            None => self.guard.send_ahead(uses),
        }
        let moved = self.used.moved.take().unwrap_or_default();
        ending.hooks.push(Arc::new(moved));
    }
}

impl Launch {
    /// The uses of buffers of the context, in the order of the migratable arguments.
    fn uses(&self) -> Vec<Use> {
        use crate::memory::migrate::Access;
        let used = |argument: &MigratableArgument| Use {
            part: argument.part.clone(),
            access: match (self.writes(argument.slot), argument.overwrites) {
                (false, _) => Access::Read,
                (true, false) => Access::ReadWrite,
                (true, true) => Access::Overwrite,
            },
            argument: self.argument(argument.slot),
        };
        self.settings.buffers.iter().map(used).collect()
    }

    /// The buffers to be locked.
    fn roots(&self) -> Vec<Arc<Root>> {
        roots(self.settings.buffers.iter().map(|argument| &argument.part))
    }

    fn buffer_error(&self, argument: &str, source: BufferError) -> LaunchError {
        LaunchError::Buffer {
            kernel: self.kernel.interface().entry.clone(),
            argument: argument.to_owned(),
            source: Box::new(source),
        }
    }

    /// The moves between host and devices if the launch were submitted now, and the reasons. Nothing is moved, and
    /// nothing allocated. The moves of a past submission are [`Event::explanation`](crate::Event::explanation).
    ///
    /// # Errors
    /// Errors of [`Launch::submit`] before any request for memory.
    pub fn explain(&mut self) -> Result<LaunchExplanation, LaunchError> {
        self.validate()?;
        self.check_parts()?;
        let (roots, uses) = (self.roots(), self.uses());
        let device = Arc::clone(&self.kernel.device);
        let residency = ResidencyGuard::begin(&device, &device.context.buffers, &roots);
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let mut residency = residency.map_err(|error| self.buffer_error(first(), error))?;
        let told = residency.explain(&uses);
        told.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))
    }

    /// Brings the buffers of the context to the device and binds them there.
    fn acquire_buffers<'s>(&mut self, ground: &'s Ground) -> Result<Buffers<'s>, LaunchError> {
        self.check_parts()?;
        let Used { roots, uses, moved } = &ground.buffers;
        let context = &ground.device.context.buffers;
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let begun = ResidencyGuard::begin(&ground.device, context, roots);
        let mut guard = begun.map_err(|error| self.buffer_error(first(), error))?;
        let brought = guard.bring(uses);
        let told = brought.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))?;
        let earlier = moved.take();
        let most = earlier.filter(|earlier| earlier.moved() >= told.moved());
        moved.set(Some(most.unwrap_or(told)));
        for (at, one) in uses.iter().enumerate() {
            let home = guard.view(&one.part);
            let home = home.map_err(|error| self.buffer_error(&one.argument, error))?;
            if self.settings.buffers[at].slot == INDIRECT {
                self.read_grid(home);
                continue;
            }
            let slot = self.settings.buffers[at].slot;
            let id = |view: &BufferView| (view.shared.id, view.offset, view.bytes);
            // Staging memory is kept, in case the part is staged where it is now, too.
            let known = match &self.given[slot] {
                Some(Given::Buffer { view, staging, .. }) => Some((id(view), staging.clone())),
                _ => None,
            };
            let (was, staging) = known.unzip();
            if was != Some(id(&home)) {
                self.given[slot] = Some(Given::Buffer {
                    view: home,
                    overwrites: self.settings.buffers[at].overwrites,
                    staging: staging.flatten(),
                });
                self.checked = false;
                self.bound = None;
            }
        }
        self.validate()?;
        Ok(Buffers {
            guard,
            used: &ground.buffers,
        })
    }

    /// The grid is in a buffer already on the device.
    fn read_grid(&mut self, buffer: BufferView) {
        let id = |view: &BufferView| (view.shared.id, view.offset, view.bytes);
        match &self.grid {
            Some(Grid::Indirect { buffer: known, .. }) if id(known) == id(&buffer) => {}
            Some(Grid::Indirect { offset, .. } | Grid::IndirectElsewhere { offset }) => {
                self.grid = Some(Grid::Indirect {
                    offset: *offset,
                    buffer,
                    staging: None,
                });
                self.grid_checked = false;
            }
            _ => {}
        }
    }

    /// Parts with common bytes must not be written by the kernel.
    fn check_parts(&self) -> Result<(), LaunchError> {
        for (at, one) in self.settings.buffers.iter().enumerate() {
            for other in &self.settings.buffers[at + 1..] {
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
}
