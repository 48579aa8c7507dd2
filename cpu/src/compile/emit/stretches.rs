//! Work-groups whose invocations come to each barrier together: control flow around barriers is done once for all
//! invocations, and each stretch between barriers is a loop over the invocations. POCL and its kin call these work-item
//! loops.
//!
//! *How it works.* [`uniform`](crate::compile::passes::uniform) finds the common values of all invocations. Where every
//! condition deciding about a barrier is common to all invocations and known outside of stretches, no invocation has to
//! remember its place of waiting. A common value is computed once, before the loop, if made of common values only
//! (*hoisted*). A variable assigned there alone is *shared*: a single register. Other variables going from one stretch
//! to another are *framed*: loaded from the frame of the invocation where a stretch begins, and stored where the
//! stretch ends.
//!
//! ```text
//! for (half = 128; half > 0; half /= 2)      once; `half` is shared
//!     for each invocation                    a stretch
//!         if i < half, sum
//! ```
//!
//! A stretch ending with such a branch is over where a first invocation does not take the branch: none behind does.
//!
//! Otherwise, invocations have states: see [`region`](super::region).

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::{InstBuilder, condcodes::IntCC};

use super::{
    Emitter, Options,
    lanes::{Lanes, flow::certain::grows},
    leaves,
};
use crate::compile::{
    error::Result,
    ir::{Access, Block, Builtin, Comparison, Op, Program, Statement, Value, Variable, visit},
    passes::{
        live::Lives,
        stretches::Dividing,
        uniform::{self, Shape, Uniformity},
    },
};

#[cfg(test)]
mod tests;

/// How a work-group is emitted whose invocations come to barriers together.
pub(super) struct Stretches {
    dividing: Dividing,
    /// Variables shared by all invocations
    shared: HashSet<Variable>,
    /// Statements done once, before the stretch around them
    hoisted: HashSet<*const Statement>,
    /// Assignments of shared variables done once, behind the stretch around them
    delayed: HashSet<*const Statement>,
    /// Variables lying in frames between stretches
    framed: HashSet<Variable>,
    /// Branches at the end of their stretch: once an invocation does not take the branch, none behind does
    closing: HashSet<*const Statement>,
    /// Whether a stretch is emitted
    inside: bool,
}

/// How a stretch begins with a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// The variable is assigned, by all invocations.
    Assigned,
    /// The variable may be read.
    Read,
}

/// The use of a variable in a stretch.
#[derive(Clone, Copy)]
struct Use {
    first: First,
    assigns: bool,
}

impl Stretches {
    /// A plan for a program whose invocations wait for one another (`super::waits`), if stretches suit the program.
    pub(super) fn plan(
        program: &Program,
        lives: &Lives,
        options: Options,
        lanes: &Lanes,
    ) -> Option<Self> {
        let alone = lanes.width == 1 && visit::has_subgroups(&program.body);
        let ordered = options.instruments.any() || options.schedule.is_some();
        if alone || ordered {
            return None;
        }
        let uniformity = uniform::analyze_group(program, lives);
        if uniformity.parts_at_barriers() {
            return None;
        }
        let same = |variable| {
            uniformity.variable(variable) == Shape::Uniform
                && (!lanes.are_many() || lanes.uniformity.variable(variable) == Shape::Uniform)
        };
        let mut shared: HashSet<Variable> = program.variables.keys().filter(|&v| same(v)).collect();
        let mut dividing = Dividing::of(&program.body);
        loop {
            let mut planner = Planner::new(program, &uniformity, lanes, (dividing, shared));
            planner.block(&program.body);
            if planner.refused.is_empty() {
                return planner.finish(program.invocations() == lanes.width);
            }
            Stretches {
                dividing,
                shared,
                ..
            } = planner.plan;
            shared.retain(|variable| !planner.refused.contains(variable));
        }
    }

    /// Variables in need of a place in frames.
    pub(super) fn framed(&self) -> Vec<Variable> {
        self.framed.iter().copied().collect()
    }
}

