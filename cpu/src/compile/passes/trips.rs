//! Finds the loops that may run long, and must look whether the kernel is to stop.
//!
//! A loop is *short* if a variable counts by a constant from a constant to a constant, and the passes of the loop and
//! of the loops inside it are few; a loop is short, too, if a variable of any start value is halved in each pass until
//! nothing is left. A loop not known to be short polls. The kind of poll depends on the work of a pass: a loop waiting
//! for somebody else must let others run, in need of this processor.

use std::collections::{HashMap, HashSet};

use crate::compile::ir::{
    Access, Atomic, AtomicFunction, Base, Binary, Block, Comparison, Op, Program, Scope, Statement,
    Type, Unary, Value, Variable, fold, visit,
};

/// What a loop looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poll {
    /// Whether the kernel is to stop. Nobody else can end the loop.
    Stop,
    /// A pass going on to the next does nothing but look at memory written by others: somebody else must run.
    Waits,
    /// A pass does something, and looks at such memory too: somebody else may have to run.
    Shares,
}

/// Passes of a loop, including passes of the loops inside, between two questions whether to stop: below a millisecond
/// of work.
const MAX_PASSES: u64 = 1 << 18;

/// The loops that must poll.
pub(crate) fn polling(program: &Program) -> HashMap<Scope, Poll> {
    let mut polls = HashMap::new();
    passes(program, &program.body, &mut polls);
    polls
}

/// Statements run by an invocation, estimated: branches are all taken, loops of unknown length run a while.
pub(crate) fn cost(program: &Program) -> u64 {
    block_cost(program, &program.body)
}

fn block_cost(program: &Program, block: &Block) -> u64 {
    /// Passes of a loop of unknown length
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

/// The most passes in one run of a block, in loops without polls.
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

/// The work of passes going on to the next.
struct Pass<'a> {
    program: &'a Program,
    /// Whether memory written by others is read
    looks: bool,
    /// Whether somebody else can see the pass
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
                // Work on the way out is done once.
                if !leaves(inner, scope) {
                    self.block(inner, scope);
                }
            });
        }
    }

    /// Whether an atomic operation leaves memory unchanged, from the view of a waiting loop: an exchange depending on a
    /// comparison ends such a loop by taking place.
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

/// Whether a block leaves a loop on every way: at its end, with nothing in front going elsewhere.
fn leaves(block: &Block, scope: Scope) -> bool {
    let mut inside = HashSet::new();
    visit::statements(block, &mut |statement| {
        if let Statement::Loop { scope, .. } | Statement::Scope { scope, .. } = statement {
            inside.insert(*scope);
        }
    });
    let elsewhere = |statement: &Statement| match statement {
        Statement::Continue(to) => !inside.contains(to),
        Statement::Exit(to) => *to != scope && !inside.contains(to),
        _ => false,
    };
    matches!(block.last(), Some(Statement::Exit(exit)) if *exit == scope)
        && !visit::any(block, &mut |statement| elsewhere(statement))
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
    let once = Once::of(program, body, continuing);
    let end = |counter: &Counter| {
        let tests = [body, continuing];
        (tests.iter()).find_map(|block| counter.end(block, *scope))
    };
    once.counters(program).find_map(|counter| {
        let Step::By(step) = counter.step else {
            return end(&counter)?.passes_of_parts(counter.step);
        };
        let mut starts = starts.iter();
        let &(variable, start) = starts.find(|(variable, _)| *variable == counter.variable)?;
        end(&counter)?.passes(start, step, program.variables[variable])
    })
}

/// The work done once in every pass of a loop.
struct Once {
    /// The variables read for the values computed in the loop. A value read before the loop is the same in each pass.
    reads: HashMap<Value, Variable>,
    /// Variables with one assignment in the loop, where every pass comes by
    assigned: Vec<(Variable, Value)>,
}

impl Once {
    fn of(program: &Program, body: &Block, continuing: &Block) -> Self {
        let mut reads = HashMap::new();
        let mut assignments: HashMap<Variable, u32> = HashMap::new();
        let mut continues = false;
        for block in [body, continuing] {
            visit::statements(block, &mut |statement| match statement {
                Statement::Let(value) => {
                    if let Op::Get(variable) = program.values[*value].op {
                        reads.insert(*value, variable);
                    }
                }
                Statement::Set(variable, _) => *assignments.entry(*variable).or_default() += 1,
                Statement::Continue(_) => continues = true,
                _ => {}
            });
        }
        // In the body, a `continue` could skip an assignment.
        let body = if continues { &[] } else { body.as_slice() };
        let assigned = body.iter().chain(continuing);
        let assigned = assigned.filter_map(|statement| match statement {
            Statement::Set(variable, value) if assignments[variable] == 1 => {
                Some((*variable, *value))
            }
            _ => None,
        });
        Self {
            assigned: assigned.collect(),
            reads,
        }
    }

