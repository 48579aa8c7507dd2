//! Gives the variables of appended calls their bindings, and functions the bodies for the device.

use naga::valid::ModuleInfo;
use naga::{Block, Expression, GlobalVariable, Handle, Module, Span, Statement};

use crate::device::fence;
use crate::kernel::bindings::RuntimeBindings;

use super::subgroups;

const PORTS: &str = "tombolo_calls";
const POSTS: &str = "tombolo_posts";
const STATUS: &str = "tombolo_status";
const WAITS: &str = "tombolo_call_waits";
const GROUP_COUNT: &str = "tombolo_group_count";
const FENCE: &str = "tombolo_call_fence";
const PUBLISH: &str = "tombolo_call_publish";
const PUBLISH_BEHIND_FENCE: &str = "tombolo_call_publish_behind_fence";
/// Functions with another body where kernels' posts have separate memory.
const SEALED: [&str; 6] = [
    "tombolo_call_store",
    "tombolo_call_posted",
    "tombolo_call_note",
    "tombolo_call_seal",
    "tombolo_group_add",
    "tombolo_group_take",
];
const BACKOFF: &str = "tombolo_backoff";
const BACK_OFF: &str = "tombolo_call_backoff";
const PAUSE: &str = "tombolo_call_pause";
/// Functions with another body where turns of loops are rationed.
const RATIONED: [&str; 3] = [
    "tombolo_call_most",
    "tombolo_call_scarce",
    "tombolo_call_turn",
];
/// The same, where host and kernels have one memory as well: calls may be withdrawn there.
const WITHDRAWN: [&str; 2] = ["tombolo_call_seal", "tombolo_call_withdraw"];

/// What calls on a device depend on; see [`complete`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    pub barrier: bool,
    pub ordered: bool,
    pub has_loop_budget: bool,
    pub split: bool,
    pub packs: bool,
}

pub(crate) fn named(module: &Module, name: &str) -> Option<Handle<GlobalVariable>> {
    let mut globals = module.global_variables.iter();
    globals
        .find(|(_, global)| global.name.as_deref() == Some(name))
        .map(|(handle, _)| handle)
}

/// Completes a module parsed with a `CallAppendix`. Before anything looks at its bindings, and before validation:
/// unbound variables would not pass.
///
/// `barrier` says whether the fence becomes a barrier of memory. On lavapipe the barrier must be left out: that driver
/// compiles a barrier as if all of the work-group met there, and a work-group ends when its first group of lanes does.
/// There the posting exchange is a full fence, as on processors; elsewhere a store posts the call.
///
/// `ordered` says that neither compiler nor processor exchanges loads, or stores, or moves a load behind a later store: all
/// that a call asks of its fences. What also needs a store in front of a later load, a withdrawal, is only there with a loop
/// budget.
///
/// `has_loop_budget` says whether callers back off while waiting, and `split` whether posts have memory of their own.
///
/// `packs` says whether the invocations of a subgroup share packets; only where `split` is, and no loop budget.
pub(crate) fn complete(
    module: &mut Module,
    bindings: &RuntimeBindings,
    Traits {
        barrier,
        ordered,
        has_loop_budget,
        split,
        packs,
    }: Traits,
) {
    let bound = [
        (PORTS, bindings.calls()),
        (POSTS, bindings.posts()),
        (BACKOFF, bindings.backoff()),
        (STATUS, bindings.status()),
    ];
    for (name, binding) in bound {
        if let Some(handle) = named(module, name) {
            module.global_variables[handle].binding = Some(binding);
        }
    }
    if let (Some(ports), Some(posts), false) = (named(module, PORTS), named(module, POSTS), split) {
        // One memory is bound once.
        let functions = module.functions.iter_mut().map(|(_, function)| function);
        let points = module
            .entry_points
            .iter_mut()
            .map(|point| &mut point.function);
        for function in functions.chain(points) {
            for (_, expression) in function.expressions.iter_mut() {
                if *expression == Expression::GlobalVariable(posts) {
                    *expression = Expression::GlobalVariable(ports);
                }
            }
        }
    }
    if split {
        for name in SEALED {
            fence::replace_body(module, name, &format!("{name}_sealed"));
        }
    }
    let rationed = RATIONED.iter().filter(|_| has_loop_budget);
    for name in rationed.chain(WITHDRAWN.iter().filter(|_| has_loop_budget && !split)) {
        fence::replace_body(module, name, &format!("{name}_rationed"));
    }
    match packs {
        true => subgroups::share(module),
        false => subgroups::part(module),
    }
    if barrier {
        if !ordered || has_loop_budget {
            fence::fill(module, FENCE);
        }
        fence::replace_body(module, PUBLISH, PUBLISH_BEHIND_FENCE);
    }
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    for function in functions.filter(|_| !has_loop_budget) {
        if matches!(function.name.as_deref(), Some(BACK_OFF | PAUSE)) {
            function.expressions.clear();
            function.named_expressions.clear();
            function.local_variables.clear();
            function.body = Block::new();
            let end = Statement::Return { value: None };
            function.body.push(end, Span::UNDEFINED);
        }
    }
}

/// An entry point's use of functions of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CallUse {
    /// The entry point calls such a function.
    pub calls: bool,
    /// The entry point reports failed calls.
    pub reports: bool,
    /// The kernel waits for answers during the launch.
    pub waits: bool,
    /// Whole work-groups call, in packets of several calls.
    pub packs: bool,
    /// The entry point reads memory for delays.
    pub backs_off: bool,
}

/// An entry point's use of functions of the host.
pub(crate) fn uses(module: &Module, info: &ModuleInfo, entry: usize) -> CallUse {
    let uses = info.get_entry_point(entry);
    let reaches = |name| named(module, name).is_some_and(|handle| !uses[handle].is_empty());
    CallUse {
        calls: reaches(PORTS),
        reports: reaches(STATUS),
        waits: reaches(WAITS),
        packs: reaches(GROUP_COUNT),
        backs_off: reaches(BACKOFF),
    }
}

#[cfg(test)]
mod tests {
    use naga::Statement;
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    use super::*;

    /// Whether the fence of a call is one with these traits.
    fn is_fenced(traits: Traits) -> bool {
        let text = "fn tombolo_call_fence() {}
            fn tombolo_call_publish(at: u32, value: u32) {}
            fn tombolo_call_publish_behind_fence(at: u32, value: u32) {}";
        let mut module = naga::front::wgsl::parse_str(text).unwrap();
        let bindings = RuntimeBindings::of(&module, u32::MAX);
        complete(&mut module, &bindings, traits);
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        validator.validate(&module).unwrap();
        let mut functions = module.functions.iter().map(|(_, function)| function);
        let fence = functions.find(|function| function.name.as_deref() == Some(FENCE));
        let mut body = fence.unwrap().body.iter();
        body.any(|statement| matches!(statement, Statement::MemoryBarrier(_)))
    }

    #[test]
    fn calls_are_fenced_unless_processors_order_them() {
        let of = |barrier, ordered, has_loop_budget| Traits {
            barrier,
            ordered,
            has_loop_budget,
            ..Traits::default()
        };
        assert!(is_fenced(of(true, false, false)));
        assert!(!is_fenced(of(true, true, false)));
        // A call may be withdrawn, for which a store has to be seen before a later load.
        assert!(is_fenced(of(true, true, true)));
        assert!(!is_fenced(of(false, false, true)));
    }
}
