//! Which loops may run long, and must look whether the kernel is to stop.
//!
//! A loop is *short* if a variable counts by a constant from a constant to a constant, and the passes of the loop and of
//! the loops inside it are few; so it is if a variable is halved in each pass until nothing is left. What is not known to be
//! short polls. How it does depends on what happens in a pass: a
//! loop that waits for somebody else must let others run, which need this processor.

use std::collections::HashMap;

use crate::compile::ir::{
    Access, Atomic, AtomicFunction, Base, Binary, Block, Comparison, Op, Program, Scope, Statement,
    Type, Unary, Value, Variable, visit,
};

/// What a loop looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poll {
    /// Whether the kernel is to stop. Nobody else can end the loop.
    Stop,
    /// A pass that goes on to the next does nothing but look at memory that others write: somebody else must run.
    Waits,
    /// A pass does something, and looks at such memory too: somebody else may have to run.
    Shares,
}

/// Passes of a loop, with those of the loops inside, that may go by before somebody asks whether to stop: below a
/// millisecond of work.
const MAX_PASSES: u64 = 1 << 18;

/// The loops that must poll.
pub(crate) fn polling(program: &Program) -> HashMap<Scope, Poll> {
    let mut polls = HashMap::new();
    passes(program, &program.body, &mut polls);
    polls
}

/// Statements that an invocation runs, estimated: branches are all taken, loops of unknown length run a while.
pub(crate) fn cost(program: &Program) -> u64 {
    block_cost(program, &program.body)
}

fn block_cost(program: &Program, block: &Block) -> u64 {
    /// Passes of a loop that nobody knows
    const UNKNOWN: u64 = 64;
    let mut sum = 0u64;
    for statement in block {
        let mut cost = 1u64;
        visit::blocks(statement, |block| {
            cost = cost.saturating_add(block_cost(program, block))
        });
        if let Statement::Loop { .. } = statement {
            cost = cost.saturating_mul(count(program, statement).unwrap_or(UNKNOWN));
        }
        sum = sum.saturating_add(cost);
    }
    sum
}

/// Passes that one run of a block takes at most, in loops that do not poll.
fn passes(program: &Program, block: &Block, polls: &mut HashMap<Scope, Poll>) -> u64 {
    let mut sum = 0u64;
    for statement in block {
        let mut inner = 0u64;
        visit::blocks(statement, |block| {
            inner = inner.saturating_add(passes(program, block, polls));
        });
        if let Statement::Loop { scope, .. } = statement {
            let count = count(program, statement);
            let total = count.map(|count| count.saturating_mul(inner.saturating_add(1)));
            match total {
                Some(total) if total <= MAX_PASSES => inner = total,
                _ => {
                    polls.insert(*scope, poll(program, statement, *scope));
                    inner = 1;
                }
            }
        }
        sum = sum.saturating_add(inner);
    }
    sum
}

/// How a loop polls.
fn poll(program: &Program, statement: &Statement, scope: Scope) -> Poll {
    let mut pass = Pass {
        program,
        looks: false,
        works: false,
    };
    visit::blocks(statement, |block| pass.block(block, scope));
    match pass {
        Pass { looks: false, .. } => Poll::Stop,
        Pass { works: true, .. } => Poll::Shares,
        Pass { works: false, .. } => Poll::Waits,
    }
}

/// What happens in passes that go on to the next.
struct Pass<'a> {
    program: &'a Program,
    /// Whether memory that others write is read
    looks: bool,
    /// Whether somebody else can see that the pass was made
    works: bool,
}

impl Pass<'_> {
    fn block(&mut self, block: &Block, scope: Scope) {
        for statement in block {
            match statement {
                Statement::Load { access, .. } => self.looks |= *access == Access::Atomic,
                Statement::Store { place, .. } => {
                    self.works |= !matches!(place.base, Base::Slot(_))
                }
                Statement::Atomic(atomic) => {
                    self.looks = true;
                    self.works |= !self.changes_nothing(atomic);
                }
                Statement::Call(call) => {
                    self.works |= !call.function.is_pure() && !call.function.observes()
                }
                Statement::Barrier(_) | Statement::Subgroup(_) => self.works = true,
                _ => {}
            }
            visit::blocks(statement, |inner| {
                // What is done on the way out is done once.
                if !leaves(inner, scope) {
                    self.block(inner, scope);
                }
            });
        }
    }

    /// Whether an atomic operation leaves memory as it was, as far as a loop that waits is concerned: an exchange that
    /// depends on a comparison ends such a loop when it takes place.
    fn changes_nothing(&self, atomic: &Atomic) -> bool {
        let value = self.program.constant(atomic.value);
        match atomic.function {
            AtomicFunction::CompareExchange => true,
            AtomicFunction::Add
            | AtomicFunction::Sub
            | AtomicFunction::Or
            | AtomicFunction::Xor => value == Some(0),
            _ => false,
        }
    }
}

