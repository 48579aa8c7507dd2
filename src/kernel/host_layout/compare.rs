//! The comparison: the differences, and the possible remedies.

use super::mismatch::LayoutFault;
use super::render::{bytes, rust_type};
use super::{RustField, RustLayout};
use crate::kernel::layout::{MemberLayout, Shape, TypeLayout};

/// Every difference of the two, and possible explanations.
pub(super) fn compare(rust: &RustLayout, wgsl: &TypeLayout) -> (Vec<LayoutFault>, Vec<String>) {
    let mut found = Found::default();
    found.structure(rust, wgsl, "");
    (found.faults, found.notes)
}

/// The member of `wgsl` that `field` is compared with.
pub(super) fn member_of<'a>(field: &RustField, wgsl: &'a TypeLayout) -> Option<&'a MemberLayout> {
    let member = field.member_name()?;
    members(wgsl).iter().find(|m| m.name == member)
}

pub(super) fn members(wgsl: &TypeLayout) -> &[MemberLayout] {
    match &wgsl.shape {
        Shape::Struct { members } => members,
        _ => &[],
    }
}

/// The element type behind all dimensions of an array, and how many arrays were left.
pub(super) fn element(wgsl: &TypeLayout) -> (&TypeLayout, usize) {
    let (mut ty, mut depth) = (wgsl, 0);
    while let Shape::Array { element, .. } = &ty.shape {
        (ty, depth) = (element, depth + 1);
    }
    (ty, depth)
}

/// The path of a field in the field `outer`.
pub(super) fn path(outer: &str, field: &str) -> String {
    match outer {
        "" => field.to_owned(),
        outer => format!("{outer}.{field}"),
    }
}

/// Fields that need no member in WGSL.
pub(super) fn is_padding(field: &RustField) -> bool {
    field.member_name().is_none_or(|name| name.starts_with('_'))
}

/// A field that has a member in WGSL.
struct Pair<'a> {
    field: &'a RustField,
    member: &'a MemberLayout,
    sizes_agree: bool,
}

impl Pair<'_> {
    /// Bytes by which the member lies further on than the field.
    fn shift(&self) -> i64 {
        i64::from(self.member.offset) - self.field.offset() as i64
    }
}

#[derive(Default)]
struct Found {
    faults: Vec<LayoutFault>,
    notes: Vec<String>,
}

impl Found {
    /// Compares a structure; `outer` is the path of the field.
    fn structure(&mut self, rust: &RustLayout, wgsl: &TypeLayout, outer: &str) {
        let before = self.faults.len();
        let mut fields: Vec<&RustField> = rust.fields.iter().collect();
        fields.sort_by_key(|field| field.offset());
        let mut pairs = Vec::new();
        for &field in &fields {
            let name = path(outer, field.name());
            match member_of(field, wgsl) {
                Some(member) => pairs.push(Pair {
                    field,
                    member,
                    sizes_agree: self.contents(field, &member.layout, &name),
                }),
                None if is_padding(field) => {}
                None => self.faults.push(LayoutFault::MissingInWgsl {
                    field: name,
                    member: field.member_name().unwrap_or_default().to_owned(),
                }),
            }
        }
        let mut header = None;
        for member in members(wgsl) {
            if pairs.iter().any(|p| p.member.name == member.name) || member.name.starts_with('_') {
                continue;
            }
            if member.layout.is_unsized() {
                header = Some(member);
                continue;
            }
            self.faults.push(LayoutFault::MissingInRust {
                field: path(outer, &member.name),
                offset: member.offset.into(),
                size: member.layout.size.into(),
            });
        }
        let ordered = pairs.is_sorted_by_key(|p| p.member.offset);
        self.offsets(rust, wgsl, &pairs, ordered, outer);
        self.total(rust, wgsl, &pairs, header, (before, outer));
        if self.faults.len() > before {
            self.explain(rust, wgsl, ordered, outer);
        }
    }

    /// Compares what is in a field. True if its size is right.
    fn contents(&mut self, field: &RustField, wgsl: &TypeLayout, name: &str) -> bool {
        let (inner, depth) = element(wgsl);
        if let Some(nested) = field.nested() {
            if members(inner).is_empty() {
                self.faults.push(LayoutFault::Kind {
                    field: name.to_owned(),
                    wgsl: wgsl.wgsl.clone(),
                });
                return false;
            }
            let before = self.faults.len();
            let name = format!("{name}{}", "[]".repeat(depth));
            self.structure(nested, inner, &name);
            if self.faults.len() > before {
                // The size of the field follows from the faults inside.
                return size_agrees(field.size(), wgsl);
            }
        }
        let agrees = size_agrees(field.size(), wgsl);
        if !agrees {
            let hint = rust_type(wgsl).map(|ty| format!("declare it as `{ty}` in Rust"));
            self.faults.push(LayoutFault::Size {
                field: name.to_owned(),
                rust: field.size() as u64,
                wgsl: wgsl.size.into(),
                hint,
            });
        }
        agrees
    }

