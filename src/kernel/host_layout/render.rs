//! Differences in words, and both layouts side by side.

use std::fmt;

use super::compare::{element, member_of, members, path};
use super::mismatch::{LayoutDifference, LayoutFault};
use super::{RustField, RustLayout};
use crate::kernel::layout::{MemberLayout, Shape, TypeLayout};

/// A type's name without the modules in front of each name in it.
pub(super) fn without_modules(name: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut short = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let part = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (names, after) = rest.split_at(part);
        short.push_str(names.rsplit("::").next().unwrap_or(names));
        let next = after.find(is_part).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        short.push_str(between);
        rest = after;
    }
    short
}

/// The Rust type with the layout of a WGSL type, where there is an obvious type.
pub(super) fn rust_type(wgsl: &TypeLayout) -> Option<String> {
    match &wgsl.shape {
        Shape::Plain if wgsl.wgsl == "usm_ptr" => Some("tombolo::Ptr<_>".to_owned()),
        Shape::Plain => match wgsl
            .wgsl
            .strip_suffix('>')
            .and_then(|ty| ty.split_once('<'))
        {
            None => rust_scalar(&wgsl.wgsl).map(str::to_owned),
            Some((outer, scalar)) => {
                let scalar = rust_scalar(scalar)?;
                Some(match outer.strip_prefix("vec") {
                    Some(lanes) => format!("[{scalar}; {lanes}]"),
                    None => scalar.to_owned(),
                })
            }
        },
        Shape::Matrix {
            columns, stride, ..
        } => {
            let scalar = wgsl.wgsl.strip_suffix('>')?.split_once('<')?.1;
            let lanes = stride / scalar_bytes(scalar)?;
            Some(format!("[[{}; {lanes}]; {columns}]", rust_scalar(scalar)?))
        }
        Shape::Array {
            element,
            stride,
            count: Some(count),
        } => {
            let inner = rust_type(element)?;
            match *stride == element.size {
                true => Some(format!("[{inner}; {count}]")),
                // A vector of three in the room of four.
                false => Some(format!(
                    "[{}; {count}]",
                    inner.strip_suffix("; 3]").map(|s| format!("{s}; 4]"))?
                )),
            }
        }
        _ => None,
    }
}

fn rust_scalar(wgsl: &str) -> Option<&str> {
    match wgsl {
        "f16" => Some("half::f16"),
        "f32" | "f64" | "i16" | "u16" | "i32" | "u32" | "i64" | "u64" => Some(wgsl),
        _ => None,
    }
}

fn scalar_bytes(wgsl: &str) -> Option<u32> {
    let bits: u32 = wgsl.get(1..)?.parse().ok()?;
    (bits >= 8).then_some(bits / 8)
}

/// A number of bytes, in words.
pub(super) fn bytes(count: u64) -> String {
    match count {
        1 => "1 byte".to_owned(),
        count => format!("{count} bytes"),
    }
}

impl fmt::Display for LayoutFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = bytes(self.off_by().unwrap_or(0).unsigned_abs());
        let hint = match self {
            Self::MissingInWgsl { field, member } => {
                write!(f, "`{field}` is missing in WGSL: ")?;
                return write!(
                    f,
                    "add a member `{member}` there, or declare the field as padding (`=> _`, or a name that begins with `_`)"
                );
            }
            Self::MissingInRust {
                field,
                offset,
                size,
            } => {
                let size = bytes(*size);
                return write!(
                    f,
                    "`{field}` is missing in Rust: in WGSL it is {size} at byte {offset}"
                );
            }
            Self::Kind { field, wgsl } => {
                return write!(
                    f,
                    "`{field}` is a structure in Rust, and a `{wgsl}` in WGSL"
                );
            }
            Self::Type {
                field,
                rust,
                wgsl,
                hint,
            } => {
                write!(f, "`{field}` is a `{rust}` in Rust and a `{wgsl}` in WGSL")?;
                hint
            }
            Self::Offset {
                field,
                rust,
                wgsl,
                hint,
            } => {
                let way = if rust < wgsl { "early" } else { "late" };
                write!(
                    f,
                    "`{field}` lies at byte {rust} in Rust and at byte {wgsl} in WGSL, {off} too {way}"
                )?;
                hint
            }
            Self::Size {
                field,
                rust,
                wgsl,
                hint,
            } => {
                write!(
                    f,
                    "`{field}` has {} in Rust and {wgsl} in WGSL, {off} too {}",
                    bytes(*rust),
                    extent(*rust, *wgsl)
                )?;
                hint
            }
            Self::Total {
                field,
                rust,
                wgsl,
                hint,
            } => {
                match field.as_str() {
                    "" => write!(f, "the whole")?,
                    field => write!(f, "`{field}`, as a whole,")?,
                }
                write!(
                    f,
                    " has {} in Rust and {wgsl} in WGSL, {off} too {}",
                    bytes(*rust),
                    extent(*rust, *wgsl)
                )?;
                hint
            }
        };
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

