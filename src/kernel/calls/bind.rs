//! Gives the variables of appended calls their bindings, and the fence its body.

use naga::valid::ModuleInfo;
use naga::{Barrier, Block, GlobalVariable, Handle, Module, Span, Statement};

use crate::kernel::bindings::RuntimeBindings;

const PORTS: &str = "tombolo_calls";
const STATUS: &str = "tombolo_status";
const WAITS: &str = "tombolo_call_waits";
const FENCE: &str = "tombolo_call_fence";

fn named(module: &Module, name: &str) -> Option<Handle<GlobalVariable>> {
    let mut globals = module.global_variables.iter();
    globals
        .find(|(_, global)| global.name.as_deref() == Some(name))
        .map(|(handle, _)| handle)
}

/// Completes a module that was parsed with a `CallAppendix`. Before anything looks at its bindings, and before
/// validation: unbound variables would not pass.
///
/// `barrier` says whether the fence becomes a barrier of memory. On lavapipe it must not: that driver compiles one
/// as if all of the work-group met there, and a work-group ends when its first group of lanes does. There the
/// exchange that posts a call is a full fence, as processors have it.
pub(crate) fn complete(module: &mut Module, bindings: &RuntimeBindings, barrier: bool) {
    for (name, binding) in [(PORTS, bindings.calls()), (STATUS, bindings.status())] {
        if let Some(handle) = named(module, name) {
            module.global_variables[handle].binding = Some(binding);
        }
    }
    let fence = module
        .functions
        .iter_mut()
        .find(|(_, f)| f.name.as_deref() == Some(FENCE));
    if let Some((_, fence)) = fence.filter(|_| barrier) {
        // Memory alone: a control barrier would wait for lanes that are elsewhere.
        let span = Span::UNDEFINED;
        fence.body = Block::new();
        fence
            .body
            .push(Statement::MemoryBarrier(Barrier::STORAGE), span);
        fence.body.push(Statement::Return { value: None }, span);
    }
}

/// What an entry point does with functions of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CallUse {
    /// It calls one.
    pub calls: bool,
    /// It reports calls that failed.
    pub reports: bool,
    /// It waits for answers while it runs.
    pub waits: bool,
}

/// What an entry point does with functions of the host.
pub(crate) fn uses(module: &Module, info: &ModuleInfo, entry: usize) -> CallUse {
    let uses = info.get_entry_point(entry);
    let reaches = |name| named(module, name).is_some_and(|handle| !uses[handle].is_empty());
    CallUse {
        calls: reaches(PORTS),
        reports: reaches(STATUS),
        waits: reaches(WAITS),
    }
}
