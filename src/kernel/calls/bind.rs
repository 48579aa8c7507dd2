//! Gives the variables of appended calls their bindings, and functions the bodies that suit the device.

use naga::valid::ModuleInfo;
use naga::{Barrier, Block, GlobalVariable, Handle, Module, Span, Statement};

use crate::kernel::bindings::RuntimeBindings;

const PORTS: &str = "tombolo_calls";
const STATUS: &str = "tombolo_status";
const FENCE: &str = "tombolo_call_fence";
const CALM: &str = "tombolo_call_calm";
const PAUSE: &str = "tombolo_call_pause";

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
///
/// `rations` says whether callers are to take their time while they wait.
pub(crate) fn complete(
    module: &mut Module,
    bindings: &RuntimeBindings,
    barrier: bool,
    rations: bool,
) {
    for (name, binding) in [(PORTS, bindings.calls()), (STATUS, bindings.status())] {
        if let Some(handle) = named(module, name) {
            module.global_variables[handle].binding = Some(binding);
        }
    }
    let span = Span::UNDEFINED;
    for (_, function) in module.functions.iter_mut() {
        let mut body = Block::new();
        match function.name.as_deref() {
            // Memory alone: a control barrier would wait for lanes that are elsewhere.
            Some(FENCE) if barrier => body.push(Statement::MemoryBarrier(Barrier::STORAGE), span),
            Some(CALM | PAUSE) if !rations => {
                function.expressions.clear();
                function.named_expressions.clear();
                function.local_variables.clear();
            }
            _ => continue,
        }
        body.push(Statement::Return { value: None }, span);
        function.body = body;
    }
}

/// Whether an entry point reaches a call, and whether it reports failed ones.
pub(crate) fn uses(module: &Module, info: &ModuleInfo, entry: usize) -> (bool, bool) {
    let uses = info.get_entry_point(entry);
    let reaches = |name| named(module, name).is_some_and(|handle| !uses[handle].is_empty());
    (reaches(PORTS), reaches(STATUS))
}
