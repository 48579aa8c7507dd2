//! Layouts and their differences as text, for messages outside of `check_layout`.

use super::RustLayout;
use super::compare::{compare, element};
use super::render::without_modules;
use crate::kernel::layout::{Shape, TypeLayout};

/// The differences between a Rust structure and the same WGSL type, or an array of it; empty for equal layouts.
pub(crate) fn faults(rust: &RustLayout, wgsl: &TypeLayout) -> Vec<String> {
    let (faults, notes) = compare(rust, element(wgsl).0);
    faults
        .iter()
        .map(ToString::to_string)
        .chain(notes)
        .collect()
}

/// A Rust type's name without modules.
pub(crate) fn plain_name(name: &str) -> String {
    without_modules(name)
}

/// One line for each field.
pub(crate) fn rust_text(rust: &RustLayout) -> String {
    let line = |field: &super::RustField| {
        let (from, name) = (field.offset(), field.name());
        format!(
            "    {from:>6}..{:<6} {name}: {}\n",
            from + field.size(),
            field.type_name()
        )
    };
    rust.fields.iter().map(line).collect()
}

/// A line for each member of a structure, or of the structure in an array.
pub(crate) fn wgsl_text(wgsl: &TypeLayout) -> String {
    let Shape::Struct { members } = &element(wgsl).0.shape else {
        return String::new();
    };
    let line = |member: &crate::kernel::layout::MemberLayout| {
        let (from, name) = (member.offset, &member.name);
        format!(
            "    {from:>6}..{:<6} {name}: {}\n",
            from + member.layout.size,
            member.layout.wgsl
        )
    };
    members.iter().map(line).collect()
}
