//! Arguments that are buffers of the context: submission brings their bytes to the launch's device, and binds the bytes
//! in place, or a copy in staging memory where binding in place is impossible ([`staging`](super::staging)).

use std::sync::Arc;

use super::arguments::Given;
use super::error::LaunchError;
use super::{Grid, Launch};
use crate::device::DeviceShared;
use crate::device::outcome::Outcome;
use crate::memory::BufferView;
use crate::memory::buffers::residency_guard::{PartView, ResidencyGuard, Use, roots};
use crate::memory::buffers::{BufferError, LaunchExplanation, Root};

/// The slot of the buffer that an indirect grid is read from, which is no argument.
pub(super) const INDIRECT: usize = usize::MAX;
/// The name in messages.
pub(super) const INDIRECT_NAME: &str = "the indirect buffer";

/// An argument that is a part of a buffer of the context.
#[derive(Debug, Clone)]
pub(super) struct MigratableArgument {
    pub(super) slot: usize,
    pub(super) part: PartView,
    overwrites: bool,
}

impl MigratableArgument {
    pub(super) fn new(slot: usize, part: PartView, overwrites: bool) -> Self {
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

impl Launch {
    /// The uses of buffers of the context, in the order of the migratable arguments.
    pub(super) fn uses(&self) -> Vec<Use> {
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
        self.migratable.iter().map(used).collect()
    }

    /// The buffers that have to be locked.
    pub(super) fn roots(&self) -> Vec<Arc<Root>> {
        roots(self.migratable.iter().map(|argument| &argument.part))
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
    /// Errors of [`Launch::submit`] before any request for memory.
    pub fn explain(&mut self) -> Result<LaunchExplanation, LaunchError> {
        self.validate()?;
        self.check_parts()?;
        let (roots, uses) = (self.roots(), self.uses());
        let device = Arc::clone(&self.kernel.device);
        let residency = ResidencyGuard::begin(&device, &device.buffers_extension, &roots);
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let mut residency = residency.map_err(|error| self.buffer_error(first(), error))?;
        let told = residency.explain(&uses);
        told.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))
    }

    /// Brings the buffers of the context to the device and binds them there.
    pub(super) fn acquire_buffers<'r>(
        &mut self,
        device: &Arc<DeviceShared>,
        extension: &'r crate::device::extension::ExtensionSlot,
        roots: &'r [Arc<Root>],
        uses: &[Use],
    ) -> Result<(ResidencyGuard<'r>, LaunchExplanation), LaunchError> {
        self.check_parts()?;
        let first = || uses.first().map_or("", |one| one.argument.as_str());
        let begun = ResidencyGuard::begin(device, extension, roots);
        let mut residency = begun.map_err(|error| self.buffer_error(first(), error))?;
        let brought = residency.bring(uses);
        let told = brought.map_err(|(at, error)| self.buffer_error(&uses[at].argument, error))?;
        for (at, one) in uses.iter().enumerate() {
            let home = residency.view(&one.part);
            let home = home.map_err(|error| self.buffer_error(&one.argument, error))?;
            if self.migratable[at].slot == INDIRECT {
                self.read_grid(home);
                continue;
            }
            let slot = self.migratable[at].slot;
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
                    overwrites: self.migratable[at].overwrites,
                    staging: staging.flatten(),
                });
                self.checked = false;
                self.bound = None;
            }
        }
        self.validate()?;
        Ok((residency, told))
    }

    /// The grid is in a buffer that has come to the device.
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
        for (at, one) in self.migratable.iter().enumerate() {
            for other in &self.migratable[at + 1..] {
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

    /// The outcomes that the launch inherits from buffers of the context.
    pub(super) fn migratable_inputs(
        &self,
        residency: &mut ResidencyGuard<'_>,
        inherits: &mut Vec<Arc<Outcome>>,
    ) {
        for argument in &self.migratable {
            if argument.overwrites && self.writes(argument.slot) {
                continue;
            }
            for outcome in residency.depends_on(&argument.part) {
                if !inherits.iter().any(|known| Arc::ptr_eq(known, &outcome)) {
                    inherits.push(outcome);
                }
            }
        }
    }
}
