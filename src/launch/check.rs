//! The checks of a launch before submission.

use std::sync::Arc;

use super::aliases::{self, Bound, Meeting, Use, check_aliases};
use super::arguments::{Given, Way, check, describe};
use super::dispatch::Extents;
use super::grid::Groups;
use super::parts::{Parts, buffers, staging};
use super::{Grid, Launch, LaunchError, textures};
use crate::kernel::compile::Code;
use crate::kernel::reflect::ArgumentKind;
use crate::memory::BufferView;
use crate::memory::heap::heap_of;

/// The most dispatches of a launch: more would be gigabytes of commands.
pub(super) const MOST_DISPATCHES: u64 = 1 << 20;

impl Launch {
    /// Checks the launch without submitting it. Nothing is moved, and no memory allocated but for new device globals
    /// and new ports of services.
    ///
    /// # Errors
    /// Everything that [`Launch::submit`] would refuse now, but for a lack of memory.
    pub fn check(&mut self) -> Result<(), LaunchError> {
        self.check_alone()?;
        if !self.settings.buffers.is_empty() {
            self.explain()?;
        }
        Ok(())
    }

    /// As [`Launch::check`], but for the places of buffers' bytes, open to changes by launches in front.
    pub(super) fn check_alone(&mut self) -> Result<(), LaunchError> {
        self.validate()?;
        let device = Arc::clone(&self.kernel.device);
        device.lost.check().map_err(Arc::new)?;
        if let Some(callee) = self.callee_of_kernel() {
            callee.ready(&self.kernel.interface().entry)?;
        }
        if self.needs_heap() {
            heap_of(&device)?.shared.check_held_here("a launch")?;
        }
        Ok(())
    }

    /// Checks the constant properties; once, until the launch is changed.
    pub(crate) fn validate(&mut self) -> Result<(), LaunchError> {
        if !self.checked {
            self.validate_arguments()?;
            // An argument may be the buffer of an indirect grid, too.
            self.grid_checked = false;
        }
        if !self.grid_checked {
            self.groups = self.whole_grid()?;
            self.check_grid()?;
            self.check_indirect()?;
        }
        (self.checked, self.grid_checked) = (true, true);
        Ok(())
    }

