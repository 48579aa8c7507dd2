//! The device globals of a launch: made where new, and bound like arguments, but not given by the caller.

use std::sync::{Arc, OnceLock};

use super::{Ending, Ground, Inherits, Part, Parts, Rank, Resource, Stop, Submission};
use crate::globals::memory::{self, Placed};
use crate::kernel::compile::KernelGlobals;
use crate::kernel::pipeline::Kernel;
use crate::kernel::plan::Source;
use crate::kernel::reflect::Interface;
use crate::launch::aliases::{self, Bound, IsStaged, Meeting, Use};
use crate::launch::arguments::Given;
use crate::launch::{Launch, LaunchError};
use crate::memory::{BufferView, PointerKind};

/// Variables in memory, each with whether the kernel may write it.
type Placements = Arc<[(Arc<Placed>, bool)]>;

/// The name in messages of the globals' binding.
const WHAT: &str = "its device globals";

/// The variables of a kernel, at their places on its device.
#[derive(Debug, Clone)]
pub(in crate::launch) struct LaunchGlobals {
    /// Each with a flag for writing by the kernel.
    pub(in crate::launch) placed: Placements,
    /// The bound memory; `None` for globals in rows of the argument table.
    pub(in crate::launch) view: Option<BufferView>,
    writable: bool,
}

/// Known places of the variables, kept with the kernel for its launches.
#[derive(Debug, Default)]
pub(crate) struct PlacedGlobals(OnceLock<Placements>);

/// The kernel's device globals, once known to be there.
pub(in crate::launch) type Setting = Option<LaunchGlobals>;

/// The device globals of a submission, whose places are the launch's.
pub(in crate::launch) struct Globals;

impl<'s> Part<'s> for Globals {
    const RANK: Rank = Rank::HeapTurn;

    fn check(launch: &mut Launch) -> Result<(), LaunchError> {
        if launch.settings.globals.is_none() {
            launch.settings.globals = LaunchGlobals::of(&launch.kernel)?;
        }
        let Some(globals) = &launch.settings.globals else {
            return Ok(());
        };
        let interface = launch.kernel.interface();
        let is_staged = |slot, view: &BufferView| launch.is_staged(slot, view);
        let (given, written) = (&launch.given, launch.variant.written);
        let (written, globals_written) =
            globals.check_aliases(&interface.entry, interface, given, &is_staged, written)?;
        launch.variant.written = written;
        launch.variant.globals_written = globals_written;
        Ok(())
    }

    fn acquire(
        launch: &mut Launch,
        _ground: &'s Ground,
        _earlier: &Parts<'s>,
    ) -> Result<Option<Self>, Stop> {
        Ok(launch.settings.globals.is_some().then_some(Self))
    }

    fn inherit(&mut self, to: &Submission<'_>, inherits: &mut Inherits) {
        let globals = to.launch.settings.globals.iter();
        for (global, _) in globals.flat_map(|globals| globals.placed.iter()) {
            inherits.add(global.depends_on(&(0..global.bytes)));
        }
    }

    fn bind<'a>(&'a self, to: &Submission<'a>, source: Source) -> Option<Resource<'a>> {
        let view = to.launch.settings.globals.as_ref()?.view.as_ref();
        let view = view.filter(|_| source == Source::Globals)?;
        Some(Resource::Buffer {
            id: view.shared.id,
            buffer: &view.shared.raw,
            start: view.offset,
            bytes: view.bytes,
        })
    }

    fn recorded(&mut self, to: &Submission<'_>, ending: &mut Ending) {
        let outcome = to.launch.mark(ending);
        if let (Some(globals), Some(outcome)) = (&to.launch.settings.globals, outcome) {
            for (global, _) in globals.placed.iter().filter(|(_, writable)| *writable) {
                global.poison(0..global.bytes, outcome);
            }
        }
    }
}

impl LaunchGlobals {
    /// The variables of `kernel`; `None` for a kernel without any.
    pub(in crate::launch) fn of(kernel: &Kernel) -> Result<Option<Self>, LaunchError> {
        let Some(globals) = &kernel.shared.compiled.globals else {
            return Ok(None);
        };
        let placed = placed(kernel, globals)?;
        let Some(binding) = globals.binding else {
            // A kernel following pointers may have handed their addresses out.
            placed.iter().for_each(|(placed, _)| placed.escape());
            return Ok(Some(Self {
                placed,
                view: None,
                writable: false,
            }));
        };
        let (Some((first, _)), Some((instance, _))) = (placed.first(), globals.instances.first())
        else {
            return Ok(None);
        };
        let start = first.address.address() - u64::from(instance.offset) + u64::from(binding.start);
        let device = &kernel.device;
        let chunk = crate::memory::Ptr::<u8>::from_address(start);
        let view = memory::view(device, chunk, binding.bytes.into())?;
        Ok(Some(Self {
            placed,
            view: Some(view),
            writable: binding.writable,
        }))
    }

    /// Whether the bound memory is a part of the shared heap.
    pub(in crate::launch) fn in_heap(&self) -> bool {
        let heap = |view: &BufferView| {
            crate::memory::Ptr::<u8>::from_address(view.address).kind() == PointerKind::Shared
        };
        self.view.as_ref().is_some_and(heap)
    }

    /// As `check_aliases` for the arguments among themselves: the arguments, and whether the globals, to be bound for
    /// writing because of a shared part of the heap with a writer.
    pub(in crate::launch) fn check_aliases(
        &self,
        kernel: &str,
        interface: &Interface,
        given: &[Option<Given>],
        is_staged: IsStaged<'_>,
        mut written: u64,
    ) -> Result<(u64, bool), LaunchError> {
        let Some(view) = &self.view else {
            return Ok((written, false));
        };
        let own = Bound {
            view,
            bound_as: if self.writable { Use::Write } else { Use::Read },
            argument: None,
        };
        let mut globals_written = false;
        for (index, mut bound) in aliases::arguments(interface, given, is_staged) {
            let is_writable = bound.bound_as == Use::Write;
            if index < 64 && written >> index & 1 == 1 {
                bound.bound_as = Use::Write;
            }
            match own.beside(&bound) {
                Meeting::Nothing => {}
                Meeting::Neighbours if is_writable || index < 64 => {
                    globals_written |= !self.writable;
                    if !is_writable {
                        written |= 1 << index;
                    }
                }
                Meeting::Neighbours | Meeting::Aliased => {
                    return Err(LaunchError::Aliased {
                        kernel: kernel.to_string(),
                        first: interface.arguments[index].name.clone(),
                        second: WHAT.into(),
                    });
                }
            }
        }
        if globals_written {
            // A read-only binding beside the globals would now be a second use.
            let writable = Self {
                writable: true,
                ..self.clone()
            };
            let (written, _) =
                writable.check_aliases(kernel, interface, given, is_staged, written)?;
            return Ok((written, true));
        }
        Ok((written, false))
    }
}

fn placed(kernel: &Kernel, globals: &KernelGlobals) -> Result<Placements, LaunchError> {
    let known = &kernel.shared.extensions.globals.0;
    if let Some(known) = known.get() {
        return Ok(Arc::clone(known));
    }
    let mut all = Vec::with_capacity(globals.instances.len());
    for (instance, writable) in &globals.instances {
        let placed = memory::place(&kernel.device, instance);
        all.push((placed.map_err(Box::new)?, *writable));
    }
    Ok(Arc::clone(known.get_or_init(|| all.into())))
}
