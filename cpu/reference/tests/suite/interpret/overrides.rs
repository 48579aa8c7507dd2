//! Overrides: what they size, and what they may be given.

use std::collections::BTreeMap;

use tombolo_cpu_reference::fault::Fault;
use tombolo_cpu_reference::interpret::{Bindings, Dispatch, Prepared};
use tombolo_cpu_reference::source;

const TEXT: &str = "
    @id(7) override width: u32 = 2u;
    override depth: u32;
    override factor: f32 = 0.5 * f32(width);
    const table = array<vec2<f32>, 2>(vec2(1.0, 2.0), vec2(3.0, 4.0));
    var<workgroup> shared_words: array<u32, width * 2u>;
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(width, depth) fn main(@builtin(local_invocation_index) id: u32) {
        shared_words[id] = id * 10u;
        workgroupBarrier();
        out[id] = shared_words[(id + 1u) % (width * depth)] + u32(factor * table[1].y);
    }";

fn run(given: &[(&str, f64)]) -> Result<Vec<u8>, Fault> {
    let module = source::parse(TEXT).unwrap_or_else(|error| panic!("{error}"));
    let given: BTreeMap<String, f64> = given
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    let prepared = Prepared::new(&module, "main", &given)?;
    let mut bindings = Bindings::default();
    bindings.bind(0, 0, vec![0; 64]);
    Dispatch::new(&prepared, [1, 1, 1]).run(&mut bindings)?;
    Ok(bindings.buffers.remove(0))
}

#[test]
fn overrides_size_groups_and_arrays_and_feed_each_other() {
    let out = run(&[("7", 3.0), ("depth", 2.0)]).unwrap();
    let words: Vec<u32> = out
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words[..6], [16, 26, 36, 46, 56, 6]);
    assert_eq!(words[6..], [0; 10]);
}

#[test]
fn overrides_that_do_not_fit_are_refused() {
    assert_eq!(
        run(&[]),
        Err(Fault::OverrideWithoutValue("depth".to_owned()))
    );
    assert_eq!(
        run(&[("width", 2.0), ("depth", 2.0)]),
        Err(Fault::NoOverride("width".to_owned()))
    );
    let fault = run(&[("depth", -1.0)]).unwrap_err();
    assert_eq!(
        fault,
        Fault::OverrideOutOfRange {
            name: "depth".to_owned(),
            value: -1.0
        }
    );
}
