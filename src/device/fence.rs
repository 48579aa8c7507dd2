//! A fence of memory for one invocation, for which WGSL has no word: its barriers are for work-groups that meet.
//!
//! Whoever looks at a word again and again until the host has written it needs one between two looks. Vulkan leaves it
//! to drivers what an atomic load alone sees of the host's writes: NVIDIA's goes on seeing what the processor holds of
//! the word, for ever (measured on an H200: 60,000 looks in 60 ms, all of them the first value; with a fence each look
//! is a new one).

use naga::{Barrier, Block, Module, Span, Statement};

/// Makes the functions of that name fences.
pub(crate) fn fill(module: &mut Module, name: &str) {
    let span = Span::UNDEFINED;
    for (_, function) in module.functions.iter_mut() {
        if function.name.as_deref() == Some(name) {
            // Memory alone: a control barrier would wait for lanes that are elsewhere.
            function.body = Block::new();
            (function.body).push(Statement::MemoryBarrier(Barrier::STORAGE), span);
            function.body.push(Statement::Return { value: None }, span);
        }
    }
}