/// Reads a program in the way of [`Emitter::common_block`].
struct Planner<'a> {
    program: &'a Program,
    uniformity: &'a Uniformity,
    lanes: &'a Lanes,
    plan: Stretches,
    /// Values known outside of stretches
    known: HashSet<Value>,
    /// Statements of the stretch read now
    pending: Vec<&'a Statement>,
    /// Shared variables assigned behind this stretch
    later: HashSet<Variable>,
    /// The number of stretches using a variable, and the use in the last of them
    uses: HashMap<Variable, (u32, Use)>,
    /// Variables found impossible to share
    refused: HashSet<Variable>,
    /// Whether a condition is unknown where barriers depend on it
    fails: bool,
}

impl<'a> Planner<'a> {
    fn new(
        program: &'a Program,
        uniformity: &'a Uniformity,
        lanes: &'a Lanes,
        (dividing, shared): (Dividing, HashSet<Variable>),
    ) -> Self {
        Self {
            program,
            uniformity,
            lanes,
            plan: Stretches {
                dividing,
                shared,
                hoisted: HashSet::new(),
                delayed: HashSet::new(),
                framed: HashSet::new(),
                closing: HashSet::new(),
                inside: false,
            },
            known: HashSet::new(),
            pending: Vec::new(),
            later: HashSet::new(),
            uses: HashMap::new(),
            refused: HashSet::new(),
            fails: false,
        }
    }

    fn finish(mut self, together: bool) -> Option<Stretches> {
        if self.fails {
            return None;
        }
        // Where all invocations run side by side, registers hold the variables going from one stretch to another.
        if !together {
            let framed = self
                .uses
                .iter()
                .filter(|&(_, &(stretches, used))| stretches > 1 || used.first == First::Read);
            self.plan.framed = framed.map(|(&variable, _)| variable).collect();
        }
        Some(self.plan)
    }

    fn block(&mut self, block: &'a Block) {
        for statement in block {
            if self.plan.dividing.divides(statement) {
                self.end_stretch();
                self.divide(statement);
                if leaves(statement) {
                    return;
                }
            } else {
                self.take(statement);
            }
        }
        self.end_stretch();
    }

    /// A statement that barriers depend on.
    fn divide(&mut self, statement: &'a Statement) {
        if let Statement::If { condition: by, .. } | Statement::Switch { selector: by, .. } =
            statement
        {
            self.fails |= !self.is_known(*by);
        }
        visit::blocks(statement, |block| self.block(block));
    }

    /// A statement of a stretch, or a statement done outside.
    fn take(&mut self, statement: &'a Statement) {
        match statement {
            Statement::Let(value) => {
                if let Op::Get(variable) = self.program.values[*value].op
                    && self.later.contains(&variable)
                {
                    self.refused.insert(variable);
                }
                if self.can_hoist(*value) {
                    self.hoist(statement);
                    return;
                }
            }
            Statement::Load { place, leaves, .. } => {
                let mut known = self.program.is_constant(place.base);
                visit::place_operands(place, |operand| known = known && self.is_known(operand));
                if known && leaves.iter().all(|leaf| self.is_common(leaf.value)) {
                    self.hoist(statement);
                    return;
                }
            }
            Statement::Set(variable, value) if self.plan.shared.contains(variable) => {
                if !self.is_known(*value) {
                    self.refused.insert(*variable);
                    return;
                }
                if (self.pending.iter()).any(|statement| self.reads(statement, *variable)) {
                    self.later.insert(*variable);
                    self.plan.delayed.insert(statement);
                } else {
                    // An assignment behind the stretch comes last.
                    if self.later.contains(variable) {
                        self.refused.insert(*variable);
                    }
                    self.plan.hoisted.insert(statement);
                }
                return;
            }
            _ => {}
        }
        let mut refused = Vec::new();
        visit::blocks(statement, |block| {
            visit::assigned(block, &mut |variable| refused.push(variable));
        });
        refused.retain(|variable| self.plan.shared.contains(variable));
        refused.extend(self.later.iter().filter(|&&v| self.reads(statement, v)));
        self.refused.extend(refused);
        self.pending.push(statement);
    }

