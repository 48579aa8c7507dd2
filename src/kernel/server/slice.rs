//! The text of the kernel that serves slices of calls.

use std::fmt::Write;
use std::sync::Arc;

use super::text::{Access, case};
use super::{FAILED, HandlerDeclaration, HandlerFault, TOO_LONG};

const SLICE: &str = include_str!("../../../shaders/server_slice.wgsl");

/// The entry point of the kernel.
pub(crate) const SLICE_ENTRY: &str = "tombolo_server_slice";
/// Invocations of a work-group.
pub(crate) const SLICE_GROUP: usize = 64;
/// Words in front of all calls.
pub(crate) const SLICE_HEADER: usize = 4;
/// Words in front of the arguments of a call, and of its results.
pub(crate) const SLICE_PREFIX: usize = 2;

/// How the kernel is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceShape {
    /// Words of a call on its way to the device.
    pub given: usize,
    /// Words of its answer.
    pub taken: usize,
    /// Turns of loops that a call may take.
    pub turns: u32,
    /// The program may give up (`assert`, `panic`).
    pub fails: bool,
    /// The bind group that is free.
    pub group: u32,
}

impl SliceShape {
    /// The smallest that calls of `handlers` fit in.
    pub(crate) fn of(
        handlers: &[Arc<HandlerDeclaration>],
        turns: u32,
        fails: bool,
        group: u32,
    ) -> Self {
        let most = |words: fn(&HandlerDeclaration) -> usize| {
            let words = handlers.iter().map(|handler| words(handler));
            SLICE_PREFIX + words.max().unwrap_or(0)
        };
        Self {
            given: most(HandlerDeclaration::argument_words),
            taken: most(HandlerDeclaration::result_words),
            turns,
            fails,
            group,
        }
    }
}

/// Arguments and results as slices have them.
struct Sliced;

impl Access for Sliced {
    fn load(&self, word: usize) -> String {
        format!("tombolo_requests[arguments + {}u]", SLICE_PREFIX + word)
    }

    fn store(&self, word: usize, value: &str) -> String {
        format!(
            "tombolo_answers[results + {}u] = {value};",
            SLICE_PREFIX + word
        )
    }
}

/// What stands behind a program whose functions `handlers` are to be called.
pub(crate) fn write_slice(
    handlers: &[Arc<HandlerDeclaration>],
    shape: &SliceShape,
) -> Result<String, HandlerFault> {
    let mut cases = String::new();
    for handler in handlers {
        let case = case(handler, &Sliced).map_err(|why| HandlerFault {
            handler: handler.signature.name.clone(),
            why,
        })?;
        cases.push_str(&case);
    }
    let mut faults = String::new();
    if shape.fails {
        let _ = writeln!(
            faults,
            "if tombolo_print_failed {{ status = {FAILED}u; tombolo_print_failed = false; }}"
        );
    }
    let binding = |number: u32| format!("@group({}) @binding({number})", shape.group);
    Ok(SLICE
        .replace("$binding0$", &binding(0))
        .replace("$binding1$", &binding(1))
        .replace("$cases$", &cases)
        .replace("$faults$", &faults)
        .replace("$given$", &shape.given.to_string())
        .replace("$taken$", &shape.taken.to_string())
        .replace("$turns$", &shape.turns.to_string())
        .replace("$too_long$", &TOO_LONG.to_string()))
}
