//! The device globals of a launch: made where new, and bound like arguments, but not given by the caller.

use std::sync::{Arc, OnceLock};

use super::arguments::Given;
use super::error::LaunchError;
use crate::globals::memory::{self, Placed};
use crate::kernel::compile::KernelGlobals;
use crate::kernel::pipeline::Kernel;
use crate::kernel::reflect::{ArgumentKind, Interface};
use crate::memory::{BufferView, PointerKind};

/// Variables in memory, each with whether the kernel may write it.
type Placements = Arc<[(Arc<Placed>, bool)]>;

/// What messages call the binding of the globals.
const WHAT: &str = "its device globals";

/// The variables of a kernel, at their places on its device.
#[derive(Debug, Clone)]
pub(super) struct LaunchGlobals {
    /// Each with a flag for writing by the kernel.
    pub(super) placed: Placements,
    /// What is bound; `None` where they are rows of the argument table.
    pub(super) view: Option<BufferView>,
    writable: bool,
}

/// Known places of the variables, kept with the kernel for its launches.
#[derive(Debug, Default)]
struct Known(OnceLock<Placements>);

impl LaunchGlobals {
    /// The variables of `kernel`; `None` for a kernel without any.
    pub(super) fn of(kernel: &Kernel) -> Result<Option<Self>, LaunchError> {
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

    /// Whether what is bound is a part of the shared heap.
    pub(super) fn in_heap(&self) -> bool {
        let heap = |view: &BufferView| {
            crate::memory::Ptr::<u8>::from_address(view.address).kind() == PointerKind::Shared
        };
        self.view.as_ref().is_some_and(heap)
    }

    /// As `check_aliases` for the arguments among themselves: the arguments, and whether the globals, to be bound for
    /// writing because of a shared part of the heap with a writer.
    pub(super) fn check_aliases(
        &self,
        kernel: &str,
        interface: &Interface,
        given: &[Option<Given>],
        is_staged: &dyn Fn(usize, &BufferView) -> bool,
        mut written: u64,
    ) -> Result<(u64, bool), LaunchError> {
        let Some(own) = &self.view else {
            return Ok((written, false));
        };
        let mut globals_written = false;
        let arguments = interface.arguments.iter().zip(given).enumerate();
        for (index, (info, given)) in arguments {
            let Some(Given::Buffer { view, .. }) = given else {
                continue;
            };
            if view.shared.raw != own.shared.raw {
                continue;
            }
            let (storage, writable) = match info.kind {
                ArgumentKind::Storage { writable, .. } => (true, writable),
                _ => (false, false),
            };
            let bound_for_writing = writable || (index < 64 && written >> index & 1 == 1);
            if !self.writable && !bound_for_writing {
                continue;
            }
            let (a, b) = (own.range(), view.range());
            let apart = a.end <= b.start || b.end <= a.start;
            if apart && is_staged(index, view) {
                continue;
            }
            if !storage || !apart || (!writable && index >= 64) {
                return Err(LaunchError::Aliased {
                    kernel: kernel.to_string(),
                    first: info.name.clone(),
                    second: WHAT.into(),
                });
            }
            globals_written |= !self.writable;
            if !writable {
                written |= 1 << index;
            }
        }
        if globals_written {
            // What is bound read-only beside the globals would now be a second use.
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
    let known = &kernel.shared.launch_extension.get::<Known>().0;
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
