//! A fence of memory for one invocation, for which WGSL has no word: its barriers are for work-groups that meet.
//!
//! Whoever looks at a word again and again until the host has written it needs one between two looks. Vulkan leaves it
//! to drivers what an atomic load alone sees of the host's writes: an H200 goes on seeing what the caches next to its
//! lanes hold. With a fence a look goes as far as the cache that all lanes share; that this one follows the host takes
//! memory of the device (`device::live::Reader`).

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

/// Gives the function `publish` the body of `behind`, which stores where a fence stands in front.
pub(crate) fn publish_behind(module: &mut Module, publish: &str, behind: &str) {
    let functions = || module.functions.iter();
    let plain = functions().find(|(_, f)| f.name.as_deref() == Some(behind));
    let publish = functions().find(|(_, f)| f.name.as_deref() == Some(publish));
    if let (Some((_, plain)), Some((handle, publish))) = (plain, publish) {
        let mut plain = plain.clone();
        plain.name.clone_from(&publish.name);
        module.functions[handle] = plain;
    }
}
