//! How deep a kernel's control flow is once a compiler has taken its jumps out.
//!
//! Mesa's lavapipe keeps its current conditions on a stack of 80, and ignores deeper ones: both sides of a branch run
//! then, or neither. The count covers not only blocks in braces. `return`, `break` and `continue` are made into
//! conditions: everything behind a branch with a possible jump is moved into its other side. So each of a hundred early
//! returns in a row is one deeper, and so is each case of a `switch`. Functions are put in at their calls.
//!
//! The count here was compared with lavapipe's results, by tests at the limit and beyond.

use std::collections::HashMap;

use naga::{Block, Function, Handle, Module, Span, Statement};

/// A depth, and the place of its deepest point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Nesting {
    pub depth: usize,
    pub place: Span,
}

impl Nesting {
    fn deeper(self, other: Self) -> Self {
        match other.depth > self.depth {
            true => other,
            false => self,
        }
    }

    fn below(self, levels: usize, place: Span) -> Self {
        Self {
            depth: self.depth + levels,
            place: match self.depth {
                0 => place,
                _ => self.place,
            },
        }
    }
}

/// The ways in which a block may be left other than by its end.
#[derive(Clone, Copy, Default)]
struct Jumps {
    breaks: bool,
    continues: bool,
    returns: bool,
}

impl Jumps {
    fn or(self, other: Self) -> Self {
        Self {
            breaks: self.breaks || other.breaks,
            continues: self.continues || other.continues,
            returns: self.returns || other.returns,
        }
    }

    fn any(self) -> bool {
        self.breaks || self.continues || self.returns
    }
}

/// The depth of the control flow of an entry point, called functions included.
pub(crate) fn nesting(module: &Module, entry: &Function) -> Nesting {
    let mut known = HashMap::new();
    // naga lists functions behind their callees.
    for (handle, function) in module.functions.iter() {
        let (depth, _) = block(&function.body, &known);
        known.insert(handle, depth);
    }
    block(&entry.body, &known).0
}

fn block(block: &Block, known: &HashMap<Handle<Function>, Nesting>) -> (Nesting, Jumps) {
    let mut deepest = Nesting::default();
    let mut jumps = Jumps::default();
    // Branches in front of the current statement that may jump.
    let mut before = 0;
    for (statement, &span) in block.span_iter() {
        let (depth, own) = self::statement(statement, span, known);
        deepest = deepest.deeper(depth.below(before, span));
        jumps = jumps.or(own);
        before += usize::from(own.any());
    }
    (deepest, jumps)
}

fn statement(
    statement: &Statement,
    span: Span,
    known: &HashMap<Handle<Function>, Nesting>,
) -> (Nesting, Jumps) {
    let none = Jumps::default();
    match statement {
        Statement::Block(inner) => block(inner, known),
        Statement::If { accept, reject, .. } => {
            let ((a, first), (b, second)) = (block(accept, known), block(reject, known));
            (a.deeper(b).below(1, span), first.or(second))
        }
        Statement::Switch { cases, .. } => {
            let mut deepest = Nesting::default();
            let mut jumps = none;
            for case in cases {
                let (depth, own) = block(&case.body, known);
                deepest = deepest.deeper(depth);
                jumps = jumps.or(own);
            }
            // A fall-through case is no separate branch.
            let branches = cases.iter().filter(|case| !case.fall_through).count();
            let jumps = Jumps {
                breaks: false,
                ..jumps
            };
            (deepest.below(branches, span), jumps)
        }
        Statement::Loop {
            body,
            continuing,
            break_if,
        } => {
            let ((a, first), (b, second)) = (block(body, known), block(continuing, known));
            // The condition at the end is a branch that breaks.
            let levels = 1 + usize::from(break_if.is_some());
            let jumps = Jumps {
                returns: first.returns || second.returns,
                ..none
            };
            (a.deeper(b).below(levels, span), jumps)
        }
        Statement::Call { function, .. } => {
            let depth = known.get(function).copied().unwrap_or_default();
            // The place is that of the call, for the rest may stand in another text.
            let place = if depth.depth > 0 { span } else { depth.place };
            (Nesting { place, ..depth }, none)
        }
        Statement::Break => (
            Nesting::default(),
            Jumps {
                breaks: true,
                ..none
            },
        ),
        Statement::Continue => (
            Nesting::default(),
            Jumps {
                continues: true,
                ..none
            },
        ),
        Statement::Return { .. } | Statement::Kill => (
            Nesting::default(),
            Jumps {
                returns: true,
                ..none
            },
        ),
        _ => (Nesting::default(), none),
    }
}

