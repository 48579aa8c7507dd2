//! Whether a loop fills an array before any read, leaving the zeros of the declaration unseen.
//!
//! Only the common form is recognized: the first statement mentioning the array is a loop counting from zero to the
//! length or beyond, storing to every element in turn in the middle of the body, doing nothing else with the array, and
//! ending in no other way. Unproved arrays are filled with zeros.

use std::collections::HashSet;

use naga::{
    ArraySize, BinaryOperator, Block, Expression, Function, Handle, Literal, LocalVariable, Module,
    Statement, TypeInner,
};

use crate::kernel::passes::blocks::each_statement;
use crate::kernel::passes::pointers::visit::used_by;
use crate::kernel::passes::trip_count::{Counted, counted};

/// Whether every element of the variable is stored before any part of the variable is read.
pub(super) fn is_filled_first(
    module: &Module,
    function: &Function,
    variable: Handle<LocalVariable>,
) -> bool {
    let ty = function.local_variables[variable].ty;
    let TypeInner::Array {
        size: ArraySize::Constant(length),
        ..
    } = module.types[ty].inner
    else {
        return false;
    };
    let scan = Scan {
        module,
        function,
        variable,
        mentions: mentions(function, variable),
    };
    scan.fills(&function.body, length.get())
}

/// The pointers to the variable and its parts.
fn mentions(function: &Function, variable: Handle<LocalVariable>) -> HashSet<Handle<Expression>> {
    let mut found = HashSet::new();
    for (handle, expression) in function.expressions.iter() {
        let is_one = match *expression {
            Expression::LocalVariable(local) => local == variable,
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                found.contains(&base)
            }
            _ => false,
        };
        if is_one {
            found.insert(handle);
        }
    }
    found
}

struct Scan<'m> {
    module: &'m Module,
    function: &'m Function,
    variable: Handle<LocalVariable>,
    mentions: HashSet<Handle<Expression>>,
}

impl Scan<'_> {
    /// Whether the block's first statement mentioning the array fills the array.
    fn fills(&self, block: &Block, length: u32) -> bool {
        let mut statements = block.iter();
        match statements.find(|statement| self.uses(statement) > 0) {
            Some(Statement::Block(inner)) => self.fills(inner, length),
            Some(Statement::Loop {
                body,
                continuing,
                break_if: None,
            }) => counted(self.module, self.function, body, continuing)
                .is_some_and(|count| self.fills_in(body, continuing, &count, length)),
            _ => false,
        }
    }

    /// How often a statement, or one inside, uses the array: a part or its value is made, or is an operand.
    fn uses(&self, statement: &Statement) -> usize {
        let mut block = Block::new();
        block.push(statement.clone(), naga::Span::UNDEFINED);
        self.uses_in(&block)
    }

    fn uses_in(&self, block: &Block) -> usize {
        let mut uses = 0;
        each_statement(block, &mut |statement| match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    let is_read = match self.function.expressions[handle] {
                        Expression::Load { pointer } => self.mentions.contains(&pointer),
                        _ => false,
                    };
                    uses += usize::from(is_read);
                }
            }
            Statement::Store { pointer, .. } => {
                uses += usize::from(self.mentions.contains(pointer));
            }
            Statement::Call { arguments, .. } => {
                let passed = arguments.iter().filter(|a| self.mentions.contains(a));
                uses += passed.count();
            }
            Statement::Block(_)
            | Statement::If { .. }
            | Statement::Switch { .. }
            | Statement::Loop { .. } => {}
            other => {
                let _ = used_by(
                    &mut other.clone(),
                    &mut |handle| -> Result<(), std::convert::Infallible> {
                        uses += usize::from(self.mentions.contains(handle));
                        Ok(())
                    },
                    &mut |_| Ok(()),
                );
            }
        });
        uses
    }

    /// Whether the loop stores to each element, and uses the array for nothing else.
    fn fills_in(&self, body: &Block, continuing: &Block, count: &Counted, length: u32) -> bool {
        let mut stores = Vec::new();
        self.element_stores(body, body, count, &mut stores);
        let offsets: HashSet<u32> = stores.iter().copied().collect();
        let all = count.bound >= length && (0..count.step).all(|offset| offsets.contains(&offset));
        // The test in front is the only `break`.
        all && self.uses_in(body) == stores.len()
            && self.uses_in(continuing) == 0
            && exits(body, true) == 1
            && exits(continuing, true) == 0
    }

    /// Collects the stores to elements in every pass, by the offset from the counter.
    fn element_stores(&self, block: &Block, body: &Block, count: &Counted, to: &mut Vec<u32>) {
        for statement in block {
            match statement {
                Statement::Block(inner) => self.element_stores(inner, body, count, to),
                Statement::Store { pointer, .. } => to.extend(self.element(*pointer, count, body)),
                _ => {}
            }
        }
    }

    /// The offset of an element from the counter, for a pointer to an element of the array made in this pass.
    fn element(&self, pointer: Handle<Expression>, count: &Counted, body: &Block) -> Option<u32> {
        let expressions = &self.function.expressions;
        let Expression::Access { base, index } = expressions[pointer] else {
            return None;
        };
        let is_whole = matches!(
            expressions[base],
            Expression::LocalVariable(local) if local == self.variable
        );
        if !is_whole {
            return None;
        }
        let (counter, offset) = match expressions[index] {
            Expression::Binary {
                op: BinaryOperator::Add,
                left,
                right,
            } => match expressions[right] {
                Expression::Literal(Literal::U32(offset)) => (left, offset),
                Expression::Literal(Literal::I32(offset)) => (left, u32::try_from(offset).ok()?),
                _ => return None,
            },
            _ => (index, 0),
        };
        let Expression::Load { pointer } = expressions[counter] else {
            return None;
        };
        let Expression::LocalVariable(local) = expressions[pointer] else {
            return None;
        };
        // A value from before the loop would not count.
        let mut is_read_here = false;
        each_statement(body, &mut |statement| {
            if let Statement::Emit(range) = statement {
                is_read_here |= range.clone().any(|handle| handle == counter);
            }
        });
        (local == count.counter && is_read_here).then_some(offset)
    }
}

