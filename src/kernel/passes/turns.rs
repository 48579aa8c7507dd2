//! Counts the turns of a server's loops, and ends the loops of a call with too many.
//!
//! A server that lives on a device cannot leave the length of a handler to chance: an endless loop would keep the
//! device for good, and on adapters with a loop budget a call is only begun with enough of the budget left. So every
//! loop of the handlers counts in a private variable, and at the call's limit the function returns a zero; so do its
//! callers, at the latest at the next turn of their own loops. The kernel then reports the call, whose result is never
//! seen.
//!
//! An invocation counts for itself. The count is exact for a group of lanes with a single serving lane.
//!
//! Switches count as a turn, too, because Mesa makes loops of them. Loops in which lanes meet at barriers only count,
//! since a lane that left would keep the others waiting.

use std::collections::HashSet;

use naga::{
    BinaryOperator, Block, Expression, Function, GlobalVariable, Handle, Literal, Module, Span,
    Statement, Type, TypeInner,
};

use super::blocks::{each_statement, inner_mut};
use super::{emit_chain, reachable};

const TURNS: &str = "tombolo_server_turns";
const LIMIT: &str = "tombolo_server_limit";
const PORTS: &str = "tombolo_calls";
/// What the functions of `shaders/rpc_subgroup.wgsl` begin with.
const SUBGROUP: &str = "tombolo_subgroup_";
/// Statements of a test that only count.
const COUNT: usize = 3;

/// Has the loops of all functions called by entry point `entry` count, except the runtime's own, known by their names.
/// Whether there are any. Does nothing to modules without the variables.
pub(crate) fn run(module: &mut Module, entry: usize) -> bool {
    let global = |name: &str| {
        let mut all = module.global_variables.iter();
        all.find(|(_, v)| v.name.as_deref() == Some(name))
            .map(|(handle, _)| handle)
    };
    let (Some(turns), Some(limit)) = (global(TURNS), global(LIMIT)) else {
        return false;
    };
    let ports = global(PORTS);
    let Some(point) = module.entry_points.get(entry) else {
        return false;
    };
    let mut found = false;
    let meeting = meeting_functions(module);
    for handle in reachable(module, &point.function) {
        let function = &module.functions[handle];
        // Waits for the host count their own turns.
        let waits = |expression: &Expression| matches!(expression, Expression::GlobalVariable(one) if Some(*one) == ports);
        let is_own = (function.name.as_deref()).is_some_and(|name| name.starts_with("tombolo_"));
        if is_own || function.expressions.iter().any(|(_, one)| waits(one)) {
            continue;
        }
        let result = function.result.as_ref().map(|result| result.ty);
        let is_pointer = |ty: Handle<Type>| {
            matches!(
                module.types[ty].inner,
                TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }
            )
        };
        // No value can be made up for a pointer; and who returned would be missing where others meet.
        let returns = !result.is_some_and(is_pointer) && !meeting.contains(&handle);
        let mut counter = Counter {
            turns,
            limit,
            result,
            meeting: &meeting,
            found: false,
        };
        let function = &mut module.functions[handle];
        let mut body = std::mem::take(&mut function.body);
        counter.visit(&mut body, function, returns);
        function.body = body;
        found |= counter.found;
    }
    found
}

/// The functions in which lanes meet.
pub(super) fn meeting_functions(module: &Module) -> HashSet<Handle<Function>> {
    // Callees come before their callers.
    let mut meeting = HashSet::new();
    for (handle, function) in module.functions.iter() {
        // Who shares a packet of calls waits for none of the others, and does without those who have left.
        let is_alone = (function.name.as_deref()).is_some_and(|name| name.starts_with(SUBGROUP));
        if !is_alone && meets(&function.body, &meeting) {
            meeting.insert(handle);
        }
    }
    meeting
}

/// Whether lanes meet in a block, or in called functions.
pub(super) fn meets(block: &Block, meeting: &HashSet<Handle<Function>>) -> bool {
    let mut found = false;
    each_statement(block, &mut |statement| {
        found |= match statement {
            Statement::Call { function, .. } => meeting.contains(function),
            Statement::ControlBarrier(_)
            | Statement::WorkGroupUniformLoad { .. }
            | Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. }
            | Statement::CooperativeStore { .. } => true,
            _ => false,
        };
    });
    found
}

struct Counter<'m> {
    turns: Handle<GlobalVariable>,
    limit: Handle<GlobalVariable>,
    result: Option<Handle<Type>>,
    meeting: &'m HashSet<Handle<Function>>,
    found: bool,
}

