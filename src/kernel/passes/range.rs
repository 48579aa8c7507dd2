//! The largest value of an index, where the function tells: an index always below the length of the array needs no
//! limit.

use std::collections::HashMap;

use naga::{
    BinaryOperator, Block, Expression, Function, Handle, Literal, Module, ScalarKind, Statement,
};

use super::blocks::each_statement;
use super::trip_count::counted;

/// The largest values of loops' counters, by the expressions loading the counters.
pub(super) struct Ranges<'m> {
    module: &'m Module,
    function: &'m Function,
    loaded: HashMap<Handle<Expression>, u32>,
}

impl<'m> Ranges<'m> {
    pub fn new(module: &'m Module, function: &'m Function) -> Self {
        let mut ranges = Self {
            module,
            function,
            loaded: HashMap::new(),
        };
        each_statement(&function.body, &mut |statement| {
            if let Statement::Loop {
                body, continuing, ..
            } = statement
            {
                ranges.counter(body, continuing);
            }
        });
        ranges
    }

    /// Notes the loads of a loop's counter behind the test of the loop.
    fn counter(&mut self, body: &Block, continuing: &Block) {
        let Some(count) = counted(self.module, self.function, body, continuing) else {
            return;
        };
        let Some(last) = count.bound.checked_sub(1) else {
            return;
        };
        let most = last / count.step * count.step;
        let mut is_tested = false;
        for statement in body {
            if !is_tested {
                // The first branch is the test.
                is_tested = matches!(statement, Statement::If { .. });
                continue;
            }
            let mut one = Block::new();
            one.push(statement.clone(), naga::Span::UNDEFINED);
            each_statement(&one, &mut |statement| {
                if let Statement::Emit(range) = statement {
                    for handle in range.clone() {
                        if let Expression::Load { pointer } = self.function.expressions[handle]
                            && let Expression::LocalVariable(local) =
                                self.function.expressions[pointer]
                            && local == count.counter
                        {
                            self.loaded.insert(handle, most);
                        }
                    }
                }
            });
        }
    }

    /// The largest value of an index of type `u32`, or of a non-negative `i32`; `None` where unknown.
    pub fn most(&self, index: Handle<Expression>, kind: ScalarKind) -> Option<u32> {
        if let Some(most) = self.loaded.get(&index) {
            return Some(*most);
        }
        match self.function.expressions[index] {
            Expression::Literal(ref literal) => number(literal),
            Expression::Constant(constant) => {
                let init = self.module.constants[constant].init;
                match &self.module.global_expressions[init] {
                    Expression::Literal(literal) => number(literal),
                    _ => None,
                }
            }
            Expression::Binary { op, left, right } => {
                let right = self.most(right, kind)?;
                match op {
                    BinaryOperator::Add => self.most(left, kind)?.checked_add(right),
                    BinaryOperator::Multiply => self.most(left, kind)?.checked_mul(right),
                    BinaryOperator::Modulo if kind == ScalarKind::Uint => right.checked_sub(1),
                    BinaryOperator::And => Some(right),
                    _ => None,
                }
            }
            _ => None,
        }
        .filter(|most| kind == ScalarKind::Uint || i32::try_from(*most).is_ok())
    }
}

fn number(literal: &Literal) -> Option<u32> {
    match *literal {
        Literal::U32(value) => Some(value),
        Literal::I32(value) => u32::try_from(value).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::{kernel, parse};
    use super::*;

    /// The largest value of the index of the last access to `a`.
    fn most(body: &str) -> Option<u32> {
        let module = parse(&kernel("", &format!("var a: array<u32, 99>; {body}")));
        let function = &module.entry_points[0].function;
        let ranges = Ranges::new(&module, function);
        let index = function.expressions.iter().filter_map(|(_, e)| match *e {
            Expression::Access { base, index } => match function.expressions[base] {
                Expression::LocalVariable(_) => Some(index),
                _ => None,
            },
            _ => None,
        });
        ranges.most(index.max().expect("accessed"), ScalarKind::Uint)
    }

    #[test]
    fn bounds_are_read_off() {
        for (body, expected) in [
            ("a[n % 9u] = 1u;", Some(8)),
            ("a[(n & 7u) * 3u + 1u] = 1u;", Some(22)),
            (
                "for (var i = 0u; i < 10u; i += 4u) { a[i + 3u] = 1u; }",
                Some(11),
            ),
            (
                "for (var i = 0u; i < 9u; i++) { for (var k = 0u; k < 5u; k++) { a[i * 5u + k] = 1u; } }",
                Some(44),
            ),
            ("a[n] = 1u;", None),
            ("a[n - 1u] = 1u;", None),
            ("for (var i = 0u; i < n; i++) { a[i] = 1u; }", None),
            ("var i = 0u; for (; i < 9u; i++) { } a[i] = 1u;", None),
            ("for (var i = 0u; i < 9u; i++) { i += n; a[i] = 1u; }", None),
            ("a[(n % 9u) * 4000000000u] = 1u;", None),
            ("a[n % (n + 1u)] = 1u;", None),
        ] {
            assert_eq!(most(body), expected, "{body}");
        }
    }
}
