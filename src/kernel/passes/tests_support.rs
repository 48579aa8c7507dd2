//! Shared by the tests of the passes: text in, module out, text back.

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{Module, ResourceBinding};

/// A binding that no test program uses.
pub(super) const BINDING: ResourceBinding = ResourceBinding {
    group: 3,
    binding: 7,
};

pub(super) fn parse(source: &str) -> Module {
    let module = naga::front::wgsl::parse_str(source);
    module.unwrap_or_else(|error| panic!("{}", error.emit_to_string(source)))
}

/// Validates `module` and writes its WGSL, which must parse and validate again.
pub(super) fn text(module: &Module, source: &str) -> String {
    let validate = |module: &Module, source: &str| {
        Validator::new(ValidationFlags::all(), Capabilities::all())
            .validate(module)
            .unwrap_or_else(|error| panic!("{}", error.emit_to_string(source)))
    };
    let info = validate(module, source);
    let flags = naga::back::wgsl::WriterFlags::empty();
    let written = naga::back::wgsl::write_string(module, &info, flags).expect("writes");
    validate(&parse(&written), &written);
    written
}

/// A compute entry point with `body` inside; `o` is storage, `n` a number that is not known.
pub(super) fn kernel(items: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> o: array<u32>;\n{items}\n\
         @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         let n = o[7];\n{body}\n}}"
    )
}

/// How often `needle` occurs in `haystack`.
pub(super) fn occurrences(haystack: &str, needle: &str) -> usize {
    haystack.matches(needle).count()
}