impl Counter<'_> {
    fn visit(&mut self, block: &mut Block, function: &mut Function, returns: bool) {
        let mut at = 0;
        while at < block.len() {
            if matches!(block[at], Statement::Switch { .. }) {
                // Drivers make loops of switches, and a turn of one is a turn.
                let mut count = self.test(function, returns);
                count.cull(COUNT..count.len());
                block.splice(at..at, count);
                at += COUNT;
            }
            for one in inner_mut(&mut block[at]) {
                // Nothing may return out of `continuing`.
                self.visit(one.block, function, returns && !one.is_continuing);
            }
            if let Statement::Loop {
                body, continuing, ..
            } = &mut block[at]
            {
                // Where lanes meet in every turn, one alone cannot leave.
                let stays = meets(body, self.meeting) || meets(continuing, self.meeting);
                let mut test = self.test(function, returns);
                if stays {
                    test.cull(COUNT..test.len());
                }
                body.splice(0..0, test);
                self.found = true;
            }
            at += 1;
        }
    }

    /// Counts a turn, and leaves when there were too many.
    fn test(&self, function: &mut Function, returns: bool) -> Block {
        let span = Span::UNDEFINED;
        let e = &mut function.expressions;
        let turns = e.append(Expression::GlobalVariable(self.turns), span);
        let limit = e.append(Expression::GlobalVariable(self.limit), span);
        let one = e.append(Expression::Literal(Literal::U32(1)), span);
        let zero = self
            .result
            .filter(|_| returns)
            .map(|ty| e.append(Expression::ZeroValue(ty), span));
        let (most, load) = emit_chain(e, span, limit, &[&|pointer| Expression::Load { pointer }]);
        let binary = |op, right| move |left| Expression::Binary { op, left, right };
        let add = binary(BinaryOperator::Add, one);
        let (value, count) = emit_chain(
            e,
            span,
            turns,
            &[&|pointer| Expression::Load { pointer }, &add],
        );
        let test = binary(BinaryOperator::GreaterEqual, most);
        let (condition, compare) = emit_chain(e, span, value, &[&test]);
        let leave = match returns {
            true => Statement::Return { value: zero },
            false => Statement::Break,
        };
        let pointer = turns;
        Block::from_vec(vec![
            load,
            count,
            Statement::Store { pointer, value },
            compare,
            Statement::If {
                condition,
                accept: Block::from_vec(vec![leave]),
                reject: Block::new(),
            },
        ])
    }
}

#[cfg(test)]
mod tests {
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    use super::*;

    const HEAD: &str =
        "var<private> tombolo_server_turns: u32; var<private> tombolo_server_limit: u32;
        @group(0) @binding(0) var<storage, read_write> tombolo_calls: array<atomic<u32>>;";

    fn counted(source: &str) -> (bool, String) {
        let mut module = naga::front::wgsl::parse_str(&format!("{HEAD}\n{source}")).unwrap();
        let found = run(&mut module, 0);
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        let info = validator.validate(&module).unwrap();
        let flags = naga::back::wgsl::WriterFlags::empty();
        let text = naga::back::wgsl::write_string(&module, &info, flags).unwrap();
        (found, text)
    }

    #[test]
    fn loops_of_handlers_count_and_return() {
        let (found, text) = counted(
            "fn inner(n: u32) -> vec2<f32> { loop { if n > 3u { break; } } return vec2(1.0); }
            fn tombolo_call_wait() { loop { break; } }
            fn ask_try() { loop { if atomicLoad(&tombolo_calls[1]) == 0u { break; } } }
            @compute @workgroup_size(1) fn main() {
                tombolo_call_wait();
                ask_try();
                loop { _ = inner(2u); break; }
            }",
        );
        assert!(found);
        assert_eq!(text.matches("tombolo_server_turns = ").count(), 1, "{text}");
        assert!(text.contains("return vec2<f32>()"), "{text}");
    }

    #[test]
    fn loops_in_other_loops_leave_in_turn() {
        let (found, text) = counted(
            "fn f() -> u32 {
                var x = 0u;
                for (var i = 0u; i < 9u; i++) { switch i { case 1u: { while x < 7u { x += i; } } default: { continue; } } }
                loop { x += 1u; continuing { loop { break; } break if x > 90u; } }
                return x;
            }
            @compute @workgroup_size(1) fn main() { _ = f(); }",
        );
        assert!(found);
        // Four loops and a switch.
        assert_eq!(text.matches("tombolo_server_turns = ").count(), 5, "{text}");
        assert_eq!(text.matches(" >= _e").count(), 4, "{text}");
    }

    #[test]
    fn nobody_leaves_where_others_wait() {
        let (found, text) = counted(
            "fn meet() { workgroupBarrier(); }
            fn f() -> u32 { var x = 0u; while x < 9u { x += 1u; } loop { meet(); x += 1u; if x > 20u { break; } } return x; }
            @compute @workgroup_size(8) fn main() { _ = f(); }",
        );
        assert!(found);
        assert_eq!(text.matches("tombolo_server_turns = ").count(), 2, "{text}");
        assert!(!text.contains("return u32()"), "{text}");
        assert_eq!(text.matches(" >= _e").count(), 1, "{text}");
    }

    #[test]
    fn others_are_left_alone() {
        let source = "fn f() { loop { break; } } @compute @workgroup_size(1) fn main() { f(); }";
        let mut module = naga::front::wgsl::parse_str(source).unwrap();
        assert!(!run(&mut module, 0));
        assert!(!counted("@compute @workgroup_size(1) fn main() { }").0);
    }
}
