//! Texts of format strings that kernels print into files and texts of the host.
//!
//! A format string is a literal of the program, and reaches the host by its number. The values travel with their types: a
//! function of the host is called by all programs, and knows the places of none. The program was checked when it was read, as
//! for `print`; here all is checked again, since a kernel may send anything.

use bytemuck::{Pod, Zeroable};

use super::texts::literal;
use crate::print::format::{Piece, Placed, Template, parse};
use crate::print::record::MAX_VALUES;
use crate::print::value::ValueType;

/// `PrintValues` in WGSL: the word of a type ([`ValueType::code`]) and the words of the value, one value after the other.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct PrintValues {
    pub words: [u32; MAX_VALUES],
}

/// The text of the format string with the number `format`; nothing where the number is that of no format string, or the
/// values are not those of the format.
pub(crate) fn printed(format: u32, values: &PrintValues) -> Option<String> {
    let text = literal(format)?;
    let placed: Vec<Placed> = text.chars().map(|char| (char, 0..0)).collect();
    let template = parse(&placed, MAX_VALUES).ok()?;
    let (types, words) = taken(&template, values)?;
    let mut out = String::new();
    template.write(&types, &words, &mut out);
    Some(out)
}

/// The types of the values that a format string shows, and their words.
fn taken(template: &Template, values: &PrintValues) -> Option<(Vec<ValueType>, Vec<u32>)> {
    let shown = template.pieces.iter().filter_map(|piece| match piece {
        Piece::Value { argument, spec, .. } => Some((*argument, spec.kind)),
        Piece::Text(_) => None,
    });
    let count = shown.clone().map(|(argument, _)| argument + 1).max();
    let (mut types, mut words) = (Vec::new(), Vec::new());
    let mut rest = &values.words[..];
    for _ in 0..count.unwrap_or(0) {
        let (code, after) = rest.split_first()?;
        let ty = ValueType::from_code(*code)?;
        let (own, others) = after.split_at_checked(ty.words())?;
        types.push(ty);
        words.extend_from_slice(own);
        rest = others;
    }
    for (argument, kind) in shown {
        if types.get(argument)?.refusal(kind).is_some() {
            return None;
        }
    }
    Some((types, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::calls::texts::intern;
    use crate::print::value::ScalarType;

    fn values(of: &[(ValueType, &[u32])]) -> PrintValues {
        let mut values = PrintValues::zeroed();
        let all = (of.iter()).flat_map(|(ty, words)| [&[ty.code()], *words].concat());
        for (slot, word) in values.words.iter_mut().zip(all) {
            *slot = word;
        }
        values
    }

    fn ty(scalar: ScalarType, rows: u32, columns: u32) -> ValueType {
        ValueType {
            scalar,
            rows,
            columns,
        }
    }

    #[test]
    fn values_are_shown_by_their_types() {
        let of = values(&[
            (ty(ScalarType::U32, 1, 1), &[7]),
            (
                ty(ScalarType::F32, 3, 1),
                &[1.5, -2.0, 0.25].map(f32::to_bits),
            ),
            (ty(ScalarType::I64, 1, 1), &[u32::MAX, u32::MAX]),
        ]);
        let format = intern("{:>4}|{1:.2}|{2}|{0:#x}\n{{}}");
        let text = printed(format, &of).unwrap();
        assert_eq!(text, "   7|[1.50, -2.00, 0.25]|-1|0x7\n{}");
        let plain = intern("nothing shown");
        assert_eq!(printed(plain, &of).unwrap(), "nothing shown");
    }

    #[test]
    fn values_that_do_not_fit_their_format_are_refused() {
        let one = values(&[(ty(ScalarType::F32, 1, 1), &[0])]);
        for format in ["{} {}", "{1}", "{:x}", "{", "{99}", "{name}"] {
            let found = printed(intern(format), &one);
            assert_eq!(found, None, "{format}");
        }
        // The number of no text, and types that are none.
        assert_eq!(printed(5, &one), None);
        for code in [0, 11, 0x0001_0500, 0x0005_0101, 0x0101_0101, u32::MAX] {
            let mut bad = PrintValues::zeroed();
            bad.words[0] = code;
            let found = printed(intern("{}"), &bad);
            assert_eq!(found, None, "{code:#x}");
        }
        // More values than there are words.
        let wide = ty(ScalarType::F64, 4, 4);
        let long = values(&[(wide, &[0; 32]), (wide, &[0; 32])]);
        let found = printed(intern("{} {}"), &long);
        assert_eq!(found, None);
    }
}
