//! Random WGSL programs for differential testing.
//!
//! [`program`] makes a program from a seed: valid, terminating, without data races, and with one result
//! whatever the order of its invocations. So everybody who runs it has to agree:
//! - Integers wrap, and divisions by zero are in.
//! - Floating-point values stay small multiples of powers of two, so that nothing is rounded, however
//!   an implementation fuses or reorders ([`ast::Exactness`]). Functions that WGSL allows an error go
//!   to a buffer of their own that is compared within bounds.
//! - Memory that invocations share is, between two barriers, either each invocation's own part or read
//!   only. Barriers stand in uniform flow, also behind loops in which a whole work-group may end. Results of
//!   atomic functions are not used, and each cell knows one function.
//! - Which invocations take part in an operation of a subgroup follows from control flow alone.
//! - Every loop has a counter that nothing else changes; the steps of an invocation are counted while
//!   the program is made, and are bounded.
//!
//! Programs are trees ([`ast`]), so that a shrinker ([`shrink`](crate::shrink)) can change them and keep
//! them valid.

pub mod ast;
mod expressions;
mod floats;
mod loops;
mod places;
pub mod print;
mod programs;
mod scope;
mod statements;
mod subgroups;

pub use programs::program;

/// How programs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Statements of the entry point, about.
    pub statements: u32,
    /// Steps that one invocation may take, about.
    pub steps: u32,
    /// Let floating-point arithmetic round: only for implementations that round alike.
    pub rounding: bool,
    /// Shift by amounts beyond the width, which WGSL defines and naga's SPIR-V does not.
    pub wide_shifts: bool,
    /// Operations of subgroups, anywhere: only for implementations whose subgroups have the interpreter's size, and whose
    /// invocations come together again wherever structured control flow lets them.
    pub subgroups: bool,
}

impl Default for Options {
    /// 40 statements, 2,000 steps, exact floating point, shifts below the width.
    fn default() -> Options {
        Options {
            statements: 40,
            steps: 2_000,
            rounding: false,
            wide_shifts: false,
            subgroups: false,
        }
    }
}
