//! Finds buffers used by a kernel for a reduction: histograms, sums, sets of bits.
//!
//! Threads counting in common bins pass the lines of the cache to and fro, at far greater cost than the counting. Bins
//! that nobody looks at before the end of a dispatch can be counted apart and combined then (the privatization of
//! OpenMP's clause `reduction`): `exec/reduction.rs` does, for buffers seen by nobody else and small beside their
//! dispatch. Sums of floats would depend on the number of threads, and are left alone.

use std::collections::{HashMap, HashSet};

use crate::compile::ir::{
    Atomic, AtomicFunction as F, Base, Binding, BindingAt, Combine, Place, Program, Reduction,
    Statement, Type, Value, visit,
};

/// Notes the reductions of a finished program.
pub(super) fn find(program: &mut Program) {
    let mut needed = HashSet::new();
    visit::statements(&program.body, &mut |statement| {
        visit::uses(program, statement, |value| {
            needed.insert(value);
        });
    });
    let mut uses = Uses(HashMap::new());
    visit::statements(&program.body, &mut |statement| match statement {
        Statement::Load { place, .. } | Statement::Store { place, .. } => uses.other(place),
        Statement::Atomic(atomic) => {
            let reduction = reduction(program, atomic, &needed);
            uses.atomic(&atomic.place, reduction);
        }
        Statement::Call(call) => call.resources.iter().for_each(|&at| uses.at(at, None)),
        _ => {}
    });
    for (binding, used) in &mut program.bindings {
        let found = uses.0.get(&binding).copied().flatten();
        used.reduction = found.filter(|_| !used.shared);
    }
}

/// The reduction that an atomic operation may be a part of.
fn reduction(program: &Program, atomic: &Atomic, needed: &HashSet<Value>) -> Option<Reduction> {
    let ty = program.ty(atomic.result);
    let word_bytes = match ty {
        Type::I32 => 4,
        Type::I64 => 8,
        _ => return None,
    };
    let combine = match atomic.function {
        F::Add | F::Sub => Combine::Add,
        F::Or => Combine::Or,
        F::Xor => Combine::Xor,
        F::MaxU => Combine::Max,
        F::And | F::MinS | F::MinU | F::MaxS | F::Exchange | F::CompareExchange => return None,
    };
    (!needed.contains(&atomic.result)).then_some(Reduction {
        combine,
        word_bytes,
    })
}

/// The uses of bindings: `None` without a single reduction.
struct Uses(HashMap<Binding, Option<Reduction>>);

impl Uses {
    fn other(&mut self, place: &Place) {
        self.atomic(place, None);
    }

    fn atomic(&mut self, place: &Place, reduction: Option<Reduction>) {
        if let Base::Binding(at) = place.base {
            self.at(at, reduction);
        }
    }

    fn at(&mut self, at: BindingAt, reduction: Option<Reduction>) {
        let Some((_, count)) = at.index else {
            let used = self.0.entry(at.first).or_insert(reduction);
            if *used != reduction {
                *used = None;
            }
            return;
        };
        // The element in use is unknown.
        for element in 0..count {
            self.0
                .insert(Binding::from_u32(at.first.as_u32() + element), None);
        }
    }
}
