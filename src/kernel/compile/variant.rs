//! Variants: forms of a compiled kernel that only some launches need, made from the plain module when first asked for.

use super::compiled::{Code, Compiled};
use crate::kernel::passes::{grid, spill};

/// A form of a kernel that only some launches need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Variant {
    /// The built-in ids are those of a grid larger than a dispatch.
    pub(crate) tiled: bool,
    /// Arguments (by index) bound for writing although the kernel only reads them: a buffer has a single use in a
    /// dispatch, and another argument writes to other bytes of the same buffer.
    pub(crate) written: u64,
    /// The same for the device globals.
    pub(crate) globals_written: bool,
}

impl Variant {
    /// Whether a variant can have this argument among `written`.
    pub(crate) fn names(argument: usize) -> bool {
        argument < u64::BITS as usize
    }

    /// Whether an argument is among `written`.
    pub(crate) fn writes(self, argument: usize) -> bool {
        Self::names(argument) && self.written >> argument & 1 == 1
    }
}

/// The module of a variant, and whether there are parameters of a tiled grid; `None` when the plain module serves.
pub(crate) fn lower(compiled: &Compiled, variant: Variant) -> Option<(naga::Module, bool)> {
    let Code::Naga { module, entry } = &compiled.code else {
        return None;
    };
    let mut module = naga::Module::clone(module);
    let arguments = compiled.interface.arguments.iter().enumerate();
    for (_, argument) in arguments.filter(|(index, _)| variant.writes(*index)) {
        for (_, global) in module.global_variables.iter_mut() {
            let place = naga::ResourceBinding {
                group: argument.group,
                binding: argument.binding,
            };
            if let naga::AddressSpace::Storage { access } = &mut global.space
                && global.binding == Some(place)
            {
                *access |= naga::StorageAccess::STORE;
            }
        }
    }
    let gridded = variant.tiled && grid::run(&mut module, *entry, compiled.bindings.grid());
    if variant.globals_written {
        let place = compiled.bindings.globals();
        for (_, global) in module.global_variables.iter_mut() {
            if let naga::AddressSpace::Storage { access } = &mut global.space
                && global.binding == Some(place)
            {
                *access |= naga::StorageAccess::STORE;
            }
        }
    }
    if let Some(facts) = &compiled.spill {
        spill::enter(&mut module, *entry, facts);
    }
    let changed =
        gridded || variant.written != 0 || variant.globals_written || compiled.spill.is_some();
    changed.then_some((module, gridded))
}
