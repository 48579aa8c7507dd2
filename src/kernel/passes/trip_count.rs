//! How many loop back-edges an entry point can take at most, where that can be read off the module.
//!
//! A loop is *counted* when naga's form of `for (var i = A; i < B; i += C)` can be proved: `A`, `B` and
//! `C` known, the counter a local variable that nothing else writes, the test in front of everything
//! in the body. Every other loop is taken to be unbounded, and one unbounded loop makes the
//! whole kernel so. What is counted wrong here lets a wrong result through unseen, so each rule below
//! errs towards "unbounded".
//!
//! The same proof spares the bound that wgpu puts on every loop, two counters and a test in each pass: where the
//! number of passes of every loop of a module is known ([`every_loop_ends`]), wgpu is told to leave the bound out.

use std::collections::HashMap;

use naga::{
    BinaryOperator, Block, Expression, Function, Handle, Literal, LocalVariable, Module, Scalar,
    Statement, TypeInner, UnaryOperator,
};

use super::blocks::each_statement;

/// Back-edges that stand for "no bound is known". Sums and products saturate at this value.
pub(super) const UNBOUNDED: u64 = u64::MAX;

/// An upper bound for all back-edges of an invocation of entry point `entry`.
pub(super) fn entry_cost(module: &Module, entry: &Function) -> u64 {
    let mut known = HashMap::new();
    // Functions call only functions declared before, so a single pass in the order of the arena
    // finds the costs of callees already there.
    for (handle, function) in module.functions.iter() {
        let cost = function_cost(module, function, &known);
        known.insert(handle, cost);
    }
    function_cost(module, entry, &known)
}

/// Whether every loop that an entry point of `module` can reach is known to end.
pub(crate) fn every_loop_ends(module: &Module) -> bool {
    let mut points = module.entry_points.iter();
    points.all(|point| entry_cost(module, &point.function) != UNBOUNDED)
}

/// A loop that counts up from zero.
pub(super) struct Counted {
    pub counter: Handle<LocalVariable>,
    pub step: u32,
    /// Goes on while the counter is below.
    pub bound: u32,
}

/// The count of a loop that counts up from zero by a step at the end of each pass; `None` for any other loop. The count
/// is complete unless the body leaves the loop.
pub(super) fn counted(
    module: &Module,
    function: &Function,
    body: &Block,
    continuing: &Block,
) -> Option<Counted> {
    let scope = Scope {
        module,
        function,
        callees: &HashMap::new(),
    };
    scope.trips(body, continuing)?;
    let test = scope.leading_test(body)?;
    let starts = scope.starts(test.counter, body, continuing)?;
    let mut inside = false;
    each_statement(body, &mut |statement| {
        if let Statement::Store { pointer, .. } = *statement {
            inside |= scope.local(pointer) == Some(test.counter);
        }
    });
    let step = scope.only_step(test.counter, body, continuing)?;
    let is_it = !inside && test.op == BinaryOperator::Less && starts.iter().all(|s| *s == 0);
    is_it.then_some(Counted {
        counter: test.counter,
        step: u32::try_from(step).ok().filter(|step| *step > 0)?,
        bound: u32::try_from(test.bound).ok()?,
    })
}

fn function_cost(
    module: &Module,
    function: &Function,
    callees: &HashMap<Handle<Function>, u64>,
) -> u64 {
    let scope = Scope {
        module,
        function,
        callees,
    };
    scope.block_cost(&function.body)
}

struct Scope<'a> {
    module: &'a Module,
    function: &'a Function,
    callees: &'a HashMap<Handle<Function>, u64>,
}

/// The test at the head of a counted loop: the loop goes on while `counter op bound`.
struct Test {
    counter: Handle<LocalVariable>,
    op: BinaryOperator,
    bound: i128,
}