    fn offsets(
        &mut self,
        rust: &RustLayout,
        wgsl: &TypeLayout,
        pairs: &[Pair<'_>],
        ordered: bool,
        outer: &str,
    ) {
        let mut previous: Option<&Pair<'_>> = None;
        for pair in pairs {
            let shift = pair.shift();
            if shift != 0 {
                let hint = match ordered {
                    true => offset_hint(rust, wgsl, previous, pair),
                    false => None,
                };
                self.faults.push(LayoutFault::Offset {
                    field: path(outer, pair.field.name()),
                    rust: pair.field.offset() as u64,
                    wgsl: pair.member.offset.into(),
                    hint,
                });
            }
            previous = Some(pair);
        }
    }

    /// Compares the sizes of the whole; `header` is the runtime-sized array left out in Rust, and `before` the number
    /// of faults before this structure.
    fn total(
        &mut self,
        rust: &RustLayout,
        wgsl: &TypeLayout,
        pairs: &[Pair<'_>],
        header: Option<&MemberLayout>,
        (before, outer): (usize, &str),
    ) {
        let (expected, what) = match header {
            Some(array) => (array.offset, format!("`{}` begins behind it", array.name)),
            // No array has such a structure for its elements, whatever the number of elements.
            None if wgsl.is_unsized() => return,
            None => (
                wgsl.size,
                format!("WGSL rounds sizes up to the alignment, {} here", wgsl.align),
            ),
        };
        let step = i64::from(expected) - rust.size as i64;
        if step == 0 {
            return;
        }
        let last = pairs.iter().max_by_key(|p| p.field.offset());
        let hint = match last {
            // Faults of fields come first: sizes are rounded up, and may change with the fields.
            _ if self.faults.len() > before => None,
            _ if step > 0 => Some(format!(
                "{what}: add `_pad: [u8; {step}]` at the end of the Rust struct"
            )),
            Some(last) if header.is_none() => Some(format!(
                "write `@size({})` before `{}` in WGSL, or take {} off the end of the Rust struct",
                i64::from(last.member.layout.size) - step,
                last.member.name,
                bytes(step.unsigned_abs())
            )),
            _ => None,
        };
        self.faults.push(LayoutFault::Total {
            field: outer.to_owned(),
            rust: rust.size as u64,
            wgsl: expected.into(),
            hint,
        });
    }

    fn explain(&mut self, rust: &RustLayout, wgsl: &TypeLayout, ordered: bool, outer: &str) {
        let whose = match outer {
            "" => String::new(),
            outer => format!(" of `{outer}`"),
        };
        if !ordered {
            let shared = |m: &&MemberLayout| {
                let mut fields = rust.fields.iter();
                fields.any(|f| f.member_name() == Some(m.name.as_str()))
            };
            let names = members(wgsl).iter().filter(shared);
            let names: Vec<String> = names.map(|m| format!("`{}`", m.name)).collect();
            self.notes.push(format!(
                "the fields{whose} stand in another order in WGSL: {}",
                names.join(", ")
            ));
        }
        if !rust.fields.is_sorted_by_key(|f| f.offset()) {
            self.notes.push(format!(
                "the Rust fields{whose} do not lie in the order in which they are listed: is `{}` `#[repr(C)]`?",
                rust.name
            ));
        }
    }
}

/// Whether a Rust value of `bytes` bytes can stand for a value of the type.
fn size_agrees(bytes: usize, wgsl: &TypeLayout) -> bool {
    let bytes = bytes as u64;
    let (size, align) = (u64::from(wgsl.size), u64::from(wgsl.align));
    match &wgsl.shape {
        // Vectors of three stored as four in Rust: the following field is checked by its own offset.
        Shape::Plain if size * 4 == align * 3 => bytes == size || bytes == align,
        Shape::Array {
            count: None,
            stride,
            ..
        } => bytes.is_multiple_of(u64::from(*stride).max(1)),
        _ => bytes == size,
    }
}

/// The remedy for a field at another offset than its member. Nothing if the offset would be right once the previous
/// field is at its member's offset.
fn offset_hint(
    rust: &RustLayout,
    wgsl: &TypeLayout,
    previous: Option<&Pair<'_>>,
    pair: &Pair<'_>,
) -> Option<String> {
    if previous.is_some_and(|p| !p.sizes_agree) {
        return None;
    }
    let (name, member) = (pair.field.name(), pair.member);
    let place = u64::from(member.offset);
    let end = previous.map_or(0, |p| {
        u64::from(p.member.offset) + u64::from(p.member.layout.size)
    });
    let between = |m: &&MemberLayout| (end..place).contains(&u64::from(m.offset));
    if let Some(missing) = members(wgsl).iter().find(between) {
        return Some(format!("`{}` lies before it in WGSL", missing.name));
    }
    // Rust's place for the field behind the previous field and the bytes between.
    let from = previous.map_or(0, |p| p.field.offset() + p.field.size());
    let extra = rust.fields.iter().filter(|f| {
        let inside = (from..pair.field.offset()).contains(&f.offset());
        inside && member_of(f, wgsl).is_none()
    });
    let extra: u64 = extra.map(|f| f.size() as u64).sum();
    let fixed = previous.map_or(0, |p| u64::from(p.member.offset) + p.field.size() as u64);
    let align = match pair.field.offset().is_multiple_of(pair.field.align()) {
        true => pair.field.align() as u64,
        // A packed structure.
        false => 1,
    };
    let expected = (fixed + extra).next_multiple_of(align);
    if !place.is_multiple_of(align) {
        return Some(format!(
            "Rust aligns `{name}` to {align} bytes: write `@align({align})` before it in WGSL"
        ));
    }
    if place > expected {
        let natural = end.next_multiple_of(u64::from(member.layout.align.max(1)));
        let reason = match natural == place && end != place {
            true => format!(
                "WGSL aligns `{}` to {} bytes: ",
                member.layout.wgsl, member.layout.align
            ),
            false => String::new(),
        };
        return Some(format!(
            "{reason}add `_pad: [u8; {}]` before `{name}` in Rust",
            place - expected
        ));
    }
    let excess = expected - place;
    if excess == 0 {
        return None;
    }
    let out = format!("take {} before `{name}` out in Rust", bytes(excess));
    let Some(previous) = previous else {
        return Some(out);
    };
    Some(format!(
        "{out}, or write `@size({})` before `{}` in WGSL",
        u64::from(previous.member.layout.size) + excess,
        previous.member.name
    ))
}
