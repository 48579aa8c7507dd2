//! The interpreter: one invocation after the other, each up to where it has to wait for others.
//!
//! # How it works
//! 1. `prepare` finds the entry point, evaluates overrides and constants, and lays out the types.
//! 2. `dispatch` runs one work-group after the other.
//! 3. `group` runs the invocations of a work-group in turn. Each is a machine with a stack of its
//!    own (`invocation`), which stops at barriers and subgroup operations.
//! 4. When all have stopped, `group` lets those go on that wait for the same thing. Which ones take
//!    part in a subgroup operation follows from where they are: invocations advance in the order of
//!    the program's text and of loop iterations, so that nobody can come to the earliest place any more
//!    at which somebody waits.
//!
//! Nothing here is fast. Every access goes through one function, which knows the policy and keeps the
//! shadow state (`shadow`).

mod access;
mod atomic;
mod collective;
mod dispatch;
mod evaluate;
mod group;
mod image;
mod invocation;
mod prepare;
mod shadow;
mod statement;

pub use dispatch::{Bindings, Detect, Dispatch, Options, Order, Outcome};
pub use image::{ImageSize, SampleAt, Texel, Textures};
pub use prepare::Prepared;
