//! The interpreter against results worked out by hand or by plain Rust.

mod barriers;
mod detection;
mod flow;
mod memory;
mod overrides;
mod subgroups;

use std::collections::BTreeMap;

use tombolo_cpu_reference::fault::Fault;
use tombolo_cpu_reference::interpret::{Bindings, Dispatch, Options, Outcome, Prepared};
use tombolo_cpu_reference::source;

/// Runs entry point `main` with whole buffers bound to group 0, in order of their bindings. Returns
/// the buffers as words, and what the run found.
fn run_with(
    text: &str,
    workgroups: u32,
    buffers: &[&[u32]],
    options: Options,
) -> Result<(Vec<Vec<u32>>, Outcome), Fault> {
    let module = source::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let prepared = Prepared::new(&module, "main", &BTreeMap::new())?;
    let mut bindings = Bindings::default();
    for (binding, words) in buffers.iter().enumerate() {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bindings.bind(0, binding as u32, bytes);
    }
    let outcome = Dispatch::new(&prepared, [workgroups, 1, 1])
        .options(options)
        .run(&mut bindings)?;
    let words = |bytes: &Vec<u8>| {
        bytes
            .chunks(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect()
    };
    Ok((bindings.buffers.iter().map(words).collect(), outcome))
}

/// Runs a kernel that must not fail, and returns its first buffer.
fn run(text: &str, workgroups: u32, buffers: &[&[u32]]) -> Vec<u32> {
    run_with(text, workgroups, buffers, Options::default())
        .unwrap_or_else(|fault| panic!("{fault}"))
        .0
        .remove(0)
}
