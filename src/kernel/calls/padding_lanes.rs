//! Padding lanes, run by a driver for no invocation. lavapipe runs lanes in groups of eight; lanes beyond the end of a
//! work-group write nothing, but go through loops, and their turns count for the whole group. A call waits in a loop: a
//! lane without a post waits for an answer until its budget ends, and leaves the others next to no turns.
//!
//! So padding lanes begin as if their wait budget were used up, and, in kernels that wait for pages of lent memory, as if they
//! had met with a fault.

use naga::{
    BinaryOperator, Binding, BuiltIn, Expression, FunctionArgument, Literal, Module, Scalar, Span,
    Statement, TypeInner,
};

use super::bind::named;
use crate::kernel::passes::{prepend, type_of};

/// Lanes of a group.
pub(super) const GROUP: u32 = 8;
/// More looks than any invocation may take, and far from the end of the numbers.
const ALL: u32 = 1 << 31;
const LOOKS: &str = "tombolo_call_looks";
const FAILED: &str = "tombolo_system_failed";

/// Puts the test in front of an entry point that calls the host and whose work-groups do not fill their groups of
/// lanes. Returns whether there was a change.
pub(crate) fn dismiss(module: &mut Module, entry: usize) -> bool {
    let size = module.entry_points[entry].workgroup_size;
    let lanes = size.iter().fold(1u32, |all, &n| all.saturating_mul(n));
    let dismissed: Vec<_> = [LOOKS, FAILED]
        .into_iter()
        .filter_map(|name| named(module, name))
        .collect();
    if dismissed.is_empty() || lanes.is_multiple_of(GROUP) {
        return false;
    }
    let span = Span::UNDEFINED;
    let mut function = std::mem::take(&mut module.entry_points[entry].function);
    let (argument, member) = lane_index(module, &mut function.arguments);
    let e = &mut function.expressions;
    let base = e.append(Expression::FunctionArgument(argument), span);
    let pointers: Vec<_> = dismissed
        .into_iter()
        .map(|variable| e.append(Expression::GlobalVariable(variable), span))
        .collect();
    let [right, all, none] =
        [lanes, ALL, 0].map(|n| e.append(Expression::Literal(Literal::U32(n)), span));
    let start = e.len();
    let left = match member {
        Some(index) => e.append(Expression::AccessIndex { base, index }, span),
        None => base,
    };
    let op = BinaryOperator::GreaterEqual;
    let condition = e.append(Expression::Binary { op, left, right }, span);
    let value = Expression::Select {
        condition,
        accept: all,
        reject: none,
    };
    let value = e.append(value, span);
    let emit = Statement::Emit(e.range_from(start));
    let stores = pointers
        .into_iter()
        .map(|pointer| Statement::Store { pointer, value });
    let statements = std::iter::once(emit).chain(stores).collect();
    prepend(&mut function, statements, span);
    module.entry_points[entry].function = function;
    true
}

/// The index of the lane in its work-group, among the arguments of an entry point.
pub(super) fn lane_index(
    module: &mut Module,
    arguments: &mut Vec<FunctionArgument>,
) -> (u32, Option<u32>) {
    let wanted = Some(Binding::BuiltIn(BuiltIn::LocalInvocationIndex));
    for (index, argument) in (0u32..).zip(arguments.iter()) {
        if argument.binding == wanted {
            return (index, None);
        }
        if let TypeInner::Struct { members, .. } = &module.types[argument.ty].inner
            && let Some((member, _)) = (0u32..).zip(members).find(|(_, m)| m.binding == wanted)
        {
            return (index, Some(member));
        }
    }
    arguments.push(FunctionArgument {
        name: None,
        ty: type_of(module, TypeInner::Scalar(Scalar::U32)),
        binding: wanted,
    });
    (arguments.len() as u32 - 1, None)
}

#[cfg(test)]
mod tests {
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    use super::*;

    fn dismissed(head: &str) -> Option<String> {
        let source = format!(
            "var<private> tombolo_call_looks: u32;
            struct In {{ @builtin(local_invocation_id) at: vec3<u32>, @builtin(local_invocation_index) lane: u32 }}
            {head} {{ tombolo_call_looks += 1u; }}"
        );
        let mut module = naga::front::wgsl::parse_str(&source).unwrap();
        let changed = dismiss(&mut module, 0);
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        let info = validator.validate(&module).unwrap();
        let flags = naga::back::wgsl::WriterFlags::empty();
        let text = naga::back::wgsl::write_string(&module, &info, flags).unwrap();
        changed.then_some(text)
    }

    #[test]
    fn groups_that_are_not_filled_are_tested() {
        for head in [
            "@compute @workgroup_size(1) fn main()",
            "@compute @workgroup_size(3, 3) fn main(@builtin(local_invocation_index) i: u32)",
            "@compute @workgroup_size(12) fn main(in: In)",
        ] {
            let text = dismissed(head).unwrap();
            let lanes = ["1u", "9u", "12u"]
                .into_iter()
                .find(|n| text.contains(&format!(">= {n}")));
            assert!(lanes.is_some() && text.contains("2147483648u"), "{text}");
        }
        assert_eq!(dismissed("@compute @workgroup_size(4, 2) fn main()"), None);
        assert_eq!(
            dismissed("@compute @workgroup_size(256) fn main(in: In)"),
            None
        );
    }
}
