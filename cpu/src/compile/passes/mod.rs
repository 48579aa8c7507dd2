//! Passes over lane programs: from the program as the front wrote it to a program worth emitting.
//!
//! No pass knows how many lanes run side by side.

mod closed;
mod cross;
pub(crate) mod live;
mod promote;
mod prune;
pub(crate) mod range;
mod reduction;
mod simplify;
pub(crate) mod stretches;
mod together;
pub(crate) mod trips;
pub(crate) mod uniform;

use std::collections::HashSet;

use super::error::{Result, internal};
use super::ir::{Program, Slot, verify::verify};

/// Some slots of a program.
type Slots = HashSet<Slot>;

/// Improves a program, and prepares it for barriers.
///
/// # Errors
/// If the front or a pass made an ill-formed program: code made of such a program could read or write anywhere.
pub(crate) fn run(program: Program) -> Result<Program> {
    check(&program, "the front")?;
    let written = program.clone();
    let (mut improved, long) = improve(program, &Slots::new())?;
    // Loops with a long written-out form are worth their time if unrolling makes registers of the arrays indexed there.
    let mut memory = promote::used(&improved);
    memory.retain(|slot| long.contains(slot));
    if !memory.is_empty() {
        (improved, _) = improve(written, &memory)?;
    }
    together::count_passes(&mut improved);
    check(&improved, "counting passes")?;
    improved = cross::carry_over_barriers(improved);
    check(&improved, "carrying values over barriers")?;
    reduction::find(&mut improved);
    Ok(improved)
}

/// Improves a program whose slots in `memory` are known to stay memory. Returns also the slots indexed in loops with a
/// long written-out form.
fn improve(mut program: Program, memory: &Slots) -> Result<(Program, Slots)> {
    let mut long = Slots::new();
    let mut simplify = |program| simplify::simplify(program, memory, &mut long);
    // Unrolling makes indices constant, and memory whose indices are constant needs not be memory.
    for _ in 0..3 {
        program = promote::promote(program);
        check(&program, "promotion")?;
        program = simplify(program);
        check(&program, "simplification")?;
        program = prune::prune(program);
        check(&program, "pruning")?;
        if !promote::can_promote(&program) {
            break;
        }
    }
    if closed::close_loops(&mut program) {
        check(&program, "closing loops")?;
        // The start values of loops are known better than by reads of variables.
        program = prune::prune(simplify(program));
        check(&program, "simplification of closed loops")?;
    }
    Ok((program, long))
}

/// Names the pass breaking a program.
fn check(program: &Program, pass: &str) -> Result<()> {
    verify(program).map_err(|problem| {
        log::error!(
            "{pass} has broken the kernel {}: {problem}\n{program}",
            program.name
        );
        internal(format!("{pass} has broken the program: {problem}"))
    })
}
