//! Passes over lane programs: from what the front wrote down to what is worth emitting.
//!
//! None of them knows how many lanes run side by side.

mod closed;
mod cross;
pub(crate) mod live;
mod promote;
mod prune;
pub(crate) mod range;
mod simplify;
pub(crate) mod stretches;
mod together;
pub(crate) mod trips;
pub(crate) mod uniform;

use super::error::{Result, internal};
use super::ir::{Program, verify::verify};

/// Improves a program, and prepares it for barriers.
///
/// # Errors
/// If the front or a pass made a program that is none: code made of it could read or write anywhere.
pub(crate) fn run(mut program: Program) -> Result<Program> {
    check(&program, "the front")?;
    // Unrolling makes indices constant, and memory whose indices are constant needs not be memory.
    for _ in 0..3 {
        program = promote::promote(program);
        check(&program, "promotion")?;
        program = simplify::simplify(program);
        check(&program, "simplification")?;
        program = prune::prune(program);
        check(&program, "pruning")?;
        if !promote::can_promote(&program) {
            break;
        }
    }
    if closed::close_loops(&mut program) {
        check(&program, "closing loops")?;
        // What loops begin with is known better than by the variables that it was read from.
        program = prune::prune(simplify::simplify(program));
        check(&program, "simplification of closed loops")?;
    }
    together::count_passes(&mut program);
    check(&program, "counting passes")?;
    program = cross::carry_over_barriers(program);
    check(&program, "carrying values over barriers")?;
    Ok(program)
}

/// Names the pass that has broken a program.
fn check(program: &Program, pass: &str) -> Result<()> {
    verify(program).map_err(|problem| {
        log::error!(
            "{pass} has broken the kernel {}: {problem}\n{program}",
            program.name
        );
        internal(format!("{pass} has broken the program: {problem}"))
    })
}