    /// The variables that may decide how often the loop runs.
    fn counters<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = Counter<'a>> {
        self.assigned.iter().filter_map(|&(variable, value)| {
            let step = self.step(program, variable, value)?;
            Some(Counter {
                program,
                once: self,
                variable,
                value,
                step,
            })
        })
    }

    fn reads(&self, value: Value, variable: Variable) -> bool {
        self.reads.get(&value) == Some(&variable)
    }

    /// How a value follows from a variable, if nothing else has a part in the value.
    fn step(&self, program: &Program, variable: Variable, value: Value) -> Option<Step> {
        let Op::Binary(op, a, b) = program.values[value].op else {
            return None;
        };
        if program.variables[variable] != Type::I32 || !self.reads(a, variable) {
            return None;
        }
        let bits = program.constant(b)? as u32;
        let by = bits as i32;
        // A greater amount counts by its low bits alone, possibly zero.
        let shifts = (1..u32::BITS).contains(&bits);
        match op {
            Binary::Add => Some(Step::By(by.into())),
            Binary::Sub => Some(Step::By(-i64::from(by))),
            Binary::ShrU if shifts => Some(Step::Part),
            Binary::ShrS if shifts => Some(Step::ShiftedPart),
            Binary::DivU if bits >= 2 => Some(Step::Part),
            Binary::DivS if by.unsigned_abs() >= 2 => Some(Step::SignedPart),
            _ => None,
        }
    }
}

/// How a variable goes on in each pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// By a constant number
    By(i64),
    /// To a half, or less, of an unsigned integer
    Part,
    /// To a half, or less, of a signed integer, rounded towards zero
    SignedPart,
    /// To a half, or less, of a signed integer, rounded down
    ShiftedPart,
}

/// A variable that may decide how often a loop runs.
struct Counter<'a> {
    program: &'a Program,
    once: &'a Once,
    variable: Variable,
    /// The assigned value
    value: Value,
    step: Step,
}

impl Counter<'_> {
    /// A test of the counter leaving the loop, where every pass comes by.
    fn end(&self, block: &Block, scope: Scope) -> Option<End> {
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
            if let Some(end) = self.test(*condition, goes_on) {
                return Some(end);
            }
            if continues {
                return None;
            }
        }
        None
    }

    /// The test of the counter by a condition, if a loop can only go on where the condition is `goes_on`.
    fn test(&self, condition: Value, goes_on: bool) -> Option<End> {
        let program = self.program;
        let (comparison, a, b) = match (program.values[condition].op, goes_on) {
            (Op::Compare(comparison, a, b), _) => (comparison, a, b),
            // Each operand lets the loop go on only by holding itself.
            (Op::Binary(Binary::And, a, b), true) | (Op::Binary(Binary::Or, a, b), false) => {
                return self.test(a, goes_on).or_else(|| self.test(b, goes_on));
            }
            (Op::Unary(Unary::Not, a), _) => return self.test(a, !goes_on),
            _ => return None,
        };
        let counts = |value: Value| match self.once.reads(value, self.variable) {
            true => Some(false),
            // Another sum of the same numbers may come from a variable read behind the assignment.
            false => (value == self.value).then_some(true),
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
}

/// A test for a loop to go on.
struct End {
    comparison: Comparison,
    /// The counter is the left operand
    left: bool,
    bound: u64,
    /// Whether the test is on the value of the next pass
    next: bool,
}

/// The comparison holding where another does not.
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
    /// The most passes of a counter of 32 bits that becomes a part of itself in each pass, if the last remainder of any
    /// number ends the loop.
    fn passes_of_parts(&self, step: Step) -> Option<u64> {
        let left: &[u32] = match step {
            Step::Part | Step::SignedPart => &[0],
            Step::ShiftedPart => &[0, -1i32 as u32],
            Step::By(_) => return None,
        };
        let goes_on = |&counter: &u32| {
            let (counter, bound) = (u64::from(counter), self.bound);
            let (a, b) = if self.left {
                (counter, bound)
            } else {
                (bound, counter)
            };
            fold::compare(self.comparison, Type::I32, a, b)
        };
        (!left.iter().any(goes_on)).then_some(u64::from(u32::BITS) + 1)
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
        // Beyond the bound by a step, the counter must still be a number of its type: otherwise the counter goes round.
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