/// Expressions and statements of an entry point with each function inlined, as compilers do.
pub(crate) fn unfolded(module: &Module, entry: &Function) -> u64 {
    let mut known: HashMap<Handle<Function>, u64> = HashMap::new();
    for (handle, function) in module.functions.iter() {
        let size = size(function, &known);
        known.insert(handle, size);
    }
    size(entry, &known)
}

fn size(function: &Function, known: &HashMap<Handle<Function>, u64>) -> u64 {
    let mut sum = function.expressions.len() as u64;
    super::each_statement(&function.body, &mut |statement| {
        let more = match statement {
            Statement::Call { function, .. } => known.get(function).copied().unwrap_or(0),
            _ => 1,
        };
        sum = sum.saturating_add(more);
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(body: &str) -> usize {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
            fn leaf() {{ if o[0] == 1u {{ if o[1] == 1u {{ return; }} o[2] = 3u; }} o[3] = 4u; }}
            @compute @workgroup_size(1) fn main() {{ {body} }}"
        );
        let module = naga::front::wgsl::parse_str(&source).unwrap();
        nesting(&module, &module.entry_points[0].function).depth
    }

    #[test]
    fn braces_jumps_and_cases_are_levels() {
        assert_eq!(depth("o[0] = 1u;"), 0);
        assert_eq!(depth("if o[0] == 1u { o[1] = 1u; }"), 1);
        let row = |n: usize, text: &str| text.repeat(n);
        assert_eq!(
            depth(&(row(5, "if o[0] == 1u {") + "o[1] = 1u;" + &row(5, "}"))),
            5
        );
        assert_eq!(depth(&row(5, "if o[0] == 1u { o[1] = 1u; }")), 1);
        assert_eq!(depth(&row(5, "if o[0] == 1u { return; }")), 5);
        let chain = "if o[0] == 1u { o[0] = 2u; }".to_owned()
            + &row(5, "else if o[0] == 1u { o[0] = 2u; }");
        assert_eq!(depth(&chain), 6);
        assert_eq!(
            depth("switch o[0] { case 1, 2: { o[0] = 1u; } case 3: {} default: {} }"),
            3
        );
        assert_eq!(
            depth(&format!(
                "loop {{ {} }}",
                row(5, "if o[0] == 1u { break; }")
            )),
            6
        );
        // A jump inside a loop or a switch does not leave the loop or switch.
        let inside = "loop { if o[0] == 1u { break; } }";
        assert_eq!(depth(&row(5, inside)), depth(inside));
        let inside = "switch o[0] { default: { if o[1] == 1u { break; } o[2] = 1u; } }";
        assert_eq!(depth(&row(5, inside)), depth(inside));
        let leaving = "loop { if o[0] == 1u { return; } }";
        assert_eq!(depth(&row(5, leaving)), depth(leaving) + 4);
    }

    #[test]
    fn functions_count_where_they_are_called() {
        assert_eq!(depth("leaf();"), 2);
        assert_eq!(depth("if o[0] == 1u { leaf(); leaf(); }"), 3);
    }

    #[test]
    fn calls_of_calls_double() {
        let functions: String = (1..60)
            .map(|i| format!("fn f{i}() {{ f{0}(); f{0}(); }}", i - 1))
            .collect();
        let source =
            format!("fn f0() {{ }} {functions} @compute @workgroup_size(1) fn main() {{ f59(); }}");
        let module = naga::front::wgsl::parse_str(&source).unwrap();
        let size = unfolded(&module, &module.entry_points[0].function);
        assert!(size > 1 << 59, "{size}");
    }
}