    fn hoist(&mut self, statement: &'a Statement) {
        self.plan.hoisted.insert(statement);
        visit::definitions(statement, |value| _ = self.known.insert(value));
    }

    /// Whether all invocations have the same value.
    fn is_common(&self, value: Value) -> bool {
        let lanes = self.lanes;
        self.uniformity.value(self.program, value) == Shape::Uniform
            && (!lanes.are_many() || lanes.uniformity.value(self.program, value) == Shape::Uniform)
    }

    /// Whether a value is known outside of stretches.
    fn is_known(&self, value: Value) -> bool {
        match self.program.values[value].op {
            Op::Const(_) | Op::Builtin(Builtin::GroupId(_) | Builtin::GroupCount(_)) => true,
            Op::Builtin(_) => false,
            _ => self.known.contains(&value),
        }
    }

    fn can_hoist(&self, value: Value) -> bool {
        let op = self.program.values[value].op;
        let mut known = match op {
            Op::Get(variable) => self.plan.shared.contains(&variable),
            Op::Result => false,
            _ => true,
        };
        visit::operands(&op, |operand| known = known && self.is_known(operand));
        known && self.is_common(value)
    }

    /// Whether a statement, or one inside, reads a variable.
    fn reads(&self, statement: &Statement, variable: Variable) -> bool {
        let reads = |statement: &Statement| match statement {
            Statement::Let(value) => self.program.values[*value].op == Op::Get(variable),
            _ => false,
        };
        let mut found = reads(statement);
        visit::blocks(statement, |block| {
            found = found || visit::any(block, &mut |statement| reads(statement));
        });
        found
    }

    /// Whether a condition holds for some first invocations of a work-group, and for none behind.
    fn ends_for_good(&self, condition: Value) -> bool {
        let Op::Compare(
            Comparison::LtU | Comparison::LeU | Comparison::LtS | Comparison::LeS,
            a,
            b,
        ) = self.program.values[condition].op
        else {
            return false;
        };
        let shape = self.uniformity.value(self.program, a);
        grows(self.program, shape, a) && self.is_common(b)
    }

    fn end_stretch(&mut self) {
        self.later.clear();
        let pending = std::mem::take(&mut self.pending);
        if is_pure(&pending) {
            return;
        }
        if let Some((last, others)) = pending.split_last()
            && is_unseen(others)
            && let Statement::If {
                condition, reject, ..
            } = last
            && reject.is_empty()
            && self.ends_for_good(*condition)
        {
            let at: *const Statement = *last;
            self.plan.closing.insert(at);
        }
        for (variable, used) in uses(self.program, &self.plan.shared, &pending) {
            let (stretches, last) = self.uses.entry(variable).or_insert((0, used));
            *stretches += 1;
            *last = used;
        }
    }
}

/// Whether statements of a stretch may be left out by invocations without use of the results.
fn is_unseen(statements: &[&Statement]) -> bool {
    statements.iter().all(|statement| {
        matches!(
            statement,
            Statement::Let(_)
                | Statement::Load {
                    access: Access::Plain,
                    ..
                }
        )
    })
}

/// Whether a stretch does nothing visible behind it.
fn is_pure(stretch: &[&Statement]) -> bool {
    let mut statements = stretch.iter();
    statements.all(|statement| matches!(statement, Statement::Let(_)))
}

/// The uses of unshared variables in a stretch.
fn uses(
    program: &Program,
    shared: &HashSet<Variable>,
    stretch: &[&Statement],
) -> HashMap<Variable, Use> {
    let mut uses = HashMap::new();
    let mut note = |statement: &Statement, always: bool| {
        let (variable, assigns) = match statement {
            Statement::Set(variable, _) => (*variable, true),
            Statement::Let(value) => match program.values[*value].op {
                Op::Get(variable) => (variable, false),
                _ => return,
            },
            _ => return,
        };
        if !shared.contains(&variable) {
            let first = match assigns && always {
                true => First::Assigned,
                false => First::Read,
            };
            let used = uses.entry(variable).or_insert(Use {
                first,
                assigns: false,
            });
            used.assigns |= assigns;
        }
    };
    for statement in stretch {
        note(statement, true);
        visit::blocks(statement, |block| {
            visit::statements(block, &mut |statement| note(statement, false));
        });
    }
    uses
}

