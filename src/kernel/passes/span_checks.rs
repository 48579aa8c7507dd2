//! Checked mode of spans: an index beyond the length of a helper's argument is a fault of the launch.
//!
//! *How it works.* An index behind a span is limited to the last element by the adapter or by naga, as any other index.
//! Behind each expression that indexes a span with a value known at run time stands a call that compares the index with
//! the length, and writes the first index beyond the length to the status record ([`SPAN`]): the number of its place in
//! the text, the index and the length. The access itself reads or writes the last element, all the same: the launch has
//! failed.
//!
//! The lengths belong to the helper's own copy (`spans.rs`), so that a comparison costs no load.

use std::collections::{HashMap, HashSet};

use naga::{
    Arena, Block, Expression, Function, GlobalVariable, Handle, Literal, MemoryDecorations, Module,
    ScalarKind, Span, Statement,
};

use super::blocks::rebuild;
use super::status::{SPAN, SPAN_CLAIM, status_type};
use super::transplant::Mover;
use super::unique_name;

/// The status record of checks, until the record gets a binding.
pub(crate) const STATUS: &str = "tombolo_status";
const FAULT: &str = "tombolo_span_fault";

fn text() -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> {STATUS}: array<atomic<u32>, {words}>;
        fn {FAULT}(index: u32, length: u32, code: u32) {{
            if index >= length {{
                if atomicExchange(&{STATUS}[{SPAN_CLAIM}], 1u) == 0u {{
                    atomicStore(&{STATUS}[{code}], code);
                    atomicStore(&{STATUS}[{index}], index);
                    atomicStore(&{STATUS}[{length}], length);
                }}
            }}
        }}",
        words = super::status::WORDS,
        code = SPAN.start,
        index = SPAN.start + 1,
        length = SPAN.start + 2,
    )
}

/// The checks of a module.
#[derive(Debug)]
pub(super) struct SpanChecks {
    fault: Handle<Function>,
    /// Where indices are checked: the code of a place is the place's number here, plus 1.
    pub(super) sites: Vec<Span>,
}

/// The root of a span in a helper with known lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Root {
    Argument(u32),
    Variable(Handle<GlobalVariable>),
}

impl SpanChecks {
    /// Adds the variable to `module` and the function to `functions`, in front of all callers; `None` where the text
    /// does not parse, which a test rules out.
    pub(super) fn begin(module: &mut Module, functions: &mut Arena<Function>) -> Option<Self> {
        let text = naga::front::wgsl::parse_str(&text()).ok()?;
        let ty = status_type(module);
        let mut mover = Mover::of(&text);
        for (handle, variable) in text.global_variables.iter() {
            let known = (module.global_variables.iter())
                .find(|(_, known)| known.name.as_deref() == Some(STATUS) && known.ty == ty);
            let moved = match known {
                Some((known, _)) => known,
                None => module.global_variables.append(
                    GlobalVariable {
                        name: Some(STATUS.to_owned()),
                        ty,
                        binding: None,
                        memory_decorations: MemoryDecorations::empty(),
                        ..variable.clone()
                    },
                    Span::UNDEFINED,
                ),
            };
            mover.globals.insert(handle, moved);
        }
        let mut fault = None;
        for (_, function) in text.functions.iter() {
            let name = unique_name(module, FAULT);
            let moved = mover.function(module, function, name);
            fault = Some(functions.append(moved, Span::UNDEFINED));
        }
        Some(Self {
            fault: fault?,
            sites: Vec::new(),
        })
    }

    /// Checks the indices behind the given spans, with their lengths.
    pub(super) fn add(&mut self, function: &mut Function, spans: &HashMap<Root, Expression>) {
        let root_of =
            |function: &Function, base: Handle<Expression>| match function.expressions[base] {
                Expression::FunctionArgument(index) => Some(Root::Argument(index)),
                Expression::GlobalVariable(variable) => Some(Root::Variable(variable)),
                _ => None,
            };
        let mut checked = HashMap::new();
        let accesses: Vec<_> = (function.expressions.iter())
            .filter_map(|(handle, expression)| match *expression {
                Expression::Access { base, index } => Some((handle, base, index)),
                _ => None,
            })
            .collect();
        for (handle, base, index) in accesses {
            let length = root_of(function, base).and_then(|root| spans.get(&root));
            let Some(length) = length.cloned() else {
                continue;
            };
            let span = function.expressions.get_span(handle);
            self.sites.push(span);
            let code = Literal::U32(self.sites.len() as u32);
            let e = &mut function.expressions;
            let length = e.append(length, span);
            let code = e.append(Expression::Literal(code), span);
            let start = e.len();
            let index = e.append(
                Expression::As {
                    expr: index,
                    kind: ScalarKind::Uint,
                    convert: Some(4),
                },
                span,
            );
            let emit = Statement::Emit(e.range_from(start));
            let call = Statement::Call {
                function: self.fault,
                arguments: vec![index, length, code],
                result: None,
            };
            checked.insert(handle, (span, [emit, call]));
        }
        if !checked.is_empty() {
            add_checks(&mut function.body, &checked);
        }
    }
}

/// Statements that follow the evaluation of an expression, with their place.
type Checks = HashMap<Handle<Expression>, (Span, [Statement; 2])>;

fn add_checks(block: &mut Block, checks: &Checks) {
    rebuild(block, &mut |statement, span, done| {
        let emitted: HashSet<_> = match &statement {
            Statement::Emit(range) => range.clone().collect(),
            _ => HashSet::new(),
        };
        done.push(statement, span);
        let mut found: Vec<_> = (checks.iter())
            .filter(|(handle, _)| emitted.contains(handle))
            .collect();
        found.sort_by_key(|(handle, _)| **handle);
        for (_, (place, statements)) in found {
            for statement in statements {
                done.push(statement.clone(), *place);
            }
        }
    });
}