fn extent(rust: u64, wgsl: u64) -> &'static str {
    match rust < wgsl {
        true => "few",
        false => "many",
    }
}

/// A line of the comparison: the difference, and the two sides.
struct Row {
    field: String,
    rust: Option<(u64, String)>,
    wgsl: Option<(u64, String)>,
}

fn side(offset: u64, size: u64, name: &str, ty: &str) -> (u64, String) {
    let range = format!("{offset}..{}", offset + size);
    (offset, format!("{range:<9} {name}: {ty}"))
}

/// The lines of a structure that begins at the bytes `rust_at` and `wgsl_at` of the outermost.
fn rows(
    rust: &RustLayout,
    wgsl: &TypeLayout,
    outer: &str,
    (rust_at, wgsl_at): (u64, u64),
    rows: &mut Vec<Row>,
) {
    let mut fields: Vec<&RustField> = rust.fields.iter().collect();
    fields.sort_by_key(|field| field.offset());
    let has_member = |member: &MemberLayout| {
        let mut fields = rust.fields.iter();
        fields.any(|field| field.member_name() == Some(member.name.as_str()))
    };
    let mut alone = (members(wgsl).iter())
        .filter(|m| !has_member(m))
        .map(|member| member_row(member, outer, wgsl_at))
        .peekable();
    for field in fields {
        let name = path(outer, field.name());
        let member = member_of(field, wgsl);
        let start = rust_at + field.offset() as u64;
        let member_start = member.map(|m| wgsl_at + u64::from(m.offset));
        let before = |row: &Row| {
            let at = row.wgsl.as_ref().map(|w| w.0);
            at.zip(member_start).is_some_and(|(at, member)| at < member)
        };
        while let Some(row) = alone.next_if(before) {
            rows.push(row);
        }
        rows.push(Row {
            rust: Some(side(start, field.size() as u64, &name, &field.type_name())),
            wgsl: member.map(|m| member_side(m, outer, wgsl_at)),
            field: name.clone(),
        });
        if let (Some(nested), Some((member, at))) = (field.nested(), member.zip(member_start)) {
            let (inner, depth) = element(&member.layout);
            let name = format!("{name}{}", "[]".repeat(depth));
            self::rows(nested, inner, &name, (start, at), rows);
        }
    }
    rows.extend(alone);
}

fn member_side(member: &MemberLayout, outer: &str, start: u64) -> (u64, String) {
    let layout = &member.layout;
    side(
        start + u64::from(member.offset),
        layout.size.into(),
        &path(outer, &member.name),
        &layout.wgsl,
    )
}

fn member_row(member: &MemberLayout, outer: &str, start: u64) -> Row {
    Row {
        field: path(outer, &member.name),
        rust: None,
        wgsl: Some(member_side(member, outer, start)),
    }
}

impl fmt::Display for LayoutDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rust, wgsl) = (&self.rust, &self.wgsl);
        writeln!(
            f,
            "the Rust structure `{}` and `{}` of `{}` lie differently in memory:",
            rust.name, wgsl.wgsl, self.program
        )?;
        for fault in &self.faults {
            writeln!(f, "  - {fault}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        let mut rows = Vec::new();
        self::rows(rust, wgsl, "", (0, 0), &mut rows);
        let heading = format!(
            "Rust `{}`: {}, align {}",
            rust.name,
            bytes(rust.size as u64),
            rust.align
        );
        let text = |side: Option<(u64, String)>| side.map_or(String::new(), |(_, text)| text);
        let lines: Vec<(&str, String, String)> = (rows.into_iter())
            .map(|row| {
                let off = self.faults.iter().any(|fault| fault.field() == row.field);
                let mark = if off { "!" } else { " " };
                (mark, text(row.rust), text(row.wgsl))
            })
            .collect();
        let widths = lines.iter().map(|(_, rust, _)| rust.chars().count());
        let width = widths.chain([heading.chars().count()]).max().unwrap_or(0);
        write!(
            f,
            "    {heading:<width$} | WGSL `{}`: {}, align {}",
            wgsl.wgsl,
            bytes(wgsl.size.into()),
            wgsl.align
        )?;
        for (mark, rust, wgsl) in &lines {
            let line = format!("  {mark} {rust:<width$} | {wgsl}");
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}
