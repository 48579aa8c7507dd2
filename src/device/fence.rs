//! A fence of memory for one invocation, for which WGSL has no word: its barriers are for work-groups that meet.
//!
//! Whoever looks at a word again and again until the host has written it needs one between two looks. Vulkan leaves it
//! to drivers what an atomic load alone sees of the host's writes: an H200 goes on seeing what the caches next to its
//! lanes hold. With a fence a look goes as far as the cache that all lanes share; that this one follows the host takes
//! memory of the device (`device::live::Reader`).
//!
//! A pass puts a memory barrier into a function that was parsed empty. lavapipe takes any barrier for a meeting of the
//! work-group, and ends the work-group with its first group of lanes; there are none in its calls. Metal has neither
//! such a barrier nor the promise, and its calls go in slices.

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

/// Gives the function `name` the body of `other`, which has the same head.
pub(crate) fn replace_body(module: &mut Module, name: &str, other: &str) {
    let functions = || module.functions.iter();
    let other = functions().find(|(_, f)| f.name.as_deref() == Some(other));
    let named = functions().find(|(_, f)| f.name.as_deref() == Some(name));
    if let (Some((_, other)), Some((handle, named))) = (other, named) {
        let mut other = other.clone();
        other.name.clone_from(&named.name);
        module.functions[handle] = other;
    }
}