/// How many statements of a loop's block leave the pass or the function.
fn exits(block: &Block, in_loop: bool) -> usize {
    block.iter().fold(0, |sum, statement| {
        sum + match statement {
            Statement::Break | Statement::Continue => usize::from(in_loop),
            Statement::Return { .. } | Statement::Kill => 1,
            Statement::Block(inner) => exits(inner, in_loop),
            Statement::If { accept, reject, .. } => exits(accept, in_loop) + exits(reject, in_loop),
            // A `continue` inside is the loop's.
            Statement::Switch { cases, .. } => cases
                .iter()
                .fold(0, |sum, case| sum + exits(&case.body, true)),
            Statement::Loop {
                body, continuing, ..
            } => exits(body, false) + exits(continuing, false),
            _ => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::passes::tests_support::{kernel, parse};

    fn filled(body: &str) -> bool {
        let items = "fn put(p: ptr<function, u32>) { *p = 1u; }";
        let module = parse(&kernel(
            items,
            &format!("var a: array<u32, 12>; {body} o[0] = a[n];"),
        ));
        let function = &module.entry_points[0].function;
        let mut locals = function.local_variables.iter();
        let (variable, _) = locals
            .find(|(_, v)| v.name.as_deref() == Some("a"))
            .expect("declared");
        is_filled_first(&module, function, variable)
    }

    #[test]
    fn loops_over_all_elements_fill() {
        for body in [
            "for (var i = 0u; i < 12u; i++) { a[i] = i; }",
            "for (var i = 0; i < 20; i++) { let x = o[i]; a[i] = x * 2u; if x > 3u { o[1] = x; } }",
            "if n == 3u { return; } for (var i = 0u; i < 12u; i += 2u) { a[i] = 1u; a[i + 1u] = 2u; }",
            "{ { for (var i = 0u; i < 12u; i++) { for (var k = 0u; k < 3u; k++) { o[k] = i; } a[i] = i; } } }",
        ] {
            assert!(filled(body), "{body}");
        }
    }

    #[test]
    fn other_loops_do_not() {
        for body in [
            "",
            "a[3] = 1u; for (var i = 0u; i < 12u; i++) { a[i] = i; }",
            "for (var i = 0u; i < 11u; i++) { a[i] = i; }",
            "for (var i = 1u; i < 12u; i++) { a[i] = i; }",
            "for (var i = 0u; i < 12u; i += 2u) { a[i] = i; }",
            "for (var i = 0u; i < 12u; i++) { a[i] = a[11u - i]; }",
            "for (var i = 0u; i < 12u; i++) { if n > 2u { a[i] = i; } }",
            "for (var i = 0u; i < 12u; i++) { if n > 2u { break; } a[i] = i; }",
            "for (var i = 0u; i < 12u; i++) { if n > 2u { continue; } a[i] = i; }",
            "for (var i = 0u; i < 12u; i++) { a[i] = i; if n > 2u { break; } }",
            "for (var i = 0u; i < 12u; i++) { a[n] = i; }",
            "for (var i = 0u; i < n; i++) { a[i] = i; }",
            "for (var i = 0u; i < 12u; i++) { put(&a[i]); }",
            "let p = &a; for (var i = 0u; i < 12u; i++) { (*p)[i] = (*p)[n]; }",
            "if n > 2u { for (var i = 0u; i < 12u; i++) { a[i] = i; } }",
            "o[0] = a[2]; for (var i = 0u; i < 12u; i++) { a[i] = i; }",
            "for (var i = 0u; i < 12u; i++) { switch n { case 1u: { continue; } default: { } } a[i] = i; }",
        ] {
            assert!(!filled(body), "{body}");
        }
    }
}
