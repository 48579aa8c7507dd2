//! How many lanes a program gets.

use std::collections::HashSet;

use cranelift_codegen::isa::TargetIsa;

use super::{Lanes, PART, fits};
use crate::compile::{
    emit::fuses,
    ir::{AtomicFunction, Base, Op, Program, Statement, Value, visit},
    passes::{
        live::Lives,
        trips::{self, Poll},
        uniform::{self, Uniformity},
    },
    subgroup::SIZE,
};

/// The most bytes of private memory of lanes side by side.
const MAX_PRIVATE: u64 = 1 << 24;

/// Chooses the number of lanes, `most` at most.
pub(in crate::compile::emit) fn choose(
    program: &Program,
    lives: &Lives,
    most: u32,
    isa: &dyn TargetIsa,
) -> Lanes {
    let one = Lanes::new(1, Uniformity::default());
    if most < PART {
        return one;
    }
    let most = most - most % PART;
    // Invocations of a subgroup run side by side, or one by one.
    let subgroups = visit::has_subgroups(&program.body);
    let width = (1..=most / PART)
        .rev()
        .map(|parts| parts * PART)
        .filter(|&width| width == SIZE || !subgroups)
        .find(|&width| program.invocations().is_multiple_of(width));
    let Some(width) = width else {
        log::debug!(
            "{}: one lane: the work-group is no whole number of vectors",
            program.name
        );
        return one;
    };
    let uniformity = uniform::analyze(program, lives, width);
    match obstacle(program, &uniformity, isa) {
        None => {
            log::debug!("{}: {width} lanes", program.name);
            Lanes::new(width, uniformity)
        }
        Some(reason) => {
            log::debug!("{}: one lane: {reason}", program.name);
            one
        }
    }
}

/// Why a program cannot run with several lanes, or would have other results.
fn obstacle(
    program: &Program,
    uniformity: &Uniformity,
    isa: &dyn TargetIsa,
) -> Option<&'static str> {
    if uniformity.parts_at_barriers() {
        return Some("a barrier where lanes may be parted");
    }
    let private: u64 = program.slots.values().map(|&bytes| u64::from(bytes)).sum();
    if private > MAX_PRIVATE / u64::from(PART) {
        return Some("much private memory");
    }
    if uniformity.parts_in_bindings() {
        return Some("lanes may reach different bindings");
    }
    if trips::polling(program)
        .values()
        .any(|&poll| poll != Poll::Stop)
    {
        return Some("a loop may wait for somebody");
    }
    let mut used = HashSet::new();
    visit::statements(&program.body, &mut |statement| {
        visit::uses(program, statement, |value| _ = used.insert(value));
    });
    let mut reason = None;
    visit::statements(&program.body, &mut |statement| {
        if reason.is_none() {
            reason = statement_obstacle(program, uniformity, isa, &used, statement);
        }
    });
    reason
}

fn statement_obstacle(
    program: &Program,
    uniformity: &Uniformity,
    isa: &dyn TargetIsa,
    used: &HashSet<Value>,
    statement: &Statement,
) -> Option<&'static str> {
    let fits = |value| fits(program, uniformity, value);
    let mut reason = None;
    visit::definitions(statement, |value| {
        if !fits(value) {
            reason = Some("values that vectors do not have");
        }
    });
    match statement {
        Statement::Set(variable, _) => {
            let varies = uniformity.variable(*variable) != uniform::Shape::Uniform;
            if varies && !super::has_vectors(program.variables[*variable]) {
                return Some("variables that vectors do not have");
            }
        }
        Statement::Let(value) => {
            if let Op::MultiplyAdd(..) = program.values[*value].op
                && !fuses(isa)
            {
                return Some("a machine without a fused operation");
            }
        }
        Statement::Load { place, leaves, .. } | Statement::Store { place, leaves, .. } => {
            let single = !matches!(place.base, Base::Slot(_))
                && (place.steps.iter())
                    .all(|step| uniformity.value(program, step.index) == uniform::Shape::Uniform);
            if !single && (leaves.iter()).any(|leaf| !super::has_vectors(program.ty(leaf.value))) {
                return Some("memory that vectors do not have");
            }
        }
        Statement::Atomic(atomic) => {
            let exchanged = atomic.exchanged.is_some_and(|value| used.contains(&value));
            // Kernels using lent memory in place count on this refusal (`src/memory/system/in_place.rs` of the
            // runtime): a lane that is switched off must not load there.
            if used.contains(&atomic.result) || exchanged {
                return Some("the order of atomic operations may be seen");
            }
            let float = program.ty(atomic.result).is_float();
            if float && atomic.function == AtomicFunction::Add {
                return Some("the order of sums may be seen");
            }
            if !super::has_vectors(program.ty(atomic.value)) {
                return Some("atomic operations that vectors do not have");
            }
        }
        Statement::Call(_) => return Some("a call"),
        Statement::Subgroup(operation) => {
            let mut operands = operation.operands.iter();
            if operands.any(|&operand| !super::has_vectors(program.ty(operand))) {
                return Some("an operation of a subgroup that vectors do not have");
            }
        }
        _ => {}
    }
    reason
}
