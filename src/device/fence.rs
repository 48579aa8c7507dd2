//! A memory fence for a single invocation, missing in WGSL: barriers of WGSL are for work-groups that meet.
//!
//! A loop polling a word until the host has written the word needs a fence between two looks. Vulkan leaves the
//! visibility of host writes to an atomic load alone to the driver: an H200 goes on reading the caches next to its
//! lanes. With a fence a look goes as far as the cache shared by all lanes; for this cache to follow the host takes
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