impl Emitter<'_> {
    /// Whether the code in the course of emission runs once for all invocations.
    pub(super) fn is_common(&self) -> bool {
        self.stretches.as_ref().is_some_and(|plan| !plan.inside)
    }

    /// A block outside of stretches: stretches, and the statements between them.
    pub(super) fn common_block(&mut self, block: &Block) -> Result<()> {
        let mut stretch = Vec::new();
        let mut delayed = Vec::new();
        for statement in block {
            let Some(plan) = &self.stretches else { break };
            let at = std::ptr::from_ref(statement);
            if plan.dividing.divides(statement) {
                self.stretch(&stretch, &delayed)?;
                stretch.clear();
                delayed.clear();
                self.statement(statement)?;
                if leaves(statement) {
                    return Ok(());
                }
            } else if plan.hoisted.contains(&at) {
                self.statement(statement)?;
            } else if plan.delayed.contains(&at) {
                delayed.push(statement);
            } else {
                stretch.push(statement);
            }
        }
        self.stretch(&stretch, &delayed)
    }

    /// A stretch, and the statements done once behind it.
    fn stretch(&mut self, statements: &[&Statement], delayed: &[&Statement]) -> Result<()> {
        if !is_pure(statements) {
            self.set_inside(true);
            self.loop_over_invocations(statements)?;
            self.set_inside(false);
        }
        for statement in delayed {
            self.statement(statement)?;
        }
        Ok(())
    }

    fn set_inside(&mut self, inside: bool) {
        if let Some(plan) = &mut self.stretches {
            plan.inside = inside;
        }
    }

    fn loop_over_invocations(&mut self, statements: &[&Statement]) -> Result<()> {
        let Some(plan) = &self.stretches else {
            return Ok(());
        };
        let mut framed: Vec<(Variable, Use)> = uses(self.program, &plan.shared, statements)
            .into_iter()
            .filter(|(variable, _)| plan.framed.contains(variable))
            .collect();
        framed.sort_unstable_by_key(|&(variable, _)| variable);
        let start = self.b.create_block();
        let next = self.b.create_block();
        let end = self.b.create_block();
        let zero = self.int32(0);
        self.set_invocation(zero);
        let never = self.never();
        self.b.ins().brif(never, end, &[], start, &[]);
        self.b.switch_to_block(start);
        self.begin_lanes(next);
        for (variable, _) in framed.iter().filter(|(_, used)| used.first == First::Read) {
            self.restore(*variable);
        }
        let keeps_none = framed.iter().all(|(_, used)| !used.assigns);
        for &statement in statements {
            let at = std::ptr::from_ref(statement);
            if keeps_none
                && let Statement::If { condition, .. } = statement
                && (self.stretches.as_ref()).is_some_and(|plan| plan.closing.contains(&at))
                && let Some(none) = self.certainly_none(*condition)?
            {
                let some = self.b.create_block();
                self.b.ins().brif(none, end, &[], some, &[]);
                self.b.switch_to_block(some);
            }
            self.statement(statement)?;
        }
        self.b.ins().jump(next, &[]);
        self.b.switch_to_block(next);
        for (variable, _) in framed.iter().filter(|(_, used)| used.assigns) {
            self.spill(*variable);
        }
        let index = self.local_index();
        let index = (self.b.ins()).iadd_imm_s(index, i64::from(self.lanes.width));
        self.set_invocation(index);
        let count = i64::from(self.program.invocations());
        let over = (self.b.ins()).icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, index, count);
        self.b.ins().brif(over, end, &[], start, &[]);
        self.b.switch_to_block(end);
        self.end_lanes();
        Ok(())
    }
}