/// Whether a block ends by leaving a loop.
fn leaves(block: &Block, scope: Scope) -> bool {
    matches!(block.last(), Some(Statement::Exit(exit)) if *exit == scope)
}

/// The most passes of a loop, if a counter decides.
fn count(program: &Program, statement: &Statement) -> Option<u64> {
    let Statement::Loop {
        scope,
        starts,
        body,
        continuing,
    } = statement
    else {
        return None;
    };
    let end = |counter| {
        let tests = [body, continuing];
        tests
            .iter()
            .find_map(|block| end(program, block, *scope, counter))
    };
    starts.iter().find_map(|&(variable, start)| {
        let value = next(variable, body, continuing)?;
        let ty = program.variables[variable];
        match growth(program, value, variable) {
            Some(step) => end((variable, Some(step)))?.passes(start, step, ty),
            None if ty == Type::I32 && is_part(program, value, variable) => {
                end((variable, None))?.passes_to_zero()
            }
            None => None,
        }
    })
}

/// What a counter becomes in each pass: the one assignment of the variable stands where every pass comes by.
fn next(variable: Variable, body: &Block, continuing: &Block) -> Option<Value> {
    let mut assignments = 0;
    for block in [body, continuing] {
        visit::assigned(block, &mut |assigned| {
            assignments += u32::from(assigned == variable)
        });
    }
    if assignments != 1 {
        return None;
    }
    let here = |block: &Block| {
        block.iter().find_map(|statement| match statement {
            Statement::Set(set, value) if *set == variable => Some(*value),
            _ => None,
        })
    };
    // In the body, a `continue` could skip the assignment.
    let skips = || visit::any(body, &mut |s| matches!(s, Statement::Continue(_)));
    here(continuing).or_else(|| here(body).filter(|_| !skips()))
}

/// Whether a value is at most half of a variable, as an unsigned integer.
fn is_part(program: &Program, value: Value, variable: Variable) -> bool {
    let Op::Binary(op, a, b) = program.values[value].op else {
        return false;
    };
    let least = match op {
        Binary::ShrU => 1,
        Binary::DivU => 2,
        _ => return false,
    };
    // An amount counts by its low bits alone.
    let by = program.constant(b).map(|bits| bits as u32);
    is_get(program, a, variable)
        && by.is_some_and(|by| by >= least && (op != Binary::ShrU || by < 32))
}

/// By how much a value is greater than a variable, if that is all there is to it.
fn growth(program: &Program, value: Value, variable: Variable) -> Option<i64> {
    let Op::Binary(op, a, b) = program.values[value].op else {
        return None;
    };
    let step = program.constant(b)? as u32 as i32;
    match op {
        Binary::Add if is_get(program, a, variable) => Some(step.into()),
        Binary::Sub if is_get(program, a, variable) => Some(-i64::from(step)),
        _ => None,
    }
}

fn is_get(program: &Program, value: Value, variable: Variable) -> bool {
    program.values[value].op == Op::Get(variable)
}

/// A test that lets a loop go on.
struct End {
    comparison: Comparison,
    /// The counter is the left operand
    left: bool,
    bound: u64,
    /// Whether the test is on the value that the next pass will have
    next: bool,
}

/// A variable, and by how much it grows in each pass, if it is a number that is always the same.
type Counter = (Variable, Option<i64>);

/// A test of the counter that leaves the loop, where every pass comes by.
fn end(program: &Program, block: &Block, scope: Scope, counter: Counter) -> Option<End> {
    for statement in block {
        let mut continues = false;
        visit::blocks(statement, |block| {
            continues |= visit::any(block, &mut |s| matches!(s, Statement::Continue(_)))
        });
        let Statement::If {
            condition,
            accept,
            reject,
        } = statement
        else {
            // Behind a `continue` the test would not be met by every pass.
            if continues {
                return None;
            }
            continue;
        };
        let goes_on = match (leaves(accept, scope), leaves(reject, scope)) {
            (false, true) => true,
            (true, false) => false,
            (false, false) if !continues => continue,
            _ => return None,
        };
        if let Some(end) = test(program, *condition, goes_on, counter) {
            return Some(end);
        }
        if continues {
            return None;
        }
    }
    None
}