impl Scope<'_> {
    fn block_cost(&self, block: &Block) -> u64 {
        (block.iter()).fold(0, |sum, statement| {
            sum.saturating_add(self.statement_cost(statement))
        })
    }

    fn statement_cost(&self, statement: &Statement) -> u64 {
        match *statement {
            Statement::Block(ref block) => self.block_cost(block),
            // Both sides count: a SIMD group whose lanes disagree runs the one and then the other.
            Statement::If {
                ref accept,
                ref reject,
                ..
            } => self
                .block_cost(accept)
                .saturating_add(self.block_cost(reject)),
            // Some compilers make a loop of one pass from a switch, so `break` has a target.
            Statement::Switch { ref cases, .. } => cases.iter().fold(1, |sum, case| {
                sum.saturating_add(self.block_cost(&case.body))
            }),
            Statement::Loop {
                ref body,
                ref continuing,
                // `break if` only ends a loop earlier than the test in front.
                break_if: _,
            } => {
                let Some(trips) = self.trips(body, continuing) else {
                    return UNBOUNDED;
                };
                let inside = (self.block_cost(body)).saturating_add(self.block_cost(continuing));
                // The pass that only finds the test false reaches the end of the loop as well.
                trips
                    .saturating_add(1)
                    .saturating_mul(inside.saturating_add(1))
            }
            Statement::Call { function, .. } => {
                self.callees.get(&function).copied().unwrap_or(UNBOUNDED)
            }
            // Drivers without the hardware traverse in loops of their own.
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => UNBOUNDED,
            _ => 0,
        }
    }

    /// The most passes through the body of this loop, each time the loop is entered.
    fn trips(&self, body: &Block, continuing: &Block) -> Option<u64> {
        let test = self.leading_test(body)?;
        let width = match self.module.types[self.function.local_variables[test.counter].ty].inner {
            TypeInner::Scalar(scalar) if scalar == Scalar::I32 => {
                i32::MIN as i128..=i32::MAX as i128
            }
            TypeInner::Scalar(scalar) if scalar == Scalar::U32 => 0..=u32::MAX as i128,
            _ => return None,
        };
        let step = self.only_step(test.counter, body, continuing)?;
        let starts = self.starts(test.counter, body, continuing)?;
        let mut most = 0;
        for start in starts {
            most = most.max(passes(start, step, &test, &width)?);
        }
        Some(most)
    }

    /// Reads the test off the first statements of a loop's body: expressions, then an `if` one side of
    /// which only leaves the loop.
    fn leading_test(&self, body: &Block) -> Option<Test> {
        let mut emitted = Vec::new();
        for statement in body {
            match *statement {
                Statement::Emit(ref range) => emitted.extend(range.clone()),
                Statement::If {
                    condition,
                    ref accept,
                    ref reject,
                } => {
                    let goes_on = match (only_breaks(accept), only_breaks(reject)) {
                        (false, true) if accept.is_empty() => true,
                        (true, false) if reject.is_empty() => false,
                        _ => return None,
                    };
                    return self.comparison(condition, goes_on, &emitted);
                }
                _ => return None,
            }
        }
        None
    }

    /// The comparison `condition`, negated unless `goes_on`. Its reads must be among `emitted`: read anew in each pass.
    fn comparison(
        &self,
        condition: Handle<Expression>,
        goes_on: bool,
        emitted: &[Handle<Expression>],
    ) -> Option<Test> {
        match self.function.expressions[condition] {
            Expression::Unary {
                op: UnaryOperator::LogicalNot,
                expr,
            } => self.comparison(expr, !goes_on, emitted),
            Expression::Binary { op, left, right } if emitted.contains(&condition) => {
                let (counter, bound, op) = if let Some(bound) = self.integer(right) {
                    (self.loaded(left, emitted)?, bound, op)
                } else {
                    let bound = self.integer(left)?;
                    (self.loaded(right, emitted)?, bound, mirrored(op)?)
                };
                let op = if goes_on { op } else { negated(op)? };
                Some(Test { counter, op, bound })
            }
            _ => None,
        }
    }

    /// The local variable whose value is `expression`, an element of `emitted`.
    fn loaded(
        &self,
        expression: Handle<Expression>,
        emitted: &[Handle<Expression>],
    ) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[expression] {
            Expression::Load { pointer } if emitted.contains(&expression) => self.local(pointer),
            _ => None,
        }
    }

    fn local(&self, pointer: Handle<Expression>) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(local) => Some(local),
            _ => None,
        }
    }

    /// The value of an expression with the same 32-bit integer at every evaluation.
    fn integer(&self, expression: Handle<Expression>) -> Option<i128> {
        match self.function.expressions[expression] {
            Expression::Constant(constant) => {
                let init = self.module.constants[constant].init;
                self.literal(&self.module.global_expressions[init])
            }
            // The length of a span, as its pass writes it.
            Expression::As {
                expr,
                kind: naga::ScalarKind::Uint,
                convert: Some(4),
            } => match self.function.expressions[expr] {
                Expression::Literal(Literal::U32(value)) => Some(value.into()),
                _ => None,
            },
            ref other => self.literal(other),
        }
    }

    fn literal(&self, expression: &Expression) -> Option<i128> {
        match *expression {
            Expression::Literal(Literal::I32(value)) => Some(value.into()),
            Expression::Literal(Literal::U32(value)) => Some(value.into()),
            Expression::ZeroValue(ty) => match self.module.types[ty].inner {
                TypeInner::Scalar(scalar) if scalar == Scalar::I32 || scalar == Scalar::U32 => {
                    Some(0)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The increment of `counter` in every pass that goes on, if the loop does nothing else to the counter.
    fn only_step(
        &self,
        counter: Handle<LocalVariable>,
        body: &Block,
        continuing: &Block,
    ) -> Option<i128> {
        let mut steps = Vec::new();
        self.unconditional_steps(continuing, counter, &mut steps);
        if steps.is_empty() {
            // `while` has the step in the body, where `continue` could jump over the step.
            if continues(body) {
                return None;
            }
            self.unconditional_steps(body, counter, &mut steps);
        }
        let &[value] = steps.as_slice() else {
            return None;
        };
        let Expression::Binary { op, left, right } = self.function.expressions[value] else {
            return None;
        };
        let mut emitted = Vec::new();
        for block in [body, continuing] {
            each_statement(block, &mut |statement| {
                if let Statement::Emit(range) = statement {
                    emitted.extend(range.clone());
                }
            });
        }
        // The operands of the sum must be read in this pass: a value from before the loop never changes.
        let (base, step) = match (op, self.integer(left), self.integer(right)) {
            (BinaryOperator::Add, None, Some(step)) => (left, step),
            (BinaryOperator::Add, Some(step), None) => (right, step),
            (BinaryOperator::Subtract, None, Some(step)) => (left, -step),
            _ => return None,
        };
        (self.loaded(base, &emitted)? == counter).then_some(step)
    }

    /// Collects the values stored to `counter` by statements that run in every pass.
    fn unconditional_steps(
        &self,
        block: &Block,
        counter: Handle<LocalVariable>,
        values: &mut Vec<Handle<Expression>>,
    ) {
        for statement in block {
            match *statement {
                Statement::Block(ref inner) => self.unconditional_steps(inner, counter, values),
                Statement::Store { pointer, value } if self.local(pointer) == Some(counter) => {
                    values.push(value);
                }
                _ => {}
            }
        }
    }

    /// Every value that `counter` can be given outside the loop; `None` for an unknown increment,
    /// for several stores in the loop, or where another writer is possible.
    fn starts(
        &self,
        counter: Handle<LocalVariable>,
        body: &Block,
        continuing: &Block,
    ) -> Option<Vec<i128>> {
        let init = self.function.local_variables[counter].init;
        let mut starts = vec![init.map_or(Some(0), |init| self.integer(init))?];
        let mut escapes = false;
        let mut stored = Vec::new();
        each_statement(&self.function.body, &mut |statement| match *statement {
            Statement::Store { pointer, value } => {
                stored.extend((self.local(pointer) == Some(counter)).then_some(value));
            }
            Statement::Call { ref arguments, .. } => {
                escapes |= (arguments.iter()).any(|&a| self.local(a) == Some(counter));
            }
            Statement::Atomic { pointer, .. } | Statement::WorkGroupUniformLoad { pointer, .. } => {
                escapes |= self.local(pointer) == Some(counter);
            }
            _ => {}
        });
        // A pointer to the counter used for anything but a plain load or store.
        for (_, expression) in self.function.expressions.iter() {
            match *expression {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                    escapes |= self.local(base) == Some(counter);
                }
                _ => {}
            }
        }
        let mut inside = 0;
        for block in [body, continuing] {
            each_statement(block, &mut |statement| {
                if let Statement::Store { pointer, .. } = *statement {
                    inside += usize::from(self.local(pointer) == Some(counter));
                }
            });
        }
        if escapes || inside != 1 {
            return None;
        }
        let mut unknown = 0;
        for value in stored {
            match self.integer(value) {
                Some(start) => starts.push(start),
                None => unknown += 1,
            }
        }
        // The only store without a constant is the step itself.
        (unknown == 1).then_some(starts)
    }
}

/// How often `start`, `start + step`, … passes the test before a failure; `None` without a failure, or with one only
/// after the counter wrapped around.
fn passes(
    start: i128,
    step: i128,
    test: &Test,
    width: &std::ops::RangeInclusive<i128>,
) -> Option<u64> {
    let upwards = |limit: i128| match limit - start {
        distance if distance <= 0 => Some(0),
        distance if step > 0 => Some((distance + step - 1) / step),
        _ => None,
    };
    let downwards = |limit: i128| match start - limit {
        distance if distance <= 0 => Some(0),
        distance if step < 0 => Some((distance - step - 1) / -step),
        _ => None,
    };
    let count = match test.op {
        BinaryOperator::Less => upwards(test.bound),
        BinaryOperator::LessEqual => upwards(test.bound + 1),
        BinaryOperator::Greater => downwards(test.bound),
        BinaryOperator::GreaterEqual => downwards(test.bound - 1),
        BinaryOperator::NotEqual => match test.bound - start {
            0 => Some(0),
            distance if step != 0 && distance % step == 0 && distance / step > 0 => {
                Some(distance / step)
            }
            _ => None,
        },
        _ => None,
    }?;
    // The value that fails the test must exist, or the counter wraps around and starts again.
    if !width.contains(&(start + count * step)) {
        return None;
    }
    u64::try_from(count).ok()
}

fn mirrored(op: BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator as B;
    Some(match op {
        B::Less => B::Greater,
        B::LessEqual => B::GreaterEqual,
        B::Greater => B::Less,
        B::GreaterEqual => B::LessEqual,
        B::Equal | B::NotEqual => op,
        _ => return None,
    })
}

fn negated(op: BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator as B;
    Some(match op {
        B::Less => B::GreaterEqual,
        B::LessEqual => B::Greater,
        B::Greater => B::LessEqual,
        B::GreaterEqual => B::Less,
        B::Equal => B::NotEqual,
        B::NotEqual => B::Equal,
        _ => return None,
    })
}

fn only_breaks(block: &Block) -> bool {
    matches!(**block, [Statement::Break])
}

/// Whether a `continue` in this body belongs to the loop of the body.
fn continues(block: &Block) -> bool {
    block.iter().any(|statement| match *statement {
        Statement::Continue => true,
        Statement::Block(ref inner) => continues(inner),
        Statement::If {
            ref accept,
            ref reject,
            ..
        } => continues(accept) || continues(reject),
        Statement::Switch { ref cases, .. } => cases.iter().any(|case| continues(&case.body)),
        _ => false,
    })
}
