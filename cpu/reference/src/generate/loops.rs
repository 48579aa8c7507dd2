//! Loops.

use super::ast::*;
use super::scope::{Generator, Named, NamedKind, Scope};
use super::statements::DEPTH;

impl Generator {
    /// A loop of few turns.
    pub(super) fn repetition(&mut self, block: &mut Block) {
        let count = self.rng.u32(1..8);
        if f64::from(count) * self.scope.times * 4.0 > self.steps_left {
            return self.assignment(block);
        }
        if self.scope.together && self.scope.ends && self.one_in(4) {
            return self.repetition_that_ends(count, block);
        }
        // Those who are together may stay so, if nobody leaves early.
        let together = self.scope.together && self.one_in(3);
        let halves = self.one_in(4).then(|| match together {
            true => self.uniform_word(1),
            false => self.expression(&Type::U32, DEPTH - 1),
        });
        let counter = self.fresh("i");
        let statements = self.rng.u32(1..5);
        let inside = |scope: &mut Scope| {
            scope.together &= together;
            scope.breakable = !together;
            scope.continuable = !together;
            scope.times *= f64::from(count);
            if together {
                scope.uniform.push(counter.clone());
            }
            scope.named.push(Named {
                name: counter.clone(),
                ty: Type::U32,
                kind: NamedKind::Value,
            });
        };
        let body = self.within(inside, |generator| {
            generator.met(together, |generator| generator.statements(statements))
        });
        if let Some(start) = halves {
            block.push(self.halving(counter, start, count, body));
            return;
        }
        let kind = if together { 0 } else { self.rng.u32(0..3) };
        block.push(match kind {
            0 => Statement::For {
                counter,
                count,
                body,
            },
            1 => {
                let condition = self.expression(&Type::BOOL, DEPTH - 1);
                Statement::While {
                    counter,
                    count,
                    condition,
                    body,
                }
            }
            _ => {
                let closing = |scope: &mut Scope| {
                    inside(scope);
                    scope.breakable = false;
                    scope.continuable = false;
                    scope.returns = None;
                };
                let statements = self.rng.u32(0..3);
                let mut break_if = None;
                let continuing = self.within(closing, |generator| {
                    let block = generator.statements(statements);
                    if generator.rng.bool() {
                        break_if = Some(generator.expression(&Type::BOOL, DEPTH - 1));
                    }
                    block
                });
                // Names that the continuing part declared are in scope of its condition only there.
                Statement::Loop {
                    counter,
                    count,
                    body,
                    continuing,
                    break_if,
                }
            }
        });
    }

    fn halving(&mut self, counter: String, start: Expression, bits: u32, body: Block) -> Statement {
        Statement::Halve {
            counter,
            start,
            bits,
            step: self.pick(&[">>= 1u", "/= 2u", "/= 3u", ">>= 2u"]),
            body,
        }
    }

    /// A loop without a barrier in which all invocations of the work-group may end, and a barrier behind it.
    fn repetition_that_ends(&mut self, count: u32, block: &mut Block) {
        let halves = self.one_in(3).then(|| self.uniform_word(1));
        let counter = self.fresh("i");
        let inside = |scope: &mut Scope| {
            scope.together = false;
            scope.breakable = false;
            scope.continuable = false;
            scope.times *= f64::from(count);
            scope.uniform.push(counter.clone());
            scope.named.push(Named {
                name: counter.clone(),
                ty: Type::U32,
                kind: NamedKind::Value,
            });
        };
        let ways = [Statement::Return(None), Statement::Break];
        let statements = self.rng.u32(1..4);
        let body = self.within(inside, |generator| {
            let mut body = generator.statements(statements);
            for way in &ways[..generator.rng.usize(1..=2)] {
                // Seldom true, so that most programs go on, and not known before the program runs.
                let turn = Expression::name(Type::U32, counter.clone());
                let word = generator.uniform_word(1);
                let mixed = Expression::binary(Type::U32, "^", turn, word);
                let mixed =
                    Expression::binary(Type::U32, "+", mixed, Expression::name(Type::U32, "wid.x"));
                let chosen = Expression::word(generator.rng.u32(0..24));
                let leave = Statement::If {
                    condition: Expression::binary(Type::BOOL, "==", mixed, chosen),
                    accept: vec![way.clone()],
                    reject: Vec::new(),
                };
                // At the start, all names that the condition may have are in scope, and at the end.
                match generator.rng.bool() {
                    true => body.insert(0, leave),
                    false => body.push(leave),
                }
            }
            body
        });
        block.push(match halves {
            Some(start) => self.halving(counter, start, count, body),
            None => Statement::For {
                counter,
                count,
                body,
            },
        });
        self.meeting(block);
    }
}