/// What a condition says of a counter, if a loop can only go on where the condition is `goes_on`.
fn test(program: &Program, condition: Value, goes_on: bool, counter: Counter) -> Option<End> {
    let (comparison, a, b) = match (program.values[condition].op, goes_on) {
        (Op::Compare(comparison, a, b), _) => (comparison, a, b),
        // Each of them lets the loop go on only if it holds itself.
        (Op::Binary(Binary::And, a, b), true) | (Op::Binary(Binary::Or, a, b), false) => {
            return test(program, a, goes_on, counter)
                .or_else(|| test(program, b, goes_on, counter));
        }
        (Op::Unary(Unary::Not, a), _) => return test(program, a, !goes_on, counter),
        _ => return None,
    };
    let (variable, step) = counter;
    let counts = |value: Value| match program.values[value].op {
        Op::Get(got) if got == variable => Some(false),
        _ => (step.is_some() && growth(program, value, variable) == step).then_some(true),
    };
    let (left, next, bound) = match (counts(a), counts(b)) {
        (Some(next), None) => (true, next, program.constant(b)?),
        (None, Some(next)) => (false, next, program.constant(a)?),
        _ => return None,
    };
    let (comparison, left) = if goes_on {
        (comparison, left)
    } else {
        opposite(comparison, left)?
    };
    Some(End {
        comparison,
        left,
        bound,
        next,
    })
}

/// The comparison that holds where another does not.
fn opposite(comparison: Comparison, left: bool) -> Option<(Comparison, bool)> {
    Some(match comparison {
        Comparison::Eq => (Comparison::Ne, left),
        Comparison::Ne => (Comparison::Eq, left),
        // not (a < b) is b <= a
        Comparison::LtS => (Comparison::LeS, !left),
        Comparison::LtU => (Comparison::LeU, !left),
        Comparison::LeS => (Comparison::LtS, !left),
        Comparison::LeU => (Comparison::LtU, !left),
        Comparison::LtF | Comparison::LeF => return None,
    })
}

impl End {
    /// The most passes of a counter of 32 bits that loses at least one of them in each, if zero ends the loop.
    fn passes_to_zero(&self) -> Option<u64> {
        let ends = match (self.comparison, self.left) {
            (Comparison::Ne, _) => self.bound == 0,
            (Comparison::LtU, false) => true,
            (Comparison::LeU, false) => self.bound > 0,
            _ => false,
        };
        ends.then_some(u64::from(u32::BITS) + 1)
    }

    /// The most passes from a start by a step, if the counter does not wrap around before.
    fn passes(&self, start: u64, step: i64, ty: Type) -> Option<u64> {
        if ty != Type::I32 || step == 0 {
            return None;
        }
        let signed = !matches!(self.comparison, Comparison::LtU | Comparison::LeU);
        let number = |bits: u64| {
            if signed {
                i64::from(bits as u32 as i32)
            } else {
                i64::from(bits as u32)
            }
        };
        let (start, bound) = (number(start), number(self.bound));
        let distance = match (self.comparison, self.left, step > 0) {
            (Comparison::Ne, ..) => {
                let distance = bound - start;
                if distance % step != 0 || distance.signum() != step.signum() {
                    return None;
                }
                distance.abs()
            }
            (Comparison::LtS | Comparison::LtU, true, true) => bound - start,
            (Comparison::LeS | Comparison::LeU, true, true) => bound - start + 1,
            (Comparison::LtS | Comparison::LtU, false, false) => start - bound,
            (Comparison::LeS | Comparison::LeU, false, false) => start - bound + 1,
            _ => return None,
        };
        // Beyond the bound by a step, the counter must still be a number of its type, or it goes round.
        let (least, greatest) = if signed {
            (i64::from(i32::MIN), i64::from(i32::MAX))
        } else {
            (0, i64::from(u32::MAX))
        };
        let last = if step > 0 {
            bound.max(start) + step
        } else {
            bound.min(start) + step
        };
        if last < least || last > greatest {
            return None;
        }
        let passes = (distance.max(0) as u64).div_ceil(step.unsigned_abs());
        Some(passes + 1 + u64::from(self.next))
    }
}