    fn validate_arguments(&mut self) -> Result<(), LaunchError> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        self.check_arguments()?;
        let interface = self.kernel.interface();
        let name = &interface.entry;
        let reaches_heap = self.kernel.shared.compiled.heap.is_some();
        let is_elsewhere = |slot, view: &BufferView| self.is_bound_elsewhere(slot, view);
        self.variant.written =
            check_aliases(name, interface, &self.given, &is_elsewhere, reaches_heap)?;
        textures::check_aliases(name, interface, &self.given)?;
        self.check_immediates()?;
        Parts::check(self)
    }

    fn check_arguments(&self) -> Result<(), LaunchError> {
        let interface = self.kernel.interface();
        let name = &interface.entry;
        let given = interface.arguments.iter().zip(&self.given);
        let missing: Vec<_> = (given.filter(|(_, given)| given.is_none()))
            .map(|(info, _)| info)
            .collect();
        let unsupported = |kind: &_| matches!(kind, ArgumentKind::Unsupported { .. });
        if let Some(info) = missing.iter().find(|info| unsupported(&info.kind)) {
            return Err(LaunchError::UnsupportedArgument {
                kernel: name.clone(),
                argument: info.name.clone(),
                wgsl: info.kind.noun(),
            });
        }
        if !missing.is_empty() {
            return Err(LaunchError::MissingArguments {
                kernel: name.clone(),
                missing: describe(missing.into_iter()),
            });
        }
        for (slot, (info, given)) in interface.arguments.iter().zip(&self.given).enumerate() {
            let Some(given) = given else { continue };
            let way = match given {
                Given::Buffer { view, .. } if self.is_bound_elsewhere(slot, view) => Way::Copied,
                _ => Way::Direct,
            };
            check(&self.kernel.device, name, info, given, way)?;
        }
        Ok(())
    }

    fn check_immediates(&self) -> Result<(), LaunchError> {
        let name = self.name();
        match (&self.interface().immediates, &self.immediates) {
            (None, None) => Ok(()),
            (Some(layout), None) => Err(LaunchError::MissingArguments {
                kernel: name,
                missing: format!("its var<immediate> ({layout})"),
            }),
            (None, Some(_)) => Err(LaunchError::UnknownArgument {
                kernel: name,
                argument: "var<immediate>".into(),
                available: describe(self.interface().arguments.iter()),
            }),
            (Some(layout), Some(bytes)) if bytes.len() != layout.size as usize => {
                Err(LaunchError::UniformSize {
                    kernel: name,
                    argument: "var<immediate>".into(),
                    wgsl: layout.wgsl.as_str().into(),
                    size: layout.size,
                    padding: layout.padding_note().into(),
                    value: "the immediate value",
                    value_bytes: bytes.len(),
                })
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }

    /// The grid, as far as known before the launch runs.
    fn check_grid(&self) -> Result<(), LaunchError> {
        let Extents::Groups(groups) = self.extents()? else {
            return Ok(());
        };
        if groups.is_empty() || groups.fits_one_dispatch() {
            return Ok(());
        }
        let limits = &self.kernel.device.limits;
        if matches!(self.kernel.shared.compiled.code, Code::SpirV(_)) {
            return Err(LaunchError::PrecompiledGrid {
                kernel: self.name(),
                limit: limits.max_compute_workgroups_per_dimension,
            });
        }
        let dispatches = Groups::tile_count(&groups);
        match dispatches > MOST_DISPATCHES {
            true => Err(LaunchError::GridTooManyDispatches {
                kernel: self.name(),
                dispatches,
                limit: MOST_DISPATCHES,
            }),
            false => Ok(()),
        }
    }

    fn check_indirect(&self) -> Result<(), LaunchError> {
        let fits = |start: u64, bytes: u64, offset: u64| {
            let within = (offset.checked_add(staging::GRID_BYTES)).is_some_and(|end| end <= bytes);
            match within && start.wrapping_add(offset).is_multiple_of(4) {
                true => Ok(()),
                false => Err(LaunchError::Indirect {
                    kernel: self.name(),
                    offset,
                    bytes,
                }),
            }
        };
        let (buffer, offset) = match &self.grid {
            Some(Grid::IndirectElsewhere { offset }) => {
                let mut arguments = self.settings.buffers.iter();
                let found = arguments.find(|argument| argument.slot == buffers::INDIRECT);
                return found.map_or(Ok(()), |argument| {
                    fits(argument.part.offset, argument.part.bytes, *offset)
                });
            }
            Some(Grid::Indirect { buffer, offset, .. }) => (buffer, *offset),
            _ => return Ok(()),
        };
        let argument = || buffers::INDIRECT_NAME.to_owned();
        let device = &self.kernel.device;
        if !Arc::ptr_eq(device, &buffer.shared.device) {
            return Err(LaunchError::OtherDevice {
                kernel: self.name(),
                argument: argument(),
                device: device.capabilities.name.clone(),
                other: buffer.shared.device.capabilities.name.clone(),
            });
        }
        if let Some((start, end, len)) = buffer.out_of_range {
            return Err(LaunchError::OutOfRange {
                kernel: self.name(),
                argument: argument(),
                start,
                end,
                len,
            });
        }
        fits(buffer.offset, buffer.bytes, offset)?;
        if buffer.shared.is_heap {
            // The counts are copied before the launch.
            return Ok(());
        }
        let needed = wgpu::BufferUsages::INDIRECT;
        if !buffer.shared.raw.usage().contains(needed) {
            return Err(LaunchError::MissingUsage {
                kernel: self.name(),
                argument: argument(),
                needed,
            });
        }
        // Counts beside a written argument are staged.
        let counts = Bound {
            view: buffer,
            bound_as: Use::Apart,
            argument: Some((usize::MAX, &|_, _| true)),
        };
        let is_elsewhere = |slot, view: &BufferView| self.is_bound_elsewhere(slot, view);
        let arguments = aliases::arguments(self.interface(), &self.given, &is_elsewhere);
        let mut aliased = arguments.filter(|(_, argument)| {
            counts.beside(argument) == Meeting::Aliased && !argument.is_staged()
        });
        match aliased.next() {
            Some((slot, _)) => Err(LaunchError::Aliased {
                kernel: self.name(),
                first: self.argument(slot),
                second: argument(),
            }),
            None => Ok(()),
        }
    }
}
